/* SPDX-License-Identifier: Apache-2.0 */
/* The words of weir-fleetsim's command line. */
#ifndef WEIR_FLEETSIM_OPTIONS_H
#define WEIR_FLEETSIM_OPTIONS_H

#include "policy/policy_file.h"
#include "sim.h"

struct command {
    struct sim_options sim;
    struct sim_fault faults[SIM_FAULTS_MAX];
    struct policy_file *file; /* NULL: the limit is of the command line */
    weir_limit limit;
    weir_policy policy;
    const char *policies_path, *policy_name;
    const char *reference; /* file; NULL: no reference */
    const char *only;      /* rows that contain it */
    unsigned seeds;
    bool json, by_second, verbose, limit_given;
};

/* The name of a pattern as it is typed. */
const char *pattern_name(enum sim_pattern pattern);

/* Fills *out in. Where a word is wrong: says so, and exits with 2. */
void options_parse(int argc, char **argv, struct command *out);

#endif
