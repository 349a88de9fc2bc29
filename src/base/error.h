/* SPDX-License-Identifier: Apache-2.0 */
/* Errors with a sentence for a person. */
#ifndef WEIR_BASE_ERROR_H
#define WEIR_BASE_ERROR_H

#include "weir/weir.h"

/* Fills in *error, if not NULL, and returns `code`, a negative errno value. A sentence that does not fit is cut. */
int error_set(weir_error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Clears *error; returns 0. */
int error_clear(weir_error *error);

#endif
