/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key of a policy, as the nodes of a fleet know it: the policy of the file, and the name of the key in Redis. The
 * library reads and names both.
 */
#ifndef WEIR_FLEET_KEY_H
#define WEIR_FLEET_KEY_H

#include <stdbool.h>
#include <weir/weir.h>

#include "policy/entry.h"
#include "policy/policy.h"
#include "process/key_name.h"
#include "transport/transport.h"

/* What the command line says. */
struct fleet_key_options {
    const char *policy, *key;
    const char *file;        /* the policy file of the nodes */
    const char *prefix;      /* NULL: "weir" */
    const char *form;        /* "bytes", "addresses", "addresses/64"; NULL: the gateway's, or as the key looks */
    const char *secret_file; /* its first line is the fleet's secret; NULL: there is none */
};

enum fleet_key_opened {
    FLEET_KEY_OPENED,
    FLEET_KEY_USAGE, /* a word of the command line is wrong: policy, key, form or prefix */
    FLEET_KEY_FILE,  /* the policy file is malformed */
    FLEET_KEY_UNREAD /* a file could not be read */
};

struct fleet_key {
    weir *weir; /* knows no Redis, and counts nothing */
    char prefix[33];
    const struct policy *policy;     /* as the file has it */
    struct entry_name name;          /* as read */
    char text[KEY_NAME_TEXT_SIZE];   /* of the key in names of records */
    char full_name[ENTRY_NAME_SIZE]; /* "policy:key", as overrides name it */
    bool is_network;                 /* several keys: they have records of their own */
    bool of_gateway;                 /* the file's policies are those of weir-gateway, and so are their keys */
    bool guessed;                    /* the form of the key is as the key looks */
};

/* Reads file and key. The caller calls fleet_key_close whatever comes of it. `error`: a sentence. */
enum fleet_key_opened fleet_key_open(struct fleet_key *out, const struct fleet_key_options *options, weir_error *error);
void fleet_key_close(struct fleet_key *key);

/* Writes the key's name with another policy or tier of its group, as weir_inspect_key takes it. */
void fleet_key_name(const struct fleet_key *key, const char *policy, char out[ENTRY_NAME_SIZE]);

/* The policy of the file, with its limits in `limits`. Names belong to the key. */
weir_policy fleet_key_policy(const struct fleet_key *key, weir_limit limits[WEIR_MAX_LIMITS]);

#endif
