/* SPDX-License-Identifier: Apache-2.0 */
/* Decides requests: the handler of the phase before access. */
#ifndef WEIR_NGINX_REQUEST_H
#define WEIR_NGINX_REQUEST_H

#include "nginx_weir.h"

ngx_int_t request_handler(ngx_http_request_t *r);

#endif
