/* SPDX-License-Identifier: Apache-2.0 */
/* Two charts in one picture: requests offered, admitted and denied over time, and the keys by their busiest second. */
#ifndef WEIR_SIMULATE_PLOT_H
#define WEIR_SIMULATE_PLOT_H

#include "report.h"

/* Why this build draws nothing; NULL: it does. */
const char *plot_lacks(void);

/* Writes a file whose name ends in .svg or .png. Returns an exit code; where it is not CODE_GOOD a sentence is told. */
int plot_write(struct output *out, const struct report *report, const char *path);

#endif
