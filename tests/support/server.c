/* SPDX-License-Identifier: Apache-2.0 */
#include "support/server.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/support.h"

#define START_LIMIT_NS  (60 * SECOND) /* for a machine under load */
#define PORT_LEAST      10000
#define PORT_SPAN_LEAST 2000
#define PORT_STRIDE     7919 /* a prime: processes with pids in a row begin far apart */

static void nap(void)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    (void) nanosleep(&millisecond, NULL);
}

const char *server_program(void)
{
    const char *program = getenv("WEIR_TEST_REDIS_SERVER");
    return program != NULL && program[0] != '\0' ? program : "redis-server";
}

bool server_available(void)
{
    static int available = -1;
    if (available < 0) {
        char command[500];
        (void) snprintf(command, sizeof(command), "'%s' --version >/dev/null 2>&1", server_program());
        available = system(command) == 0;
        const char *ci = getenv("CI");
        if (!available && ci != NULL && strcmp(ci, "true") == 0) {
            fail_msg("there is no redis-server; scripts/setup installs one");
        }
        if (!available) {
            print_message("# skipped: there is no redis-server on the path\n");
        }
    }
    return available != 0;
}

/* The least port the kernel gives to a socket that names none. */
static int least_ephemeral_port(void)
{
    int port = 32768;
    FILE *range = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (range != NULL) {
        char line[64];
        if (fgets(line, sizeof(line), range) != NULL) {
            port = (int) strtol(line, NULL, 10);
        }
        (void) fclose(range);
    }
    return port;
}

/* The port bound, or 0 if another socket has `port`. */
static int try_port(int port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t) port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    assert_true(fd >= 0);
    const bool bound = bind(fd, (struct sockaddr *) &address, sizeof(address)) == 0 &&
                       getsockname(fd, (struct sockaddr *) &address, &length) == 0;
    (void) close(fd);
    return bound ? ntohs(address.sin_port) : 0;
}

/* An ephemeral port that is free now may be a client's socket a moment later. A port below the ephemeral range is
 * taken by a program that asks for that port alone, and no process of the tests is given the same port twice. */
int server_free_port(void)
{
    static int next;
    static pid_t seeded_by;
    const int span = least_ephemeral_port() - PORT_LEAST;
    if (span < PORT_SPAN_LEAST) {
        return try_port(0);
    }
    if (seeded_by != getpid()) { /* a process forked after a call would get the ports of its parent */
        seeded_by = getpid();
        next = (int) (((uint64_t) getpid() * PORT_STRIDE + (uint64_t) real_ns() / 1000) % (uint64_t) span);
    }
    for (int tries = 0; tries < span; tries++) {
        next = (next + 1) % span;
        if (try_port(PORT_LEAST + next) != 0) {
            return PORT_LEAST + next;
        }
    }
    fail_msg("no port is free from %d to %d", PORT_LEAST, PORT_LEAST + span - 1);
    return 0;
}

static redisContext *connect_server(const struct server *server)
{
    redisContext *c = redisConnectUnix(server->socket);
    if (c != NULL && c->err == 0 && server->password != NULL) {
        freeReplyObject(redisCommand(c, "AUTH %s", server->password));
    }
    return c;
}

bool server_answers(redisContext *c)
{
    redisReply *reply = c != NULL && c->err == 0 ? redisCommand(c, "PING") : NULL;
    const bool up = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    if (c != NULL) {
        redisFree(c);
    }
    return up;
}

/* The program with its arguments, in the child. */
static void run(const struct server *server)
{
    char port[16];
    char conf[128];
    (void) snprintf(port, sizeof(port), "%d", server->port);
    (void) snprintf(conf, sizeof(conf), "%s/sentinel.conf", server->directory);
    const char *own[] = {
        "redis-server",    "--port", port, "--bind",       "127.0.0.1", "--unixsocket", server->socket, "--dir",
        server->directory, "--save", "",   "--appendonly", "no",        "--daemonize",  "no",           NULL};
    const char *sentinel[] = {"redis-server", conf, "--sentinel", NULL};
    const char *argv[64] = {NULL};
    size_t count = 0;
    for (const char **from = server->sentinel ? sentinel : own; *from != NULL; from++) {
        argv[count++] = *from;
    }
    if (server->password != NULL && !server->sentinel) {
        argv[count++] = "--requirepass";
        argv[count++] = server->password;
    }
    for (const char *const *from = server->arguments; from != NULL && *from != NULL && count < 63; from++) {
        argv[count++] = *from;
    }
    union {
        const char **from;
        char *const *to;
    } constant = {argv};
    execvp(server_program(), constant.to);
}

static pid_t spawn(const struct server *server)
{
    const pid_t parent = getpid();
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
        const int null = open("/dev/null", O_RDWR);
        (void) dup2(null, 1);
        (void) dup2(null, 2);
        run(server);
        _exit(127);
    }
    return pid;
}

static void launch(struct server *server)
{
    (void) unlink(server->socket);
    server->pid = spawn(server);
    const uint64_t until_ns = real_ns() + START_LIMIT_NS;
    while (!server_answers(connect_server(server))) {
        if (real_ns() > until_ns) {
            fail_msg("redis-server does not answer");
        }
        nap();
    }
}

/* As launch(), of a server that no client knows yet: where another process was given its port first, it gets another.
 */
static void launch_new(struct server *server)
{
    server->pid = spawn(server);
    const uint64_t until_ns = real_ns() + START_LIMIT_NS;
    while (!server_answers(connect_server(server))) {
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->port = server_free_port();
            server->pid = spawn(server);
        }
        if (real_ns() > until_ns) {
            fail_msg("redis-server does not answer");
        }
        nap();
    }
}

void server_init(struct server *server)
{
    memset(server, 0, sizeof(*server));
    (void) snprintf(server->directory, sizeof(server->directory), "/tmp/weir-test-XXXXXX");
    assert_non_null(mkdtemp(server->directory));
    (void) snprintf(server->socket, sizeof(server->socket), "%s/redis.sock", server->directory);
    server->port = server_free_port();
}

void server_launch(struct server *server)
{
    launch(server);
}

void server_start_with(struct server *server, const char *password, bool stopped_when_full)
{
    server_init(server);
    server->password = password;
    launch_new(server);
    if (stopped_when_full) {
        freeReplyObject(server_command(server, "CONFIG SET maxmemory 1"));
    }
}

void server_start(struct server *server)
{
    server_start_with(server, NULL, false);
}

void server_kill(struct server *server)
{
    if (server->pid > 0) {
        (void) kill(server->pid, SIGKILL);
        (void) waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

void server_restart(struct server *server)
{
    server_kill(server);
    launch(server);
}

void server_pause(struct server *server)
{
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
}

void server_resume(struct server *server)
{
    assert_int_equal(kill(server->pid, SIGCONT), 0);
}

void server_stop(struct server *server)
{
    server_kill(server);
    DIR *directory = opendir(server->directory);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        (void) unlinkat(dirfd(directory), entry->d_name, 0); /* . and .. stay */
    }
    if (directory != NULL) {
        (void) closedir(directory);
    }
    (void) rmdir(server->directory);
}

void server_url(const struct server *server, bool tcp, char *out, size_t size)
{
    const char *password = server->password != NULL ? server->password : "";
    const char *before = server->password != NULL ? ":" : "";
    const char *after = server->password != NULL ? "@" : "";
    if (tcp) {
        (void) snprintf(out, size, "redis://%s%s%s127.0.0.1:%d", before, password, after, server->port);
    } else {
        (void) snprintf(out, size, "unix://%s%s%s%s", before, password, after, server->socket);
    }
}

redisReply *server_command(const struct server *server, const char *format, ...)
{
    redisContext *c = connect_server(server);
    assert_non_null(c);
    assert_int_equal(c->err, 0);
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(c, format, arguments);
    va_end(arguments);
    redisFree(c);
    assert_non_null(reply);
    return reply;
}

long long server_number(const struct server *server, const char *format, const char *argument)
{
    redisReply *reply = server_command(server, format, argument);
    if (reply->type == REDIS_REPLY_ERROR) {
        fail_msg("%s: %s", argument, reply->str);
    }
    const long long number = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : reply->integer;
    freeReplyObject(reply);
    return number;
}

unsigned long long server_sum(const struct server *server, const char *pattern)
{
    unsigned long long sum = 0;
    redisReply *keys = server_command(server, "KEYS %s", pattern);
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *value = server_command(server, "HGET %s sum", keys->element[i]->str);
        sum += value->type == REDIS_REPLY_STRING ? strtoull(value->str, NULL, 10) : 0;
        freeReplyObject(value);
    }
    freeReplyObject(keys);
    return sum;
}

unsigned long long server_log_units(const struct server *server, const char *pattern)
{
    unsigned long long units = 0;
    redisReply *keys = server_command(server, "KEYS %s", pattern);
    for (size_t i = 0; i < keys->elements; i++) {
        const char *name = keys->element[i]->str;
        redisReply *mark = server_command(server, "ZSCORE %s !reset", name);
        const long long card = server_number(server, "ZCARD %s", name);
        units += (unsigned long long) card - (mark->type == REDIS_REPLY_STRING);
        freeReplyObject(mark);
    }
    freeReplyObject(keys);
    return units;
}

/* Serves one connection after another until the listening socket is shut down. */
static void *fake_main(void *arg)
{
    const struct fake_server *fake = arg;
    for (;;) {
        const int fd = accept4(fake->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            return NULL;
        }
        char buffer[65536];
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = fake->fd, .events = 0}};
        while (poll(fds, 2, -1) >= 0 && fds[1].revents == 0 && recv(fd, buffer, sizeof(buffer), 0) > 0) {
            if (fake->answer != NULL && send(fd, fake->answer, fake->answer_size, MSG_NOSIGNAL) < 0) {
                break;
            }
            if (fake->closes) {
                break;
            }
        }
        (void) close(fd);
    }
}

void fake_server_start(struct fake_server *fake, const char *answer, size_t answer_size, bool closes)
{
    *fake = (struct fake_server){.answer = answer, .answer_size = answer_size, .closes = closes};
    fake->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    assert_int_equal(bind(fake->fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(fake->fd, 64), 0);
    assert_int_equal(getsockname(fake->fd, (struct sockaddr *) &address, &length), 0);
    fake->port = ntohs(address.sin_port);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fake_main, fake), 0);
    fake->thread = (void *) (uintptr_t) thread;
}

void fake_server_stop(struct fake_server *fake)
{
    (void) shutdown(fake->fd, SHUT_RDWR);
    (void) pthread_join((pthread_t) (uintptr_t) fake->thread, NULL);
    (void) close(fake->fd);
}
