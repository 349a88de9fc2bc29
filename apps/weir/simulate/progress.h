/* SPDX-License-Identifier: Apache-2.0 */
/* How much of the traces is read, on standard error where that is a terminal. */
#ifndef WEIR_SIMULATE_PROGRESS_H
#define WEIR_SIMULATE_PROGRESS_H

#include "../trace/trace.h"

struct progress {
    const struct trace *traces;
    size_t count;
    bool shown;
    uint64_t total, next_ns; /* bytes of all files; when to write again */
};

/* `wanted` false: nothing is ever written. Nor is anything where a trace is no file, or standard error no terminal. */
void progress_begin(struct progress *p, const struct trace *traces, size_t count, bool wanted);
void progress_show(struct progress *p);
/* Wipes the line. */
void progress_end(struct progress *p);

#endif
