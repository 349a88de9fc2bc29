/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for their turn: by a timer of nginx, without a thread. */
#ifndef WEIR_NGINX_WAIT_H
#define WEIR_NGINX_WAIT_H

#include "http_weir.h"

/* The request goes on with the next handler after the delay. Returns what a phase handler returns. */
ngx_int_t wait_begin(ngx_http_request_t *r, ngx_msec_t delay);

#endif
