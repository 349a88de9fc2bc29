/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that looks after the health of the backends, beside what the workers see:
 *
 *   probes    with a payload, each backend is sent a probe each interval. After `fall` probes in a row without an
 *             answer it is down, after `rise` with one it is up.
 *   silence   with `silence_seconds`, a backend is down that clients sent packets to in each of so many seconds in a
 *             row, and that replied to none.
 *   trials    a backend that is down, and gets no client's packets as others are up, must be tried by somebody. With
 *             probes these are the trial. Without, one that refused packets is sent an empty datagram each second, and
 *             is up after BACKEND_TRIED_SECONDS without an error; one that was silent gets clients again after
 *             CHECKER_RETRY_SECONDS.
 *
 * Where all backends that serve are down clients' packets go on, and are the trial.
 */
#ifndef WEIR_GATEWAY_BACKENDS_CHECKER_H
#define WEIR_GATEWAY_BACKENDS_CHECKER_H

#include <stdbool.h>

#include "backends.h"
#include "probe.h"

#define CHECKER_RETRY_SECONDS 10

struct checker_options {
    struct probe_payload payload; /* size 0: no probes */
    bool introduces;              /* each probe and trial begins with a PROXY protocol header */
    unsigned interval_ms, rise, fall;
    unsigned silence_seconds; /* 0: silence says nothing */
};

struct checker;

/* The backends must outlive it, the options are copied. NULL: errno says why not. */
struct checker *checker_start(struct backends *backends, const struct checker_options *options);
void checker_stop(struct checker *checker); /* NULL is allowed */

#endif
