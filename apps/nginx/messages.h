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

/*
 * The log function of the library. It is called in the library's own threads, in any process. So it keeps the log of
 * the cycle in force under a lock: the master frees the cycle before. It writes to files alone: nginx's writers for
 * syslog and memory are for one thread.
 */
void messages_write(void *arg, weir_log_level level, const char *message);

/* From now on lines of the library go to this log. NULL: nowhere. */
void messages_set_log(ngx_log_t *log);

#endif
