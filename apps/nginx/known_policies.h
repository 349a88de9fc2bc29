/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies of nginx.conf and of files that an instance has, or had in an earlier cycle. Own policies that there are
 * no more stay: workers of earlier cycles go on to limit by them.
 */
#ifndef WEIR_NGINX_KNOWN_POLICIES_H
#define WEIR_NGINX_KNOWN_POLICIES_H

#include <stdbool.h>

#include "nginx_weir.h"
#include "weir/weir.h"

struct known_policy;

/* All names since the instance was opened. Zeros are an empty list. */
struct known_policies {
    struct known_policy *all;
    size_t count;
};

void known_policies_free(struct known_policies *known);

/* Whether the library has numbers for the names of a cycle beside those of earlier ones. */
bool known_policies_have_room(const struct known_policies *known, const struct own_policy *own, size_t own_count,
                              const struct policy_file *file);

/* Adds those of a cycle. False: no memory. */
bool known_policies_add(struct known_policies *known, const struct block *block, ngx_log_t *log);

/* Adds what may be own policies of another nginx, of those that are in force. */
void known_policies_adopt(struct known_policies *known, const weir *w, ngx_log_t *log);

/*
 * Gives the keys of a known policy and its tiers the form of addresses of these bits, or none where there is no such
 * form. 0, or as weir_set_key_form().
 */
int known_policies_set_form(struct known_policies *known, weir *w, const char *name, unsigned key_bits,
                            weir_error *error);

/* The own policies, in room for known->count. Returns their number. They live until the next change. */
size_t known_policies_own(const struct known_policies *known, weir_policy *policies);

#endif
