/* SPDX-License-Identifier: Apache-2.0 */
/* weir-traffic's two halves. */
#ifndef WEIR_GATEWAY_TRAFFIC_H
#define WEIR_GATEWAY_TRAFFIC_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"

/*
 * Sends every packet back to where it came from, until `seconds` (0: for ever) are over; `offload`: merged ones as
 * such. Returns an exit code.
 */
int echo_main(const struct address *at, unsigned seconds, bool offload);

uint64_t traffic_now_ns(void);

#endif
