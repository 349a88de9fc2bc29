/* SPDX-License-Identifier: Apache-2.0 */
/* What a denial says; see denial.c. */
#ifndef WEIR_CHECK_DENIAL_H
#define WEIR_CHECK_DENIAL_H

#include "check/request.h"

/* Of one claim alone. */
void denial_of_claim(const struct request *r, const struct claim *claim, struct decision *out);

#endif
