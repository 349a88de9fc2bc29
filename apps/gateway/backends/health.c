/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See health.h.
 *
 * Ordering: relaxed throughout. A reason is a word of its own; who acts on a change is told by backends_changed().
 * Of two threads that see the same news one alone finds that the word changed, by the read-modify-write.
 */
#include "health.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../log.h"

uint32_t health_now(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint32_t) now.tv_sec;
}

void health_init(struct backend_health *health)
{
    atomic_store_explicit(&health->reasons, 0, memory_order_relaxed);
    atomic_store_explicit(&health->refused_at, 0, memory_order_relaxed);
    atomic_store_explicit(&health->tried_at, 0, memory_order_relaxed);
}

bool health_lower(struct backend_health *health, enum backend_reason reason, const char *backend, const char *why)
{
    if ((health_reasons(health) & reason) != 0) {
        return false;
    }
    const uint32_t before = atomic_fetch_or_explicit(&health->reasons, reason, memory_order_relaxed);
    if (before == 0) {
        log_line(WEIR_LOG_WARNING, "backend %s is down: %s", backend, why);
    }
    return before == 0;
}

bool health_raise(struct backend_health *health, enum backend_reason reason, const char *backend, const char *why)
{
    if ((health_reasons(health) & reason) == 0) {
        return false;
    }
    const uint32_t before = atomic_fetch_and_explicit(&health->reasons, ~(uint32_t) reason, memory_order_relaxed);
    if (before == (uint32_t) reason) {
        log_line(WEIR_LOG_INFO, "backend %s is up: %s", backend, why);
    }
    return before == (uint32_t) reason;
}

bool health_refused(struct backend_health *health, const char *backend, int error, uint32_t now)
{
    char why[128];
    if (error == EPERM || error == EACCES) {
        return false; /* this host's own firewall: it says nothing of the backend */
    }
    atomic_store_explicit(&health->refused_at, now, memory_order_relaxed);
    atomic_store_explicit(&health->tried_at, 0, memory_order_relaxed);
    if ((health_reasons(health) & BACKEND_REFUSES) != 0) {
        return false;
    }
    (void) snprintf(why, sizeof(why), "it refuses packets: %s", strerror(error));
    return health_lower(health, BACKEND_REFUSES, backend, why);
}

/* Another thread may have just been refused, in a second that has begun since `now` was read. */
static bool is_past_error(const struct backend_health *health, uint32_t now)
{
    return now > atomic_load_explicit(&health->refused_at, memory_order_relaxed);
}

void health_sent_slow(struct backend_health *health, uint32_t now)
{
    if (is_past_error(health, now) && atomic_load_explicit(&health->tried_at, memory_order_relaxed) == 0) {
        atomic_store_explicit(&health->tried_at, now, memory_order_relaxed);
    }
}

bool health_replied_slow(struct backend_health *health, const char *backend, uint32_t now)
{
    return is_past_error(health, now) && health_raise(health, BACKEND_REFUSES, backend, "it replies");
}
