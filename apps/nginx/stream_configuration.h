/* SPDX-License-Identifier: Apache-2.0 */
/* The stream module's configurations: how they begin, and what a server inherits. */
#ifndef WEIR_NGINX_STREAM_CONFIGURATION_H
#define WEIR_NGINX_STREAM_CONFIGURATION_H

#include "stream_weir.h"

void *stream_configuration_create(ngx_conf_t *cf);
void *stream_configuration_create_server(ngx_conf_t *cf);
char *stream_configuration_merge_server(ngx_conf_t *cf, void *outer, void *inner);

#endif
