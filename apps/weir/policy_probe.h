/* SPDX-License-Identifier: Apache-2.0 */
/* A policy file, or standard input, as the library reads it. */
#ifndef WEIR_POLICY_PROBE_H
#define WEIR_POLICY_PROBE_H

#include <stdbool.h>
#include <weir/weir.h>

#define STANDARD_INPUT "-"

/* Where an error is in its file; 0: at no line. */
struct probe_place {
    unsigned line, column;
};

/*
 * Opens a weir that counts nothing and knows no Redis. The caller closes *out, after an error too. `prefix` is that of
 * the keys in Redis, or NULL. -EINVAL: the prefix is malformed.
 */
int policy_probe_open(const char *prefix, weir **out, weir_error *error);

/* Loads the file. An error is the library's: its code, and "FILE:LINE:COLUMN: sentence". */
int policy_probe_load(weir *w, const char *path, weir_error *error);

/* What the keys of a file's policies are. */
enum probe_keys {
    PROBE_KEYS_GUESSED, /* where all policies have names that weir-gateway uses, what they are there; else bytes */
    PROBE_KEYS_BYTES,
    PROBE_KEYS_OF_GATEWAY
};

/* Reads --keys of a command; NULL: PROBE_KEYS_GUESSED. False: there are no such keys. */
bool policy_probe_read_keys(const char *text, enum probe_keys *out);

/* The same with the forms of keys: overrides whose name no key can have are malformed. *of_gateway may be NULL. */
int policy_probe_load_keys(weir *w, const char *path, enum probe_keys keys, bool *of_gateway, weir_error *error);

/* Gives the keys of the policies in force the forms that they have in the gateway. 0 or a negative errno value. */
int policy_probe_set_forms(weir *w, weir_error *error);

/* What the sentences about a file name it by. */
const char *policy_probe_name(const char *path);

/* Whether the file is malformed. False: it could not be read. `code` is that of policy_probe_load. */
bool policy_probe_is_bad(int code);

/* The sentence of an error without its place, and that place. */
const char *policy_probe_sentence(const char *path, const char *message, struct probe_place *place);

#endif
