/* SPDX-License-Identifier: Apache-2.0 */
/* See probe.h. The semaphores of the probes: zero, until a tracer that is attached has raised one. */
#include "base/probe.h"

#ifdef WEIR_PROBES

/* `used`: the notes name the semaphores in assembly, where the compiler does not look. */
#define DEFINE_SEMAPHORE(name) unsigned short weir_##name##_semaphore __attribute__((used, section(".probes"))) = 0

DEFINE_SEMAPHORE(deny);
DEFINE_SEMAPHORE(grant);
DEFINE_SEMAPHORE(report);
DEFINE_SEMAPHORE(round);
DEFINE_SEMAPHORE(outage);
DEFINE_SEMAPHORE(connection);
DEFINE_SEMAPHORE(evict);
DEFINE_SEMAPHORE(policies);
DEFINE_SEMAPHORE(leader);

#endif
