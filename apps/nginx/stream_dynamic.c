/* SPDX-License-Identifier: Apache-2.0 */
/* What nginx looks up in the file of the stream module: see dynamic.c. */
#include "stream_weir.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED ngx_module_t *ngx_modules[] = {&ngx_stream_weir_module, NULL};

EXPORTED char *ngx_module_names[] = {"ngx_stream_weir_module", NULL};

EXPORTED char *ngx_module_order[] = {NULL};
