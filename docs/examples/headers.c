/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What to tell a client: the header fields of weir_write_headers in each style, after a request that was served and
 * after one that was refused. The fields end with CR LF and can go into a response as they are.
 */
#include <stdio.h>
#include <weir/weir.h>

static const struct {
    weir_header_style style;
    const char *name;
} styles[] = {
    {WEIR_HEADERS_DRAFT_11, "draft 11"},
    {WEIR_HEADERS_TRIO, "trio"},
    {WEIR_HEADERS_X_UNIX, "X, Unix"},
    {WEIR_HEADERS_X_ISO8601, "X, ISO 8601"},
    {WEIR_HEADERS_RETRY_AFTER, "Retry-After alone"},
};

static int show(const weir *w, weir_policy_id policy, const weir_verdict *verdict)
{
    char fields[512];
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        const int size = weir_write_headers(styles[i].style, w, policy, verdict, fields, sizeof fields);
        if (size < 0 || (size_t) size >= sizeof fields) {
            return fprintf(stderr, "style %s: %d\n", styles[i].name, size), -1;
        }
        printf("-- %s, %s\n%s", verdict->allowed ? "200" : "429", styles[i].name, fields);
    }
    return 0;
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_limit limits[] = {WEIR_LIMIT_INIT, WEIR_LIMIT_INIT};
    limits[0].name = "second";
    limits[0].algorithm = WEIR_TOKEN_BUCKET;
    limits[0].limit = 10;
    limits[0].period_ns = UINT64_C(1000000000);
    limits[1].name = "minute";
    limits[1].algorithm = WEIR_SLIDING_LOG;
    limits[1].limit = 5;
    limits[1].period_ns = 60 * UINT64_C(1000000000);
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = limits;
    policy.limit_count = 2;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    if (thread == NULL) {
        return fprintf(stderr, "as many threads are attached as max_threads allows\n"), 1;
    }
    const weir_policy_id id = weir_find_policy(w, "api");
    const weir_key key = weir_make_key(w, id, "key-1", 5);
    weir_verdict v;
    if (!weir_check(thread, &key, 2, &v) || show(w, id, &v) != 0) {
        return 1;
    }
    if (weir_check(thread, &key, 4, &v) || show(w, id, &v) != 0) {
        return 1;
    }
    weir_detach(thread);
    weir_close(w);
}
