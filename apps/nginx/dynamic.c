/* SPDX-License-Identifier: Apache-2.0 */
/* What nginx looks up in a dynamic module: the modules that the file has, their names and their order. */
#include "http_weir.h"

#define EXPORTED __attribute__((visibility("default")))

EXPORTED ngx_module_t *ngx_modules[] = {&ngx_http_weir_module, NULL};

EXPORTED char *ngx_module_names[] = {"ngx_http_weir_module", NULL};

/* No place of its own: limits are decided in a phase, not in a chain of filters. */
EXPORTED char *ngx_module_order[] = {NULL};
