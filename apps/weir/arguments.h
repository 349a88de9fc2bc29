/* SPDX-License-Identifier: Apache-2.0 */
/* The words behind a subcommand: options by a table, in any order, and operands. "--" ends the options. */
#ifndef WEIR_ARGUMENTS_H
#define WEIR_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>

struct option_form {
    const char *name; /* of --name */
    char letter;      /* of -l; 0: none */
    bool takes_value;
};

#define OPTIONS_MAX 24

/* The options of every subcommand, which begin the table of each. */
enum { OPTION_COLOR, OPTION_HELP, OPTION_JSON, OPTION_OWN };
#define COMMON_OPTIONS                                                                                                 \
    [OPTION_COLOR] = {"color", 0, true}, [OPTION_HELP] = {"help", 'h', false}, [OPTION_JSON] = {"json", 0, false}

struct arguments {
    const char *command;             /* the words before, for error sentences: "weir check" */
    const char *values[OPTIONS_MAX]; /* by the number of the option; NULL: not given; "": given, and takes none */
    const char **operands;
    size_t operand_count;
};

/*
 * Reads the words behind the subcommand. `command` and `words` must outlive *out. False: a sentence is on stderr. The
 * caller calls arguments_free in both cases.
 */
bool arguments_read(struct arguments *out, const char *command, const struct option_form *forms, size_t form_count,
                    char *const *words, size_t word_count);

void arguments_free(struct arguments *arguments);

#endif
