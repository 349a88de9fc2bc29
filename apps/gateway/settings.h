/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of a gateway: one table of all that the command line and a file of settings (config.h) may give, by one
 * name in both. Texts become options here, and what is wrong with a text is said by the place that gave it.
 *
 * What the command line gives of a setting goes before the file's.
 */
#ifndef WEIR_GATEWAY_SETTINGS_H
#define WEIR_GATEWAY_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "listeners.h"

enum setting {
    SETTING_LISTEN,
    SETTING_BACKEND,
    SETTING_PROBE,
    SETTING_PROBE_INTERVAL_MS,
    SETTING_PROBE_RISE,
    SETTING_PROBE_FALL,
    SETTING_BACKEND_SILENCE,
    SETTING_POLICIES,
    SETTING_KINDS,
    SETTING_ALLOW_MISSING,
    SETTING_REDIS,
    SETTING_REDIS_PASSWORD_FILE,
    SETTING_FLEET_SECRET_FILE,
    SETTING_REDIS_PREFIX,
    SETTING_NODE_NAME,
    SETTING_SYNC_INTERVAL_MS,
    SETTING_EXPECTED_NODES,
    SETTING_THREADS,
    SETTING_SESSIONS,
    SETTING_IDLE,
    SETTING_PORT_REST,
    SETTING_STATE,
    SETTING_MAX_KEYS,
    SETTING_XDP,
    SETTING_RECORD,
    SETTING_RECORD_RATE,
    SETTING_RECORD_SNAP,
    SETTING_RECORD_SIZE,
    SETTING_PROXY_PROTOCOL,
    SETTING_TRANSPARENT,
    SETTING_NO_OFFLOAD,
    SETTING_LOG_LEVEL,
    SETTING_LOG_FORMAT,
    SETTING_NO_DENIAL_LOG,
    SETTING_METRICS,
    SETTING_COUNT
};

/* What the text of a setting is. */
enum setting_form {
    FORM_TEXT,
    FORM_PATH, /* of a file; a relative one in a file of settings is beside that file */
    FORM_LIST, /* several texts */
    FORM_NUMBER,
    FORM_FLAG,     /* true where it is given */
    FORM_FLAG_OFF, /* false where it is given */
    FORM_LEVEL,    /* a word of the log's levels */
    FORM_FORMAT,   /* a word of the log's formats */
    FORM_INTERFACE,
    FORM_PROBE /* what probes say */
};

/* A setting, as the command line and a file have it. */
struct setting_entry {
    const char *name;
    enum setting_form form;
    size_t offset;        /* in struct gateway_options */
    unsigned least, most; /* of a number; most: of the texts of a list */
    bool is_live;         /* a reload puts it into force */
};

extern const struct setting_entry setting_entries[SETTING_COUNT];

/* Texts of a list, at most. */
#define SETTING_TEXTS_MAX 64

/* What a list has; the texts are a source's. */
struct text_list {
    const char *texts[SETTING_TEXTS_MAX];
    size_t count;
};

/* The texts that were given of one setting; a flag's is "true" or "false". */
struct setting_texts {
    char *texts[SETTING_TEXTS_MAX];
    struct {
        uint32_t line, column;
    } places[SETTING_TEXTS_MAX]; /* in the file */
    size_t count;
};

/* What one source has given. */
struct settings {
    const char *file; /* NULL: the command line */
    struct setting_texts of[SETTING_COUNT];
};

/* A sentence about what is wrong, with its place, and what the gateway would exit with. */
struct setting_problem {
    char sentence[512];
    int code;
};

struct gateway_options;

/* Adds a copy of a text. False: there is one too many, or no memory; `what` says so. */
bool settings_add(struct settings *settings, enum setting setting, const char *text, const char **what);
void settings_free(struct settings *settings);

/* Sets a problem, with the place that gave text `index` of a setting, or with no place where nothing gave it. */
void settings_fail(const struct gateway_options *options, enum setting setting, size_t index, int code,
                   const char *what, struct setting_problem *out);

/* Writes how a setting was given: "--redis", or "FILE:3:1: redis". */
void settings_origin(const struct gateway_options *options, enum setting setting, char *out, size_t size);

/*
 * The options of a command line and of a file, which may be NULL. Nothing is looked up and no file is read. The options
 * point into both. False: `problem` says what is wrong.
 */
bool settings_apply(const struct settings *line, const struct settings *file, struct gateway_options *out,
                    struct setting_problem *problem);

/* Whether a setting is another one in `a` than in `b`. */
bool settings_differ(const struct gateway_options *a, const struct gateway_options *b, enum setting setting);

#endif
