/* SPDX-License-Identifier: Apache-2.0 */
/* What the HTTP module writes to nginx's error log of requests that are refused or delayed. */
#ifndef WEIR_NGINX_SENTENCES_H
#define WEIR_NGINX_SENTENCES_H

#include "http_weir.h"

/* A limit that decided for a request: the rate of its zone, and the wait in its queue, which say the excess of the key.
 */
struct excess {
    const ngx_shm_zone_t *shm_zone;
    uint64_t rate;
    uint64_t wait_ns;
};

/* The sentences of limit_req, which people's scripts search for. */
void sentences_limiting(const ngx_http_request_t *r, const struct location *location, const struct excess *excess);
void sentences_delaying(const ngx_http_request_t *r, const struct location *location, const struct excess *excess);

/* A check of a policy that decided for a request. */
void sentences_denied(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy);
void sentences_queued(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy);

#endif
