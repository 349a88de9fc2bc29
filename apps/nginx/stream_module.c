/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream module: its directives, and what it does at each point of nginx's life. See block.h.
 *
 * The module has a weir of its own beside that of the HTTP module: an nginx that has no http block loads it alone.
 */
#include "block.h"
#include "charge.h"
#include "check.h"
#include "policies.h"
#include "redis.h"
#include "session.h"
#include "stream_configuration.h"
#include "stream_weir.h"

/* Where directives of servers may stand. */
#define EVERYWHERE (NGX_STREAM_MAIN_CONF | NGX_STREAM_SRV_CONF)

static ngx_conf_enum_t log_levels[] = {
    {ngx_string("info"), NGX_LOG_INFO},
    {ngx_string("notice"), NGX_LOG_NOTICE},
    {ngx_string("warn"), NGX_LOG_WARN},
    {ngx_string("error"), NGX_LOG_ERR},
    {ngx_null_string, 0},
};

static ngx_command_t commands[] = {
    {ngx_string("weir_redis"), NGX_STREAM_MAIN_CONF | NGX_CONF_1MORE, redis_directive, NGX_STREAM_MAIN_CONF_OFFSET,
     offsetof(struct stream_weir, block.redis), NULL},
    {ngx_string("weir_policies"), NGX_STREAM_MAIN_CONF | NGX_CONF_TAKE12, policies_directive,
     NGX_STREAM_MAIN_CONF_OFFSET, offsetof(struct stream_weir, block.file), NULL},
    {ngx_string("weir"), EVERYWHERE | NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, check_directive,
     NGX_STREAM_SRV_CONF_OFFSET, offsetof(struct stream_server, list), NULL},
    {ngx_string("weir_charge"), EVERYWHERE | NGX_CONF_TAKE12, charge_directive, NGX_STREAM_SRV_CONF_OFFSET,
     offsetof(struct stream_server, list), NULL},
    {ngx_string("weir_log_level"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_STREAM_SRV_CONF_OFFSET,
     offsetof(struct stream_server, log_level), &log_levels},
    {ngx_string("weir_dry_run"), EVERYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_STREAM_SRV_CONF_OFFSET,
     offsetof(struct stream_server, dry_run), NULL},
    ngx_null_command,
};

static bool add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_stream_handler_pt handler)
{
    ngx_stream_core_main_conf_t *core = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_core_module);
    ngx_stream_handler_pt *place = ngx_array_push(&core->phases[phase].handlers);
    if (place == NULL) {
        return false;
    }
    *place = handler;
    return true;
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    struct stream_weir *stream = ngx_stream_conf_get_module_main_conf(cf, ngx_stream_weir_module);
    if (!block_finish(&stream->block, cf, "weir:stream", &ngx_stream_weir_module)) {
        return NGX_ERROR;
    }
    if (stream->block.checks.nelts == 0) {
        return NGX_OK;
    }
    return add_handler(cf, NGX_STREAM_PREACCESS_PHASE, session_handler) &&
                   add_handler(cf, NGX_STREAM_LOG_PHASE, session_log_handler)
               ? NGX_OK
               : NGX_ERROR;
}

/* NULL: the cycle has no stream block. */
static struct block *block_of(ngx_cycle_t *cycle)
{
    struct stream_weir *stream = ngx_stream_cycle_get_module_main_conf(cycle, ngx_stream_weir_module);
    return stream != NULL ? &stream->block : NULL;
}

static ngx_int_t init_module(ngx_cycle_t *cycle)
{
    block_put_in_force(block_of(cycle), cycle->log);
    return NGX_OK;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    block_enter(block_of(cycle), cycle->log);
    return NGX_OK;
}

static void exit_process(ngx_cycle_t *cycle)
{
    block_leave(block_of(cycle));
}

static ngx_stream_module_t stream_module = {
    .preconfiguration = session_add_variables,
    .postconfiguration = postconfiguration,
    .create_main_conf = stream_configuration_create,
    .create_srv_conf = stream_configuration_create_server,
    .merge_srv_conf = stream_configuration_merge_server,
};

ngx_module_t ngx_stream_weir_module = {
    NGX_MODULE_V1,
    &stream_module,
    commands,
    NGX_STREAM_MODULE,
    NULL, /* init_master: nginx does not call it */
    init_module,
    init_process,
    NULL, /* init_thread */
    NULL, /* exit_thread */
    exit_process,
    NULL, /* exit_master: the pool of the cycle ends after it */
    NGX_MODULE_V1_PADDING,
};
