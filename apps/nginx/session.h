/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of streams, which are TCP connections and the packets of one UDP client: decides them, and charges what they
 * came to. A session waits for nothing: a queue refuses what would have to.
 */
#ifndef WEIR_NGINX_SESSION_H
#define WEIR_NGINX_SESSION_H

#include "stream_weir.h"

/* The handler of the phase before access. */
ngx_int_t session_handler(ngx_stream_session_t *s);

/* The handler of the log phase. */
ngx_int_t session_log_handler(ngx_stream_session_t *s);

/* Makes the variables known to a configuration. */
ngx_int_t session_add_variables(ngx_conf_t *cf);

#endif
