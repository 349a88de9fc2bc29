/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all files of the module share: the headers of nginx, the module itself, and the structs of its configuration.
 *
 * nginx keeps one main configuration and one location configuration of a module in each cycle. A cycle is what nginx
 * makes of one reading of its configuration: the first one at the start, another one at each reload. Memory of a cycle
 * ends with the cycle. The weir outlives cycles: see instance.h.
 */
#ifndef WEIR_NGINX_NGINX_WEIR_H
#define WEIR_NGINX_NGINX_WEIR_H

/* clang-format off: nginx wants them in this order */
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
/* clang-format on */

#include "redis.h"

extern ngx_module_t ngx_http_weir_module;

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
 * The main configuration.
 *
 * zones     struct zone *, in the order of the file
 * limits    struct limit *, of all locations: a zone's bucket is as large as the largest burst of them
 * checks    struct check *, of all locations
 * core      nginx's own settings, for the number of workers
 * instance  the weir, from the time at which nginx makes the shared memory of the cycle; NULL: no zones, or only a test
 *           of the configuration
 */
struct http_weir {
    ngx_array_t zones;
    ngx_array_t limits;
    ngx_array_t checks;
    struct policy_file file;
    struct redis_settings redis;
    const ngx_core_conf_t *core;
    struct instance *instance;
};

/*
 * What a location asks of a zone. `burst` and `delay` are thousandths of requests, as nginx counts. The times are those
 * of the zone's rate, filled in when all directives are read.
 *
 * shm_zone         its data is the struct zone; the zone may be defined further down the file
 * delay            requests beyond the rate that do not wait; nodelay: more than any burst
 * longest_wait_ns  the longest wait in the zone's queue that the burst allows
 * undelayed_ns     the longest wait that `delay` lets pass at once
 * delay_ns         what `delay` takes off a longer wait
 */
struct limit {
    ngx_shm_zone_t *shm_zone;
    uint64_t burst;
    uint64_t delay;
    uint64_t longest_wait_ns;
    uint64_t undelayed_ns;
    uint64_t delay_ns;
};

/*
 * The configuration of a server or a location.
 *
 * limits             struct limit *
 * checks             struct check *
 * charges            struct charge
 * delay_log_level    one level less severe
 * check_status_code  where a check refuses
 * header_style       a weir_header_style, or HEADERS_OFF
 */
struct location {
    ngx_array_t limits;
    ngx_array_t checks;
    ngx_array_t charges;
    ngx_uint_t limit_log_level;
    ngx_uint_t delay_log_level;
    ngx_uint_t status_code;
    ngx_uint_t check_status_code;
    ngx_uint_t header_style;
    ngx_flag_t dry_run;
};

#endif
