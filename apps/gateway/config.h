/* SPDX-License-Identifier: Apache-2.0 */
/* A file of settings: YAML, a mapping from the names of the command line's options to their values. */
#ifndef WEIR_GATEWAY_CONFIG_H
#define WEIR_GATEWAY_CONFIG_H

#include <weir/weir.h>

#include "settings.h"

/*
 * Reads a file. 0, or a negative errno value, and *error has a sentence that begins with the file, the line and the
 * column. `out` is empty before; the caller frees it, also after an error. `path` must stay.
 */
int config_read(const char *path, struct settings *out, weir_error *error);

#endif
