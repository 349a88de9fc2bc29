/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies of a weir that processes share. The compiled set and overrides lie in memory that all processes read.
 * So does what they were compiled from: any process can change the policies.
 *
 * Each part has two places. A change is written to the place that is not in force, and then put in force by one store.
 * So a process that dies while it changes policies leaves the policies as they were. A place may be written again when
 * no reader can still be in it: the thread that publishes a set waits for the readers of the one before.
 *
 * Every process keeps a copy of the sources in its own memory, and reads them anew when another process has changed
 * them. A weir that is not shared has no such memory, and its sources are the copy.
 */
#ifndef WEIR_LIMITER_SHARED_POLICIES_H
#define WEIR_LIMITER_SHARED_POLICIES_H

#include <stdbool.h>

#include "weir/weir.h"

struct overrides;
struct pages_owner;
struct policy_set;
struct shared_policies;

/* 0; -ENOMEM; -ENOSPC: the segment has no room. */
int shared_policies_open(struct shared_policies **out, struct pages_owner *pages);
void shared_policies_close(struct shared_policies *shared); /* NULL is allowed */

/*
 * Moves a compiled block to the place that is not in force. `present`: the block in force, or NULL. Returns the block
 * in its place; where `shared` is NULL, the block as it is.
 */
struct policy_set *shared_policies_place_set(struct shared_policies *shared, struct policy_set *set,
                                             const struct policy_set *present);
struct overrides *shared_policies_place_overrides(struct shared_policies *shared, struct overrides *overrides,
                                                  const struct overrides *present);

/*
 * Writes this process's copy of the sources to the place that is not in force, and puts that place in force. Both under
 * the policy lock. The first also has the places present that the compiled blocks are moved to. It returns 0; -ENOMEM:
 * there is no room; -ENOSPC: the segment has none; -EUCLEAN: what is in force cannot be read. `overrides`: NULL: there
 * are none.
 */
int shared_policies_prepare(weir *w, const struct policy_set *set, const struct overrides *overrides);
void shared_policies_commit(weir *w);

/* The second part of what shared_policies_prepare() does. 0; -ENOMEM; -ENOSPC. */
int shared_policies_make_room(const weir *w, const struct policy_set *set, const struct overrides *overrides);

/*
 * Reads the sources anew, if another process has changed them. Under the policy lock. 0; or what was known stays, in
 * part: -ENOMEM; -EUCLEAN: they are damaged.
 */
int shared_policies_load(weir *w);

/* Says why the policies cannot be changed: by what a function here, or of policy_readers.h, returned. Returns that. */
int shared_policies_refuse(int result, weir_error *error);

/* The set in force, under the policy lock. NULL: what is named as that is none, as memory is damaged. */
struct policy_set *shared_policies_in_force(const weir *w);

#endif
