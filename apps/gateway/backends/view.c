/* SPDX-License-Identifier: Apache-2.0 */
/* See view.h; the orderings have their names in backends.c. */
#include "view.h"

#include <string.h>

void view_init(struct backends_view *view, struct backends *backends, struct backend_reports *reports)
{
    memset(view, 0, sizeof(*view));
    view->backends = backends;
    view->reports = reports;
    (void) view_update(view);
    view_settled(view);
}

/* What one reading of the list has. */
struct reading {
    enum backend_role roles[BACKEND_PLACES];
    uint32_t weights[BACKEND_PLACES];
    bool is_up[BACKEND_PLACES];
    bool any_up; /* of those that serve */
};

/* False: the list is being changed. */
static bool read_list(const struct backends *backends, struct reading *out)
{
    const uint32_t sequence = atomic_load_explicit(&backends->sequence, memory_order_acquire);
    out->any_up = false;
    for (unsigned i = 0; i < BACKEND_PLACES; i++) {
        const struct backend *backend = &backends->places[i];
        out->roles[i] = (enum backend_role) atomic_load_explicit(&backend->role, memory_order_acquire); /* [B2] [B4] */
        out->weights[i] = atomic_load_explicit(&backend->weight, memory_order_acquire);                 /* [B4] */
        out->is_up[i] = health_reasons(&backend->health) == 0;
        out->any_up = out->any_up || (out->roles[i] == BACKEND_SERVES && out->is_up[i]);
    }
    return sequence % 2 == 0 && atomic_load_explicit(&backends->sequence, memory_order_relaxed) == sequence;
}

static void view_read_slow(struct backends_view *view, const struct reading *reading)
{
    view->count = 0;
    for (unsigned i = 0; i < BACKEND_PLACES; i++) {
        const bool is_taken = reading->is_up[i] || !reading->any_up;
        view->is_gone[i] = reading->roles[i] == BACKEND_ABSENT;
        view->stays[i] = !view->is_gone[i] && is_taken;
        if (reading->roles[i] == BACKEND_SERVES && is_taken) {
            view->candidates[view->count].place = (uint8_t) i;
            view->candidates[view->count++].weight = reading->weights[i];
        }
    }
}

bool view_update(struct backends_view *view)
{
    struct reading reading;
    /* [B1] acquire: pairs with backends_changed(). */
    const uint64_t version = atomic_load_explicit(&view->backends->version, memory_order_acquire);
    if (version == view->version || !read_list(view->backends, &reading)) {
        return false;
    }
    view->version = version;
    view_read_slow(view, &reading);
    return true;
}

void view_settled(struct backends_view *view)
{
    /* [B3] release: pairs with is_free(); the sessions have ended before. */
    atomic_store_explicit(&view->reports->version, view->version, memory_order_release);
}

uint8_t view_choose(const struct backends_view *view, const struct address *client)
{
    if (view->count <= 1) {
        return view->count == 1 ? view->candidates[0].place : BACKEND_NONE;
    }
    const struct rendezvous_name name = rendezvous_client(&view->backends->rendezvous, client);
    unsigned best = 0;
    struct rendezvous_draw best_draw = {0, 0};
    for (unsigned i = 0; i < view->count; i++) {
        const struct backend *backend = view_backend(view, view->candidates[i].place);
        const struct rendezvous_draw draw = rendezvous_draw(&name, &backend->name, view->candidates[i].weight);
        if (i == 0 || rendezvous_beats(&draw, &best_draw)) {
            best = i;
            best_draw = draw;
        }
    }
    return view->candidates[best].place;
}

static void count(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer: no read-modify-write. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

void view_note_sent(struct backends_view *view, uint8_t place, uint64_t packets, uint32_t now)
{
    struct backend_health *health = &view_backend(view, place)->health;
    count(&view->reports->of[place].sent, packets);
    if ((health_reasons(health) & BACKEND_REFUSES) != 0 && packets != 0) {
        health_sent_slow(health, now);
    }
}

void view_note_replies(struct backends_view *view, uint8_t place, uint64_t packets, uint32_t now)
{
    struct backend *backend = view_backend(view, place);
    count(&view->reports->of[place].replies, packets);
    if ((health_reasons(&backend->health) & BACKEND_REFUSES) != 0 && !view->backends->has_probes &&
        health_replied_slow(&backend->health, backend->text, now)) {
        backends_changed(view->backends);
    }
}

void view_note_refusals(struct backends_view *view, uint8_t place, uint64_t packets, int error, uint32_t now)
{
    struct backend *backend = view_backend(view, place);
    count(&view->reports->of[place].refused, packets);
    if (health_refused(&backend->health, backend->text, error, now)) {
        backends_changed(view->backends);
    }
}

void view_note_session(struct backends_view *view, uint8_t place, int change)
{
    count(&view->reports->of[place].sessions, (uint64_t) (int64_t) change);
}
