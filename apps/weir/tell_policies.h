/* SPDX-License-Identifier: Apache-2.0 */
/* Policies and overrides on standard output: a line of words each, or JSON. */
#ifndef WEIR_TELL_POLICIES_H
#define WEIR_TELL_POLICIES_H

#include "listed_policies.h"
#include "output.h"

/* Every policy. Of a tier with its policy's settings the line says so instead of repeating them. */
void tell_policies(struct output *out, const struct listed_policies *list);

/* The words of an override; `policy` is the override's. The caller ends the line, and closes the object of JSON. */
void tell_override(struct output *out, const weir_policy *policy, const char *name, const char *value);

/* The words of an override alone, behind its name: " is never limited". No JSON. */
void tell_override_words(struct output *out, const weir_policy *policy, const char *value);

#endif
