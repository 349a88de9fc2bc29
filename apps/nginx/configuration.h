/* SPDX-License-Identifier: Apache-2.0 */
/* The module's configurations: how they begin, and what a location inherits. */
#ifndef WEIR_NGINX_CONFIGURATION_H
#define WEIR_NGINX_CONFIGURATION_H

#include "http_weir.h"

void *configuration_create_http(ngx_conf_t *cf);
void *configuration_create_location(ngx_conf_t *cf);
char *configuration_merge_location(ngx_conf_t *cf, void *outer, void *inner);

#endif
