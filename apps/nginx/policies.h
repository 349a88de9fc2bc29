/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_policies: the file whose policies locations, or servers of streams, ask by name.
 *
 * The file is read twice: while nginx reads its configuration, so that a fault is found then, and when the
 * configuration comes into force. Policies are known by name from the first reading, and by number from the second.
 */
#ifndef WEIR_NGINX_POLICIES_H
#define WEIR_NGINX_POLICIES_H

#include "nginx_weir.h"

/*
 * A policy of the file. A tier is a policy, with a '/' in its name.
 *
 * name      terminated
 * queue     all limits are leaky buckets: requests wait for their turn
 * shadow    nothing is refused
 * key_bits  of the keys of its checks, where all are addresses of one kind: see struct address. Else KEYS_UNKNOWN or
 *           KEYS_MIXED
 * id        set when the cycle comes into force
 */
struct policy {
    ngx_str_t name;
    bool queue;
    bool shadow;
    unsigned key_bits;
    weir_policy_id id;
};

/* No check is known, and keys that are no addresses, or addresses of several kinds: weir_address_form() has neither. */
#define KEYS_UNKNOWN 0
#define KEYS_MIXED   1

/* The handler of weir_policies; the offset of the command is that of the struct policy_file. */
char *policies_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* NULL: the file has no such policy. */
struct policy *policies_find(const struct policy_file *file, const ngx_str_t *name);

/* False: a zone has the name of a policy of the file, or there are too many of both; the log says so. */
bool policies_fit_own(const struct block *block, ngx_conf_t *cf);

/* When all checks are known: reads the file once more, as entries of addresses are read by the form of the keys. */
bool policies_read_again(ngx_conf_t *cf, struct policy_file *file);

/* The bits of both: of keys of one check, or policy, and of others. */
unsigned policies_join_bits(unsigned one, unsigned other);

/* The key_bits of a policy and its tiers. Keys that are addresses are written as such, and entries may be of networks.
 */
unsigned policies_key_bits(const struct policy_file *file, const struct policy *policy);

/* Looks up the numbers of all policies. */
void policies_set_ids(const struct policy_file *file, const weir *w);

#endif
