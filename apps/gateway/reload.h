/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the file of settings and the policies are read again, whole. All is checked before anything changes: where
 * something cannot be taken, everything stays as it was. Changes of settings that need a restart wait for one, and the
 * log names them once.
 */
#ifndef WEIR_GATEWAY_RELOAD_H
#define WEIR_GATEWAY_RELOAD_H

#include <stdbool.h>

struct gateway;

/* Puts what the options have of live settings in force, at the start. */
void reload_begin(struct gateway *gateway);

/* Reads again. False, after a sentence in the log: nothing has changed. Main thread. */
bool reload(struct gateway *gateway);

#endif
