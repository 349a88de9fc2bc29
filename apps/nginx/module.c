/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nginx module: its directives, and what it does at each point of nginx's life.
 *
 *   postconfiguration     all directives are read, and nothing has changed yet
 *   shared memory         acquires the instance; nginx refuses the configuration where there is none
 *   init_module           the configuration is good: its zones come into force
 *   init_process          a worker starts: it enters the instance
 *   exit_process          a worker ends: it leaves
 *   end of the pool       the cycle is over in the master, or was refused: it releases the instance
 *
 * nginx ends when init_module fails in a reload. So nothing that may fail is left to init_module but want of memory.
 */
#include "answer.h"
#include "charge.h"
#include "check.h"
#include "configuration.h"
#include "instance.h"
#include "limit.h"
#include "nginx_weir.h"
#include "policies.h"
#include "request.h"
#include "request_state.h"
#include "status.h"
#include "zone.h"

/* The name of the piece of shared memory that stands for the instance; no zone can have a name with a colon. */
#define ANCHOR_NAME "weir:instance"

/* nginx asks for so many pages of a piece of shared memory. */
#define ANCHOR_PAGES 8

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
    {ngx_string("weir_redis"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, redis_directive, NGX_HTTP_MAIN_CONF_OFFSET, 0,
     NULL},
    {ngx_string("weir_policies"), NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE12, policies_directive, NGX_HTTP_MAIN_CONF_OFFSET,
     0, NULL},
    {ngx_string("weir"), EVERYWHERE | NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, check_directive,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_charge"), EVERYWHERE | NGX_CONF_TAKE12, charge_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("weir_headers"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot, NGX_HTTP_LOC_CONF_OFFSET,
     offsetof(struct location, header_style), &answer_styles},
    {ngx_string("weir_status"), NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF | NGX_CONF_NOARGS | NGX_CONF_TAKE1,
     status_directive, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

/* The cycle is over in this process. */
static void release(void *data)
{
    struct http_weir *http = data;
    if (http->instance != NULL) {
        instance_release(http->instance);
    }
}

/* nginx makes the shared memory of a cycle: the last moment at which it can refuse the configuration. */
static ngx_int_t acquire(ngx_shm_zone_t *shm_zone, void *data)
{
    struct http_weir *http = shm_zone->data;
    (void) data;
    if (ngx_test_config) {
        return NGX_OK;
    }
    struct zone *const *zones = http->zones.elts;
    struct instance_settings settings = {.workers = (size_t) http->core->worker_processes,
                                         .redis = http->redis,
                                         .zones = zones,
                                         .zone_count = http->zones.nelts,
                                         .file = &http->file};
    for (size_t i = 0; i < settings.zone_count; i++) {
        settings.size += zones[i]->size;
    }
    http->instance = instance_acquire(&settings, shm_zone->shm.log);
    return http->instance != NULL ? NGX_OK : NGX_ERROR;
}

static ngx_int_t add_anchor(ngx_conf_t *cf, struct http_weir *http)
{
    ngx_str_t name = ngx_string(ANCHOR_NAME);
    ngx_shm_zone_t *anchor = ngx_shared_memory_add(cf, &name, ANCHOR_PAGES * ngx_pagesize, &ngx_http_weir_module);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (anchor == NULL || cleanup == NULL) {
        return NGX_ERROR;
    }
    anchor->init = acquire;
    anchor->data = http;
    cleanup->handler = release;
    cleanup->data = http;
    return NGX_OK;
}

static ngx_int_t add_handler(ngx_conf_t *cf, ngx_uint_t phase, ngx_http_handler_pt handler)
{
    ngx_http_core_main_conf_t *core = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *place = ngx_array_push(&core->phases[phase].handlers);
    if (place == NULL) {
        return NGX_ERROR;
    }
    *place = handler;
    return NGX_OK;
}

static ngx_int_t postconfiguration(ngx_conf_t *cf)
{
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    zone_finish(http);
    if (!check_finish(http, cf) || !policies_fit_zones(http, cf) || !policies_read_again(cf, &http->file)) {
        return NGX_ERROR;
    }
    http->core = (const ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx, ngx_core_module);
    if (http->zones.nelts + http->file.policies.nelts == 0) {
        return NGX_OK;
    }
    if (add_anchor(cf, http) != NGX_OK || add_handler(cf, NGX_HTTP_PREACCESS_PHASE, request_handler) != NGX_OK) {
        return NGX_ERROR;
    }
    if (http->checks.nelts == 0) {
        return NGX_OK;
    }
    answer_add_filter();
    return add_handler(cf, NGX_HTTP_LOG_PHASE, charge_handler);
}

static ngx_int_t preconfiguration(ngx_conf_t *cf)
{
    return request_state_add_variable(cf) == NGX_OK ? answer_add_variables(cf) : NGX_ERROR;
}

static struct http_weir *http_of(ngx_cycle_t *cycle)
{
    return ngx_http_cycle_get_module_main_conf(cycle, ngx_http_weir_module);
}

/* An instance whose policies could not be changed limits by those before, which is no reason to end nginx. */
static ngx_int_t init_module(ngx_cycle_t *cycle)
{
    struct http_weir *http = http_of(cycle);
    if (http != NULL && http->instance != NULL) {
        (void) instance_set_policies(http->instance, http, cycle->log);
    }
    return NGX_OK;
}

static ngx_int_t init_process(ngx_cycle_t *cycle)
{
    struct http_weir *http = http_of(cycle);
    if (http == NULL || http->instance == NULL) {
        return NGX_OK;
    }
    if (ngx_process == NGX_PROCESS_HELPER) {
        instance_leave(http->instance);
    } else {
        (void) instance_enter(http->instance, cycle->log);
    }
    return NGX_OK;
}

static void exit_process(ngx_cycle_t *cycle)
{
    const struct http_weir *http = http_of(cycle);
    if (http != NULL && http->instance != NULL) {
        instance_leave(http->instance);
    }
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
