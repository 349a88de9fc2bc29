/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records in Redis against the policy file: how many there are of each policy, those of no policy of the file, and
 * what they take by the formula of docs/operations.md. The names are a sample: SCAN is asked for so many pages, and for
 * so long. On the way the keys with units in use are noted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../fleet/busy_keys.h"
#include "../listed_policies.h"
#include "../policy_probe.h"
#include "base/plain.h"
#include "doctor.h"

#define PAGES_MOST 200
#define PAGE       "1000"
#define WALK_MS    10000

/* Bytes of a record by docs/operations.md: of one node, and for each further one. */
#define BUCKET_BYTES 208.0
#define WINDOW_BYTES 173.0
#define NODE_BYTES   12.6

struct sample {
    const struct listed_policies *policies;
    uint64_t seen, records, foreign;
    double bytes;
    char stranger[WEIR_MAX_NAME + 1]; /* a policy that the file does not have */
    size_t nodes;
    struct busy_keys busy;
};

static int64_t clock_ms(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Takes "PREFIX:{tag}:label:policy:key". */
static void take_name(struct sample *sample, const char *prefix, const char *name)
{
    const size_t length = strlen(prefix);
    sample->seen++;
    if (strncmp(name, prefix, length) != 0 || strncmp(name + length, ":{", 2) != 0) {
        return;
    }
    const char *label = strstr(name + length, "}:");
    const char *policy = label != NULL ? strpbrk(label + 2, ":?") : NULL;
    const size_t size = policy != NULL ? strcspn(policy + 1, ":") : 0;
    if (size == 0 || size > WEIR_MAX_NAME || *policy == '?') {
        return; /* another record of the fleet's, or the authors of a sliding log */
    }
    const bool bucket = label[2] == 'b' || label[2] == 'q';
    sample->records++;
    sample->bytes += (bucket ? BUCKET_BYTES : WINDOW_BYTES) + NODE_BYTES * (double) sample->nodes;
    if (listed_policies_find(sample->policies, policy + 1, size) == NULL) {
        sample->foreign++;
        (void) snprintf(sample->stranger, sizeof(sample->stranger), "%.*s", (int) size, policy + 1);
    }
}

/* Notes the keys of a page that have units in use. False: no answer, which is a finding. */
static bool note_keys(struct doctor *d, struct sample *sample, const redisReply *names)
{
    weir_error error;
    const bool good = busy_keys_take(&sample->busy, d->link, names, &error);
    if (!good) {
        doctor_unanswered(d, "HMGET", &error);
    }
    return good;
}

/* One page of SCAN. False: the last one, or refused. */
static bool take_page(struct doctor *d, char cursor[24], struct sample *sample, bool *refused)
{
    const char *call[] = {"SCAN", cursor, "COUNT", PAGE};
    redisReply *reply = doctor_ask(d, 4, call);
    bool good = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->str != NULL && reply->element[1]->type == REDIS_REPLY_ARRAY;
    *refused = !good;
    if (good) {
        (void) snprintf(cursor, 24, "%s", reply->element[0]->str);
        for (size_t i = 0; i < reply->element[1]->elements; i++) {
            const char *name = reply->element[1]->element[i]->str;
            take_name(sample, d->prefix, name != NULL ? name : "");
        }
        good = note_keys(d, sample, reply->element[1]);
    }
    freeReplyObject(reply);
    return good && strcmp(cursor, "0") != 0;
}

static void tell_sample(struct doctor *d, const struct sample *sample, bool whole)
{
    struct sentence words = {.length = 0};
    quantity_number(&words, sample->records);
    sentence_add(&words, " %s%s, some %.1f MB by the formula of docs/operations.md",
                 plain_number(sample->records, "record", "records"), whole ? "" : " among the first names",
                 sample->bytes / 1e6);
    doctor_tell(d, FINDING_OK, "records", &words, NULL);
    if (sample->foreign != 0) {
        words = (struct sentence){.length = 0};
        quantity_number(&words, sample->foreign);
        sentence_add(&words, " %s of policies that the file does not have, such as %s",
                     plain_number(sample->foreign, "record is", "records are"), sample->stranger);
        doctor_tell(d, FINDING_WARN, "records", &words,
                    "see whether all nodes have this file, and whether another fleet has this prefix");
    }
}

/* How much of a walk over the names of a server there may be. */
struct walk {
    int pages;
    int64_t end_ms;
};

/* Walks over the names of the present server. False: there are more of them, or it has given no answer. */
static bool walk_names(struct doctor *d, const struct walk *walk, struct sample *sample, bool *refused)
{
    char cursor[24] = "0";
    bool more = true;
    for (int page = 0; page < walk->pages && more && clock_ms() < walk->end_ms; page++) {
        more = take_page(d, cursor, sample, refused);
    }
    return !more && !*refused;
}

/* As walk_names, of a shard: one that was lost before is left out. */
static bool walk_shard(struct doctor *d, size_t shard, const struct walk *walk, struct sample *sample, bool *refused)
{
    weir_error error; /* look_at_shards has told of a shard that cannot be reached */
    return !d->lost[shard] && redis_link_choose(d->link, shard, &error) && walk_names(d, walk, sample, refused);
}

/* Reads the policy file. False: it cannot be used any more, as doctor.c has read it before. */
static bool read_file(const struct doctor *d, struct listed_policies *policies, struct sample *sample)
{
    weir *w = NULL;
    weir_error error;
    const bool loaded = policy_probe_open(d->prefix, &w, &error) == 0 &&
                        policy_probe_load(w, d->policies, &error) == 0 && listed_policies_take(policies, w) &&
                        busy_keys_open(&sample->busy, d->prefix, d->policies, d->nodes.fleet_us, &error);
    weir_close(w);
    return loaded;
}

void record_checks(struct doctor *d)
{
    struct listed_policies policies = {.all = NULL};
    struct sample sample = {.policies = &policies, .nodes = d->nodes.count};
    bool refused = false;
    bool more = false;
    const bool loaded = read_file(d, &policies, &sample);
    const int64_t end_ms = clock_ms() + WALK_MS;
    const size_t shards = d->link->shard_count;
    for (size_t i = 0; i < shards && loaded && !refused; i++) {
        const int64_t now_ms = clock_ms();
        const struct walk walk = {PAGES_MOST / (int) shards, now_ms + (end_ms - now_ms) / (int64_t) (shards - i)};
        more = !walk_shard(d, i, &walk, &sample, &refused) || more;
    }
    if (shards == 0 && loaded) { /* a Cluster whose shards are not known */
        more = true;
        (void) walk_names(d, &(struct walk){PAGES_MOST, end_ms}, &sample, &refused);
    }
    if (refused && !d->unanswered) {
        struct sentence words = {.length = 0};
        sentence_add(&words, "this user may not run SCAN, so the records are not looked at");
        doctor_tell(d, FINDING_OK, "records", &words, NULL);
    } else if (loaded && !d->unanswered) {
        tell_sample(d, &sample, !more);
        key_checks(d, &sample.busy, !more);
    }
    busy_keys_close(&sample.busy);
    listed_policies_free(&policies);
}
