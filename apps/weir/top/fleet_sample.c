/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_sample.h. */
#include "fleet_sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"

#define WALK_MS      2000
#define RECORDS_MOST 256 /* that are kept, the hottest */

int fleet_sample_open(struct fleet_sample *sample, const char *url, const char *prefix, size_t most, weir_error *error)
{
    *sample = (struct fleet_sample){.most = most};
    return weir_inspect_open(url, prefix, &sample->in, error);
}

void fleet_sample_close(struct fleet_sample *sample)
{
    weir_inspect_close(sample->in);
    free(sample->records);
    *sample = (struct fleet_sample){.in = NULL};
}

/* Adds records. False: no memory. */
static bool add(struct fleet_sample *sample, const weir_inspected_records *read)
{
    const size_t most = sample->record_count + read->use_count;
    if (most > sample->record_capacity) {
        struct sample_record *larger = realloc(sample->records, 2 * most * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        sample->records = larger;
        sample->record_capacity = 2 * most;
    }
    for (size_t i = 0; i < read->use_count; i++) {
        const weir_inspected_use *use = &read->uses[i];
        struct sample_record *record = &sample->records[sample->record_count];
        if (strlen(use->record) < sizeof(record->name)) {
            *record = (struct sample_record){.units = use->units, .window = use->window};
            (void) snprintf(record->name, sizeof(record->name), "%s", use->record);
            (void) plain_line(record->limit, sizeof(record->limit), use->limit);
            (void) plain_line(record->policy, sizeof(record->policy), use->policy);
            (void) plain_line(record->key, sizeof(record->key), use->key);
            sample->record_count++;
        }
    }
    return true;
}

/* Reads the records again that were the hottest. False: no answer, and `error` has a sentence. */
static bool read_again(struct fleet_sample *sample, weir_error *error)
{
    const weir_inspected_records *read;
    const char *names[RECORDS_MOST];
    const size_t count = sample->record_count;
    for (size_t i = 0; i < count; i++) {
        names[i] = sample->records[i].name;
    }
    if (weir_inspect_uses(sample->in, names, count, &read, error) != 0) {
        return false;
    }
    sample->record_count = 0;
    return add(sample, read) || error_set(error, -ENOMEM, "out of memory") == 0;
}

static int compare_records(const void *a, const void *b)
{
    const struct sample_record *one = a;
    const struct sample_record *other = b;
    if (one->units != other->units) {
        return one->units < other->units ? 1 : -1;
    }
    return strcmp(one->name, other->name);
}

/* The key, then its latest window, and of one name the most units. */
static int compare_windows(const void *a, const void *b)
{
    const struct sample_record *one = a;
    const struct sample_record *other = b;
    const int keys = strcmp(one->key, other->key);
    const int policies = keys != 0 ? keys : strcmp(one->policy, other->policy);
    const int limits = policies != 0 ? policies : strcmp(one->limit, other->limit);
    if (limits != 0 || one->window != other->window) {
        return limits != 0 ? limits : one->window < other->window ? 1 : -1;
    }
    const int names = strcmp(one->name, other->name);
    return names != 0 ? names : (one->units < other->units) - (one->units > other->units);
}

/* Whether a record behind `before`, as compare_windows orders them, says nothing more of its key. */
static bool is_outdated(const struct sample_record *record, const struct sample_record *before)
{
    const bool same = strcmp(before->key, record->key) == 0 && strcmp(before->policy, record->policy) == 0 &&
                      strcmp(before->limit, record->limit) == 0;
    return same && (before->window != record->window || strcmp(before->name, record->name) == 0);
}

/* Leaves the hottest records: of a key those of its latest window, and each name once. */
static void keep_hottest(struct fleet_sample *sample)
{
    struct sample_record *records = sample->records;
    size_t kept = 0;
    if (sample->record_count == 0) {
        return;
    }
    qsort(records, sample->record_count, sizeof(records[0]), compare_windows);
    for (size_t i = 0; i < sample->record_count; i++) {
        if (kept == 0 || !is_outdated(&records[i], &records[kept - 1])) {
            records[kept++] = records[i];
        }
    }
    qsort(records, kept, sizeof(records[0]), compare_records);
    sample->record_count = 0;
    while (sample->record_count < kept && sample->record_count < RECORDS_MOST &&
           records[sample->record_count].units > 0) {
        sample->record_count++;
    }
}

bool fleet_sample_read(struct fleet_sample *sample, weir_error *error)
{
    sample->read = NULL;
    /* The walk comes last: what it has read of nodes and servers is shown. */
    const bool good = (sample->record_count == 0 || read_again(sample, error)) &&
                      weir_inspect_records(sample->in, sample->most, WALK_MS, &sample->read, error) == 0;
    if (good && !add(sample, sample->read)) {
        return error_set(error, -ENOMEM, "out of memory") == 0;
    }
    keep_hottest(sample);
    if (good && sample->read->fleet->wrong_type) {
        return error_set(error, -EPROTO, "%s is no set of nodes: something else has written it",
                         sample->read->fleet->record) == 0;
    }
    if (good && sample->read->refused) {
        return error_set(error, -EACCES, "this user may not run SCAN, or not HMGET, HGET and ZCARD") == 0;
    }
    return good;
}

size_t fleet_sample_lost(const struct fleet_sample *sample)
{
    size_t lost = 0;
    for (size_t i = 0; sample->read != NULL && i < sample->read->server_count; i++) {
        lost += sample->read->servers[i].error != NULL;
    }
    return lost;
}
