/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A zone: a key, a rate, and a name by which locations refer to both.
 *
 * nginx knows a zone by the name of a piece of shared memory. So names, sizes and conflicts of zones have nginx's own
 * rules and sentences. The module uses nothing of that memory, and makes it as small as nginx allows: what keys have
 * used is in the weir.
 *
 * Each zone is a policy of one leaky bucket. The excess that nginx counts for a key is the wait of a request in this
 * bucket's queue, divided by the time between two requests. A location's burst is the longest wait that it takes.
 *
 * All rates are kept per minute, "10r/s" as 600. So a bucket's period never changes, and what a key has used is kept
 * when the rate does.
 */
#ifndef WEIR_NGINX_ZONE_H
#define WEIR_NGINX_ZONE_H

#include "http_weir.h"
#include "weir/weir.h"

/*
 * address      that the key is; NULL: the key is no address
 * variable     the index of the variable that the key is; NGX_ERROR: the key is another text
 * rate         requests a minute
 * size         bytes, as the directive has them: how many keys of this zone the table has room for
 * local        redis=off: the zone is not shared with other machines
 * policy_name  see zone_policy_name
 * policy       the number of that policy; set when the cycle comes into force
 */
struct zone {
    ngx_str_t name;
    struct expression key;
    const struct address *address;
    ngx_int_t variable;
    uint64_t rate;
    ngx_shm_zone_t *shm_zone;
    size_t size;
    bool local;
    uint64_t burst; /* the largest of all locations, in whole requests */
    char policy_name[WEIR_MAX_NAME + 1];
    weir_policy_id policy;
};

/* The handler of weir_limit_req_zone. */
char *zone_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/*
 * When all directives are read: makes the shared memory of zones small, brings limits and zones together, and makes the
 * policies of the zones. False: no memory.
 */
bool zone_finish(struct http_weir *http, ngx_conf_t *cf);

/*
 * The name of a zone's policy, which records in Redis have as well. Letters, digits, '_' and '-' stay; another byte
 * becomes '.' and two digits. Of a name that gets too long the front stays, then come ".." and a hash.
 */
void zone_policy_name(const ngx_str_t *zone, char *out);

#endif
