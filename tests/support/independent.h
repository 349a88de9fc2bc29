/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that open weirs of one name, each with its memory at other addresses, as programs started one by one have.
 */
#ifndef WEIR_TESTS_INDEPENDENT_H
#define WEIR_TESTS_INDEPENDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "weir/weir.h"

#define SEGMENT_NAME_SIZE 64

/* A name that no other test has: with this process's id, and a word. */
void segment_name(char name[SEGMENT_NAME_SIZE], const char *word);

/* The size of the memory of a name; -1: there is none. */
int64_t segment_size(const char *name);

/* Starts a process that runs a function, dies with this one, and ends with what the function returns. */
pid_t start_independent(int (*run)(void *arg), void *arg);

/* Fails the test where the process does not end by itself, with status 0. */
void expect_end(pid_t process);

/* Kills a process and waits for its end. */
void kill_independent(pid_t process);

/* Opens a named weir with these options (NULL: defaults), or fails the test. */
weir *open_named(const char *name, const weir_options *more);

/* A weir with one policy "p" of one limit; NULL: it cannot be opened. For processes beside the test's own. */
weir *open_named_policy(const char *name, const weir_options *more, const weir_limit *limit);

/*
 * Damages the memory of a name that nobody has open, with a policy of this name, such that its policies cannot be read:
 * what its keys are is not known then.
 */
void damage_policies(const char *name, const char *policy);

/* Waits until the word is at least so much. False: it is not after a minute. */
bool wait_for_word(const _Atomic uint64_t *word, uint64_t least);

#endif
