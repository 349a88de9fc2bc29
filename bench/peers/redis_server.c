/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/redis_server.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "peers/peer.h"

#define NS_PER_MS     UINT64_C(1000000)
#define START_TIME_MS 5000

static char directory[64];
static char socket_path[80];
static pid_t server = -1;

const char *redis_server_socket(void)
{
    return socket_path;
}

static void spawn(void)
{
    server = fork();
    if (server == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* the benchmark may be interrupted */
        const int nowhere = open("/dev/null", O_RDWR);
        (void) dup2(nowhere, STDOUT_FILENO);
        (void) dup2(nowhere, STDERR_FILENO);
        (void) execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--dir",
                      directory, (char *) NULL);
        _exit(127);
    }
}

void redis_server_stop(void)
{
    if (server > 0) {
        (void) kill(server, SIGKILL); /* it has nothing to save */
        (void) waitpid(server, NULL, 0);
        server = -1;
    }
    (void) unlink(socket_path);
    (void) rmdir(directory);
}

static bool accepts(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connected = connect(descriptor, (const struct sockaddr *) &address, sizeof(address)) == 0;
    (void) close(descriptor);
    return connected;
}

const char *redis_server_start(void)
{
    const struct timespec pause = {.tv_nsec = 10 * (long) NS_PER_MS};
    (void) snprintf(directory, sizeof(directory), "%s", "/tmp/weir-bench-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return "no directory for its socket";
    }
    (void) snprintf(socket_path, sizeof(socket_path), "%s/redis.sock", directory);
    spawn();
    const char *problem = "redis-server does not answer";
    const uint64_t until_ns = peer_now_ns() + START_TIME_MS * NS_PER_MS;
    while (server > 0 && peer_now_ns() < until_ns) {
        if (waitpid(server, NULL, WNOHANG) == server) {
            server = -1;
            problem = "no redis-server to be had";
        } else if (accepts()) {
            return NULL;
        }
        (void) nanosleep(&pause, NULL);
    }
    redis_server_stop();
    return problem;
}
