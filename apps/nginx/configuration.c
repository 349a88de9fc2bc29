/* SPDX-License-Identifier: Apache-2.0 */
/* See configuration.h. */
#include "configuration.h"

#include "answer.h"
#include "block.h"
#include "charge.h"
#include "check.h"
#include "redirect.h"
#include "zone.h"

void *configuration_create_http(ngx_conf_t *cf)
{
    struct http_weir *http = ngx_pcalloc(cf->pool, sizeof(*http));
    if (http == NULL || ngx_array_init(&http->zones, cf->pool, 4, sizeof(struct zone *)) != NGX_OK ||
        ngx_array_init(&http->limits, cf->pool, 4, sizeof(struct limit *)) != NGX_OK ||
        ngx_array_init(&http->places, cf->pool, 4, sizeof(struct place)) != NGX_OK || !block_begin(&http->block, cf)) {
        return NULL;
    }
    return http;
}

void *configuration_create_location(ngx_conf_t *cf)
{
    struct location *location = ngx_pcalloc(cf->pool, sizeof(*location)); /* no limits */
    if (location != NULL) {
        location->limit_log_level = NGX_CONF_UNSET_UINT;
        location->status_code = NGX_CONF_UNSET_UINT;
        location->check_status_code = NGX_CONF_UNSET_UINT;
        location->header_style = NGX_CONF_UNSET_UINT;
        location->dry_run = NGX_CONF_UNSET;
        location->ask_again = NGX_CONF_UNSET;
    }
    return location;
}

/* A check refuses with 429, unless weir_limit_req_status is set here or outside; limits refuse with nginx's 503. */
static void merge_status(const struct location *outside, struct location *location)
{
    if (location->status_code != NGX_CONF_UNSET_UINT) {
        location->check_status_code = location->status_code;
    } else if (outside->check_status_code != NGX_CONF_UNSET_UINT) {
        location->check_status_code = outside->check_status_code;
    } else { /* outside is the http block, which is merged with nothing */
        location->check_status_code =
            outside->status_code != NGX_CONF_UNSET_UINT ? outside->status_code : NGX_HTTP_TOO_MANY_REQUESTS;
    }
    ngx_conf_merge_uint_value(location->status_code, outside->status_code, NGX_HTTP_SERVICE_UNAVAILABLE);
}

/*
 * Limits are inherited as a whole: a location with limits of its own has none of those outside. So are checks, and
 * charges where their checks are.
 */
char *configuration_merge_location(ngx_conf_t *cf, void *outer, void *inner)
{
    const struct location *outside = outer;
    struct location *location = inner;
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_conf_merge_value(location->ask_again, outside->ask_again, NGX_CONF_UNSET);
    http->asks_again = http->asks_again || location->ask_again == 1;
    if (!redirect_note(http, cf, outside, location)) {
        return NGX_CONF_ERROR;
    }
    check_inherit(&outside->list, &location->list);
    if (!charge_fits(&outside->list, cf) || !charge_fits(&location->list, cf)) {
        return NGX_CONF_ERROR;
    }
    if (location->limits.elts == NULL) {
        location->limits = outside->limits;
    }
    ngx_conf_merge_uint_value(location->limit_log_level, outside->limit_log_level, NGX_LOG_ERR);
    merge_status(outside, location);
    ngx_conf_merge_uint_value(location->header_style, outside->header_style, HEADERS_OFF);
    ngx_conf_merge_value(location->dry_run, outside->dry_run, 0);
    location->delay_log_level = ngx_min(location->limit_log_level + 1, NGX_LOG_INFO);
    return NGX_CONF_OK;
}
