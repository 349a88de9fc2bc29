/* SPDX-License-Identifier: Apache-2.0 */
/* See redirect.h. nginx has merged its core's own settings before those of this module. */
#include "redirect.h"

/* A server itself has no name, and blocks of `if` and `limit_except` are part of their location. */
static bool is_location(const ngx_http_core_loc_conf_t *core)
{
    return core->name.len != 0 && !core->noname;
}

bool redirect_note(struct http_weir *http, ngx_conf_t *cf, const struct location *outside,
                   const struct location *location)
{
    const ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    struct check *const *own = location->list.checks.elts;
    const bool shadowed = outside->list.checks.nelts + outside->limits.nelts != 0;
    if (!is_location(core) || (!shadowed && location->list.checks.nelts + location->limits.nelts == 0)) {
        return true;
    }
    struct place *place = ngx_array_push(&http->places);
    if (place == NULL) {
        return false;
    }
    *place = (struct place){.server = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module),
                            .own = own != NULL ? own[0] : NULL,
                            .shadowed = shadowed,
                            .internal = core->internal == 1 || core->named,
                            .unsaid = location->ask_again == NGX_CONF_UNSET};
    return true;
}

/* Whether another location of its server asks something. */
static bool has_other(const struct http_weir *http, const struct place *place)
{
    const struct place *places = http->places.elts;
    for (ngx_uint_t i = 0; i < http->places.nelts; i++) {
        if (places[i].server == place->server && &places[i] != place) {
            return true;
        }
    }
    return false;
}

void redirect_warn(const struct http_weir *http, ngx_conf_t *cf)
{
    const struct place *places = http->places.elts;
    for (ngx_uint_t i = 0; i < http->places.nelts; i++) {
        const struct place *place = &places[i];
        if (place->own != NULL && place->unsaid && (place->shadowed || (place->internal && has_other(http, place)))) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "policy \"%V\" is not asked for requests that an internal redirect (try_files, index, "
                          "error_page, X-Accel-Redirect) brings to the location, once another \"weir\" or "
                          "\"weir_limit_req\" has decided them; say \"weir_ask_again on\" or \"off\" there, in %V:%ui",
                          &place->own->policy_name, &place->own->file, place->own->line);
        }
    }
}
