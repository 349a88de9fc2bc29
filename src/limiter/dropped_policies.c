/* SPDX-License-Identifier: Apache-2.0 */
/* See dropped_policies.h. */
#include "limiter/dropped_policies.h"

#include <stdio.h>
#include <string.h>

#include "base/numbers.h"
#include "base/plain.h"
#include "limiter/policy_lock.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"

/* A line names so many; the others are counted. */
#define NAMED_MAX 8

/* The policies of a set, a bit for each. */
static void ids_of(const struct policy_set *set, uint64_t ids[DROPPED_WORDS])
{
    memset(ids, 0, DROPPED_WORDS * sizeof(*ids));
    for (size_t i = 0; set != NULL && i < set->count; i++) {
        const weir_policy_id id = set->policies[i].id;
        ids[min_u64(id, WEIR_MAX_POLICIES) / 64] |= UINT64_C(1) << id % 64;
    }
}

void dropped_policies_note(struct dropped_policies *dropped, const struct policy_set *before,
                           const struct policy_set *now)
{
    uint64_t were[DROPPED_WORDS];
    uint64_t are[DROPPED_WORDS];
    uint64_t news = 0;
    ids_of(before, were);
    ids_of(now, are);
    /* Relaxed: one writer at a time, and readers count or look under the same lock. */
    for (size_t i = 0; i < DROPPED_WORDS; i++) {
        const uint64_t lost = were[i] & ~are[i];
        const uint64_t untold = (load_relaxed(&dropped->untold[i]) | lost) & ~are[i];
        store_relaxed(&dropped->dropped[i], (load_relaxed(&dropped->dropped[i]) | lost) & ~are[i]);
        store_relaxed(&dropped->untold[i], untold);
        news |= untold;
    }
    store_relaxed(&dropped->any_untold, news != 0);
}

uint32_t dropped_policies_count(const struct dropped_policies *dropped)
{
    uint32_t count = 0;
    for (size_t i = 0; i < DROPPED_WORDS; i++) {
        count += (uint32_t) __builtin_popcountll(load_relaxed(&dropped->dropped[i])); /* statistics */
    }
    return count;
}

/* The names to tell, "a, b and 3 more", and how many there are. None is to be told after that. */
static size_t take_untold(weir *w, char *names, size_t size)
{
    struct dropped_policies *dropped = &w->shared->dropped;
    size_t count = 0;
    size_t used = 0;
    for (weir_policy_id id = 1; id <= WEIR_MAX_POLICIES; id++) {
        const bool untold = (load_relaxed(&dropped->untold[id / 64]) >> id % 64 & 1) != 0;
        if (untold && count++ < NAMED_MAX) {
            used += (size_t) snprintf(names + used, size - used, "%s%.*s", count > 1 ? ", " : "", WEIR_MAX_NAME,
                                      w->names.names[id]);
        }
    }
    if (count > NAMED_MAX) {
        (void) snprintf(names + used, size - used, " and %zu more", count - NAMED_MAX);
    }
    for (size_t i = 0; i < DROPPED_WORDS; i++) {
        store_relaxed(&dropped->untold[i], 0);
    }
    store_relaxed(&dropped->any_untold, 0);
    return count;
}

void dropped_policies_tell(weir *w)
{
    if (w->options.log == NULL || load_relaxed(&w->shared->dropped.any_untold) == 0 || !policy_lock_try(w)) {
        return; /* a thread changes policies: next time */
    }
    char names[NAMED_MAX * (WEIR_MAX_NAME + 2) + 32] = "";
    char text[sizeof(names) + 256];
    char line[sizeof(text) + 256];
    const size_t count = take_untold(w, names, sizeof(names));
    policy_lock_release(w);
    if (count == 0) {
        return;
    }
    (void) snprintf(text, sizeof(text),
                    "%s %s %s no longer in force, as the new set of policies has no such %s; what is checked by %s "
                    "passes. required_policies has the library refuse such a set",
                    plain_number(count, "policy", "policies"), names, count == 1 ? "is" : "are",
                    plain_number(count, "name", "names"), count == 1 ? "it" : "them");
    (void) plain_line(line, sizeof(line), text); /* names that other processes share may be damaged */
    w->options.log(w->options.log_arg, WEIR_LOG_WARNING, line);
}
