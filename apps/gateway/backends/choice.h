/* SPDX-License-Identifier: Apache-2.0 */
/* A backend as an operator gives it: HOST:PORT[,weight=N][,drain]. */
#ifndef WEIR_GATEWAY_BACKENDS_CHOICE_H
#define WEIR_GATEWAY_BACKENDS_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

#include "../address.h"

#define BACKENDS_MAX       64 /* that are in force at once */
#define BACKEND_WEIGHT_MAX 256
#define BACKEND_TEXT_SIZE  (ADDRESS_HOST_SIZE + 8) /* with brackets, the port and a terminator */

struct backend_choice {
    char text[BACKEND_TEXT_SIZE]; /* HOST:PORT, for the log and the metrics */
    struct address address;
    unsigned weight; /* 1 to BACKEND_WEIGHT_MAX: its share of the clients, beside those of the others */
    bool drain;      /* it keeps its sessions until they are idle, and gets no new ones */
};

/* Takes a text apart, and leaves the address unset. False: `problem` says what is wrong. */
bool backend_choice_read(const char *text, struct backend_choice *out, char *problem, size_t size);

/*
 * Takes a text apart and looks its host up, which may block. 0, ADDRESS_MALFORMED, or an error of getaddrinfo; then
 * `problem` says what is wrong.
 */
int backend_choice_parse(const char *text, struct backend_choice *out, char *problem, size_t size);

#endif
