/* SPDX-License-Identifier: Apache-2.0 */
/* See stream_configuration.h. */
#include "stream_configuration.h"

#include "block.h"
#include "charge.h"

void *stream_configuration_create(ngx_conf_t *cf)
{
    struct stream_weir *stream = ngx_pcalloc(cf->pool, sizeof(*stream));
    return stream != NULL && block_begin(&stream->block, cf) ? stream : NULL;
}

void *stream_configuration_create_server(ngx_conf_t *cf)
{
    struct stream_server *server = ngx_pcalloc(cf->pool, sizeof(*server)); /* no checks */
    if (server != NULL) {
        server->log_level = NGX_CONF_UNSET_UINT;
        server->dry_run = NGX_CONF_UNSET;
    }
    return server;
}

char *stream_configuration_merge_server(ngx_conf_t *cf, void *outer, void *inner)
{
    const struct stream_server *outside = outer;
    struct stream_server *server = inner;
    check_inherit(&outside->list, &server->list);
    if (!charge_fits(&outside->list, cf) || !charge_fits(&server->list, cf)) {
        return NGX_CONF_ERROR;
    }
    ngx_conf_merge_uint_value(server->log_level, outside->log_level, NGX_LOG_ERR);
    ngx_conf_merge_value(server->dry_run, outside->dry_run, 0);
    return NGX_CONF_OK;
}
