/* SPDX-License-Identifier: Apache-2.0 */
/* Options: defaults and ranges. */
#ifndef WEIR_LIMITER_OPTIONS_H
#define WEIR_LIMITER_OPTIONS_H

#include "weir/weir.h"

/* Copies *in (NULL: the defaults) to *out with every default filled in. -EINVAL: a value is out of its range. */
int options_complete(const weir_options *in, weir_options *out, weir_error *error);

#endif
