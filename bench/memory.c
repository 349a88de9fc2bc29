/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a weir for so many keys takes: time to open and to close, and resident memory per key when it is open, and when
 * that many keys have been checked.
 *
 *     weir-memory fleet|process KEYS [FLOOD]
 *
 * FLOOD: so many keys more are checked then, none of them twice; by how much that makes it grow, and how long a check
 * of such a key takes.
 *
 * One measurement per process: what an earlier one gave back would hide what the next one takes. In a fleet its Redis
 * is not there, which makes no difference to its memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/weir.h>

#include "tools.h"

/* Checks so many keys, from number `first` on, once each. */
static void check_keys(weir *w, weir_thread *t, uint64_t first, uint64_t count)
{
    const weir_policy_id id = weir_find_policy(w, "api");
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bytes[2] = {first + i, 0};
        const weir_key key = weir_make_key(w, id, bytes, sizeof(bytes));
        (void) weir_check(t, &key, 1, NULL);
    }
}

/*
 * Bytes present that are no file's: clean pages of the program the kernel takes away and brings back as it likes. Of
 * the page tables themselves: the kernel's counters, in statm, may be some hundred pages behind.
 */
static double resident_size(void)
{
    char line[256];
    unsigned long kib = 0;
    FILE *in = fopen("/proc/self/smaps_rollup", "r");
    while (in != NULL && kib == 0 && fgets(line, sizeof(line), in) != NULL) {
        if (strncmp(line, "Anonymous:", 10) == 0) {
            kib = strtoul(line + 10, NULL, 10);
        }
    }
    if (in != NULL) {
        (void) fclose(in);
    }
    if (kib == 0) {
        (void) fprintf(stderr, "weir-memory: /proc/self/smaps_rollup cannot be read\n");
        exit(1);
    }
    return (double) kib * 1024;
}

int main(int argc, char **argv)
{
    const unsigned long long keys = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    const unsigned long long flood = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    if (keys == 0 || (strcmp(argv[1], "fleet") != 0 && strcmp(argv[1], "process") != 0)) {
        (void) fprintf(stderr, "usage: weir-memory fleet|process KEYS [FLOOD]\n");
        return 2;
    }
    const char *name = argv[1];
    const bool fleet = strcmp(name, "fleet") == 0;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = keys;
    options.redis_url = fleet ? "unix:///nonexistent/redis.sock" : NULL;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = 1000 * NS_PER_MS};
    const weir_policy policy = {
        .name = "api", .limits = &limit, .limit_count = 1, .scope = fleet ? WEIR_SCOPE_FLEET : WEIR_SCOPE_PROCESS};
    weir *w = NULL;
    weir_error error;
    const double before = resident_size();
    const uint64_t open_ns = tools_now_ns();
    if (weir_open(&options, &w, &error) != 0) {
        (void) fprintf(stderr, "weir-memory: %s\n", error.message);
        return 1;
    }
    const uint64_t opened_ns = tools_now_ns();
    const double at_open = resident_size();
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        (void) fprintf(stderr, "weir-memory: %s\n", error.message);
        weir_close(w);
        return 1;
    }
    weir_thread *t = weir_attach(w);
    check_keys(w, t, 0, keys);
    const double filled = resident_size();
    weir_stats stats;
    weir_get_stats(w, &stats);
    const uint64_t flood_ns = tools_now_ns();
    check_keys(w, t, keys, flood);
    const uint64_t flooded_ns = tools_now_ns();
    const double flooded = resident_size();
    weir_detach(t);
    const uint64_t close_ns = tools_now_ns();
    weir_close(w);
    const uint64_t closed_ns = tools_now_ns();
    tools_figure((double) (opened_ns - open_ns) / 1e6, "ms", "memory/%s/%llu/open", name, keys);
    tools_figure((double) (closed_ns - close_ns) / 1e6, "ms", "memory/%s/%llu/close", name, keys);
    tools_figure((at_open - before) / (double) keys, "bytes/key", "memory/%s/%llu/at_open", name, keys);
    tools_figure((filled - before) / (double) keys, "bytes/key", "memory/%s/%llu/filled", name, keys);
    tools_figure((double) stats.key_count / (double) keys, "of_the_keys", "memory/%s/%llu/held", name, keys);
    if (flood != 0) {
        tools_figure((flooded - filled) / (1 << 20), "MiB", "memory/%s/%llu/grown_by_%llu", name, keys, flood);
        tools_figure((double) (flooded_ns - flood_ns) / (double) flood, "ns", "memory/%s/%llu/new_key", name, keys);
    }
    return 0;
}
