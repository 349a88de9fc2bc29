/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes say of themselves over HTTP: their status as JSON, and their metrics. Texts are made plain, lists have
 * their bounds, and what weir top shows of two readings is lines.
 *
 * An input is '0' and two answers of JSON, with a line of "---" between them, or '1', a policy, a line end and metrics.
 */
#include <math.h>

#include "../../apps/weir/fleet/node_status.h"
#include "../../apps/weir/top/top_view.h"
#include "base/plain.h"
#include "fuzz.h"

/* Lines of policies and keys, and the others. */
#define LINES_MOST (2 * WEIR_MAX_POLICIES + 100 + 20)

static void check_plain(const char *text, size_t size)
{
    char plain[1024];
    CHECK(memchr(text, '\0', size) != NULL && size <= sizeof(plain));
    (void) plain_line(plain, sizeof(plain), text);
    CHECK(strcmp(plain, text) == 0);
}

static void check_status(const struct top_status *status)
{
    CHECK(status->policy_count <= WEIR_MAX_POLICIES);
    CHECK(status->key_count_listed <= status->policy_count * WEIR_TOP_OFFENDERS);
    check_plain(status->node, sizeof(status->node));
    check_plain(status->name, sizeof(status->name));
    check_plain(status->version, sizeof(status->version));
    check_plain(status->link, sizeof(status->link));
    CHECK(status->uptime_ms <= INT64_MAX && status->fleet_age_ms >= -1);
    for (size_t i = 0; i < status->policy_count; i++) {
        const struct top_policy *policy = &status->policies[i];
        check_plain(policy->name, sizeof(policy->name));
        check_plain(policy->mode, sizeof(policy->mode));
        check_plain(policy->outage_mode, sizeof(policy->outage_mode));
        CHECK(top_status_policy(status, policy->name) != NULL);
    }
    for (size_t i = 0; i < status->key_count_listed; i++) {
        check_plain(status->keys[i].key, sizeof(status->keys[i].key));
        CHECK(status->keys[i].nodes == 1);
    }
}

/* Reads an answer. */
static bool read_status(struct input *in, struct top_status *out)
{
    char why[160] = "";
    size_t size;
    char *text = input_part(in, "\n---\n", &size);
    const bool good = top_status_read(out, text, size, why, sizeof(why));
    if (good) {
        check_status(out);
    } else {
        check_sentence(why, sizeof(why));
    }
    input_free(text);
    return good;
}

static void read_json(struct input *in)
{
    struct top_node node = {.address = "10.0.0.5:9100"};
    const struct top_nodes nodes = {.all = &node, .count = 1};
    struct top_view view = {.count = 0};
    node.has_before = read_status(in, &node.before);
    node.has_now = node.up = read_status(in, &node.now);
    for (unsigned sort = 0; sort < SORT_COUNT; sort++) {
        top_view_clear(&view);
        top_view_nodes(&view, &nodes, (enum top_sort) sort);
        CHECK(!view.no_memory && view.count <= LINES_MOST);
        for (size_t i = 0; i < view.count; i++) {
            CHECK(memchr(view.lines[i].text, '\0', VIEW_LINE_SIZE) != NULL);
            CHECK(strpbrk(view.lines[i].text, "\r\n\t\x1b\x7f") == NULL);
        }
    }
    top_view_free(&view);
    top_status_free(&node.now);
    top_status_free(&node.before);
}

static void read_metrics(struct input *in)
{
    struct node_status status = {.address = "10.0.0.5:9100"};
    weir_error error = {.code = 0};
    char *policy = input_text(in, "\n");
    char *text = input_text(in, NULL);
    policy[strlen(policy) < WEIR_MAX_NAME ? strlen(policy) : WEIR_MAX_NAME] = '\0';
    if (node_status_read(&status, text, policy, &error)) {
        CHECK(memchr(status.id, '\0', sizeof(status.id)) != NULL && strpbrk(status.id, "\"\n") == NULL);
        CHECK(memchr(status.name, '\0', sizeof(status.name)) != NULL && strpbrk(status.name, "\"\n") == NULL);
        CHECK(isfinite(status.fleet_age_s));
    } else {
        check_sentence(error.message, sizeof(error.message));
    }
    free(policy);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (input_choice(&in, 2) == 0) {
        read_json(&in);
    } else {
        read_metrics(&in);
    }
    return 0;
}
