/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Denials in the kernel: packets of sources and networks whose denials repeat are dropped by an XDP program at the
 * network interface, until the time at which their limit would let a packet pass.
 *
 * A worker that denies a key again and again asks the limits for that time, and hands it to the kernel. A denial is
 * held for XDP_HOLD_NS at most. While packets of the key come, a thread of its own asks the limits anew before that
 * time is over, and has them dropped longer; now and then a packet reaches a worker all the same. So what other nodes,
 * refunds or a reset have changed is noticed within that time. A reload lets everything pass at once, and so does a
 * change of the overrides within XDP_OVERRIDES_MS. The same thread tells the limits what was dropped, as demand.
 *
 * The program is gone with the process, however the process ends: the kernel drops the link with its descriptor. An
 * interface may go and come back meanwhile: the thread looks each second, and attaches the program anew.
 */
#ifndef WEIR_GATEWAY_XDP_XDP_H
#define WEIR_GATEWAY_XDP_XDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "../address.h"
#include "../policies.h"
#include "repeats.h"

/* The longest time for which a denial is held: what others have changed is noticed within it. */
#define XDP_HOLD_NS UINT64_C(1000000000)

/* How often the overrides are looked at. */
#define XDP_OVERRIDES_MS 200

/* Times of the limits may be this old: the gateway's tick, and some. */
#define XDP_STALE_NS UINT64_C(1500000)

/* A denial that holds for less is not worth the words. */
#define XDP_LEAST_NS UINT64_C(200000)

struct xdp;
struct xdp_link;

/* What one worker remembers of the keys that it denies. */
struct xdp_view {
    struct xdp *xdp; /* NULL: nothing is dropped in the kernel */
    struct repeats repeats;
};

/* What forwarding takes. */
struct xdp_forwarding {
    unsigned workers;
    uint32_t sessions; /* clients, of all workers */
};

/* What a page says of it. */
struct xdp_status {
    const char *interface, *mode; /* "native" or "generic"; "off": the interface is away */
    bool is_attached;             /* the program is on the interface */
    bool drops;                   /* there are limits, so that packets may be dropped */
    bool forwards;                /* the program can hand packets to AF_XDP */
    uint32_t keys;                /* that are held */
    uint64_t packets, bytes;      /* dropped */
    uint64_t invalid_sources;     /* packets dropped as no client has their source: see ../loops.h */
};

/* Whether an option can be taken: "eth0", and behind it ",mode=native" or ",mode=generic", and ",forward". */
bool xdp_option_is_good(const char *option);

/* Whether an option asks for forwarding; false: there is none, too. */
bool xdp_wants_forward(const char *option);

/*
 * Attaches the program, and starts the thread. `option` is good. NULL: `problem` says in one sentence what is missing.
 * `policies` and `w` stay the caller's until xdp_stop(). `w` NULL: nothing is limited, and the program forwards alone.
 * `forwarding` NULL: the program does not forward.
 */
struct xdp *xdp_start(const char *option, const struct xdp_forwarding *forwarding, const struct policies *policies,
                      weir *w, char *problem, size_t size);
void xdp_stop(struct xdp *xdp); /* NULL is allowed */

/*
 * Packets to an address are looked at from now on; NULL: no longer. `forwards`: they may be taken past the network
 * stack. `number`: the listener's, below LISTENER_SLOTS. Main thread. `xdp` may be NULL.
 */
void xdp_set_listener(struct xdp *xdp, unsigned number, const struct address *listen, bool forwards);

/*
 * Has the thread call `watch` each second with the index of the interface that the program is on, and with 0 before it
 * is put on another one, and while it is on none. NULL: it calls it no more; waits for a call under way.
 */
typedef void (*xdp_watch_fn)(void *arg, unsigned interface);
void xdp_watch(struct xdp *xdp, xdp_watch_fn watch, void *arg);

/* The program, for what forwards. `xdp` is there. */
struct xdp_link *xdp_get_link(struct xdp *xdp);
const char *xdp_get_interface(const struct xdp *xdp);

/* The policies in force have changed: all denials are said anew. Main thread. */
void xdp_policies_changed(struct xdp *xdp); /* NULL is allowed */

/* A packet from an address was denied by a key of `policy`. `now`: in seconds. */
void xdp_denied(struct xdp_view *view, weir_thread *limits, const weir_key *key, const struct gateway_policy *policy,
                const struct address *from, uint32_t now);

/* False: nothing is dropped in the kernel. `xdp` may be NULL. */
bool xdp_get_status(struct xdp *xdp, struct xdp_status *out);

#endif
