/* SPDX-License-Identifier: Apache-2.0 */
/* The formats of traces that are lines of text. */
#ifndef WEIR_TRACE_FORMATS_H
#define WEIR_TRACE_FORMATS_H

#include "fields.h"
#include "text_time.h"

enum line { LINE_RECORD, LINE_EMPTY, LINE_MALFORMED, LINE_NO_CLIENT };

/* The name that stood in one place of a line of JSON, and of which fields it is a name. */
#define JSON_PLACES    64
#define JSON_NAME_SIZE 24
struct json_name {
    char text[JSON_NAME_SIZE];
    unsigned char length; /* 0: no name was kept */
    unsigned char fields; /* a bit for each field, as ranks; see json.c */
    unsigned char ranks[FIELD_COUNT + 1];
    bool nested; /* an object of this name has wanted fields in it */
};

/* Where the columns of a W3C log are, counted from 1; 0: it has none such. */
enum column { COLUMN_DATE, COLUMN_TIME, COLUMN_ADDRESS, COLUMN_USER, COLUMN_PATH, COLUMN_BYTES, COLUMN_COUNT };

/* What reading a line needs beside the line. */
struct line_reader {
    const struct selection *selection;
    struct time_cache cache;
    struct json_name names[JSON_PLACES]; /* a log has the same names in the same places on nearly all lines */
    bool hosted;                         /* on most lines of a Common or Combined log a host stands before the client */
    bool found_host;                     /* on the last line one did */
    unsigned char columns[COLUMN_COUNT]; /* of a W3C log, since its last line of names */
    char scratch[KEY_MOST + 1];          /* a key that does not stand in its line as it is */
};

/*
 * Reads a line without its line end. LINE_EMPTY: nothing is wrong with the line, and it is no request. LINE_NO_CLIENT:
 * the key is the client's address, and the line says that there is none.
 */
typedef enum line (*line_fn)(struct line_reader *reader, const char *line, const char *end, struct record *out);

enum line clf_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line json_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line haproxy_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line alb_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line w3c_read(struct line_reader *reader, const char *line, const char *end, struct record *out);
enum line csv_read(struct line_reader *reader, const char *line, const char *end, struct record *out);

/*
 * The text that an object of JSON carries, as the log of a container does, without its escapes: {"log":"GET /..."}.
 * Returns its length in `out`; 0: there is none, or no room.
 */
size_t json_carried(const char *line, const char *end, char *out, size_t size);

enum format_number {
    FORMAT_CLF,
    FORMAT_JSON,
    FORMAT_HAPROXY,
    FORMAT_ALB,
    FORMAT_W3C,
    FORMAT_CSV,
    FORMAT_PCAP,
    FORMAT_COUNT
};

struct format {
    const char *name;
    line_fn read;  /* NULL: packets */
    unsigned keys; /* bit 1 << enum key_field: it may have such a key */
    bool bytes;    /* it has sizes */
    bool bare;     /* a line is read as it is first; without what stands before it only where that fails */
};

extern const struct format formats[FORMAT_COUNT];

#endif
