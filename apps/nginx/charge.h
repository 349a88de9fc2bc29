/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_charge: units that are known when a request is over, such as the bytes that were sent. They count against the
 * keys of the checks that the request has passed, whether they fit or not.
 */
#ifndef WEIR_NGINX_CHARGE_H
#define WEIR_NGINX_CHARGE_H

#include <stdbool.h>

#include "nginx_weir.h"

/* policy_name: of the check whose key is charged; empty: of the location's only one. */
struct charge {
    ngx_http_complex_value_t units;
    ngx_str_t policy_name;
};

/* The handler of weir_charge. */
char *charge_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* Whether a location has the checks that its charges need; the log says which it lacks. */
bool charge_fits(const struct location *location, ngx_conf_t *cf);

/* The handler of the log phase. */
ngx_int_t charge_handler(ngx_http_request_t *r);

#endif
