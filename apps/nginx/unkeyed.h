/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and sessions that a policy or a zone was not asked for, as their key is empty.
 *
 * They are counted by policy, in memory that all workers of an instance share, and $weir_without_key has the names.
 */
#ifndef WEIR_NGINX_UNKEYED_H
#define WEIR_NGINX_UNKEYED_H

#include "nginx_weir.h"

/* The counts of one instance. Before unkeyed_open() and where there was no memory they count nothing. */
struct unkeyed_counts {
    ngx_shm_t memory; /* ngx_atomic_t by policy */
};

/* Before workers are forked. */
void unkeyed_open(struct unkeyed_counts *counts, ngx_log_t *log);
void unkeyed_close(struct unkeyed_counts *counts);

/* How many requests, by all workers, since unkeyed_open(). */
uint64_t unkeyed_count(const struct unkeyed_counts *counts, weir_policy_id policy);

/*
 * Counts the request for a policy, and adds the policy's name to `names`, which begin empty: names of one request,
 * separated by commas. A request that is in the names already counts once.
 */
void unkeyed_note(struct unkeyed_counts *counts, ngx_pool_t *pool, ngx_str_t *names, const ngx_str_t *name,
                  weir_policy_id policy);

#endif
