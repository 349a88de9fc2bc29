/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has been decided for a request, and the variables that say so: $weir_limit_req_status and $weir_without_key.
 *
 * A request is decided once, whatever subrequests and internal redirects it has; but for locations that ask again
 * (weir_ask_again), each for what the request was not asked for yet. nginx forgets a module's context at an internal
 * redirect, and keeps the values of variables. So the status is the value of the variable.
 *
 * What the checks of a request came to lies in a cleanup of the request's pool, where it is found again. So do the
 * rounds of a request, one for each time that it was decided; they are kept where some location asks again.
 */
#ifndef WEIR_NGINX_REQUEST_STATE_H
#define WEIR_NGINX_REQUEST_STATE_H

#include "http_weir.h"
#include "variables.h"

enum request_status {
    REQUEST_UNDECIDED = 0,
    REQUEST_PASSED = 1,
    REQUEST_DELAYED = 2,
    REQUEST_REJECTED = 3,
    REQUEST_DELAYED_DRY_RUN = 4,
    REQUEST_REJECTED_DRY_RUN = 5
};

/* What a request was asked for in one location: see request.c. */
struct round;

enum request_status request_state_get(const ngx_http_request_t *r);

/* The value of $weir_limit_req_status, by status. */
extern const ngx_str_t request_state_words[];

static inline ngx_http_variable_value_t *request_state_value(const ngx_http_request_t *r)
{
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    return &r->main->variables[http->status];
}

/* As request_state_get() != REQUEST_UNDECIDED: in line, as each request asks it. */
static inline bool request_state_is_decided(const ngx_http_request_t *r)
{
    return request_state_value(r)->valid && request_state_get(r) != REQUEST_UNDECIDED;
}

static inline void request_state_set(ngx_http_request_t *r, enum request_status status)
{
    const ngx_str_t *word = &request_state_words[status];
    /* Cacheable: so nginx neither asks for the value anew nor drops it. */
    *request_state_value(r) =
        (ngx_http_variable_value_t){.len = word->len & VARIABLE_MOST_LENGTH, .valid = 1, .data = word->data};
}

/* Sets the status of a request that may have one: the one that says more stays. */
void request_state_add(ngx_http_request_t *r, enum request_status status);

/* What the checks of the request came to, where it was decided several times the strictest; NULL: there were none. */
const struct checked *request_state_checked(const ngx_http_request_t *r);

/* The location of these checks; NULL: there were none. */
const struct location *request_state_location(const ngx_http_request_t *r);

/* Keeps what the checks of a location came to. NGX_ERROR: there is no memory. */
ngx_int_t request_state_keep(ngx_http_request_t *r, const struct location *location, const struct checked *checked);

/* Where the names are of what the request had no key for; NULL: there is no memory. */
ngx_str_t *request_state_unkeyed(ngx_http_request_t *r);

/* The last round of the request, which leads to those before; NULL: there was none. */
const struct round *request_state_round(const ngx_http_request_t *r);

/* Keeps another one. NGX_ERROR: there is no memory. */
ngx_int_t request_state_keep_round(ngx_http_request_t *r, const struct round *round);

/* Whether the request was let pass, and would have been without weir_limit_req_dry_run. */
bool request_state_passed(const ngx_http_request_t *r);

/* Makes the variables known to a configuration. */
ngx_int_t request_state_add_variables(ngx_conf_t *cf);

#endif
