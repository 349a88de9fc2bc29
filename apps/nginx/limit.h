/* SPDX-License-Identifier: Apache-2.0 */
/* weir_limit_req: what a location asks of a zone. */
#ifndef WEIR_NGINX_LIMIT_H
#define WEIR_NGINX_LIMIT_H

#include "http_weir.h"

/* The handler of weir_limit_req. */
char *limit_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

#endif
