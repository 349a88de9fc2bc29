/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two modules share, the one of http and the one of stream: the headers of nginx's core, and what the main
 * configuration of either module has. Files that know one of the two protocols include http_weir.h or stream_weir.h.
 *
 * nginx keeps one main configuration of a module in each cycle, and one for each location or server. A cycle is what
 * nginx makes of one reading of its configuration: the first one at the start, another one at each reload. Memory of a
 * cycle ends with the cycle. The weir outlives cycles: see instance.h.
 */
#ifndef WEIR_NGINX_NGINX_WEIR_H
#define WEIR_NGINX_NGINX_WEIR_H

#include <stdbool.h>

/* clang-format off: nginx wants them in this order */
#include <ngx_config.h>
#include <ngx_core.h>
/* clang-format on */

#include "redis.h"
#include "weir/weir.h"

struct instance;

/*
 * The file of weir_policies.
 *
 * path      terminated; empty: there is no file
 * keys      that its policies have room for
 * policies  struct policy, in the order of the file
 */
struct policy_file {
    ngx_str_t path;
    size_t keys;
    ngx_array_t policies;
};

/*
 * A policy of nginx.conf itself, beside those of the file: what a zone is to the weir.
 *
 * name      terminated
 * key_bits  of its keys, where they are addresses; else 0: see struct address
 * id        where its number goes when the cycle comes into force
 */
struct own_policy {
    const char *name;
    weir_limit limit;
    weir_scope scope;
    unsigned key_bits;
    weir_policy_id *id;
};

/*
 * What the http block says, or the stream block: the head of the main configuration.
 *
 * own       struct own_policy, complete when all directives are read
 * own_size  bytes of the table that these ask for
 * checks    struct check *, of all locations or servers
 * core      nginx's own settings, for the number of workers
 * instance  the weir, from the time at which nginx makes the shared memory of the cycle; NULL: no policies, or only a
 *           test of the configuration
 */
struct block {
    ngx_array_t own;
    size_t own_size;
    ngx_array_t checks;
    struct policy_file file;
    struct redis_settings redis;
    const ngx_core_conf_t *core;
    struct instance *instance;
};

#endif
