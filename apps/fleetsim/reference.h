/* SPDX-License-Identifier: Apache-2.0 */
/* The scenarios of the fleet estimate's reference, run with real nodes, beside its figures. */
#ifndef WEIR_FLEETSIM_REFERENCE_H
#define WEIR_FLEETSIM_REFERENCE_H

#include "sim.h"

/* How far the mean may be from the reference's. */
#define REFERENCE_WITHIN 0.02

struct reference_row {
    char algorithm[16], pattern[16];
    unsigned nodes;
    uint64_t limit, period_s;
    double demand;
    double naive_mean, naive_most, naive_least;
    double mean, most, least; /* of the reference's estimate */
};

/* Reads the rows of a file; *rows is the caller's to free. 0, or a negative errno value and a sentence. */
int reference_read(const char *path, struct reference_row **rows, size_t *count, weir_error *error);

/* "fixed 4 1000 1 3 even" */
void reference_name(const struct reference_row *row, char *out, size_t size);

/*
 * Runs one, from this seed on so many times; of several runs *result has the mean of the means, false_share and jain,
 * and the extremes of the extremes. 0, or a negative errno value.
 */
int reference_run(const struct reference_row *row, uint64_t seed, unsigned runs, struct sim_result *result,
                  weir_error *error);

/* How good a row is beside the reference's. */
enum reference_grade {
    REFERENCE_SAME,   /* the mean within REFERENCE_WITHIN */
    REFERENCE_BETTER, /* nearer to what should be admitted than the reference, and not above it */
    REFERENCE_OFF
};
enum reference_grade reference_grade(const struct reference_row *row, const struct sim_result *result);

/* One line a row, with a head. */
void reference_print_head(void);
void reference_print_row(const struct reference_row *row, const struct sim_result *result);

#endif
