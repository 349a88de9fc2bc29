/* SPDX-License-Identifier: Apache-2.0 */
/* Why what a replay has shown may not be so: sentences, each with the exit code that says it to scripts. */
#ifndef WEIR_SIMULATE_DOUBTS_H
#define WEIR_SIMULATE_DOUBTS_H

#include "report.h"

/* Exit codes of weir simulate beside those of command.h. Where several apply, the largest. */
enum {
    CODE_UNREADABLE = 5, /* nothing in a trace is a request */
    CODE_LATE = 6,       /* many requests were left out for their times */
    CODE_FOREIGN = 7,    /* many keys are no addresses, though the key is one */
    CODE_HELPLESS = 8    /* a capture tells no rate, or the limit cannot help */
};

struct doubt {
    int code;
    char text[500];
};

#define DOUBTS_MOST 16

struct doubts {
    struct doubt all[DOUBTS_MOST];
    size_t count;
};

/* The report has its findings. */
void doubts_find(struct doubts *out, const struct report *report);

/* Whether the requests are of a capture that is too short to tell a rate. */
bool doubts_short(const struct report *report);

/* The greatest exit code of them; CODE_GOOD: there is none. */
int doubts_code(const struct doubts *d);

#endif
