/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML file of --kinds. */
#ifndef WEIR_GATEWAY_KINDS_KIND_FILE_H
#define WEIR_GATEWAY_KINDS_KIND_FILE_H

#include <stdbool.h>

#include <weir/weir.h>

#include "packet_kind.h"

/* Reads a file. False: `error` names the file, line and column, the field and what to do. `path` NULL: no kinds. */
bool kind_file_read(const char *path, struct packet_kinds *out, weir_error *error);

#endif
