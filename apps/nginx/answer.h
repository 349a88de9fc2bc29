/* SPDX-License-Identifier: Apache-2.0 */
/* What clients and logs are told of a check: weir_headers, and the variables of variables.h. */
#ifndef WEIR_NGINX_ANSWER_H
#define WEIR_NGINX_ANSWER_H

#include "http_weir.h"

/* weir_headers off. Other values of location.header_style are a weir_header_style. */
#define HEADERS_OFF 99

/* The words of weir_headers. */
extern ngx_conf_enum_t answer_styles[];

/* Puts the filter of header fields before the others. */
void answer_add_filter(void);

/* Makes the variables known to a configuration. */
ngx_int_t answer_add_variables(ngx_conf_t *cf);

#endif
