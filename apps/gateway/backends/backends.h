/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends that are in force, and what all threads know of them. A backend is known by its address. It has a place
 * from the moment that a list names it until no list names it and no thread has a session there.
 *
 * Threads: backends_replace is the main thread's, or that of whoever holds no other call of it at the time. All other
 * functions are for any thread, and none of them takes a lock or waits. Each worker has a view (view.h), which it
 * brings up to date at the beginning of a turn: a new list, or a backend that went down, is in force for a thread from
 * its next turn on.
 */
#ifndef WEIR_GATEWAY_BACKENDS_BACKENDS_H
#define WEIR_GATEWAY_BACKENDS_BACKENDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "choice.h"
#include "health.h"
#include "rendezvous.h"

/* Room for a list that has no backend of the one before. */
#define BACKEND_PLACES (2 * BACKENDS_MAX)

/* Written by one worker, read by any thread. */
struct backend_counters {
    _Atomic uint64_t sent, replies, refused; /* packets */
    _Atomic uint64_t sessions;               /* now */
};

/* What a worker tells of its backends. */
struct backend_reports {
    _Atomic uint64_t version; /* of `backends`, which the worker's view has */
    struct backend_counters of[BACKEND_PLACES];
};

/* A backend's part in the list in force. */
enum backend_role {
    BACKEND_ABSENT,   /* its clients go elsewhere */
    BACKEND_SERVES,   /* it gets new sessions */
    BACKEND_DRAINING, /* it keeps the sessions that it has */
};

struct backend {
    /* Written while the place is free, so while no thread reads it: */
    char text[BACKEND_TEXT_SIZE];
    struct address address;
    struct rendezvous_name name;
    /* Written by backends_replace: */
    _Atomic uint32_t role; /* an enum backend_role */
    _Atomic uint32_t weight;
    /* Written by any thread: */
    struct backend_health health;
};

struct backends {
    _Atomic uint64_t version;  /* grows whenever a view has something new to learn */
    _Atomic uint32_t sequence; /* odd while the list is being changed */
    struct rendezvous rendezvous;
    unsigned reporter_count;
    struct backend_reports **reporters; /* of all workers */
    struct backend places[BACKEND_PLACES];
};

/*
 * `secret` NULL: the choice can be worked out by anybody. The reports must outlive the backends. No list is in force
 * yet.
 */
void backends_init(struct backends *backends, const char *secret, struct backend_reports **reporters, unsigned count);

/*
 * Puts a list in force: 1 to BACKENDS_MAX backends, no two of one address. A backend that stays keeps its sessions, its
 * counts and its health. The clients of one that is gone get another one. The list is copied. 0 or a negative errno
 * value, and then nothing has changed and `error` says why:
 *   -EINVAL  an empty list, too many backends, or two of one address
 *   -EAGAIN  threads still have sessions of backends that earlier lists had; try again a moment later
 */
int backends_replace(struct backends *backends, const struct backend_choice *choices, unsigned count, char *error,
                     size_t size);

/* Whether a list may be put in force: the checks of backends_replace that need no state. */
bool backends_check(const struct backend_choice *choices, unsigned count, char *error, size_t size);

/* Tells all views that there is something new. */
void backends_changed(struct backends *backends);

#endif
