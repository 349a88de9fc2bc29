/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See backends.h.
 *
 * Ordering. The list is a sequence lock whose fields are atomic. A view that reads while the list is changed finds an
 * odd or another sequence, keeps what it had, and reads again in the next turn.
 *   [B1] The version is added to (release) after what it is about has been written; a view loads it (acquire) before
 *        it reads, so what came later makes the view read again.
 *   [B2] A role is stored (release) after the address and the name of its place; a view loads the role (acquire)
 *        before it reads these.
 *   [B4] The sequence is made odd before any field is stored (release), and a view loads the fields (acquire) before
 *        it reads the sequence again: whoever read a field of the change finds the sequence changed.
 *   [B3] A worker stores the version of its view (release) once it has no session of a backend that its view does not
 *        have; backends_replace loads that (acquire) before it gives the place to another backend.
 * Progress: workers are wait-free here.
 */
#include "backends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void backends_init(struct backends *backends, const char *secret, struct backend_reports **reporters, unsigned count)
{
    memset(backends, 0, sizeof(*backends));
    (void) pthread_mutex_init(&backends->lock, NULL);
    rendezvous_init(&backends->rendezvous, secret);
    backends->reporters = reporters;
    backends->reporter_count = count;
    atomic_store_explicit(&backends->version, 1, memory_order_relaxed); /* a view begins with 0 */
}

bool backends_check(const struct backend_choice *choices, unsigned count, char *problem, size_t size)
{
    if (count == 0 || count > BACKENDS_MAX) {
        (void) snprintf(problem, size, "give 1 to %d backends", BACKENDS_MAX);
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < i; j++) {
            if (address_is_same(&choices[i].address, &choices[j].address)) {
                (void) snprintf(problem, size, "%s is given twice%s%s", choices[i].text,
                                strcmp(choices[i].text, choices[j].text) == 0 ? "" : ", also as ",
                                strcmp(choices[i].text, choices[j].text) == 0 ? "" : choices[j].text);
                return false;
            }
        }
    }
    return true;
}

struct backend_sums backends_sums(const struct backends *backends, unsigned place)
{
    const struct backend_sums *before = &backends->places[place].before;
    struct backend_sums sums = {0, 0, 0, 0};
    for (unsigned i = 0; i < backends->reporter_count; i++) {
        const struct backend_counters *counters = &backends->reporters[i]->of[place];
        sums.sent += atomic_load_explicit(&counters->sent, memory_order_relaxed);
        sums.replies += atomic_load_explicit(&counters->replies, memory_order_relaxed);
        sums.refused += atomic_load_explicit(&counters->refused, memory_order_relaxed);
        sums.sessions += atomic_load_explicit(&counters->sessions, memory_order_relaxed);
    }
    sums.sent -= before->sent;
    sums.replies -= before->replies;
    sums.refused -= before->refused;
    return sums;
}

bool backends_all_down(const struct backends *backends)
{
    for (unsigned i = 0; i < BACKEND_PLACES; i++) {
        const struct backend *backend = &backends->places[i];
        if (backend_role(backend) == BACKEND_SERVES && health_reasons(&backend->health) == 0) {
            return false;
        }
    }
    return true;
}

void backends_changed(struct backends *backends)
{
    (void) atomic_fetch_add_explicit(&backends->version, 1, memory_order_release); /* [B1] */
}

/* Whether no worker reads a place, and none will: all views were made after its backend had left. */
static bool is_free(const struct backends *backends, unsigned place)
{
    const struct backend *backend = &backends->places[place];
    if (backend_role(backend) != BACKEND_ABSENT) {
        return false;
    }
    for (unsigned i = 0; i < backends->reporter_count && *backend->text != '\0'; i++) {
        /* [B3] acquire: pairs with the release of view_settled(). */
        if (atomic_load_explicit(&backends->reporters[i]->version, memory_order_acquire) < backend->left_version) {
            return false;
        }
    }
    return true;
}

/* The place of a backend that has one, or had it last. BACKEND_PLACES: there is none. */
static unsigned find(const struct backends *backends, const struct address *address)
{
    unsigned place = 0;
    while (place < BACKEND_PLACES &&
           (*backends->places[place].text == '\0' || !address_is_same(&backends->places[place].address, address))) {
        place++;
    }
    return place;
}

/* A free place that is not taken yet, of those the one that has been free for longest. BACKEND_PLACES: there is none.
 */
static unsigned find_free(const struct backends *backends, const bool taken[BACKEND_PLACES])
{
    unsigned found = BACKEND_PLACES;
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        if (!taken[place] && is_free(backends, place) &&
            (found == BACKEND_PLACES || backends->places[place].left_version < backends->places[found].left_version)) {
            found = place;
        }
    }
    return found;
}

/* Gives a free place to a backend, which is absent for now. */
static void settle_in(struct backends *backends, unsigned place, const struct backend_choice *choice)
{
    struct backend *backend = &backends->places[place];
    memset(&backend->before, 0, sizeof(backend->before));
    backend->before = backends_sums(backends, place);
    memcpy(backend->text, choice->text, sizeof(backend->text));
    backend->address = choice->address;
    backend->name = rendezvous_backend(&backends->rendezvous, &choice->address);
}

/* Finds a place for each choice. 0, or -EAGAIN: there are too few. */
static int find_places(const struct backends *backends, const struct backend_choice *choices, unsigned count,
                       unsigned places[BACKENDS_MAX], bool taken[BACKEND_PLACES])
{
    for (unsigned i = 0; i < count; i++) {
        places[i] = find(backends, &choices[i].address);
        if (places[i] != BACKEND_PLACES) {
            taken[places[i]] = true;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (places[i] == BACKEND_PLACES) {
            places[i] = find_free(backends, taken);
            if (places[i] == BACKEND_PLACES) {
                return -EAGAIN;
            }
            taken[places[i]] = true;
        }
    }
    return 0;
}

/* Writes the roles of the places. */
static void set_roles(struct backends *backends, const struct backend_choice *choices, unsigned count,
                      const unsigned places[BACKENDS_MAX], const bool taken[BACKEND_PLACES])
{
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        struct backend *backend = &backends->places[place];
        if (!taken[place] && backend_role(backend) != BACKEND_ABSENT) {
            backend->left_version = UINT64_MAX; /* until the version is known */
            atomic_store_explicit(&backend->role, BACKEND_ABSENT, memory_order_release); /* [B4] */
        }
    }
    for (unsigned i = 0; i < count; i++) {
        struct backend *backend = &backends->places[places[i]];
        if (backend_role(backend) == BACKEND_ABSENT) {
            health_init(&backend->health);
        }
        atomic_store_explicit(&backend->weight, choices[i].weight, memory_order_release); /* [B4] */
        atomic_store_explicit(&backend->role, choices[i].drain ? BACKEND_DRAINING : BACKEND_SERVES,
                              memory_order_release); /* [B2] [B4] */
    }
}

/* Writes the roles as one change. */
static void change(struct backends *backends, const struct backend_choice *choices, unsigned count,
                   const unsigned places[BACKENDS_MAX], const bool taken[BACKEND_PLACES])
{
    (void) atomic_fetch_add_explicit(&backends->sequence, 1, memory_order_relaxed);
    set_roles(backends, choices, count, places, taken);
    (void) atomic_fetch_add_explicit(&backends->sequence, 1, memory_order_release);
    const uint64_t version = atomic_fetch_add_explicit(&backends->version, 1, memory_order_release) + 1; /* [B1] */
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        if (backends->places[place].left_version == UINT64_MAX) {
            backends->places[place].left_version = version;
        }
    }
}

bool backends_have_room(struct backends *backends, const struct backend_choice *choices, unsigned count)
{
    unsigned places[BACKENDS_MAX];
    bool taken[BACKEND_PLACES] = {false};
    (void) pthread_mutex_lock(&backends->lock);
    const int result = find_places(backends, choices, count, places, taken);
    (void) pthread_mutex_unlock(&backends->lock);
    return result == 0;
}

int backends_replace(struct backends *backends, const struct backend_choice *choices, unsigned count, char *problem,
                     size_t size)
{
    unsigned places[BACKENDS_MAX];
    bool taken[BACKEND_PLACES] = {false};
    if (!backends_check(choices, count, problem, size)) {
        return -EINVAL;
    }
    (void) pthread_mutex_lock(&backends->lock);
    const int result = find_places(backends, choices, count, places, taken);
    if (result != 0) {
        (void) snprintf(problem, size, "too many backends were exchanged within a moment; try again");
    } else {
        for (unsigned i = 0; i < count; i++) {
            const struct backend *backend = &backends->places[places[i]];
            if (*backend->text == '\0' || !address_is_same(&backend->address, &choices[i].address)) {
                settle_in(backends, places[i], &choices[i]);
            }
        }
        change(backends, choices, count, places, taken);
    }
    (void) pthread_mutex_unlock(&backends->lock);
    return result;
}
