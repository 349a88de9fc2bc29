/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two modules do differently in the files that they share. nginx has the same functions twice, for http and
 * for stream. Each module has its own file of these: http_protocol.c and stream_protocol.c.
 */
#ifndef WEIR_NGINX_PROTOCOL_H
#define WEIR_NGINX_PROTOCOL_H

#include "nginx_weir.h"

/* What asks a policy: a request of HTTP, or a session of a stream. */
struct asker {
    void *request; /* ngx_http_request_t or ngx_stream_session_t */
    const ngx_connection_t *connection;
    ngx_pool_t *pool;
    ngx_log_t *log;
};

/*
 * Text with variables.
 *
 * text      as the directive has it
 * constant  it has no variables
 * compiled  nginx's own form
 */
struct expression {
    ngx_str_t text;
    bool constant;
    void *compiled;
};

/* "http" or "stream". */
const char *protocol_name(void);

/* What the block says that is being read. */
struct block *protocol_block(const ngx_conf_t *cf);

/* False: no memory, or a variable that there is not; nginx has said which. */
bool protocol_compile(ngx_conf_t *cf, const ngx_str_t *text, struct expression *out);

/* What the text comes to now. False: no memory. */
bool protocol_evaluate(const struct asker *asker, const struct expression *expression, ngx_str_t *out);

/* The value of a variable of nginx's, by its name; empty where it has none. */
ngx_str_t protocol_variable(const struct asker *asker, const ngx_str_t *name);

#endif
