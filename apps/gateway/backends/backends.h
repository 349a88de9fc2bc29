/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends that are in force, and what all threads know of them. A backend is known by its address. It has a place
 * from the moment that a list names it until no list names it and no thread has a session there.
 *
 * Threads: each worker has a view (view.h), which it brings up to date at the beginning of a turn: a new list, or a
 * backend that went down, is in force for a thread from its next turn on. A worker takes no lock and waits for nobody.
 * The functions here are for any thread but the workers, and take `lock`; backends_changed takes none.
 */
#ifndef WEIR_GATEWAY_BACKENDS_BACKENDS_H
#define WEIR_GATEWAY_BACKENDS_BACKENDS_H

#include <pthread.h>
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

/* Sums over all workers. */
struct backend_sums {
    uint64_t sent, replies, refused, sessions;
};

struct backend {
    /* Written under the lock, while the place is free: then no worker reads it. */
    char text[BACKEND_TEXT_SIZE]; /* empty: it has never been taken */
    struct address address;
    struct rendezvous_name name;
    /* Written and read under the lock: */
    uint64_t left_version;      /* from which on views do not have it, while it is absent */
    struct backend_sums before; /* what backends that had the place earlier left in the counters */
    /* Written under the lock: */
    _Atomic uint32_t role; /* an enum backend_role */
    _Atomic uint32_t weight;
    /* Written by any thread: */
    struct backend_health health;
};

struct backends {
    pthread_mutex_t lock;
    _Atomic uint64_t version;  /* grows whenever a view has something new to learn */
    _Atomic uint32_t sequence; /* odd while the list is being changed */
    struct rendezvous rendezvous;
    bool has_probes; /* answers to these alone end a refusal */
    unsigned reporter_count;
    struct backend_reports **reporters; /* of all workers */
    struct backend places[BACKEND_PLACES];
};

/*
 * `secret` NULL: the choice can be worked out by anybody. The reports, of `count` workers, must outlive the backends.
 * No list is in force yet.
 */
void backends_init(struct backends *backends, const char *secret, struct backend_reports **reporters, unsigned count);

/* Whether a list can be put in force. False: `problem` says why not. */
bool backends_check(const struct backend_choice *choices, unsigned count, char *problem, size_t size);

/*
 * Whether there is room for the backends of a list that are new: -EAGAIN of backends_replace(). Where there is, nothing
 * but another list takes the room.
 */
bool backends_have_room(struct backends *backends, const struct backend_choice *choices, unsigned count);

/*
 * Puts a list in force: 1 to BACKENDS_MAX backends, no two of one address. A backend that stays keeps its sessions, its
 * counts and its health, and the text that it had first. The clients of one that is gone get another one with their
 * next packet. The list is copied. 0 or a negative errno value, and then nothing has changed and `problem` says why:
 *   -EINVAL  what backends_check finds
 *   -EAGAIN  threads still have sessions of backends that earlier lists had; try again a moment later
 */
int backends_replace(struct backends *backends, const struct backend_choice *choices, unsigned count, char *problem,
                     size_t size);

/* Tells all views that there is something new. Threads: any, workers included. */
void backends_changed(struct backends *backends);

static inline enum backend_role backend_role(const struct backend *backend)
{
    return (enum backend_role) atomic_load_explicit(&backend->role, memory_order_relaxed);
}

/* The packets of the backend at a place, since it has the place, and its sessions. Under the lock. */
struct backend_sums backends_sums(const struct backends *backends, unsigned place);

/* Whether new sessions go to backends that are down, as all that serve are. Under the lock. */
bool backends_all_down(const struct backends *backends);

#endif
