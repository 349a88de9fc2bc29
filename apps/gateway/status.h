/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway reports of itself. */
#ifndef WEIR_GATEWAY_STATUS_H
#define WEIR_GATEWAY_STATUS_H

#include <stddef.h>

struct gateway;

/* `bytes` is the caller's to free; NULL: no memory. */
struct text {
    char *bytes;
    size_t size, length;
};

/* Prometheus text: the gateway's own metrics, then the library's. */
struct text write_metrics(struct gateway *gateway);

/* JSON: packets, sessions, and what the policies did with packets. */
struct text write_status(struct gateway *gateway);

/* JSON: the library's, of the weir. There is one, here and below. */
struct text write_weir_status(struct gateway *gateway);

/* HTML, without a script. */
struct text write_status_table(struct gateway *gateway);

#endif
