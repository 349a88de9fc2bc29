/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of a fleet that does what lines of standard input say, for the tests of the weir command:
 *
 *     command-node REDIS_URL POLICY_FILE INTERVAL_MS [SECRET [POLICY BITS]]
 *
 *     check POLICY KEY COST, peek POLICY KEY COST     answers "ALLOWED REMAINING RETRY_NS RESET_NS"
 *     charge POLICY KEY COST, refund POLICY KEY COST, reset POLICY KEY 0, sync . . 0    answers "CODE"
 *     metrics . . 0                                   answers the metrics, and a line "."
 *
 * With BITS, the keys of POLICY are addresses. Every answer ends its line. The program ends with its input.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define METRICS_SIZE (1 << 20)

struct node {
    weir *weir;
    weir_thread *thread;
    const weir_key_form *form;
};

static void answer_verdict(bool allowed, const weir_verdict *verdict)
{
    (void) printf("%d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", allowed, verdict->remaining, verdict->retry_after_ns,
                  verdict->reset_after_ns);
}

static void tell_metrics(const struct node *node)
{
    char *text = calloc(1, METRICS_SIZE);
    if (text != NULL) {
        (void) weir_write_metrics(node->weir, text, METRICS_SIZE);
        (void) printf("%s.\n", text);
    }
    free(text);
}

static bool obey(struct node *node, const char *verb, const char *policy, const char *text, uint64_t cost)
{
    unsigned char bytes[1024];
    weir_verdict verdict;
    size_t length = strlen(text);
    memcpy(bytes, text, length); /* NOLINT(bugprone-not-null-terminated-result): a key is bytes */
    if (node->form != NULL) {
        const size_t read = node->form->read(bytes, sizeof(bytes), text);
        length = read != SIZE_MAX ? read : length;
    }
    const weir_key key = weir_make_key(node->weir, weir_find_policy(node->weir, policy), bytes, length);
    if (strcmp(verb, "check") == 0) {
        const bool allowed = weir_check(node->thread, &key, cost, &verdict);
        answer_verdict(allowed, &verdict);
    } else if (strcmp(verb, "peek") == 0) {
        /* A handle that has answered for a key knows of its own grant alone. */
        weir_detach(node->thread);
        node->thread = weir_attach(node->weir);
        const bool allowed = weir_peek(node->thread, &key, cost, &verdict);
        answer_verdict(allowed, &verdict);
    } else if (strcmp(verb, "charge") == 0) {
        weir_charge(node->thread, &key, cost);
        (void) printf("0\n");
    } else if (strcmp(verb, "refund") == 0) {
        weir_refund(node->thread, &key, cost);
        (void) printf("0\n");
    } else if (strcmp(verb, "reset") == 0) {
        (void) printf("%d\n", weir_reset(node->weir, &key));
    } else if (strcmp(verb, "sync") == 0) {
        (void) printf("%d\n", weir_sync(node->weir, 30000));
    } else if (strcmp(verb, "metrics") == 0) {
        tell_metrics(node);
    } else {
        return false;
    }
    return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
    char verb[16];
    char policy[WEIR_MAX_NAME + 1];
    char key[1024];
    uint64_t cost;
    struct node node = {.form = NULL};
    weir_error error;
    weir_options options = WEIR_OPTIONS_INIT;
    if (argc < 4) {
        return 2;
    }
    options.redis_url = argv[1];
    options.sync_interval_ms = (uint32_t) strtoul(argv[3], NULL, 10);
    options.redis_timeout_ms = 10000;
    options.fleet_secret = argc > 4 && *argv[4] != '\0' ? argv[4] : NULL;
    if (weir_open(&options, &node.weir, &error) != 0) {
        (void) fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    if (argc > 6) {
        node.form = weir_address_form((unsigned) strtoul(argv[6], NULL, 10));
    }
    if ((argc > 6 && weir_set_key_form(node.weir, argv[5], node.form, &error) != 0) ||
        weir_load_policies(node.weir, argv[2], &error) != 0) {
        (void) fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    node.thread = weir_attach(node.weir);
    /* NOLINTNEXTLINE(cert-err34-c): the tests write the lines */
    while (scanf("%15s %63s %1023s %" SCNu64, verb, policy, key, &cost) == 4 && obey(&node, verb, policy, key, cost)) {
    }
    weir_detach(node.thread);
    weir_close(node.weir);
    return 0;
}
