/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP module: its directives, and what it does at each point of nginx's life. See block.h.
 */
#include "answer.h"
#include "block.h"
#include "charge.h"
#include "check.h"
#include "configuration.h"
#include "http_weir.h"
#include "limit.h"
#include "policies.h"
#include "redirect.h"
#include "request.h"
#include "request_state.h"
#include "status.h"
#include "zone.h"

/* Where directives of locations may stand. */
#define EVERYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

static ngx_conf_enum_t log_levels[] = {
    {ngx_string("info"), NGX_LOG_INFO},
    {ngx_string("notice"), NGX_LOG_NOTICE},
    {ngx_string("warn"), NGX_LOG_WARN},
    {ngx_string("error"), NGX_LOG_ERR},
    {ngx_null_string, 0},
};

static ngx_conf_num_bounds_t status_bounds = {ngx_conf_check_num_bounds, 400, 599};

static ngx_command_t commands[] = {
    {ngx_string("weir_limit_req_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, zone_directive,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_limit_req"), EVERYWHERE | NGX_CONF_TAKE123, limit_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_limit_req_log_level"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(struct location, limit_log_level), &log_levels},
    {ngx_string("weir_limit_req_status"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_num_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, status_code), &status_bounds},
    {ngx_string("weir_limit_req_dry_run"), EVERYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, dry_run), NULL},
    {ngx_string("weir_ask_again"), EVERYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, ask_again), NULL},
    {ngx_string("weir_redis"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, redis_directive, NGX_HTTP_MAIN_CONF_OFFSET,
     offsetof(struct http_weir, block.redis), NULL},
    {ngx_string("weir_policies"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE12, policies_directive, NGX_HTTP_MAIN_CONF_OFFSET,
     offsetof(struct http_weir, block.file), NULL},
    {ngx_string("weir"), EVERYWHERE | NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, check_directive,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(struct location, list), NULL},
    {ngx_string("weir_charge"), EVERYWHERE | NGX_CONF_TAKE12, charge_directive, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, list), NULL},
    {ngx_string("weir_headers"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, header_style), &answer_styles},
    {ngx_string("weir_status"), NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1,
     status_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

/* As number `place` of the phase's handlers, or as the last where there are fewer. nginx runs them from the last to the
 * first. */
static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_uint_t place, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_array_t *handlers = &core->phases[phase].handlers;
    if (ngx_array_push(handlers) == NULL) {
        return NGX_ERROR;
    }
    ngx_http_handler_pt *first = handlers->elts;
    ngx_uint_t i = handlers->nelts - 1;
    for (; i > place; i--) {
        first[i] = first[i - 1];
    }
    first[i] = handler;
    return NGX_OK;
}

/*
 * Where limit_req's handler is: behind that of realip, whose address may be a key, and before that of limit_conn, so
 * that requests that wait are no connections yet. limit_conn's is the first of all in nginx's order of modules
 * (auto/modules), which load_module does not change; limit_req's and realip's come next, then those of other modules.
 */
static ngx_uint_t limiter_place(ngx_conf_t *cf)
{
    for (ngx_uint_t i = 0; cf->cycle->modules[i] != NULL; i++) {
        if (ngx_strcmp(cf->cycle->modules[i]->name, "ngx_http_limit_conn_module") == 0) {
            return 1;
        }
    }
    return 0;
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    answer_add_filter(); /* always: workers of the cycle before have the chain of the last configuration that was read
                          */
    if (!zone_finish(http, cf) || !block_finish(&http->block, cf, "weir:instance", &ngx_http_weir_module)) {
        return NGX_ERROR;
    }
    if (!block_limits(&http->block)) {
        return NGX_OK;
    }
    redirect_warn(http, cf);
    if (add_handler(cf, NGX_HTTP_PREACCESS_PHASE, limiter_place(cf), request_handler) != NGX_OK) {
        return NGX_ERROR;
    }
    if (http->block.checks.nelts == 0) {
        return NGX_OK;
    }
    return add_handler(cf, NGX_HTTP_LOG_PHASE, 0, request_log_handler);
}

static ngx_int_t preconfiguration(ngx_conf_t *cf)
{
    return request_state_add_variables(cf) == NGX_OK ? answer_add_variables(cf) : NGX_ERROR;
}

/* NULL: the cycle has no http block. */
static struct block *block_of(ngx_cycle_t *cycle)
{
    struct http_weir *http = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
    return http != NULL ? &http->block : NULL;
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

static ngx_http_module_t http_module = {
    .preconfiguration = preconfiguration,
    .postconfiguration = postconfiguration,
    .create_main_conf = configuration_create_http,
    .create_loc_conf = configuration_create_location,
    .merge_loc_conf = configuration_merge_location,
};

ngx_module_t ngx_http_weir_module = {
    NGX_MODULE_V1,
    &http_module,
    commands,
    NGX_HTTP_MODULE,
    NULL, /* init_master: nginx does not call it */
    init_module,
    init_process,
    NULL, /* init_thread */
    NULL, /* exit_thread */
    exit_process,
    NULL, /* exit_master: the pool of the cycle ends after it */
    NGX_MODULE_V1_PADDING,
};
