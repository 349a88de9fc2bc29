/* SPDX-License-Identifier: Apache-2.0 */
/* See agreement.h. */
#include "fleet/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "base/text.h"
#include "fleet/fleet_log.h"
#include "fleet/state.h"
#include "policy/policy_set.h"
#include "process/process.h"

/* How often limits are told that have not changed, in sync intervals, with a least and a most; and how soon after the
 * last time when nodes come or go. */
#define TELL_INTERVALS 150
#define TELL_LEAST_NS  (5 * NS_PER_S)
#define TELL_MOST_NS   (30 * NS_PER_S)
#define TELL_AFTER_NS  (2 * NS_PER_S)

/* What is told counts for so many of these times: a node that is late once is not taken for gone. */
#define LIFE_TIMES 3

/* Lines about differences that one round leads to. */
#define LINES_MAX 8

void agreement_policies_changed(struct fleet *fleet)
{
    store_release(&fleet->agreement.changed, 1); /* pairs with agreement_tell(): the set that is read is the new one */
}

/* "token_bucket 100 per 1s burst 20, fixed_window 5 per 1m". */
static void add_limits(struct text *text, const struct policy *policy)
{
    for (size_t i = 0; i < policy->limit_count && i < WEIR_MAX_LIMITS; i++) {
        const struct policy_limit *limit = &policy->limits[i];
        const char *name = algorithm_name(limit->rule.algorithm);
        text_add(text, "%s%s %" PRIu64 " per %.*s", i != 0 ? ", " : "", name != NULL ? name : "?", limit->per_period,
                 (int) sizeof(limit->label) - 1, limit->label[0] != '\0' ? limit->label + 1 : "");
        if (limit->rule.limit != limit->per_period) {
            text_add(text, " burst %" PRIu64, limit->rule.limit);
        }
        if (limit->rule.ahead != 0) {
            text_add(text, " delay %" PRIu64, limit->rule.ahead);
        }
    }
}

/* Writes the node's name and a line for each policy that nodes share. Returns the digest, also of what has no room. */
static uint64_t write_limits(const struct fleet *fleet, const struct policy_set *set, char out[ROUND_LIMITS_SIZE])
{
    uint64_t digest = 1;
    size_t used = (size_t) snprintf(out, ROUND_LIMITS_SIZE, "%s\n", fleet->name);
    for (size_t i = 0; i < set->count; i++) {
        const struct policy *policy = &set->policies[i];
        char line[WEIR_MAX_NAME + 512];
        struct text text = {.buffer = line, .size = sizeof(line)};
        if (policy->scope != WEIR_SCOPE_FLEET) {
            continue;
        }
        text_add(&text, "%.*s ", WEIR_MAX_NAME, policy->name);
        add_limits(&text, policy);
        text_add(&text, "\n");
        uint64_t hash[2];
        hash_shared(line, strlen(line), hash);
        digest = hash_mix(digest ^ hash[0]) + hash[1];
        if (used + strlen(line) < ROUND_LIMITS_SIZE) {
            memcpy(out + used, line, strlen(line) + 1);
            used += strlen(line);
        }
    }
    return digest;
}

static uint64_t every_ns(const struct fleet *fleet)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t every_ns = min_u64(max_u64(TELL_INTERVALS * interval_ns, TELL_LEAST_NS), TELL_MOST_NS);
    return max_u64(every_ns, 2 * interval_ns); /* a node that is idle has a round in two intervals */
}

void agreement_tell(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct agreement *agreement = &fleet->agreement;
    struct round_limits *limits = &fleet->round.limits;
    const uint32_t nodes = fleet->membership.live + fleet->membership.suspect;
    const uint64_t passed_ns = monotonic_ns - agreement->told_ns;
    const bool changed = exchange_acquire(&agreement->changed, 0) != 0; /* pairs with agreement_policies_changed() */
    limits->told = limits->news = false;
    const bool due = agreement->told_ns == 0 || changed || passed_ns >= every_ns(fleet) ||
                     (nodes != agreement->nodes && passed_ns >= TELL_AFTER_NS);
    if (fleet->leaves ? agreement->digest == 0 : !due) {
        return;
    }
    /* Read after `changed`: a set that comes later is told in the next round. Within the caller's section. */
    const struct policy_set *set = process_policies(fleet->process);
    const uint64_t digest = fleet->leaves ? agreement->digest : write_limits(fleet, set, limits->text);
    if (digest != agreement->digest) {
        agreement->version[0] = '\0'; /* it compares anew */
        agreement->before = agreement->digest;
    }
    agreement->digest = digest;
    agreement->told_ns = monotonic_ns;
    agreement->nodes = nodes;
    limits->told = true;
    limits->life_ms = fleet->leaves ? 0 : (uint32_t) (LIFE_TIMES * every_ns(fleet) / NS_PER_MS);
    (void) snprintf(limits->digest, sizeof(limits->digest), "%016" PRIx64, digest);
    limits->before[0] = '\0';
    if (agreement->before != 0) {
        (void) snprintf(limits->before, sizeof(limits->before), "%016" PRIx64, agreement->before);
    }
    memcpy(limits->version, agreement->version, sizeof(limits->version));
}

/* The text behind "NAME " in the lines of another node; NULL: it has no policy of that name. */
static const char *limits_of(const char *lines, const char *name, size_t length, size_t *size)
{
    while (*lines != '\0') {
        const size_t line = strcspn(lines, "\n");
        if (line > length && memcmp(lines, name, length) == 0 && lines[length] == ' ') {
            *size = line - length - 1;
            return lines + length + 1;
        }
        lines += line + (lines[line] == '\n');
    }
    return NULL;
}

/* A difference, as one number. */
static uint64_t difference_of(const char *own, size_t own_size, const char *other, size_t other_size)
{
    uint64_t hashes[2][2];
    hash_shared(own, own_size, hashes[0]);
    hash_shared(other, other_size, hashes[1]);
    return hash_mix(hashes[0][0] ^ hash_mix(hashes[1][0] + 1));
}

static bool is_among(const uint64_t *differences, uint32_t count, uint64_t difference)
{
    bool found = false;
    for (uint32_t i = 0; i < count && i < AGREEMENT_TOLD_MAX; i++) {
        found = found || differences[i] == difference;
    }
    return found;
}

/* The differences that there are, and how many of them are new. */
struct comparison {
    uint64_t differences[AGREEMENT_TOLD_MAX];
    uint32_t count, all, lines;
};

/* Compares a line of this node's with another node's. `own`: "NAME limits". */
static void compare_line(struct fleet *fleet, const char *own, size_t size, const char *other,
                         struct comparison *comparison)
{
    const size_t name_size = strcspn(own, " ");
    if (name_size >= size) {
        return; /* behind the last line; or memory is damaged */
    }
    const size_t other_name_size = strcspn(other, "\n");
    size_t theirs_size = 0;
    const char *theirs =
        limits_of(other + other_name_size + (other[other_name_size] == '\n'), own, name_size, &theirs_size);
    const char *mine = own + name_size + 1;
    const size_t mine_size = size - name_size - 1;
    if (theirs == NULL || (theirs_size == mine_size && memcmp(theirs, mine, mine_size) == 0)) {
        return;
    }
    const uint64_t difference = difference_of(own, size, theirs, theirs_size);
    const bool told = is_among(fleet->agreement.told, fleet->agreement.count, difference) ||
                      is_among(comparison->differences, comparison->count, difference);
    comparison->all++;
    if (comparison->count < AGREEMENT_TOLD_MAX) {
        comparison->differences[comparison->count++] = difference;
    }
    if (told || comparison->lines++ >= LINES_MAX) {
        return;
    }
    fleet_log(
        fleet, WEIR_LOG_WARNING,
        "policy %.*s: this node has %.*s, and node %.*s has %.*s under the same prefix \"%s\", so the smaller one "
        "denies what the other lets pass. While new limits are rolled out this ends by itself; else give each "
        "application a prefix of its own",
        (int) name_size, own, (int) min_u64(mine_size, 120), mine, (int) min_u64(other_name_size, 64), other,
        (int) min_u64(theirs_size, 120), theirs, fleet->prefix);
}

void agreement_hear(struct fleet *fleet)
{
    struct agreement *agreement = &fleet->agreement;
    struct round_limits *limits = &fleet->round.limits;
    if (!limits->told || !limits->news) {
        return;
    }
    struct comparison comparison = {.count = 0};
    limits->text[ROUND_LIMITS_SIZE - 1] = '\0'; /* memory may be damaged */
    const char *lines = limits->text + strcspn(limits->text, "\n");
    for (size_t size; *lines != '\0'; lines += size) {
        lines++;
        size = strcspn(lines, "\n");
        for (size_t i = 0; i < limits->other_count; i++) {
            compare_line(fleet, lines, size, limits->others[i].value, &comparison);
        }
    }
    if (comparison.lines > LINES_MAX) {
        fleet_log(fleet, WEIR_LOG_WARNING, "%" PRIu32 " more differences of limits; weir doctor lists them",
                  comparison.lines - LINES_MAX);
    }
    if (comparison.all == 0 && agreement->count != 0) {
        fleet_log(fleet, WEIR_LOG_INFO, "all nodes have the same limits again");
    }
    memcpy(agreement->told, comparison.differences, sizeof(agreement->told));
    agreement->count = comparison.count;
    memcpy(agreement->version, limits->version, sizeof(agreement->version));
    store_relaxed(&fleet->stats.limit_differences, comparison.all);
    overrides_drop(limits->others, limits->other_count);
    limits->news = false;
}

void agreement_forget(struct fleet *fleet)
{
    struct round_limits *limits = &fleet->round.limits;
    if (limits->told) {
        fleet->agreement.told_ns = 0;
    }
    if (limits->news) {
        overrides_drop(limits->others, limits->other_count);
    }
    limits->told = limits->news = false;
}
