/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Static tracepoints (USDT) for bpftrace, perf, gdb and SystemTap. Adapter to the header of systemtap-sdt-dev. The
 * probes of the provider `weir`, their arguments and their places are in docs/tracing.md.
 *
 * What the adapter relies on
 *   - A probe is one nop, and a note in .note.stapsdt that says where the arguments are. It calls nothing and writes
 *     nothing, so it may stand under locks and within RCU sections.
 *   - The compiler computes the arguments, traced or not. So arguments are values that the caller has at hand. Where
 *     that is not so, the caller asks probe_is_traced() first.
 *   - A tracer raises the probe's semaphore while it is attached. A semaphore is a plain 16-bit word in .probes, which
 *     the tracer writes from outside of the program. A stale value costs an event, or the computing of arguments.
 *
 * A build without that header, or with -Dprobes=disabled, has no probes. No probe stands on the way of a hit, or of a
 * denial that is answered from a slot: those write nothing shared, and are not events.
 */
#ifndef WEIR_BASE_PROBE_H
#define WEIR_BASE_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef WEIR_PROBES

#define _SDT_HAS_SEMAPHORES 1 /* 1: each probe has a semaphore */
#include <sys/sdt.h>

/* Their names are made of those of the provider and the probe. See probe.c. */
#define PROBE_SEMAPHORE(name)                                                                                          \
    extern unsigned short weir_##name##_semaphore __attribute__((visibility("hidden"), section(".probes")))
PROBE_SEMAPHORE(deny);
PROBE_SEMAPHORE(grant);
PROBE_SEMAPHORE(report);
PROBE_SEMAPHORE(round);
PROBE_SEMAPHORE(outage);
PROBE_SEMAPHORE(connection);
PROBE_SEMAPHORE(evict);
PROBE_SEMAPHORE(policies);
PROBE_SEMAPHORE(leader);

/* Whether a tracer is attached to a probe. */
#define probe_is_traced(name) __builtin_expect(weir_##name##_semaphore != 0, 0)

#define PROBE2(name, ...) STAP_PROBE2(weir, name, __VA_ARGS__)
#define PROBE3(name, ...) STAP_PROBE3(weir, name, __VA_ARGS__)
#define PROBE4(name, ...) STAP_PROBE4(weir, name, __VA_ARGS__)
#define PROBE5(name, ...) STAP_PROBE5(weir, name, __VA_ARGS__)
#define PROBE8(name, ...) STAP_PROBE8(weir, name, __VA_ARGS__)

#else

#define probe_is_traced(name) false

#define PROBE2(name, a, b)                   ((void) (a), (void) (b))
#define PROBE3(name, a, b, c)                ((void) (a), (void) (b), (void) (c))
#define PROBE4(name, a, b, c, d)             ((void) (a), (void) (b), (void) (c), (void) (d))
#define PROBE5(name, a, b, c, d, e)          ((void) (a), (void) (b), (void) (c), (void) (d), (void) (e))
#define PROBE8(name, a, b, c, d, e, f, g, h) (PROBE4(name, a, b, c, d), PROBE4(name, e, f, g, h))

#endif

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgnu-zero-variadic-macro-arguments" /* within the macros of the header */
#endif

#define PROBE_INLINE static inline __attribute__((always_inline))

/* A denied request of one key. */
struct denied_event {
    uint32_t policy_id;
    const char *policy;
    const void *key;
    size_t key_size;
    uint64_t cost;
    uint32_t limit; /* index in the policy */
    uint64_t retry_after_ns;
    uint32_t shadow; /* 1: the request passes all the same */
};

/* The table, or an entry of the key, denies a request. */
PROBE_INLINE void probe_deny(const struct denied_event *e)
{
    PROBE8(deny, e->policy_id, e->policy, e->key, e->key_size, e->cost, e->limit, e->retry_after_ns, e->shadow);
}

/* A thread is granted units of a key. */
PROBE_INLINE void probe_grant(uint32_t policy_id, const void *key, size_t key_size, uint64_t units)
{
    PROBE4(grant, policy_id, key, key_size, units);
}

/* A round is about to send this report. */
PROBE_INLINE void probe_report(const char *record, uint64_t units, uint64_t demand)
{
    PROBE3(report, record, units, demand);
}

/* A round has ended. `good`: 0 or 1; `live_nodes`: as the last good round said. */
PROBE_INLINE void probe_round(const char *server, uint32_t good, uint64_t reports, uint64_t round_trip_ns,
                              uint32_t live_nodes)
{
    PROBE5(round, server, good, reports, round_trip_ns, live_nodes);
}

/* The outage mode of a policy changes; values of enum outage_mode. */
PROBE_INLINE void probe_outage(const char *policy, uint32_t before, uint32_t after)
{
    PROBE3(outage, policy, before, after);
}

/* The connection to Redis comes or goes. `problem`: NULL where there is none. */
PROBE_INLINE void probe_connection(const char *server, uint32_t up, const char *problem)
{
    PROBE3(connection, server, up, problem);
}

/* A key loses its cell. `used`: 1 where units of it were in use. */
PROBE_INLINE void probe_evict(uint32_t policy_id, uint64_t hash, uint32_t used)
{
    PROBE3(evict, policy_id, hash, used);
}

/* Policies are in force, and no check goes by those before them. */
PROBE_INLINE void probe_policies(uint64_t policies, uint64_t entries)
{
    PROBE2(policies, policies, entries);
}

/* A process of a shared weir begins to lead. `died`: 1 where the last leader died at its work. */
PROBE_INLINE void probe_leader(uint32_t process, uint32_t before, uint32_t died)
{
    PROBE3(leader, process, before, died);
}

#ifdef __clang__
#pragma clang diagnostic pop
#endif

#endif
