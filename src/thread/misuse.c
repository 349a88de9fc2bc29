/* SPDX-License-Identifier: Apache-2.0 */
/* See misuse.h. Progress: lock-free. */
#include "thread/misuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "thread/handle.h"

enum misuse { MISUSE_NONE, MISUSE_CLOSED, MISUSE_DETACHED, MISUSE_OTHER_THREAD, MISUSE_WITHIN };

/* Behind "CALL was called ", by kind. */
static const char *const sentences[] = {
    [MISUSE_CLOSED] = "after weir_close; end the threads that check first, or leave by weir_leave",
    [MISUSE_DETACHED] = "with a handle that is detached; a thread that has detached attaches anew",
    [MISUSE_OTHER_THREAD] = "with another thread's handle; each thread attaches its own, or weir_unbind gives it away",
    [MISUSE_WITHIN] = "within another call of its thread, as from a signal handler; set a flag there, and call later",
};

/* Those that were closed: a leak checker finds their memory here. */
static struct limiter *_Atomic kept;

bool misuse_is_asked_for(void)
{
    const char *value = getenv("WEIR_DEBUG");
    return value != NULL && *value != '\0' && strcmp(value, "0") != 0;
}

static bool is_in_section(const struct weir_thread *t)
{
    return load_relaxed(&t->shared->rcu_count) % 2 != 0; /* the caller's own */
}

/* Whether a handle is bound to a thread, and which. */
static uint64_t token_of(const struct weir_thread *t)
{
    return load_relaxed(&t->shared->owner) & HANDLE_STATE_MASK;
}

static enum misuse find(const struct weir_thread *t)
{
    if (load_acquire(&t->limiter->is_closed) != 0) { /* pairs with misuse_keep() */
        return MISUSE_CLOSED;
    }
    const uint64_t token = token_of(t);
    if (token == HANDLE_FREE || token == HANDLE_LEAVING || load_relaxed(&t->is_own) == 0) {
        return MISUSE_DETACHED;
    }
    if (token != HANDLE_UNBOUND && token != handle_token()) {
        return MISUSE_OTHER_THREAD;
    }
    return is_in_section(t) ? MISUSE_WITHIN : MISUSE_NONE;
}

static void tell(struct limiter *limiter, const char *call, enum misuse kind)
{
    const uint32_t bit = UINT32_C(1) << kind;
    char sentence[256];
    if ((or_relaxed(&limiter->misuses, bit) & bit) != 0 || limiter->misused == NULL) {
        return;
    }
    (void) snprintf(sentence, sizeof(sentence), "%s was called %s", call, sentences[kind]);
    limiter->misused(limiter, sentence);
}

bool misuse_allows(const struct weir_thread *t, const char *call)
{
    const enum misuse kind = find(t);
    if (kind != MISUSE_NONE) {
        tell(t->limiter, call, kind);
    }
    return kind != MISUSE_CLOSED;
}

bool misuse_allows_without(struct limiter *limiter, const char *call)
{
    if (load_acquire(&limiter->is_closed) != 0) { /* pairs with misuse_keep() */
        tell(limiter, call, MISUSE_CLOSED);
        return false;
    }
    if (misuse_is_within_call(limiter)) {
        tell(limiter, call, MISUSE_WITHIN);
    }
    return true;
}

bool misuse_is_within_call(const struct limiter *limiter)
{
    const uint64_t token = handle_token();
    const uint32_t high = limiter_thread_high(limiter);
    bool within = false;
    for (uint32_t i = 0; i < high && token != HANDLE_UNBOUND && !within; i++) {
        const struct weir_thread *t = &limiter->threads[i];
        within = load_relaxed(&t->is_own) != 0 && token_of(t) == token && is_in_section(t);
    }
    return within;
}

void misuse_keep(struct limiter *limiter)
{
    store_release(&limiter->is_closed, 1); /* pairs with its readers */
    limiter->watched_next = load_relaxed(&kept);
    while (!cas_seq_cst(&kept, &limiter->watched_next, limiter)) {
    }
}
