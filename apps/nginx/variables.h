/* SPDX-License-Identifier: Apache-2.0 */
/* The variables $weir_remaining, $weir_retry_after, $weir_policy and $weir_basis: what a decision came to. */
#ifndef WEIR_NGINX_VARIABLES_H
#define WEIR_NGINX_VARIABLES_H

#include "check.h"
#include "nginx_weir.h"

enum variable { REMAINING, RETRY_AFTER, POLICY, BASIS };

/* A name without its '$'. */
struct variable_name {
    ngx_str_t name;
    enum variable which;
};

#define VARIABLE_COUNT 4

/* The longest value of a variable: a field of 28 bits. */
#define VARIABLE_MOST_LENGTH 0xfffffff

extern const struct variable_name variable_names[VARIABLE_COUNT];

/* Writes a variable; `checked` is NULL where no policy was asked. Returns what nginx wants of a handler. */
ngx_int_t variable_write(ngx_pool_t *pool, ngx_variable_value_t *value, const struct checked *checked,
                         enum variable which);

/* Makes a text the value of a variable. Returns NGX_OK. */
ngx_int_t variable_set_text(ngx_variable_value_t *value, const ngx_str_t *text);

#endif
