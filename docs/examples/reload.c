/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies from a file, changed while the server runs: what a key has used stays where algorithm and period do; a file
 * with a mistake is refused with its line, and so is one that lacks a policy which the server asks by. The policies in
 * force stay then. Other threads go on checking meanwhile.
 * SIGHUP asks for it. No call of weir is for a signal handler, which may interrupt a check of its own thread: the
 * handler sets a flag.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weir/weir.h>

static const char *const files[] = {
    "policies:\n"
    "  - name: api\n"
    "    limits:\n"
    "      - {algorithm: sliding_window, limit: 10, period: 1m}\n",
    "policies:\n"
    "  - name: api\n"
    "    limits:\n"
    "      - {algorithm: sliding_window, limit: 20, period: 1m}\n",
    "policies:\n"
    "  - name: api\n"
    "    limits:\n"
    "      - {algorithm: sliding_window, limit: 20, period: 60}\n",
    "policies:\n"
    "  - name: apo\n"
    "    limits:\n"
    "      - {algorithm: sliding_window, limit: 20, period: 1m}\n",
};

static volatile sig_atomic_t is_wanted;

static void on_hangup(int signal_number)
{
    (void) signal_number;
    is_wanted = 1;
}

static int write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return -1;
    }
    const int status = fputs(text, file);
    return fclose(file) != 0 || status < 0 ? -1 : 0;
}

static void show(void *arg, const weir_policy_info *info)
{
    (void) arg;
    for (size_t i = 0; i < info->policy->limit_count; i++) {
        const weir_limit *limit = &info->policy->limits[i];
        printf("in force: %s, %llu in %llu s\n", info->policy->name, (unsigned long long) limit->limit,
               (unsigned long long) limit->period_ns / 1000000000);
    }
}

int main(void)
{
    static const char *const asked_by[] = {"api"}; /* the names in this program: a check of another one would pass */
    weir_options options = WEIR_OPTIONS_INIT;
    options.required_policies = asked_by;
    options.required_policy_count = sizeof asked_by / sizeof asked_by[0];
    weir *w = NULL;
    weir_error error;
    char path[] = "/tmp/weir-reload-XXXXXX";
    const int descriptor = mkstemp(path);
    if (descriptor < 0 || close(descriptor) != 0) {
        return perror(path), 1;
    }
    if (weir_open(&options, &w, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    (void) signal(SIGHUP, on_hangup);
    for (size_t i = 0; thread != NULL && i < sizeof files / sizeof files[0]; i++) {
        if (write_file(path, files[i]) != 0) {
            return perror(path), 1;
        }
        (void) raise(SIGHUP); /* as `kill -HUP` does */
        if (is_wanted != 0) { /* the server's loop looks at it */
            is_wanted = 0;
            if (weir_load_policies(w, path, &error) != 0) {
                printf("not taken: %s\n", error.message);
            }
        }
        (void) weir_list_policies(w, show, NULL);
        const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "key-1", 5); /* a name keeps its id */
        for (int request = 0; request < 4; request++) {
            (void) weir_check(thread, &key, 1, NULL);
        }
        weir_verdict v;
        (void) weir_peek(thread, &key, 1, &v);
        printf("after 4 more requests: %llu of %llu left\n", (unsigned long long) v.remaining,
               (unsigned long long) v.limit);
    }
    (void) remove(path);
    weir_detach(thread);
    weir_close(w);
    return thread == NULL;
}
