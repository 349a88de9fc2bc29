/* SPDX-License-Identifier: Apache-2.0 */
/* What the module writes to nginx's error log. */
#ifndef WEIR_NGINX_MESSAGES_H
#define WEIR_NGINX_MESSAGES_H

#include <stdbool.h>

#include "nginx_weir.h"
#include "weir/weir.h"

/* A limit that decided for a request, and the excess of the key in thousandths of requests. */
struct excess {
    const ngx_shm_zone_t *shm_zone;
    uint64_t thousandths;
};

/* The sentences of limit_req, which people's scripts search for. */
void messages_limiting(const ngx_http_request_t *r, const struct location *location, const struct excess *excess);
void messages_delaying(const ngx_http_request_t *r, const struct location *location, const struct excess *excess);

/* A check of a policy that decided for a request. */
void messages_denied(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy);
void messages_queued(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy);

/*
 * The log function of the library, which calls it in a thread of its own. nginx's logs are for nginx's one thread,
 * those of syslog and memory at least. So the line waits until that thread looks, at most a quarter of a second.
 */
void messages_write(void *arg, weir_log_level level, const char *message);

/* Writes the lines that wait. */
void messages_flush(void);

#endif
