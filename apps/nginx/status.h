/* SPDX-License-Identifier: Apache-2.0 */
/* weir_status: the state of the weir, for people, for Prometheus and as JSON. */
#ifndef WEIR_NGINX_STATUS_H
#define WEIR_NGINX_STATUS_H

#include "http_weir.h"

/* The handler of weir_status. */
char *status_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

#endif
