/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of traces that are lines of text. */
#ifndef WEIR_TRACE_FORMATS_H
#define WEIR_TRACE_FORMATS_H

#include "fields.h"
#include "text_time.h"

enum line { LINE_RECORD, LINE_EMPTY, LINE_MALFORMED };

/* The name that stood in one place of a line of JSON, and of which fields it is a name. */
#define JSON_PLACES    32
#define JSON_NAME_SIZE 24
struct json_name {
    char text[JSON_NAME_SIZE];
    unsigned char length; /* 0: no name was kept */
    unsigned char fields; /* a bit for each field, as ranks; see json.c */
    unsigned char ranks[FIELD_COUNT + 1];
};

/* What reading a line needs beside the line. */
struct line_reader {
    const struct selection *selection;
    struct time_cache cache;
    struct json_name names[JSON_PLACES]; /* a log has the same names in the same places on nearly all lines */
    char scratch[KEY_MOST + 1];          /* a key that does not stand in its line as it is */
};

/* Reads a line without its line end. LINE_EMPTY: nothing is wrong with the line, and it is no request. */
typedef enum line (*line_fn)(struct line_reader *reader, const char *line, const char *end, struct record *out);

enum line clf_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line json_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line haproxy_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line csv_read(struct line_reader *reader, const char *line, const char *end, struct record *out);

enum format_number { FORMAT_CLF, FORMAT_JSON, FORMAT_HAPROXY, FORMAT_CSV, FORMAT_PCAP, FORMAT_COUNT };

struct format {
    const char *name;
    line_fn read;  /* NULL: packets */
    unsigned keys; /* bit 1 << enum key_field: it may have such a key */
    bool bytes;    /* it has sizes */
};

extern const struct format formats[FORMAT_COUNT];

#endif
