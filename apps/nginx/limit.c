/* SPDX-License-Identifier: Apache-2.0 */
/* See limit.h. */
#include "limit.h"

#include <stdbool.h>

/* Thousandths of a request: the unit in which nginx counts an excess. */
#define THOUSANDTHS 1000

/* The most requests of burst= and delay=, so that thousandths of them fit. */
#define MOST_REQUESTS (NGX_MAX_INT_T_VALUE / THOUSANDTHS)

/* What the parameters of one directive say. */
struct limit_parameters {
    ngx_str_t zone;
    ngx_int_t burst;
    ngx_int_t delay;
};

static bool starts_with(const ngx_str_t *value, const char *text)
{
    return ngx_strncmp(value->data, text, ngx_strlen(text)) == 0;
}

/* The number after the '=' of a parameter; negative: there is none. */
static ngx_int_t read_number(const ngx_str_t *value, const char *name)
{
    const size_t length = ngx_strlen(name);
    const ngx_int_t number = ngx_atoi(value->data + length, value->len - length);
    return number > MOST_REQUESTS ? NGX_ERROR : number;
}

static bool read_parameter(ngx_conf_t *cf, const ngx_str_t *value, struct limit_parameters *out)
{
    if (starts_with(value, "zone=")) {
        const size_t length = ngx_strlen("zone=");
        out->zone = (ngx_str_t){value->len - length, value->data + length};
        return true;
    }
    if (starts_with(value, "burst=")) {
        out->burst = read_number(value, "burst=");
        if (out->burst <= 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid burst value \"%V\"", value);
        }
        return out->burst > 0;
    }
    if (starts_with(value, "delay=")) {
        out->delay = read_number(value, "delay=");
        if (out->delay <= 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid delay value \"%V\"", value);
        }
        return out->delay > 0;
    }
    if (ngx_strcmp(value->data, "nodelay") == 0) {
        out->delay = MOST_REQUESTS;
        return true;
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
    return false;
}

static bool has_zone(const ngx_array_t *limits, const ngx_shm_zone_t *shm_zone)
{
    struct limit *const *all = limits->elts;
    for (ngx_uint_t i = 0; i < limits->nelts; i++) {
        if (all[i]->shm_zone == shm_zone) {
            return true;
        }
    }
    return false;
}

char *limit_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct location *location = conf;
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    const ngx_str_t *values = cf->args->elts;
    struct limit_parameters parameters = {.burst = 0, .delay = 0};
    for (ngx_uint_t i = 1; i < cf->args->nelts; i++) {
        if (!read_parameter(cf, &values[i], &parameters)) {
            return NGX_CONF_ERROR;
        }
    }
    if (parameters.zone.data == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" must have \"zone\" parameter", &command->name);
        return NGX_CONF_ERROR;
    }
    /* A size of 0 refers to a zone that is defined elsewhere. */
    ngx_shm_zone_t *shm_zone = ngx_shared_memory_add(cf, &parameters.zone, 0, &ngx_http_weir_module);
    if (shm_zone == NULL || (location->limits.elts == NULL &&
                             ngx_array_init(&location->limits, cf->pool, 1, sizeof(struct limit *)) != NGX_OK)) {
        return NGX_CONF_ERROR;
    }
    if (has_zone(&location->limits, shm_zone)) {
        return "is duplicate";
    }
    struct limit *limit = ngx_pcalloc(cf->pool, sizeof(*limit));
    struct limit **place = ngx_array_push(&location->limits);
    struct limit **place_of_all = ngx_array_push(&http->limits);
    if (limit == NULL || place == NULL || place_of_all == NULL) {
        return NGX_CONF_ERROR;
    }
    limit->shm_zone = shm_zone;
    limit->burst = (uint64_t) parameters.burst * THOUSANDTHS;
    limit->delay = (uint64_t) parameters.delay * THOUSANDTHS;
    *place = limit;
    *place_of_all = limit;
    return NGX_CONF_OK;
}
