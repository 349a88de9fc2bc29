/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations: a place in a queue; see reserve.c. */
#ifndef WEIR_CHECK_RESERVE_H
#define WEIR_CHECK_RESERVE_H

#include <stdint.h>

#include "check/request.h"

/* Takes a place for the request's one claim. *wait_ns as weir_reserve. */
void queue_decide(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns);

#endif
