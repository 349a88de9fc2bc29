/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir: what a location asks of a policy of the file.
 *
 * All checks of a location are one decision: a request takes the units of all of them, or of none.
 */
#ifndef WEIR_NGINX_CHECK_H
#define WEIR_NGINX_CHECK_H

#include <stdbool.h>

#include "nginx_weir.h"
#include "weir/weir.h"

struct policy;

/* A tier that a check may choose: the text after the '/' of a policy's name. */
struct tier {
    ngx_str_t name;
    const struct policy *policy;
};

/*
 * policy_name  as the directive has it
 * cost         NULL: 1
 * tier         NULL: the policy itself, whatever tiers it has
 * policy       found when all directives are read, as are the tiers
 * file, line   of the directive, for the error log
 */
struct check {
    ngx_str_t policy_name;
    ngx_http_complex_value_t key;
    ngx_http_complex_value_t *cost;
    ngx_http_complex_value_t *tier;
    struct policy *policy;
    ngx_array_t tiers; /* struct tier */
    ngx_str_t file;
    ngx_uint_t line;
};

/* A check of one request. */
struct asked {
    const struct check *check;
    const struct policy *policy; /* the check's, or one of its tiers */
    weir_key key;
    uint64_t cost;
};

/*
 * What the checks of one request came to. Lives in the request's pool.
 *
 * location  the location that decided
 * policy    the policy whose limit decided
 * verdict   of that policy; meaningless where `count` is 0
 * wait_ns   how long the request has to wait in the queue of its policy
 * asked     `count` of them: a check with an empty or an oversized key does not count
 */
struct checked {
    const struct location *location;
    const struct policy *policy;
    weir_verdict verdict;
    uint64_t wait_ns;
    size_t count;
    struct asked asked[WEIR_MAX_KEYS_AT_ONCE];
};

/* The handler of weir. */
char *check_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* When all directives are read: finds the policies of all checks. False: one is not in the file; the log says which. */
bool check_finish(const struct http_weir *http, ngx_conf_t *cf);

/* The checks that a request makes; NULL: no memory. Nothing is decided yet. */
struct checked *check_prepare(ngx_http_request_t *r, const struct location *location, const weir *w);

/* Decides, and takes the units of a request that may pass. */
bool check_decide(weir_thread *thread, struct checked *checked);

/* Gives the units of a request back that passed its checks and was refused after that. */
void check_take_back(weir_thread *thread, const struct checked *checked);

#endif
