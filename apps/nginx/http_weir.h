/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP module share: nginx's headers, the module itself, and the structs of its configuration. */
#ifndef WEIR_NGINX_HTTP_WEIR_H
#define WEIR_NGINX_HTTP_WEIR_H

#include "check.h"
#include "nginx_weir.h"
/* After the two of nginx's core. */
#include <ngx_http.h>

extern ngx_module_t ngx_http_weir_module;

/*
 * The main configuration.
 *
 * zones       struct zone *, in the order of the file
 * limits      struct limit *, of all locations: a zone's bucket is as large as the largest burst of them
 * places      struct place, of all locations that ask anything: for warnings (redirect.h)
 * asks_again  some location has `weir_ask_again on`
 * status      the index of $weir_limit_req_status among the variables of a request
 */
struct http_weir {
    struct block block;
    ngx_array_t zones;
    ngx_array_t limits;
    ngx_array_t places;
    bool asks_again;
    ngx_int_t status;
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
 * delay_log_level    one level less severe
 * check_status_code  where a check refuses
 * header_style       a weir_header_style, or HEADERS_OFF
 * ask_again          1: a request that was decided is asked for what it was not asked for yet; unset: nobody has said
 */
struct location {
    ngx_array_t limits;
    struct check_list list;
    ngx_uint_t limit_log_level;
    ngx_uint_t delay_log_level;
    ngx_uint_t status_code;
    ngx_uint_t check_status_code;
    ngx_uint_t header_style;
    ngx_flag_t dry_run;
    ngx_flag_t ask_again;
};

static inline struct asker http_asker(ngx_http_request_t *r)
{
    return (struct asker){.request = r, .connection = r->connection, .pool = r->pool, .log = r->connection->log};
}

#endif
