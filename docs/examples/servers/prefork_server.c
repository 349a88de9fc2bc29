/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 server with forked workers and one limit for all of them. The parent opens a shared weir, forks, and
 * replaces workers that die; each worker joins the weir and serves one connection at a time.
 *
 *   prefork_server [PORT [LIMIT [PERIOD_S [WORKERS [REDIS_URL]]]]]    port 0: any; 100 requests in 1 second, 4 workers
 *
 * SIGTERM and SIGINT drain: each worker answers the request that it is at, then the workers and the parent end.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <weir/weir.h>

#include "http.h"

enum { TIMEOUT_S = 10, IDLE_MS = 5000, WORKERS_MAX = 256, RESPAWN_S = 1 };

static weir *w;
static weir_policy_id api;
static weir_thread *limits; /* a worker's */
static volatile sig_atomic_t ends;

static void on_signal(int number)
{
    (void) number;
    ends = 1;
}

/* The limiting: one check for each request, and what the client is told about it. `status`: what the parser said. */
static bool serve(int fd, const weir_key *key, struct http_request *request, int status)
{
    weir_verdict verdict;
    char fields[512] = "", answer[HTTP_ANSWER_MAX];
    if (status == 200) {
        status = weir_check(limits, key, 1, &verdict) ? 200 : 429;
        (void) weir_write_headers(WEIR_HEADERS_DRAFT_11, w, api, &verdict, fields, sizeof fields);
    } else {
        request->keep_alive = false; /* where the next request begins is not known */
    }
    request->keep_alive = request->keep_alive && ends == 0;
    size_t size = http_answer(answer, request, status, fields), sent = 0;
    while (sent < size) {
        const ssize_t more = send(fd, answer + sent, size - sent, MSG_NOSIGNAL); /* it waits for SO_SNDTIMEO at most */
        if (more < 0 && errno != EINTR) {
            return false;
        }
        sent += more > 0 ? (size_t) more : 0;
    }
    return request->keep_alive;
}

/* Waits for bytes. False: the client has been idle for long or is too slow, or the server ends. */
static bool wait_for(int fd, bool idle, const sigset_t *open, time_t end_s)
{
    struct pollfd of = {.fd = fd, .events = POLLIN};
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec timeout = {.tv_sec = idle ? IDLE_MS / 1000 : end_s - now.tv_sec};
    if (timeout.tv_sec <= 0 || (idle && ends != 0)) {
        return false;
    }
    const int count = ppoll(&of, 1, &timeout, open); /* signals come here alone */
    return count > 0 || (count < 0 && errno == EINTR);
}

/* Serves one client until it goes, or has nothing more to ask. */
static void serve_client(int fd, const weir_key *key, const sigset_t *open)
{
    char in[HTTP_HEAD_MAX + 1];
    size_t in_size = 0, skip = 0; /* skip: bytes of a body that are still to come */
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    for (time_t end_s = now.tv_sec + TIMEOUT_S;;) {
        const size_t skipped = skip < in_size ? skip : in_size;
        in_size -= skipped;
        skip -= skipped;
        memmove(in, in + skipped, in_size);
        struct http_request request = {.keep_alive = false};
        const int status = http_parse(in, in_size, &request);
        if (status != 0) {
            if (!serve(fd, key, &request, status)) {
                return;
            }
            skip = request.head_size + request.body_size;
            (void) clock_gettime(CLOCK_MONOTONIC, &now);
            end_s = now.tv_sec + TIMEOUT_S;
            continue;
        }
        if (!wait_for(fd, in_size == 0 && skip == 0, open, end_s)) {
            return;
        }
        const ssize_t got = recv(fd, in + in_size, sizeof in - in_size, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return;
        }
        in_size += got > 0 ? (size_t) got : 0;
    }
}

/* What a worker does; returns its exit status. */
static int work(int listener, const sigset_t *open)
{
    const struct timeval timeout = {.tv_sec = TIMEOUT_S};
    weir_error error;
    if (weir_join(w, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    limits = weir_attach(w); /* NULL, where max_threads are attached: then all requests pass */
    while (ends == 0) {
        struct pollfd of = {.fd = listener, .events = POLLIN};
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        if (ppoll(&of, 1, NULL, open) <= 0) {
            continue;
        }
        const int fd = accept4(listener, (struct sockaddr *) &from, &size, SOCK_CLOEXEC);
        if (fd < 0) {
            continue; /* another worker was first */
        }
        uint8_t client[16]; /* a client of IPv6 has a whole /64 */
        const size_t client_size = weir_address_key((const struct sockaddr *) &from, 64, client);
        const weir_key key = weir_make_key(w, api, client, client_size);
        (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
        serve_client(fd, &key, open);
        (void) shutdown(fd, SHUT_WR); /* the client reads the answer before it sees a reset */
        char rest[1024];
        while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0) {
        }
        (void) close(fd);
    }
    weir_detach(limits);
    weir_close(w); /* leaves the weir; the parent and the other workers go on */
    return 0;
}

/* Forks a worker. The child's signals are still blocked, as the parent's are. */
static pid_t start_worker(int listener, const sigset_t *open)
{
    const pid_t pid = fork();
    if (pid == 0) {
        const int result = work(listener, open);
        (void) fflush(NULL);
        _exit(result);
    }
    return pid;
}

/* Keeps so many workers at work until the server ends, then waits for them. */
static int supervise(int listener, size_t count, const sigset_t *open)
{
    pid_t workers[WORKERS_MAX] = {0}; /* 0 or less: to be started */
    bool failed = false;
    while (ends == 0) {
        for (size_t i = 0; i < count; i++) {
            workers[i] = workers[i] > 0 ? workers[i] : start_worker(listener, open);
        }
        const struct timespec pause = {.tv_sec = RESPAWN_S}; /* workers that die at once do not keep a processor busy */
        (void) ppoll(NULL, 0, &pause, open);
        int status = 0;
        for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            for (size_t i = 0; i < count; i++) {
                workers[i] = workers[i] == pid ? 0 : workers[i];
            }
            fprintf(stderr, "worker %d has died; it is replaced\n", (int) pid);
        }
    }
    for (size_t i = 0; i < count; i++) {
        (void) (workers[i] > 0 ? kill(workers[i], SIGTERM) : 0);
    }
    for (size_t i = 0; i < count; i++) {
        int status = 0;
        const bool waited = workers[i] > 0 && waitpid(workers[i], &status, 0) == workers[i];
        failed = failed || (waited && status != 0);
    }
    return failed;
}

static int open_limits(int argc, char **argv, size_t workers)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_processes =
        (uint32_t) workers * 2 + 1; /* the parent, and room for workers whose death is not noticed */
    options.redis_url = argc > 5 ? argv[5] : NULL;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = argc > 2 ? strtoull(argv[2], NULL, 10) : 100;
    limit.period_ns = (argc > 3 ? strtoull(argv[3], NULL, 10) : 1) * UINT64_C(1000000000);
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "api", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), -1;
    }
    api = weir_find_policy(w, "api"); /* workers know it from the parent's memory */
    return 0;
}

int main(int argc, char **argv)
{
    const long wanted = argc > 4 ? atol(argv[4]) : 4;
    const size_t workers = wanted < 1 || wanted > WORKERS_MAX ? 1 : (size_t) wanted;
    uint16_t port = (uint16_t) (argc > 1 ? atoi(argv[1]) : 8080);
    struct sigaction action = {.sa_handler = on_signal};
    sigset_t held, open;
    (void) sigemptyset(&held);
    (void) sigaddset(&held, SIGINT);
    (void) sigaddset(&held, SIGTERM);
    (void) sigprocmask(SIG_BLOCK, &held, &open); /* signals come in ppoll alone: none is missed before it waits */
    (void) sigdelset(&open, SIGINT);
    (void) sigdelset(&open, SIGTERM);
    (void) sigaction(SIGINT, &action, NULL);
    (void) sigaction(SIGTERM, &action, NULL);
    if (open_limits(argc, argv, workers) != 0) {
        return 1;
    }
    const int listener = http_listen(&port);
    if (listener < 0) {
        return perror("prefork_server"), 1;
    }
    printf("http://127.0.0.1:%u/\n", (unsigned) port);
    (void) fflush(stdout);
    const int failed = supervise(listener, workers, &open);
    (void) close(listener);
    weir_close(w);
    return failed;
}
