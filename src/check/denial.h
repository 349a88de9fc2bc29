/* SPDX-License-Identifier: Apache-2.0 */
/* What a denial says: which limit will be the last to let the request pass, and when. */
#ifndef WEIR_CHECK_DENIAL_H
#define WEIR_CHECK_DENIAL_H

#include <stddef.h>
#include <stdint.h>

#include "check/request.h"

/* Whether a denied request may have had room: all that denied it wait for a thread that stood still (settle_wait). */
bool denial_is_stalled(const struct request *r);

/* The denial of one claim alone, as its limits were read. */
void denial_of_claim(const struct request *r, const struct claim *claim, struct decision *out);

/* The earliest wait after which one limit of a claim has room, as the limit was read. UINT64_MAX: never. */
uint64_t denial_retry_after(const struct request *r, const struct claim *claim, size_t limit);

#endif
