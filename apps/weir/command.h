/* SPDX-License-Identifier: Apache-2.0 */
/* A subcommand of weir: what the table of main.c has of it, and what it is run with. */
#ifndef WEIR_COMMAND_H
#define WEIR_COMMAND_H

#include "arguments.h"
#include "output.h"

/* The exit codes of every subcommand. Where several apply, the largest. weir(1) documents them. */
enum {
    CODE_GOOD = 0,
    CODE_BAD = 1,     /* what was asked about is not good */
    CODE_USAGE = 2,   /* the command line is wrong */
    CODE_UNASKED = 3, /* there is no answer: a file that cannot be read, a Redis that cannot be reached */
    CODE_OUTPUT = 4   /* the answer could not be written */
};

struct command {
    const char *name;
    const char *summary; /* one line of weir --help */
    const char *help;    /* weir NAME --help */
    const struct option_form *options;
    size_t option_count;
    int (*run)(const struct arguments *arguments, struct output *out); /* returns an exit code */
};

extern const struct command bench_command;
extern const struct command check_command;
extern const struct command demo_command;
extern const struct command doctor_command;
extern const struct command explain_command;
extern const struct command override_command;
extern const struct command reset_command;
extern const struct command simulate_command;
extern const struct command top_command;

#endif
