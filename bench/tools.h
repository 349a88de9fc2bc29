/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs beside Google Benchmark share: time, what the kernel counts, lines for bench/report.py. */
#ifndef WEIR_BENCH_TOOLS_H
#define WEIR_BENCH_TOOLS_H

#include <stdint.h>

#define NS_PER_MS UINT64_C(1000000)

/* CLOCK_MONOTONIC. */
uint64_t tools_now_ns(void);
void tools_sleep_until(uint64_t at_ns);

/*
 * Of this process's thread named "weir", the background thread: the number behind `before` in a line of
 * /proc/self/task/.../FILE that begins with it. 0: there is none.
 */
uint64_t tools_background_number(const char *file, const char *before);

/* Prints "NAME VALUE UNIT": one measurement of a figure. A figure that is measured again is printed again. */
__attribute__((format(printf, 3, 4))) void tools_figure(double value, const char *unit, const char *format, ...);

#endif
