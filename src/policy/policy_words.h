/* SPDX-License-Identifier: Apache-2.0 */
/* The words of each enumeration of a policy, by the numbers in weir.h, and what other limiters call them. */
#ifndef WEIR_POLICY_POLICY_WORDS_H
#define WEIR_POLICY_POLICY_WORDS_H

#include "policy/words.h"

extern const struct words algorithm_words, calendar_words, mode_words, scope_words, outage_words;

#endif
