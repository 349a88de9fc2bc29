/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that the gateway asks for by name, and how a policy file gets into force.
 *
 * A file is looked at first, in a weir of its own that has no thread and no Redis, and comes into force after that: a
 * limit that is in force is never lost to a file that does not name it, unless --allow-missing says that it may be.
 */
#ifndef WEIR_GATEWAY_POLICIES_H
#define WEIR_GATEWAY_POLICIES_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/weir.h>

#include "kinds/packet_kind.h"
#include "policy_table.h"

/*
 * `kinds`: the packet kinds that are, or come into force with the file.
 *
 * Loads the policies a gateway starts with into `w`. False, after a sentence on stderr: the file cannot be taken, or
 * has no policy that the gateway asks for and `allow_missing` is not set.
 */
bool policies_start(struct policies *policies, weir *w, const char *path, const struct packet_kinds *kinds,
                    bool allow_missing);

/*
 * Loads them again. False, after a sentence on stderr: they stay as they were, as the file cannot be taken, or lacks a
 * policy that is in force and `allow_missing` is not set.
 */
bool policies_reload(struct policies *policies, weir *w, const char *path, const struct packet_kinds *kinds,
                     bool allow_missing);

/* Prints on stdout what each policy of a file is. False, after a sentence on stderr: a gateway would not start with it.
 */
bool policies_check(const char *path, const struct packet_kinds *kinds, bool allow_missing);

#endif
