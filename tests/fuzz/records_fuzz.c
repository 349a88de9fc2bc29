/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inspectors and commands of weir read in Redis, where anybody may have written it: nodes, records of keys, names,
 * overrides and their notes. Whatever the answers are, what is made of them is within its bounds, or it is said that
 * there is none.
 *
 * An input is the reader and the kind of the URL, a digit each, and the answers of all servers in the protocol of
 * Redis; to an inspector, those behind the greeting, with a '|' behind what it is answered at once.
 */
#include <poll.h>
#include <weir/inspect.h>

#include "../../apps/weir/override_notes.h"
#include "../../apps/weir/top/fleet_sample.h"
#include "../../apps/weir/top/top_view.h"
#include "fuzz.h"
#include "inspect/inspector.h"
#include "redis_server.h"

#define NAMES 20

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* Nothing is waited for. Where there is no connection, one was lost: an inspector would try again in a moment. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    (void) timeout_ms;
    server_ended = server_ended || count == 0;
    for (nfds_t i = 0; i < count; i++) {
        fds[i].revents = fds[i].events;
    }
    return (int) count;
}

static bool is_ended(void)
{
    return server_ended;
}

static weir *reader; /* knows policies */

static weir *open_reader(void)
{
    static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 60000000000},
                                        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 1000000000}};
    static const weir_limit log = {.algorithm = WEIR_SLIDING_LOG, .limit = 5, .period_ns = 60000000000};
    static const weir_policy policies[] = {{.name = "api", .limits = limits, .limit_count = 2},
                                           {.name = "log", .limits = &log, .limit_count = 1}};
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 1;
    CHECK(weir_open(&options, &w, NULL) == 0 && weir_set_policies(w, policies, 2, NULL) == 0);
    CHECK(weir_set_key_form(w, "api", weir_address_form(128), NULL) == 0);
    return w;
}

static void check_result(bool good, const weir_error *error)
{
    if (!good) {
        CHECK(error->code < 0);
        check_sentence(error->message, sizeof(error->message));
    }
}

static void check_fleet(const weir_inspected_fleet *fleet)
{
    for (size_t i = 0; i < fleet->node_count; i++) {
        const weir_inspected_node *node = &fleet->nodes[i];
        CHECK(node->id != NULL && node->age_ns <= fleet->time_ns);
        CHECK(i == 0 || fleet->nodes[i - 1].reported_ns >= node->reported_ns);
        CHECK((node->state == WEIR_NODE_FAILED) == (node->age_ns >= node->failed_ns));
    }
}

static void read_fleet(weir_inspector *in, weir_error *error)
{
    const weir_inspected_fleet *fleet;
    const bool good = weir_inspect_fleet(in, &fleet, error) == 0;
    check_result(good, error);
    CHECK(good == (fleet != NULL));
    if (good) {
        check_fleet(fleet);
    }
}

static void check_record(const weir_inspected_record *record)
{
    for (size_t i = 0; i < record->author_count; i++) {
        CHECK(record->authors[i].node != NULL);
        CHECK(i == 0 || record->authors[i - 1].admitted >= record->authors[i].admitted);
    }
}

static void read_key(weir_inspector *in, const char *name, weir_error *error)
{
    const weir_inspected_key *key;
    check_result(weir_inspect_key(in, reader, name, 1, &key, error) == 0, error);
    if (key != NULL) {
        CHECK(key->name != NULL && key->deciding <= key->limit_count);
        check_fleet(key->fleet);
        for (size_t i = 0; i < key->limit_count; i++) {
            CHECK(key->limits[i].fits == (key->limits[i].retry_after_ns == 0));
            check_record(&key->limits[i].record);
            check_record(&key->limits[i].before);
        }
    }
}

static void read_sample(const char *url, weir_error *error)
{
    struct fleet_sample sample;
    struct top_view view = {.count = 0};
    CHECK(fleet_sample_open(&sample, url, "weir", NAMES, error) == 0);
    inspector_end_by(sample.in, is_ended);
    for (unsigned reading = 0; reading < 2; reading++) {
        check_result(fleet_sample_read(&sample, error), error);
        for (size_t i = 0; i < sample.record_count; i++) {
            const struct sample_record *record = &sample.records[i];
            CHECK(memchr(record->name, '\0', sizeof(record->name)) != NULL);
            CHECK(i == 0 || sample.records[i - 1].units >= record->units);
        }
        top_view_fleet(&view, &sample);
    }
    for (size_t i = 0; i < view.count; i++) {
        CHECK(memchr(view.lines[i].text, '\0', VIEW_LINE_SIZE) != NULL);
        CHECK(strpbrk(view.lines[i].text, "\r\n\t\x1b\x7f") == NULL);
    }
    top_view_free(&view);
    fleet_sample_close(&sample);
}

static void read_full_keys(weir_inspector *in, weir_error *error)
{
    const weir_inspected_records *records;
    const weir_inspected_full_keys *full;
    check_result(weir_inspect_records(in, NAMES, 1000, &records, error) == 0, error);
    if (records == NULL) {
        return;
    }
    check_result(weir_inspect_full_keys(in, reader, records->uses, records->use_count, 1000, &full, error) == 0, error);
    for (size_t i = 0; full != NULL && i < full->policy_count; i++) {
        CHECK(full->policies[i].keys != 0 && strchr(full->policies[i].top, ':') != NULL);
    }
}

static void read_overrides(weir_inspector *in, weir_error *error)
{
    const weir_inspected_overrides *overrides;
    check_result(weir_inspect_overrides(in, &overrides, error) == 0, error);
    for (size_t i = 0; overrides != NULL && i < overrides->override_count; i++) {
        CHECK(i == 0 || strcmp(overrides->overrides[i - 1].name, overrides->overrides[i].name) < 0);
        (void) override_notes_ended(overrides->overrides[i].value);
    }
}

/* Sentinels and servers of a Cluster name others. */
static void find_shards(struct redis_link *link, weir_error *error)
{
    const char *call[] = {"GET", "k"};
    check_result(redis_link_find_shards(link, error), error);
    CHECK(link->shard_count <= REDIS_LINK_SERVERS);
    for (size_t i = 0; i < link->shard_count; i++) {
        CHECK(redis_link_shard(link, i) != NULL);
        if (redis_link_choose(link, i, error)) {
            freeReplyObject(redis_link_call(link, 2, call, error));
        }
        CHECK(link->present != NULL && redis_link_server(link) != NULL);
    }
}

static void read_notes(struct redis_link *link, bool is_log, weir_error *error)
{
    struct override_notes notes;
    check_result(override_notes_read(link, "weir:overrides", is_log, &notes, error), error);
    for (size_t i = 0; i < notes.count; i++) {
        char time[OVERRIDE_TIME_SIZE];
        CHECK(i == 0 || notes.all[i - 1].version <= notes.all[i].version);
        CHECK(override_notes_find(&notes, notes.all[i].name, notes.all[i].value) != NULL);
        override_notes_time(notes.all[i].at_s, time);
        check_sentence(time, sizeof(time));
    }
    override_notes_free(&notes);
}

static void read_by_inspector(unsigned number, const char *url, weir_error *error)
{
    weir_inspector *in;
    if (number == 3) {
        read_sample(url, error);
        return;
    }
    CHECK(weir_inspect_open(url, NULL, &in, error) == 0);
    inspector_end_by(in, is_ended);
    switch (number) {
    case 0:
        read_fleet(in, error);
        break;
    case 1:
    case 2:
        read_key(in, number == 1 ? "api:198.51.100.7" : "log:k", error);
        break;
    case 4:
        read_overrides(in, error);
        break;
    default:
        read_full_keys(in, error);
        break;
    }
    weir_inspect_close(in);
}

static void read_by_link(unsigned number, const char *url, weir_error *error)
{
    struct redis_link link;
    const enum redis_link_result opened = redis_link_open(&link, url, error);
    CHECK(opened != REDIS_LINK_URL);
    check_result(opened == REDIS_LINK_GOOD, error);
    if (opened == REDIS_LINK_GOOD && number < 8) {
        read_notes(&link, number == 7, error);
    } else if (opened == REDIS_LINK_GOOD) {
        find_shards(&link, error);
    }
    redis_link_close(&link);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"redis://10.0.0.5", "redis+cluster://u:p@10.0.0.5,10.0.0.6",
                                       "redis+sentinel://10.0.0.5,10.0.0.6/main", "redis://10.0.0.5,10.0.0.6/3"};
    struct input in = {data, data + size};
    weir_error error = {.code = 0};
    reader = reader != NULL ? reader : open_reader();
    const unsigned number = input_choice(&in, 9);
    const char *url = urls[input_choice(&in, COUNT_OF(urls))];
    server_sends = in;
    server_ended = 0;
    server_greets = number < 6 ? "$0\r\n\r\n$0\r\n\r\n" : NULL; /* to INFO server, and INFO replication */
    if (number < 6) {
        read_by_inspector(number, urls[0], &error);
    } else {
        read_by_link(number, url, &error);
    }
    server_greets = NULL;
    return 0;
}
