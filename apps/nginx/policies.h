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
 * name       terminated
 * queue      all limits are leaky buckets: requests wait for their turn
 * shadow     nothing is refused
 * addresses  checks of this policy whose key is $binary_remote_addr
 * others     checks whose key is another
 * id         set when the cycle comes into force
 */
struct policy {
    ngx_str_t name;
    bool queue;
    bool shadow;
    size_t addresses;
    size_t others;
    weir_policy_id id;
};

/* The handler of weir_policies; the offset of the command is that of the struct policy_file. */
char *policies_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* NULL: the file has no such policy. */
struct policy *policies_find(const struct policy_file *file, const ngx_str_t *name);

/* False: a zone has the name of a policy of the file, or there are too many of both; the log says so. */
bool policies_fit_own(const struct block *block, ngx_conf_t *cf);

/* When all checks are known: reads the file once more, as entries of addresses are read by the form of the keys. */
bool policies_read_again(ngx_conf_t *cf, struct policy_file *file);

/*
 * Whether all checks of a policy and its tiers are of $binary_remote_addr, and there is one. Its keys are then written
 * as addresses, and entries may be of networks.
 */
bool policies_have_addresses(const struct policy_file *file, const struct policy *policy);

/* Whether the text of a key is one of whose bytes an address can be made. */
bool policies_is_address(const ngx_str_t *key);

/* Looks up the numbers of all policies. */
void policies_set_ids(const struct policy_file *file, const weir *w);

#endif
