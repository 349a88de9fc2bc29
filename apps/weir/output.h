/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command writes: text with colours on terminals, or JSON, on standard output; sentences on standard error.
 * The first error of standard output is kept, and output_end tells it. Nothing else of a command looks at errors of
 * output.
 */
#ifndef WEIR_OUTPUT_H
#define WEIR_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

enum style { STYLE_PLAIN, STYLE_NAME, STYLE_GOOD, STYLE_BAD };

struct output {
    bool json, quiet;
    bool colour, error_colour; /* on standard output, on standard error */
    bool item;                 /* JSON: an item stands before, and a comma is due */
    int error;                 /* the first errno of standard output */
};

/*
 * `when` is the value of --color, or NULL: "auto". With "auto" there are colours on terminals, unless NO_COLOR is set
 * or TERM is "dumb". False: `when` is another word, and a sentence is on stderr.
 */
bool output_begin(struct output *out, const char *command, const char *when, bool json);

/* Flushes. False: something could not be written, and a sentence is on stderr. */
bool output_end(struct output *out, const char *command);

/* Shows what was written so far: for output that comes bit by bit. */
void output_flush(struct output *out);

/* Text on standard output; nothing with --json or --quiet. */
void output_text(struct output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text in a style, made plain. */
void output_styled(struct output *out, enum style style, const char *text);

/* A sentence on standard error, behind what is on standard output so far. The text is made plain. */
void output_fault(struct output *out, const char *text);
/* "NAME: sentence" */
void output_fault_of(struct output *out, const char *name, const char *text);

/* JSON; nothing without --json. `key` is NULL within a list. */
void output_open(struct output *out, const char *key, char bracket);
void output_close(struct output *out, char bracket);
void output_string(struct output *out, const char *key, const char *text);
void output_number(struct output *out, const char *key, uint64_t number);
/* With three digits behind the point. */
void output_decimal(struct output *out, const char *key, double number);
void output_flag(struct output *out, const char *key, bool flag);
/* Ends the line of JSON. */
void output_line(struct output *out);

#endif
