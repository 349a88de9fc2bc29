/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stream module share: nginx's headers, the module itself, and its configuration. */
#ifndef WEIR_NGINX_STREAM_WEIR_H
#define WEIR_NGINX_STREAM_WEIR_H

#include "check.h"
#include "nginx_weir.h"
/* After the two of nginx's core. */
#include <ngx_stream.h>

extern ngx_module_t ngx_stream_weir_module;

/* The main configuration. */
struct stream_weir {
    struct block block;
};

/* The configuration of a server. */
struct stream_server {
    struct check_list list;
    ngx_uint_t log_level;
    ngx_flag_t dry_run;
};

#endif
