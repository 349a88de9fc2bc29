/* SPDX-License-Identifier: Apache-2.0 */
/* What the command line of weir simulate chose. */
#ifndef WEIR_SIMULATE_CHOICES_H
#define WEIR_SIMULATE_CHOICES_H

#include "../command.h"
#include "../trace/formats.h"
#include "engine.h"

enum {
    OPTION_AGAINST = OPTION_OWN,
    OPTION_COST,
    OPTION_DECISIONS,
    OPTION_FIELDS,
    OPTION_FORMAT,
    OPTION_KEY,
    OPTION_KINDS,
    OPTION_LATE,
    OPTION_MAX_KEYS,
    OPTION_NODES,
    OPTION_PLOT,
    OPTION_POLICIES,
    OPTION_POLICY,
    OPTION_PORT,
    OPTION_THROUGH,
    OPTION_TO,
    OPTION_TOP,
    OPTION_COUNT
};

struct choices {
    const char *policies, *against; /* policy files; `against` may be NULL */
    const char *policy;             /* NULL: the file's only one */
    const struct format *format;    /* NULL: by the first lines */
    struct selection selection;
    bool key_given;    /* --key */
    bool gateway;      /* --key=gateway: as the gateway plays its file */
    const char *kinds; /* the gateway's --kinds; NULL: there are none */
    unsigned nodes;
    unsigned late_s; /* what comes up to so late is put in order */
    size_t max_keys, top;
    unsigned through_ppm; /* what a limit is to let through, in millionths */
    const char *plot, *decisions;
    char names[256]; /* what selection.names lead into */
};

/* False: a sentence is on stderr. `out` must not move. */
bool choices_read(struct choices *out, const struct arguments *arguments);

#endif
