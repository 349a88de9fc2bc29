/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy files of any bytes. A file is refused with a sentence that a person can read and that names the place, and the
 * set in force stays; or it is taken, and its policies are found, decide checks and write headers.
 *
 * One weir serves all inputs, so that sets replace one another as they do in a server; it is opened anew when it has
 * seen as many names as it takes.
 */
#include <errno.h>

#include "fuzz.h"
#include "weir/weir.h"

/* Policies of one file that are tried. */
#define TRIED_MAX 16

/* Every name there can be has less than 8 KiB of metrics. */
#define METRICS_SIZE ((size_t) 8 << 20)

static weir *w;
static weir_thread *thread;
static const char *path; /* of the input */

/* A policy of the last file that was taken: it must outlive every refused one. */
static char kept_name[WEIR_MAX_NAME + 1];
static weir_policy_id kept_id;

static void open_weir(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 20000;
    options.no_thread = true;
    weir_error error;
    CHECK(weir_open(&options, &w, &error) == 0);
    thread = weir_attach(w);
    CHECK(thread != NULL);
    kept_id = WEIR_NO_POLICY;
}

static void reopen_weir(void)
{
    weir_detach(thread);
    weir_close(w);
    open_weir();
}

/* Loads the input; the error holds no byte that the call has not written. */
static int load(weir_error *error)
{
    memset(error, 'x', sizeof(*error));
    return weir_load_policies(w, path, error);
}

/* A sentence: terminated, of printable ASCII, with the place of what is malformed. */
static void check_error(const weir_error *error, int result)
{
    CHECK(error->code == result);
    check_sentence(error->message, sizeof(error->message));
    if (result == -EINVAL) {
        const size_t length = strlen(path);
        CHECK(strncmp(error->message, path, length) == 0);
        unsigned line = 0;
        unsigned column = 0;
        CHECK(sscanf(error->message + length, ":%9u:%9u: ", &line, &column) == 2);
        CHECK(line != 0 && column != 0);
    }
}

static void check_headers(weir_policy_id policy, const weir_verdict *verdict)
{
    char text[2048];
    const int length = weir_write_headers(WEIR_HEADERS_DRAFT_11, w, policy, verdict, text, sizeof(text));
    CHECK(length > 0);
    CHECK((size_t) length < sizeof(text));
    CHECK(strlen(text) == (size_t) length);
    for (const char *c = text; *c != '\0'; c++) {
        CHECK((*c >= ' ' && *c <= '~') || *c == '\r' || *c == '\n');
    }
}

/* What holds of every verdict, whatever the policy. */
static void check_policy(weir_policy_id policy)
{
    const weir_key key = weir_make_key(w, policy, "198.51.100.7", 12);
    weir_verdict verdict;
    for (uint64_t cost = 0; cost < 3; cost++) {
        memset(&verdict, 0, sizeof(verdict));
        const bool passes = weir_check(thread, &key, cost, &verdict);
        CHECK(passes == verdict.allowed);
        CHECK(verdict.limit >= 1 && verdict.limit <= WEIR_MAX_UNITS);
        CHECK(verdict.limit_index < WEIR_MAX_LIMITS);
        CHECK(verdict.remaining <= verdict.limit);
        CHECK(verdict.basis == WEIR_BASIS_PROCESS);
        CHECK(passes || (verdict.retry_after_ns != 0 && !verdict.would_deny));
        CHECK(!passes || verdict.retry_after_ns == 0 || verdict.would_deny);
        check_headers(policy, &verdict);
    }
}

/* Keeps the policies of a list, to try them after it. */
struct listed {
    size_t count;
    char names[TRIED_MAX][WEIR_MAX_NAME + 1];
    weir_policy_id ids[TRIED_MAX];
};

static void take_policy(void *arg, const weir_policy_info *info)
{
    struct listed *listed = arg;
    CHECK(info->policy->limit_count >= 1 && info->policy->limit_count <= WEIR_MAX_LIMITS);
    const size_t length = strlen(info->policy->name);
    CHECK(length >= 1 && length <= WEIR_MAX_NAME);
    if (listed->count < TRIED_MAX) {
        memcpy(listed->names[listed->count], info->policy->name, length + 1);
        listed->ids[listed->count++] = info->id;
    }
}

/* Tries the policies in force. They are taken from the library, so that it alone reads the file. */
static void check_set(void)
{
    static char metrics[METRICS_SIZE];
    const int needed = weir_write_metrics(w, metrics, sizeof(metrics));
    CHECK(needed > 0 && (size_t) needed < sizeof(metrics));
    struct listed listed = {.count = 0};
    CHECK(weir_list_policies(w, take_policy, &listed) >= listed.count && listed.count != 0);
    for (size_t i = 0; i < listed.count; i++) {
        memcpy(kept_name, listed.names[i], sizeof(kept_name));
        kept_id = weir_find_policy(w, kept_name);
        CHECK(kept_id == listed.ids[i]);
        check_policy(kept_id);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (w == NULL) {
        open_weir();
    }
    path = input_file(data, size);
    weir_error error;
    int result = load(&error);
    if (result == -ENOSPC) { /* too many names, in this file and all before it */
        check_error(&error, result);
        reopen_weir();
        result = load(&error);
    }
    CHECK(result <= 0);
    if (result == 0) {
        check_set();
        (void) weir_poll(w);
        return 0;
    }
    check_error(&error, result);
    CHECK(weir_load_policies(w, path, NULL) == result); /* the same result for a caller that wants no sentence */
    if (kept_id != WEIR_NO_POLICY) {
        CHECK(weir_find_policy(w, kept_name) == kept_id);
    }
    return 0;
}
