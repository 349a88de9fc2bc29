/* SPDX-License-Identifier: Apache-2.0 */
/* See xdp.h. */
#include "xdp.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../listeners.h"
#include "../log.h"
#include "../network.h"
#include "held.h"
#include "link.h"
#include "locals.h"

/* Keys that are held at once, half as many as there are lines: nearly every key finds one near its home. */
#define CAPACITY (DROP_LINES / 2)

/*
 * How often what was dropped is told of: of some 3,000 keys each turn, and of more of them in several turns, SWEEP_MS
 * at most. That is done in pieces, so that a worker that shares a processor with the thread does not wait for 10,000
 * keys: the time between two pieces, and the least and most keys of one. To tell of a key takes a microsecond.
 */
#define TURN_MS     100
#define SWEEP_MS    500
#define PIECE_MS    2
#define PIECES      (SWEEP_MS / PIECE_MS)
#define PIECE_LEAST 64
#define PIECE_MOST  (CAPACITY / PIECES + 1)

/* A key of which packets come is held longer when less than this is left: the next sweep may be SWEEP_MS away. */
#define RENEW_NS ((SWEEP_MS + 200) * UINT64_C(1000000))

#define OVERRIDES_TURNS (XDP_OVERRIDES_MS / TURN_MS)

/* Whether the program is still on its interface is looked at every so many turns. */
#define LINK_TURNS 10

/* The host's own addresses are looked up again every so many turns. */
#define LOCALS_TURNS 20

struct xdp {
    struct xdp_link_options options;
    struct xdp_link *link;
    struct held held;
    struct locals locals;      /* where the gateway listens on all addresses */
    _Atomic unsigned attached; /* the index of the interface that the program is on; 0: it is away */
    _Atomic int mode;          /* enum link_mode */
    char told[160];            /* of the log's last line about that; "": the program is on it */
    pthread_mutex_t mutex;     /* of what follows; held while it is called */
    xdp_watch_fn watch;
    void *watch_arg;
    const struct policies *policies;
    weir *weir;
    weir_thread *limits; /* of the thread that sweeps; NULL: nothing is limited */
    pthread_t thread;
    _Atomic bool stopping;
    _Atomic uint64_t packets, bytes;
    uint64_t overrides;                  /* a hash of all that there were when they were looked at last */
    _Atomic unsigned allowed4, allowed6; /* the most bits of a network that all policies are to allow */
    bool overrides_changed;
    _Atomic bool policies_changed; /* since the overrides were looked at last */
    struct held_drops drops[PIECE_MOST];
};

static uint64_t boot_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t) now.tv_sec * 1000000000U + (uint64_t) now.tv_nsec;
}

/* Takes `word` off the front of a text. */
static bool take_word(const char **text, const char *word)
{
    const size_t length = strlen(word);
    const bool found = strncmp(*text, word, length) == 0 && ((*text)[length] == '\0' || (*text)[length] == ',');
    *text += found ? length : 0;
    return found;
}

/* Splits an option. False: it is malformed. */
static bool read_option(const char *option, struct xdp_link_options *out)
{
    const size_t length = strcspn(option, ",");
    const char *rest = option + length;
    if (length == 0 || length >= IF_NAMESIZE || strcspn(option, "\"\\ \t\n") < length) {
        return false;
    }
    *out = (struct xdp_link_options){.mode = LINK_ANY};
    memcpy(out->interface, option, length);
    while (*rest != '\0') {
        if (out->mode == LINK_ANY && take_word(&rest, ",mode=native")) {
            out->mode = LINK_NATIVE;
        } else if (out->mode == LINK_ANY && take_word(&rest, ",mode=generic")) {
            out->mode = LINK_GENERIC;
        } else if (!out->forward && take_word(&rest, ",forward")) {
            out->forward = true;
        } else {
            return false;
        }
    }
    return true;
}

bool xdp_option_is_good(const char *option)
{
    struct xdp_link_options options;
    return read_option(option, &options);
}

bool xdp_wants_forward(const char *option)
{
    struct xdp_link_options options;
    return option != NULL && read_option(option, &options) && options.forward;
}

/* Short prefixes first: networks are few, and their lines are in the processor's cache in a flood of many sources. */
static void add_prefix(unsigned char *prefixes, unsigned char *count, unsigned prefix)
{
    size_t at = 0;
    while (at < *count && prefixes[at] < prefix) {
        at++;
    }
    if ((at < *count && prefixes[at] == prefix) || *count == DROP_PREFIXES) {
        return;
    }
    memmove(prefixes + at + 1, prefixes + at, *count - at);
    prefixes[at] = (unsigned char) prefix;
    (*count)++;
}

/* The prefixes by which packets are looked up. A packet that is looked up meanwhile may pass. */
static void set_prefixes(const struct xdp *xdp)
{
    struct drop_target *target = xdp_link_target(xdp->link);
    struct drop_target next = *target;
    const size_t count = atomic_load(&xdp->policies->count);
    next.count4 = next.count6 = 0;
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &xdp->policies->all[i];
        if (atomic_load(&policy->id) == WEIR_NO_POLICY || policy->kind.scope == SCOPE_OVERALL ||
            policy->kind.packet_kind[0] != '\0') {
            continue;
        }
        const bool source = policy->kind.scope == SCOPE_SOURCE;
        if (policy_kind_concerns(&policy->kind, true)) {
            add_prefix(next.prefixes4, &next.count4, source ? 32 : policy->kind.prefix);
        }
        if (policy_kind_concerns(&policy->kind, false)) {
            add_prefix(next.prefixes6, &next.count6, source ? SOURCE_PREFIX : policy->kind.prefix);
        }
    }
    target->count4 = target->count6 = 0;
    memcpy(target->prefixes4, next.prefixes4, sizeof(next.prefixes4));
    memcpy(target->prefixes6, next.prefixes6, sizeof(next.prefixes6));
    atomic_thread_fence(memory_order_seq_cst); /* the kernel's program counts no prefix before it is there */
    target->count4 = next.count4;
    target->count6 = next.count6;
}

_Static_assert(DROP_LISTENERS >= LISTENER_SLOTS, "the program has room for every listener");

void xdp_set_listener(struct xdp *xdp, unsigned number, const struct address *listen, bool forwards)
{
    if (xdp == NULL) {
        return;
    }
    struct drop_target *target = xdp_link_target(xdp->link);
    struct drop_listener *listener = &target->listeners[number];
    __atomic_store_n(&listener->port, 0, __ATOMIC_SEQ_CST);
    if (listen == NULL) {
        return;
    }
    const bool v4 = listen->u.any.sa_family == AF_INET;
    listener->any = address_is_any(listen);
    listener->forwards = forwards;
    listener->is_v4 = v4 || listener->any || network_is_v4(listen);
    listener->is_v6 = !v4 && !network_is_v4(listen);
    if (v4) {
        memcpy(&listener->address4, &listen->u.v4.sin_addr, sizeof(listener->address4));
    } else {
        memcpy(listener->address6, &listen->u.v6.sin6_addr, sizeof(listener->address6));
        memcpy(&listener->address4, &listen->u.v6.sin6_addr.s6_addr[12], sizeof(listener->address4));
    }
    /* The kernel's program finds the address before its port. */
    __atomic_store_n(&listener->port, address_port(listen), __ATOMIC_SEQ_CST);
    target->listener_count = number < target->listener_count ? target->listener_count : number + 1;
}

static void set_local(void *arg, const struct drop_key *address, bool there)
{
    struct xdp *xdp = arg;
    xdp_link_set_local(xdp->link, address, there);
}

/* Until when packets of a key are to be dropped, as it is denied now; 0: they are not. */
static uint64_t denied_until(weir_thread *limits, const weir_key *key)
{
    weir_verdict verdict;
    const uint64_t now_ns = boot_ns(); /* before the limit is asked: a thread may stand still in between */
    if (weir_peek(limits, key, 1, &verdict) || verdict.retry_after_ns < XDP_STALE_NS + XDP_LEAST_NS) {
        return 0;
    }
    const uint64_t wait_ns = verdict.retry_after_ns - XDP_STALE_NS;
    return now_ns + (wait_ns < XDP_HOLD_NS ? wait_ns : XDP_HOLD_NS);
}

/*
 * Has packets of a key dropped longer while its limit denies the key. To ask the limit costs less than a packet that
 * comes to be denied. Where a reload or an override lets a packet pass just after the question, this thread lets all
 * packets pass once more when it looks at the overrides.
 */
static void renew(struct xdp *xdp, const struct held_drops *drops, uint64_t now_ns)
{
    if (drops->until_ns <= now_ns || drops->until_ns - now_ns > RENEW_NS) {
        return;
    }
    const uint64_t until_ns = denied_until(xdp->limits, &drops->key);
    if (until_ns != 0) {
        held_renew(&xdp->held, &drops->drop, until_ns);
    }
}

/* Tells the limits what was dropped of some keys, from *cursor on; 0 again after the last ones. */
static void sweep_piece(struct xdp *xdp, uint32_t *cursor)
{
    const uint32_t share = held_used(&xdp->held) / PIECES + 1;
    const size_t most = share > PIECE_LEAST ? share : PIECE_LEAST;
    const uint64_t now_ns = boot_ns();
    const size_t count = held_sweep(&xdp->held, cursor, most, now_ns, xdp->drops);
    for (size_t i = 0; i < count; i++) {
        const struct held_drops *drops = &xdp->drops[i];
        weir_count_denied(xdp->limits, &drops->key, drops->packets, drops->units);
        (void) atomic_fetch_add(&xdp->packets, drops->packets);
        (void) atomic_fetch_add(&xdp->bytes, drops->packet_bytes);
        renew(xdp, drops, now_ns);
    }
}

static void sweep_all(struct xdp *xdp)
{
    uint32_t cursor = 0;
    do {
        sweep_piece(xdp, &cursor);
    } while (cursor != 0);
}

/* Continues a hash with a text and its end. */
static uint64_t hash_text(uint64_t hash, const char *text)
{
    do {
        hash = (hash ^ (unsigned char) *text) * UINT64_C(1099511628211);
    } while (*text++ != '\0');
    return hash;
}

/* What there is of overrides. */
struct overrides_seen {
    uint64_t sum;
    unsigned allowed4, allowed6;
};

/* Notes a network, or an address, that all policies are to allow. The library has read it. */
static void note_allowed(struct overrides_seen *seen, const char *text)
{
    char host[INET6_ADDRSTRLEN];
    struct in6_addr address = IN6ADDR_ANY_INIT;
    const char *slash = strchr(text, '/');
    const size_t length = slash != NULL ? (size_t) (slash - text) : strlen(text);
    (void) snprintf(host, sizeof(host), "%.*s", (int) length, text);
    const bool is_plain = inet_pton(AF_INET6, host, &address) != 1;
    unsigned bits = slash != NULL ? (unsigned) strtoul(slash + 1, NULL, 10) : is_plain ? 32 : 128;
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&address) && bits >= 96;
    bits -= mapped ? 96 : 0;
    unsigned *most = is_plain || mapped ? &seen->allowed4 : &seen->allowed6;
    *most = bits > *most ? bits : *most;
}

static void add_override(void *arg, const weir_override *entry)
{
    struct overrides_seen *seen = arg;
    /* They come in any order. */
    seen->sum += hash_text(hash_text(UINT64_C(14695981039346656037) + entry->in_force, entry->name), entry->value);
    if (strncmp(entry->name, "*:", 2) == 0 && entry->in_force && strncmp(entry->value, "allow", 5) == 0) {
        note_allowed(seen, entry->name + 2);
    }
}

/* Whether a network that all policies are to allow may lie in one of so many bits: the kernel would drop it with it. */
static bool may_be_allowed_in(const struct xdp *xdp, bool v4, unsigned bits)
{
    return atomic_load_explicit(v4 ? &xdp->allowed4 : &xdp->allowed6, memory_order_relaxed) > bits;
}

/* A hash of all overrides; notes which networks all policies are to allow. */
static uint64_t sum_overrides(struct xdp *xdp)
{
    struct overrides_seen seen = {.sum = 0};
    (void) weir_list_overrides(xdp->weir, add_override, &seen);
    atomic_store_explicit(&xdp->allowed4, seen.allowed4, memory_order_relaxed);
    atomic_store_explicit(&xdp->allowed6, seen.allowed6, memory_order_relaxed);
    return seen.sum;
}

/* Lets all packets pass where an override was set, changed or removed, or has ended: what is denied is said anew. */
static void look_at_overrides(struct xdp *xdp)
{
    /* Twice: a worker may have been about to hold a key by what there was before. */
    const uint64_t sum = sum_overrides(xdp);
    const bool changed = sum != xdp->overrides;
    if (atomic_exchange(&xdp->policies_changed, false) || changed || xdp->overrides_changed) {
        held_release_all(&xdp->held);
    }
    xdp->overrides = sum;
    xdp->overrides_changed = changed;
}

static void tell_watch(struct xdp *xdp, unsigned interface)
{
    (void) pthread_mutex_lock(&xdp->mutex);
    if (xdp->watch != NULL) {
        xdp->watch(xdp->watch_arg, interface);
    }
    (void) pthread_mutex_unlock(&xdp->mutex);
}

void xdp_watch(struct xdp *xdp, xdp_watch_fn watch, void *arg)
{
    (void) pthread_mutex_lock(&xdp->mutex);
    xdp->watch = watch;
    xdp->watch_arg = arg;
    (void) pthread_mutex_unlock(&xdp->mutex);
}

static const char *mode_of(const struct xdp *xdp)
{
    return atomic_load(&xdp->mode) == LINK_NATIVE ? "native" : "generic";
}

/* Says once what keeps the program off its interface. */
static void tell_away(struct xdp *xdp, const char *problem)
{
    if (strcmp(problem, xdp->told) == 0) {
        return;
    }
    (void) snprintf(xdp->told, sizeof(xdp->told), "%s", problem);
    log_line(WEIR_LOG_WARNING, "--xdp %s: %s; %s until the program is on it again", xdp->options.interface, problem,
             !xdp->options.forward ? "packets are dropped here and not in the kernel"
             : xdp->limits == NULL ? "packets go by sockets"
                                   : "packets are dropped here and not in the kernel, and go by sockets");
}

/* Puts the program back on its interface, which may have gone and come back. */
static void look_at_link(struct xdp *xdp)
{
    char problem[sizeof(xdp->told)];
    unsigned found = xdp_link_find(xdp->link);
    if (found == 0) {
        atomic_store(&xdp->attached, 0);
        tell_watch(xdp, 0); /* before packets can come */
        found = xdp_link_attach(xdp->link, problem, sizeof(problem));
        atomic_store(&xdp->mode, (int) xdp_link_mode(xdp->link));
        atomic_store(&xdp->attached, found);
        if (found != 0) {
            xdp->told[0] = '\0';
            log_line(WEIR_LOG_INFO, "--xdp %s: the program is on the interface again (XDP, %s)", xdp->options.interface,
                     mode_of(xdp));
        } else {
            tell_away(xdp, problem);
        }
    }
    tell_watch(xdp, found);
}

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000L};
    (void) nanosleep(&pause, NULL);
}

static void *sweep_main(void *arg)
{
    struct xdp *xdp = arg;
    uint32_t cursor = 0;
    unsigned turns = 0;
    long waited_ms = 0;
    while (!atomic_load(&xdp->stopping)) {
        pause_ms(PIECE_MS);
        waited_ms += PIECE_MS;
        if (xdp->limits != NULL) {
            sweep_piece(xdp, &cursor);
        }
        if (cursor != 0 && waited_ms < TURN_MS) {
            continue;
        }
        pause_ms(waited_ms < TURN_MS ? TURN_MS - waited_ms : 0);
        waited_ms = 0;
        if (++turns % OVERRIDES_TURNS == 0 && xdp->limits != NULL) {
            look_at_overrides(xdp);
        }
        if (turns % LINK_TURNS == 0) {
            look_at_link(xdp);
        }
        if (turns % LOCALS_TURNS == 0) {
            locals_look(&xdp->locals, set_local, xdp);
        }
    }
    return NULL;
}

/* Frees what there is. `started`: the thread runs. */
static void xdp_free(struct xdp *xdp, bool started)
{
    if (started) {
        atomic_store(&xdp->stopping, true);
        (void) pthread_join(xdp->thread, NULL);
    }
    if (started && xdp->limits != NULL) {
        sweep_all(xdp);
        weir_detach(xdp->limits);
    }
    if (xdp->link != NULL) {
        xdp_link_close(xdp->link);
    }
    if (xdp->held.keys != NULL) {
        held_close(&xdp->held);
    }
    locals_close(&xdp->locals);
    (void) pthread_mutex_destroy(&xdp->mutex);
    free(xdp);
}

struct xdp *xdp_start(const char *option, const struct xdp_forwarding *forwarding, const struct policies *policies,
                      weir *w, char *problem, size_t size)
{
    struct xdp *xdp = calloc(1, sizeof(*xdp));
    if (xdp == NULL || !read_option(option, &xdp->options)) {
        (void) snprintf(problem, size, "out of memory");
        free(xdp);
        return NULL;
    }
    xdp->options.forward = forwarding != NULL;
    xdp->options.flows = forwarding != NULL && forwarding->workers > 1 ? forwarding->sessions : 0;
    xdp->policies = policies;
    xdp->weir = w;
    (void) pthread_mutex_init(&xdp->mutex, NULL);
    xdp->link = xdp_link_open(&xdp->options, problem, size);
    if (xdp->link == NULL) {
        xdp_free(xdp, false);
        return NULL;
    }
    atomic_store(&xdp->mode, (int) xdp_link_mode(xdp->link));
    atomic_store(&xdp->attached, xdp_link_find(xdp->link));
    (void) snprintf(problem, size, "out of memory, or of threads");
    if (w != NULL && (held_open(&xdp->held, CAPACITY, xdp_link_lines(xdp->link), DROP_LINES) != 0 ||
                      (xdp->limits = weir_attach(w)) == NULL)) {
        xdp_free(xdp, false);
        return NULL;
    }
    memcpy(xdp_link_target(xdp->link)->secret, xdp->held.lines.secret, sizeof(xdp->held.lines.secret));
    set_prefixes(xdp);
    xdp->overrides = w != NULL ? sum_overrides(xdp) : 0;
    locals_look(&xdp->locals, set_local, xdp);
    if (pthread_create(&xdp->thread, NULL, sweep_main, xdp) != 0) {
        weir_detach(xdp->limits);
        xdp_free(xdp, false);
        return NULL;
    }
    return xdp;
}

void xdp_stop(struct xdp *xdp)
{
    if (xdp != NULL) {
        xdp_free(xdp, true);
    }
}

void xdp_policies_changed(struct xdp *xdp)
{
    if (xdp != NULL && xdp->limits != NULL) {
        set_prefixes(xdp);
        (void) sum_overrides(xdp); /* before a worker holds a key */
        held_release_all(&xdp->held);
        atomic_store(&xdp->policies_changed, true); /* once more: as in look_at_overrides() */
    }
}

void xdp_denied(struct xdp_view *view, weir_thread *limits, const weir_key *key, const struct gateway_policy *policy,
                const struct address *from, uint32_t now)
{
    if (view->xdp == NULL || policy->kind.scope == SCOPE_OVERALL || !repeats_count(&view->repeats, key->hash, now)) {
        return;
    }
    const bool v4 = network_is_v4(from);
    const bool source = policy->kind.scope == SCOPE_SOURCE;
    struct drop_key drop = {.family = v4 ? 4 : 6,
                            .prefix = (unsigned char) (!source ? policy->kind.prefix
                                                       : v4    ? 32
                                                               : SOURCE_PREFIX)};
    const uint64_t until_ns = may_be_allowed_in(view->xdp, v4, drop.prefix) ? 0 : denied_until(limits, key);
    if (until_ns == 0) {
        return;
    }
    unsigned char bytes[NETWORK_KEY_SIZE];
    const size_t length = network_of(from, drop.prefix, bytes);
    memcpy(drop.address, bytes, length - 1);
    (void) held_until(&view->xdp->held, &drop, key, policy->kind.of_bytes, until_ns);
}

bool xdp_get_status(struct xdp *xdp, struct xdp_status *out)
{
    if (xdp == NULL) {
        return false;
    }
    *out = (struct xdp_status){.interface = xdp->options.interface,
                               .mode = atomic_load(&xdp->attached) != 0 ? mode_of(xdp) : "off",
                               .is_attached = atomic_load(&xdp->attached) != 0,
                               .forwards = xdp->options.forward,
                               .drops = xdp->limits != NULL,
                               .keys = xdp->limits != NULL ? held_count(&xdp->held) : 0,
                               .packets = atomic_load(&xdp->packets),
                               .bytes = atomic_load(&xdp->bytes),
                               .invalid_sources = xdp_link_invalid_sources(xdp->link)};
    return true;
}

struct xdp_link *xdp_get_link(struct xdp *xdp)
{
    return xdp->link;
}

const char *xdp_get_interface(const struct xdp *xdp)
{
    return xdp->options.interface;
}
