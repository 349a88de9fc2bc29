/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key of a policy as the nodes of a fleet know it: its text in the names of records, and the override in force for
 * it. Names: chosen_key_.
 */
#ifndef WEIR_INSPECT_CHOSEN_KEY_H
#define WEIR_INSPECT_CHOSEN_KEY_H

#include "inspect/shelf.h"
#include "policy/entry.h"
#include "policy/policy.h"
#include "process/key_name.h"
#include "weir/inspect.h"

struct chosen_key {
    struct policy policy;                       /* a copy, with the numbers of the override */
    struct entry_name name;                     /* as read */
    char text[KEY_NAME_TEXT_SIZE];              /* of the key in names of records */
    char full_name[ENTRY_NAME_SIZE];            /* "policy:key", as overrides are named */
    const char *override_name, *override_value; /* NULL: none is in force */
    bool override_from_fleet;
};

/*
 * Reads a name as weir_set_override does, and finds the override that is in force at that fleet time: of those of `w`
 * and of `fleet`, the overrides in Redis. What is kept is of the shelf. 0; -EINVAL, -ENOENT, -ENOMEM, -EUCLEAN, with a
 * sentence.
 */
int chosen_key_read(struct chosen_key *out, struct shelf *shelf, weir *w, const char *name,
                    const weir_inspected_overrides *fleet, uint64_t now_ns, weir_error *error);

#endif
