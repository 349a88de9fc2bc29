/* SPDX-License-Identifier: Apache-2.0 */
/* See request_state.h. */
#include "request_state.h"

const ngx_str_t request_state_words[] = {
    [REQUEST_UNDECIDED] = ngx_null_string,
    [REQUEST_PASSED] = ngx_string("PASSED"),
    [REQUEST_DELAYED] = ngx_string("DELAYED"),
    [REQUEST_REJECTED] = ngx_string("REJECTED"),
    [REQUEST_DELAYED_DRY_RUN] = ngx_string("DELAYED_DRY_RUN"),
    [REQUEST_REJECTED_DRY_RUN] = ngx_string("REJECTED_DRY_RUN"),
};

#define WORD_COUNT (sizeof(request_state_words) / sizeof(request_state_words[0]))

/*
 * What the checks of a request came to, and their location; the last of its rounds; and what the request had no key
 * for: see unkeyed.h.
 */
struct request_state {
    const struct location *location;
    const struct checked *checked;
    const struct round *round;
    ngx_str_t unkeyed;
};

/* The order in which a status says more than another one. */
static const unsigned ranks[] = {
    [REQUEST_UNDECIDED] = 0,       [REQUEST_PASSED] = 1,           [REQUEST_DELAYED] = 2,
    [REQUEST_DELAYED_DRY_RUN] = 3, [REQUEST_REJECTED_DRY_RUN] = 4, [REQUEST_REJECTED] = 5,
};

/* Does nothing: by the function the state is told from other cleanups. */
static void request_state_end(void *data)
{
    (void) data;
}

static struct request_state *find_state(const ngx_http_request_t *r)
{
    const ngx_http_request_t *main = r->main;
    struct request_state *state = ngx_http_get_module_ctx(main, ngx_http_weir_module);
    if (state != NULL || (!main->internal && !main->filter_finalize)) {
        return state;
    }
    for (const ngx_pool_cleanup_t *cleanup = main->pool->cleanup; cleanup != NULL; cleanup = cleanup->next) {
        if (cleanup->handler == request_state_end) {
            return cleanup->data;
        }
    }
    return NULL;
}

enum request_status request_state_get(const ngx_http_request_t *r)
{
    const ngx_http_variable_value_t *value = request_state_value(r);
    for (size_t i = 1; value->valid && i < WORD_COUNT; i++) {
        if (value->data == request_state_words[i].data) {
            return (enum request_status) i;
        }
    }
    return REQUEST_UNDECIDED;
}

void request_state_add(ngx_http_request_t *r, enum request_status status)
{
    if (ranks[status] > ranks[request_state_get(r)]) {
        request_state_set(r, status);
    }
}

/* The state of a request, made where there is none; NULL: no memory. */
static struct request_state *have_state(ngx_http_request_t *r)
{
    struct request_state *state = find_state(r);
    if (state != NULL) {
        return state;
    }
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->main->pool, sizeof(*state));
    if (cleanup == NULL) {
        return NULL;
    }
    cleanup->handler = request_state_end;
    state = cleanup->data;
    *state = (struct request_state){.checked = NULL};
    ngx_http_set_ctx(r->main, state, ngx_http_weir_module);
    return state;
}

ngx_int_t request_state_keep(ngx_http_request_t *r, const struct location *location, const struct checked *checked)
{
    struct request_state *state = have_state(r);
    if (state == NULL) {
        return NGX_ERROR;
    }
    state->location = location;
    state->checked = checked;
    return NGX_OK;
}

ngx_str_t *request_state_unkeyed(ngx_http_request_t *r)
{
    struct request_state *state = have_state(r);
    return state != NULL ? &state->unkeyed : NULL;
}

ngx_int_t request_state_keep_round(ngx_http_request_t *r, const struct round *round)
{
    struct request_state *state = have_state(r);
    if (state == NULL) {
        return NGX_ERROR;
    }
    state->round = round;
    return NGX_OK;
}

const struct round *request_state_round(const ngx_http_request_t *r)
{
    const struct request_state *state = find_state(r);
    return state != NULL ? state->round : NULL;
}

const struct checked *request_state_checked(const ngx_http_request_t *r)
{
    const struct request_state *state = find_state(r);
    return state != NULL ? state->checked : NULL;
}

const struct location *request_state_location(const ngx_http_request_t *r)
{
    const struct request_state *state = find_state(r);
    return state != NULL ? state->location : NULL;
}

bool request_state_passed(const ngx_http_request_t *r)
{
    const enum request_status status = request_state_get(r);
    return status != REQUEST_UNDECIDED && status != REQUEST_REJECTED && status != REQUEST_REJECTED_DRY_RUN;
}

/* Of a request that is decided the value is there, so nginx asks only before that; but for another way to ask. */
static ngx_int_t get_status(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t data)
{
    const enum request_status status = request_state_get(r);
    (void) data;
    if (status == REQUEST_UNDECIDED) {
        value->not_found = 1;
        return NGX_OK;
    }
    return variable_set_text(value, &request_state_words[status]);
}

static ngx_int_t get_unkeyed(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t data)
{
    const struct request_state *state = find_state(r);
    (void) data;
    if (state == NULL || state->unkeyed.len == 0) {
        value->not_found = 1;
        return NGX_OK;
    }
    return variable_set_text(value, &state->unkeyed);
}

ngx_int_t request_state_add_variables(ngx_conf_t *cf)
{
    ngx_str_t without_key = ngx_string("weir_without_key");
    ngx_http_variable_t *unkeyed = ngx_http_add_variable(cf, &without_key, NGX_HTTP_VAR_NOCACHEABLE);
    if (unkeyed == NULL) {
        return NGX_ERROR;
    }
    unkeyed->get_handler = get_unkeyed;
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t name = ngx_string("weir_limit_req_status");
    ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
    if (variable == NULL) {
        return NGX_ERROR;
    }
    variable->get_handler = get_status;
    http->status = ngx_http_get_variable_index(cf, &name);
    return http->status == NGX_ERROR ? NGX_ERROR : NGX_OK;
}
