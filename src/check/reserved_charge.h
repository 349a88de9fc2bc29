/* SPDX-License-Identifier: Apache-2.0 */
/* Charging several cells at once, or a cell with a grant; see reserved_charge.c. */
#ifndef WEIR_CHECK_RESERVED_CHARGE_H
#define WEIR_CHECK_RESERVED_CHARGE_H

#include "check/claim.h"
#include "check/request.h"

/* Charges all claims of a request, and leaves their grants held; or charges none. All cells are pinned. */
enum charge reserved_charge(struct request *r);

#endif
