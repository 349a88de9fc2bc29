/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's copy of what there is of backends: which of them new sessions may go to, and which sessions may stay where
 * they are. While none of this changes, it costs a load a turn.
 *
 *   new sessions   go to backends that serve and are up; where none is, to all that serve, as if all were up: checks
 *                  may be wrong, and a client that is sent to a backend that is down loses nothing by it
 *   sessions       stay while their backend is in the list and up, or while no backend that serves is up; the others
 *                  move with their client's next packet
 *
 * So a backend that comes back gets new sessions, and none of those that moved: a game goes on where it is.
 *
 * Threads: one, the worker's own.
 */
#ifndef WEIR_GATEWAY_BACKENDS_VIEW_H
#define WEIR_GATEWAY_BACKENDS_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends.h"

/* Of view_choose: no backend serves, all that there are drain. */
#define BACKEND_NONE UINT8_MAX

struct backends_view {
    struct backends *backends;
    struct backend_reports *reports; /* of this worker */
    uint64_t version;
    unsigned count; /* of candidates, for new sessions */
    struct {
        uint8_t place;
        uint32_t weight;
    } candidates[BACKENDS_MAX];
    bool stays[BACKEND_PLACES];   /* sessions there may stay */
    bool is_gone[BACKEND_PLACES]; /* no list has it any more: its sessions are to be ended */
};

void view_init(struct backends_view *view, struct backends *backends, struct backend_reports *reports);

/* Brings it up to date. True: something has changed. The sessions of backends that are gone are to be ended then. */
bool view_update(struct backends_view *view);

/* Tells that the worker has no session of a backend that the view does not have. After each view_update. */
void view_settled(struct backends_view *view);

/* The place of the backend for a new session of a client; BACKEND_NONE: there is none. */
uint8_t view_choose(const struct backends_view *view, const struct address *client);

static inline struct backend *view_backend(const struct backends_view *view, uint8_t place)
{
    return &view->backends->places[place];
}

/* Notes packets that were sent to a backend, replies of it, and refusals. */
void view_note_sent(struct backends_view *view, uint8_t place, uint64_t packets, uint32_t now);
void view_note_replies(struct backends_view *view, uint8_t place, uint64_t packets, uint32_t now);
void view_note_refusals(struct backends_view *view, uint8_t place, uint64_t packets, int error, uint32_t now);

/* Notes a session that begins (1) or ends (-1). */
void view_note_session(struct backends_view *view, uint8_t place, int change);

#endif
