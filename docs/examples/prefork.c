/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with forked workers and one limit for all of them: the parent opens a shared weir, each worker joins the
 * weir. One worker is killed at its work; the others go on. The parent checks nothing and waits for its workers.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#define WORKERS  4
#define REQUESTS 60
#define LIMIT    100

/* What a worker does: returns how many of its requests were admitted, or -1. */
static int serve(weir *w)
{
    weir_error error;
    if (weir_join(w, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), -1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), -1;
    }
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "customer-17", 11);
    int admitted = 0;
    for (int i = 0; i < REQUESTS; i++) {
        admitted += weir_check(thread, &key, 1, NULL);
    }
    weir_detach(thread);
    return admitted;
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_processes = WORKERS + 1; /* the parent is one of them */
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = LIMIT;
    limit.period_ns = 86400 * UINT64_C(1000000000);
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    int results[2];
    if (pipe(results) != 0) {
        return perror("pipe"), 1;
    }
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] < 0) {
            return perror("fork"), 1;
        }
        if (workers[i] == 0) {
            const int admitted = serve(w);
            const int failed = admitted < 0 || write(results[1], &admitted, sizeof(admitted)) != sizeof(admitted);
            if (i == 0) {
                (void) pause(); /* this worker is killed */
            }
            weir_close(w);
            _exit(failed);
        }
    }
    (void) close(results[1]);
    int sum = 0;
    int failed = 0;
    for (int i = 0, admitted = 0; i < WORKERS; i++) {
        if (read(results[0], &admitted, sizeof(admitted)) != sizeof(admitted)) {
            failed = 1;
            break;
        }
        sum += admitted;
    }
    (void) kill(workers[0], SIGKILL);
    for (int i = 0; i < WORKERS; i++) {
        int status = 0;
        (void) waitpid(workers[i], &status, 0);
        failed |= i != 0 && status != 0;
    }
    printf("%d of %d requests admitted by %d workers, the limit is %d\n", sum, WORKERS * REQUESTS, WORKERS, LIMIT);
    weir_close(w);
    return failed;
}
