/* SPDX-License-Identifier: Apache-2.0 */
/* One trace: a file of requests of some format. */
#ifndef WEIR_TRACE_TRACE_H
#define WEIR_TRACE_TRACE_H

#include "bytes.h"
#include "formats.h"

struct packets;

/* An example of a malformed line, cut where it is long. */
#define EXAMPLE_SIZE 101

struct trace {
    const char *name;
    const struct format *format;
    struct bytes *bytes;
    struct packets *packets; /* NULL: lines */
    struct line_reader reader;
    char *buffer;
    size_t at, end;       /* of what of the buffer is not read yet */
    bool ended;           /* there is no more to read */
    struct record head;   /* the record that trace_next has read */
    bool failed, stopped; /* ended by *fault; by a signal */
    struct fault fault;
    uint64_t line_count;   /* lines, or packets */
    uint64_t record_count; /* requests among them */
    uint64_t packet_count; /* the same of packets, late ones too */
    uint64_t malformed_count;
    uint64_t clientless_count;  /* requests that say that they have no client, though its address is the key */
    uint64_t foreign_count;     /* requests whose key is no address, though the key is the client's */
    char foreign[EXAMPLE_SIZE]; /* the first such key */
    char *carried;              /* a line that stood in another one; NULL: there was none */
    uint64_t example_line;      /* the number of the first malformed line, from 1; 0: none, or packets */
    char example[EXAMPLE_SIZE];
};

/*
 * Opens a path ("-": standard input) and finds its format by its first lines, unless `format` is not NULL. `selection`
 * must outlive the trace. False: `fault` says why, and *malformed whether the format is at fault. The caller calls
 * trace_close.
 */
bool trace_open(struct trace *t, const char *path, const struct format *format, const struct selection *selection,
                bool *malformed);
void trace_close(struct trace *t);

/* Reads the next record to `head`. False: the end, or `failed`, or `stopped`. */
bool trace_next(struct trace *t);

#endif
