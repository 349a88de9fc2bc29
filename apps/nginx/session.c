/* SPDX-License-Identifier: Apache-2.0 */
/* See session.h. */
#include "session.h"

#include "address.h"
#include "charge.h"
#include "check.h"
#include "instance.h"
#include "policies.h"
#include "variables.h"

enum session_status { SESSION_UNDECIDED, SESSION_PASSED, SESSION_REJECTED, SESSION_REJECTED_DRY_RUN };

/* What was decided for a session: the module's context of it. `unkeyed`: what it had no key for, see unkeyed.h. */
struct session_state {
    enum session_status status;
    const struct checked *checked;
    ngx_str_t unkeyed;
};

static struct asker asker_of(ngx_stream_session_t *s)
{
    return (struct asker){
        .request = s, .connection = s->connection, .pool = s->connection->pool, .log = s->connection->log};
}

/* Decides, and keeps what was decided. Returns what nginx wants of a handler. */
static ngx_int_t decide(ngx_stream_session_t *s, struct checked *checked, weir_thread *thread)
{
    const struct stream_weir *stream = ngx_stream_get_module_main_conf(s, ngx_stream_weir_module);
    const struct stream_server *server = ngx_stream_get_module_srv_conf(s, ngx_stream_weir_module);
    struct session_state *state = ngx_pcalloc(s->connection->pool, sizeof(*state));
    if (state == NULL) {
        return NGX_STREAM_INTERNAL_SERVER_ERROR;
    }
    ngx_stream_set_ctx(s, state, ngx_stream_weir_module);
    check_note_unkeyed(checked, instance_unkeyed(stream->block.instance), s->connection->pool, &state->unkeyed);
    if (checked->count == 0) {
        return NGX_DECLINED;
    }
    state->status = SESSION_PASSED;
    state->checked = checked;
    if (check_decide_at_once(thread, checked)) {
        return NGX_DECLINED;
    }
    state->status = server->dry_run ? SESSION_REJECTED_DRY_RUN : SESSION_REJECTED;
    ngx_log_error(server->log_level, s->connection->log, 0, "limiting sessions%s by policy \"%V\"",
                  server->dry_run ? ", dry run," : "", &checked->policy->name);
    return server->dry_run ? NGX_DECLINED : NGX_STREAM_SERVICE_UNAVAILABLE;
}

ngx_int_t session_handler(ngx_stream_session_t *s)
{
    const struct stream_server *server = ngx_stream_get_module_srv_conf(s, ngx_stream_weir_module);
    if (server->list.checks.nelts == 0) {
        return NGX_DECLINED;
    }
    const struct stream_weir *stream = ngx_stream_get_module_main_conf(s, ngx_stream_weir_module);
    weir_thread *thread = instance_ask(stream->block.instance, s->connection->log);
    if (thread == NULL) {
        return NGX_DECLINED;
    }
    const struct asker asker = asker_of(s);
    struct checked *checked = check_prepare(&asker, &server->list, instance_weir(stream->block.instance));
    if (checked == NULL) {
        return NGX_STREAM_INTERNAL_SERVER_ERROR;
    }
    return decide(s, checked, thread);
}

ngx_int_t session_log_handler(ngx_stream_session_t *s)
{
    const struct session_state *state = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    if (state == NULL || state->status != SESSION_PASSED || state->checked->list->charges.nelts == 0) {
        return NGX_OK;
    }
    const struct stream_weir *stream = ngx_stream_get_module_main_conf(s, ngx_stream_weir_module);
    weir_thread *thread = instance_thread(stream->block.instance, s->connection->log);
    const struct asker asker = asker_of(s);
    return thread == NULL || charge_all(&asker, state->checked, thread) ? NGX_OK : NGX_ERROR;
}

static ngx_int_t get_variable(ngx_stream_session_t *s, ngx_stream_variable_value_t *value, uintptr_t which)
{
    const struct session_state *state = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    return variable_write(s->connection->pool, value, state != NULL ? state->checked : NULL, (enum variable) which);
}

static ngx_int_t get_status(ngx_stream_session_t *s, ngx_stream_variable_value_t *value, uintptr_t data)
{
    static const ngx_str_t words[] = {
        [SESSION_PASSED] = ngx_string("PASSED"),
        [SESSION_REJECTED] = ngx_string("REJECTED"),
        [SESSION_REJECTED_DRY_RUN] = ngx_string("REJECTED_DRY_RUN"),
    };
    const struct session_state *state = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    (void) data;
    if (state == NULL || state->status == SESSION_UNDECIDED) {
        value->not_found = 1;
        return NGX_OK;
    }
    return variable_set_text(value, &words[state->status]);
}

static ngx_int_t get_unkeyed(ngx_stream_session_t *s, ngx_stream_variable_value_t *value, uintptr_t data)
{
    const struct session_state *state = ngx_stream_get_module_ctx(s, ngx_stream_weir_module);
    (void) data;
    if (state == NULL || state->unkeyed.len == 0) {
        value->not_found = 1;
        return NGX_OK;
    }
    return variable_set_text(value, &state->unkeyed);
}

static ngx_int_t get_address(ngx_stream_session_t *s, ngx_stream_variable_value_t *value, uintptr_t which)
{
    const struct asker asker = asker_of(s);
    ngx_str_t text;
    return address_value(&asker, &addresses[which], &text) ? variable_set_text(value, &text) : NGX_ERROR;
}

static bool add_variable(ngx_conf_t *cf, ngx_str_t name, ngx_stream_get_variable_pt handler, uintptr_t data)
{
    ngx_stream_variable_t *variable = ngx_stream_add_variable(cf, &name, NGX_STREAM_VAR_NOCACHEABLE);
    if (variable == NULL) {
        return false;
    }
    variable->get_handler = handler;
    variable->data = data;
    return true;
}

ngx_int_t session_add_variables(ngx_conf_t *cf)
{
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        if (!add_variable(cf, variable_names[i].name, get_variable, variable_names[i].which)) {
            return NGX_ERROR;
        }
    }
    for (size_t i = 0; i < ADDRESS_COUNT; i++) {
        if (!add_variable(cf, addresses[i].name, get_address, i)) {
            return NGX_ERROR;
        }
    }
    return add_variable(cf, (ngx_str_t) ngx_string("weir_session_status"), get_status, 0) &&
                   add_variable(cf, (ngx_str_t) ngx_string("weir_without_key"), get_unkeyed, 0)
               ? NGX_OK
               : NGX_ERROR;
}
