/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy file that is tried: read once, with its overrides, and put into each weir that plays it.
 *
 * The keys of a policy may have forms, as addresses have. An override that names no key of the form is left out, and
 * said by name; the others are in force. Where keys of IPv4 and of IPv6 have forms that differ, a copy of the policy
 * takes those of IPv6.
 */
#ifndef WEIR_SIMULATE_TRIED_FILE_H
#define WEIR_SIMULATE_TRIED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <weir/weir.h>

#include "../listed_policies.h"

/* The copy of a policy that takes keys of IPv6. */
#define TRIED_IPV6 "simulated-ipv6"

struct tried_entry {
    char *name, *value;
};

struct tried_file {
    const char *path;
    struct listed_policies list;
    struct tried_entry *entries;
    size_t entry_count, entry_capacity;
    const char *policy;         /* whose keys have the forms; NULL: those of all policies have the gateway's */
    const weir_key_form *form;  /* NULL: keys are bytes */
    const weir_key_form *form6; /* of the copy; NULL: there is none */
};

/* Reads a file, or standard input for "-". 0 or a negative errno with a sentence. The caller calls tried_file_free. */
int tried_file_read(struct tried_file *out, const char *path, weir_error *error);
void tried_file_free(struct tried_file *file);

/* The forms are known: leaves out the overrides that name no key, and says each on standard error. */
int tried_file_check(struct tried_file *file, weir_error *error);

/* Puts the policies in force with their overrides. All of them deny, shadow mode or not, unless `policy` is NULL. */
int tried_file_put(const struct tried_file *file, weir *w, weir_error *error);

#endif
