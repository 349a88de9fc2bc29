/* SPDX-License-Identifier: Apache-2.0 */
/* See denial_log.h. */
#include "limiter/denial_log.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/plain.h"
#include "base/text.h"
#include "limiter/policy_lock.h"
#include "limiter/weir_private.h"

/* The most keys that a line names. */
#define NAMED_MAX 3

/* A line names keys with at least this fraction (1/64) of the policy's denied units: a smaller count may be error
 * alone. */
#define NAMED_PART TOP_K_COUNT

/* The longest line there can be, and as much again for what plain_line makes of it. */
#define LINE_SIZE 1024

/* What the log keeps by ids of policies: of policies that there are not none is ever present. */
struct denial_memory {
    struct top_k recent[WEIR_MAX_POLICIES + 1];
    struct denial_state states[WEIR_MAX_POLICIES + 1];
    struct denial_counts sums[WEIR_MAX_POLICIES + 1];
    weir_policy_id groups[WEIR_MAX_POLICIES + 1];
};

int denial_log_open(struct denial_log *log, uint64_t monotonic_ns)
{
    struct denial_memory *memory = pages_reserve(sizeof(*memory), PAGES_SPARSE);
    if (memory == NULL) {
        return -ENOMEM;
    }
    log->memory = memory;
    log->memory_size = sizeof(*memory);
    log->recent = memory->recent;
    log->states = memory->states;
    log->sums = memory->sums;
    log->groups = memory->groups;
    log->look_ns = monotonic_ns;
    log->next_ns = monotonic_ns + DENIAL_LOOK_NS;
    return 0;
}

void denial_log_close(struct denial_log *log)
{
    pages_release(log->memory, log->memory_size);
}

/* Finds the groups of policies that are new. Under the policy lock. */
static void find_groups(struct denial_log *log, const struct policy_names *names)
{
    while (log->known < names->count) {
        const size_t id = ++log->known;
        char base[WEIR_MAX_NAME + 1];
        (void) snprintf(base, sizeof(base), "%.*s", (int) strcspn(names->names[id], "/"), names->names[id]);
        log->groups[id] = policy_names_find(names, base); /* it is there: a policy's group has a name as well */
    }
}

/* Counters with one writer each: relaxed, and what is missed now is in the next sum. */
static void sum_up(struct denial_log *log, const struct limiter *limiter)
{
    memset(log->sums, 0, (log->known + 1) * sizeof(*log->sums));
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        for (size_t id = 1; id <= log->known; id++) {
            const struct tally *tally = &limiter->threads[i].tallies[id];
            struct denial_counts *sum = &log->sums[log->groups[id]];
            sum->denied += load_relaxed(&tally->denied);
            sum->would_deny += load_relaxed(&tally->would_deny);
        }
    }
}

void denial_log_begin(weir *w, uint64_t monotonic_ns)
{
    struct denial_log *log = &w->denials;
    if (log->states == NULL || !policy_lock_try(w)) {
        return; /* a thread changes policies: what was denied before may be logged once more */
    }
    find_groups(log, &w->names);
    policy_lock_release(w);
    sum_up(log, &w->limiter);
    for (weir_policy_id group = 1; group <= log->known; group++) {
        log->states[group] = (struct denial_state){.counts = log->sums[group]};
    }
    log->look_ns = monotonic_ns;
    log->next_ns = monotonic_ns + DENIAL_LOOK_NS;
}

/* Where a policy stands after a look. True: it may have a line to say. */
static bool look(struct denial_log *log, weir_policy_id group, uint64_t now_ns)
{
    struct denial_state *state = &log->states[group];
    struct denial_counts *sum = &log->sums[group];
    /* A request that is just being counted may be in `beside` alone. */
    sum->denied = max_u64(sum->denied, state->counts.denied);
    const bool denies = sum->denied != state->counts.denied || sum->would_deny != state->counts.would_deny;
    if (!denies && state->phase == DENIAL_NONE) {
        return false;
    }
    if (state->phase == DENIAL_NONE) {
        state->phase = DENIAL_FOUND;
        state->told = state->before = state->counts;
        state->begun_ns = log->look_ns;
        state->denied_ns = now_ns;
        state->counts = *sum;
        return false; /* the key reaches the lists before the next look */
    }
    state->counts = *sum;
    state->denied_ns = denies ? now_ns : state->denied_ns;
    return state->line_ns == 0 || now_ns - state->line_ns >= DENIAL_LINE_NS;
}

/* Whole seconds, of which there is one at least. */
static uint64_t seconds(uint64_t from_ns, uint64_t to_ns)
{
    return max_u64((to_ns - from_ns + NS_PER_S / 2) / NS_PER_S, 1);
}

static void add_counts(struct text *text, const struct denial_counts *from, const struct denial_counts *to)
{
    const uint64_t denied = to->denied - from->denied;
    const uint64_t would_deny = to->would_deny - from->would_deny;
    if (denied != 0 && would_deny != 0) {
        text_add(text, "%" PRIu64 " checks and would deny %" PRIu64, denied, would_deny);
    } else {
        text_add(text, "%" PRIu64 " checks", denied + would_deny);
    }
}

/* Adds the keys that the policy denied most since the last line. */
static void add_keys(struct text *text, const struct top_k *recent, const char *policy, const weir_key_form *form)
{
    weir_offender top[NAMED_MAX];
    const size_t count = top_denied_list(recent, form, top, NAMED_MAX);
    size_t named = 0;
    bool told = count == 0; /* that nobody can be named: then there is nothing to tell */
    for (size_t i = 0; i < count; i++) {
        const uint64_t sure = top[i].denied_units - top[i].error_units;
        if (top[i].key[0] == '\0') {
            told = true; /* the one key of a limit for all: that is the policy, and nobody */
        } else if (sure != 0 && sure >= recent->total / NAMED_PART) {
            text_add(text, "%s%s:%s (%" PRIu64 " units)", named++ == 0 ? ", most by " : ", ", policy, top[i].key, sure);
        }
    }
    if (named == 0 && !told) {
        text_add(text, ", by many keys");
    }
}

/* How it is said that a policy denies, and would. */
static const struct {
    const char *denies, *would_deny;
} phrases[] = {
    {"begins to deny", "would begin to deny"}, {"denies", "would deny"}, {"denies no more", "would deny no more"}};

/* Says what is to be said of a policy, and goes on to the next line of L2. */
static void say(weir *w, weir_policy_id group, const weir_key_form *form, uint64_t now_ns)
{
    struct denial_log *log = &w->denials;
    struct denial_state *state = &log->states[group];
    const char *name = w->names.names[group]; /* without the lock: a name stays as it is */
    const bool news = state->counts.denied != state->told.denied || state->counts.would_deny != state->told.would_deny;
    const bool over = state->phase == DENIAL_SAID && !news;
    const struct denial_counts *from = over ? &state->before : &state->told;
    const bool enforces = state->counts.denied != from->denied;
    size_t phrase = state->phase == DENIAL_SAID ? 1 : 0;
    if (over) {
        phrase = 2;
    }
    const uint64_t since_ns = state->phase == DENIAL_FOUND || over ? state->begun_ns : state->line_ns;

    char bytes[LINE_SIZE];
    struct text text = {.buffer = bytes, .size = sizeof(bytes), .length = 0};
    text_add(&text, "policy %s %s: ", name, enforces ? phrases[phrase].denies : phrases[phrase].would_deny);
    add_counts(&text, from, &state->counts);
    text_add(&text, " in %" PRIu64 " s", seconds(since_ns, over ? state->denied_ns : now_ns));
    if (!over) {
        add_keys(&text, &log->recent[group], name, form);
    }
    state->phase = over ? DENIAL_NONE : DENIAL_SAID;
    state->told = state->counts;
    state->line_ns = now_ns;
    memset(&log->recent[group], 0, sizeof(log->recent[group]));
    char line[2 * LINE_SIZE];
    (void) plain_line(line, sizeof(line), bytes); /* a form of the host's own wrote the keys */
    w->options.log(w->options.log_arg, WEIR_LOG_INFO, line);
}

void denial_log_step(weir *w, uint64_t monotonic_ns)
{
    struct denial_log *log = &w->denials;
    /* Somebody is changing policies, and may wait long for readers: next time. */
    if (log->states == NULL || monotonic_ns < log->next_ns || !policy_lock_try(w)) {
        return;
    }
    find_groups(log, &w->names);
    policy_lock_release(w);
    log->next_ns = monotonic_ns + DENIAL_LOOK_NS;
    sum_up(log, &w->limiter);
    for (weir_policy_id group = 1; group <= log->known; group++) {
        if (!look(log, group, monotonic_ns)) {
            continue;
        }
        if (!policy_lock_try(w)) {
            continue; /* tried again at the next look */
        }
        const weir_key_form *form = policy_names_form(&w->names, w->names.names[group]);
        policy_lock_release(w);
        say(w, group, form, monotonic_ns);
    }
    log->look_ns = monotonic_ns;
}
