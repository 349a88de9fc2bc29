/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway reports of its backends. */
#ifndef WEIR_GATEWAY_BACKENDS_REPORT_H
#define WEIR_GATEWAY_BACKENDS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends.h"

/* One backend that is in force, or that has sessions left. */
struct backend_line {
    char text[BACKEND_TEXT_SIZE];
    enum backend_role role;
    unsigned weight;
    uint32_t reasons; /* why it is down; 0: it is up */
    struct backend_sums sums;
};

/* Copies what there is, in the order of the places. Returns how many, up to BACKENDS_MAX. */
unsigned report_backends(struct backends *backends, struct backend_line out[BACKENDS_MAX]);

/* In a word: "up", "refuses", "silent" or "no answer". */
const char *report_state(const struct backend_line *line);

/*
 * Of all that serve, in a word: "ok" while one of them is up; else "refuses" where any refuses packets, or "down".
 */
const char *report_state_of_all(struct backends *backends);

/* Bytes that either of the texts below may have. */
#define REPORT_SIZE (BACKENDS_MAX * 6 * (BACKEND_TEXT_SIZE + 80) + 2048)

/* Metrics as Prometheus text; an array of JSON. Return the length, without a terminator that is written. */
size_t report_metrics(struct backends *backends, char *out, size_t size);
size_t report_json(struct backends *backends, char *out, size_t size);

#endif
