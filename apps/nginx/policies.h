/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_policies: the file whose policies locations ask by name.
 *
 * The file is read twice: while nginx reads its configuration, so that a fault is found then, and when the
 * configuration comes into force. Policies are known by name from the first reading, and by number from the second.
 */
#ifndef WEIR_NGINX_POLICIES_H
#define WEIR_NGINX_POLICIES_H

#include <stdbool.h>

#include "nginx_weir.h"

/*
 * A policy of the file. A tier is a policy, with a '/' in its name.
 *
 * name   terminated
 * queue  all limits are leaky buckets: requests wait for their turn
 * id     set when the cycle comes into force
 */
struct policy {
    ngx_str_t name;
    bool queue;
    weir_policy_id id;
};

/* The handler of weir_policies. */
char *policies_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* NULL: the file has no such policy. */
struct policy *policies_find(const struct policy_file *file, const ngx_str_t *name);

/* False: a zone has the name of a policy of the file, or there are too many of both; the log says so. */
bool policies_fit_zones(const struct http_weir *http, ngx_conf_t *cf);

/* Looks up the numbers of all policies. */
void policies_set_ids(const struct policy_file *file, const weir *w);

#endif
