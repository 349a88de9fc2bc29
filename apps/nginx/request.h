/* SPDX-License-Identifier: Apache-2.0 */
/* Decides requests, and charges what they came to. */
#ifndef WEIR_NGINX_REQUEST_H
#define WEIR_NGINX_REQUEST_H

#include "http_weir.h"

/* The handler of the phase before access. */
ngx_int_t request_handler(ngx_http_request_t *r);

/* The handler of the log phase. */
ngx_int_t request_log_handler(ngx_http_request_t *r);

#endif
