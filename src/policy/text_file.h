/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a policy file, and errors that name a place in it. */
#ifndef WEIR_POLICY_TEXT_FILE_H
#define WEIR_POLICY_TEXT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* The greatest size of a file, in bytes. A thousand policies of four limits take a tenth of it. */
#define TEXT_FILE_SIZE_MAX ((size_t) 1 << 20)

struct text_file {
    const char *path;
    weir_error *error; /* where errors are written; NULL is allowed */
    char *text;        /* malloc'ed; a NUL follows the last byte */
    size_t size;
};

/* Where something stands: a line and a character of it, each from 1. A line of 0: the file as a whole. */
struct place {
    uint32_t line, column;
};

/* Reads the whole file at file->path. The caller frees file->text, also after an error. */
int text_file_read(struct text_file *file);

/*
 * Sets the file's error to "PATH:LINE:COLUMN: SENTENCE" and returns `code`. A path that leaves the sentence no room is
 * cut at its front.
 */
int text_file_fail(const struct text_file *file, struct place place, int code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A line of the file, from 1, and its length; an empty one where the file has no such line. */
const char *text_file_line(const struct text_file *file, uint32_t number, size_t *size);

/* The place of a byte of the file. */
struct place text_file_place(const struct text_file *file, size_t offset);

/* Moves *at behind the end of its line, by the line breaks of YAML 1.1; returns the length of the line without it. */
size_t text_file_next_line(const struct text_file *file, size_t *at);

#endif
