/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the library says of an override before it is written: tried in a weir that knows no Redis, by the policies of a
 * file, or without a file by policies made for the trial.
 */
#ifndef WEIR_OVERRIDE_TRIAL_H
#define WEIR_OVERRIDE_TRIAL_H

#include <stdbool.h>
#include <weir/weir.h>

#include "listed_policies.h"
#include "policy_probe.h"

/* The longest name as weir writes it: a policy, a colon, and a key of 1,024 bytes as %xx each; with the terminator. */
#define OVERRIDE_NAME_SIZE (WEIR_MAX_NAME + 1 + 3 * 1024 + 1)

struct override_trial {
    weir *weir;
    bool has_file;
    enum probe_keys keys;
    struct listed_policies policies; /* of the file */
};

enum trial_opened {
    TRIAL_OPENED,
    TRIAL_PREFIX, /* the prefix is malformed */
    TRIAL_FILE,   /* the file is malformed */
    TRIAL_UNREAD  /* the file cannot be read, or there is no memory */
};

/* `path` NULL: no file. After anything but TRIAL_OPENED `error` has a sentence. The caller closes in every case. */
enum trial_opened override_trial_open(struct override_trial *out, const char *prefix, const char *path,
                                      enum probe_keys keys, weir_error *error);
void override_trial_close(struct override_trial *trial);

enum trial_result {
    TRIAL_GOOD,
    TRIAL_BAD,      /* malformed, or too long: nodes leave it out */
    TRIAL_NO_POLICY /* the file has no such policy */
};

/* Tries an override. TRIAL_GOOD: `name` is its name as weir writes it. Else `error` has a sentence. */
enum trial_result override_trial(struct override_trial *trial, const char *typed, const char *value,
                                 char name[OVERRIDE_NAME_SIZE], weir_error *error);

/* The name as weir writes it, whether or not the file has its policy. False: it is malformed. */
bool override_trial_name(struct override_trial *trial, const char *typed, char name[OVERRIDE_NAME_SIZE]);

/* The policy of the file that an override is of; NULL: there is no file, or no such policy. */
const weir_policy *override_trial_policy(const struct override_trial *trial, const char *name);

#endif
