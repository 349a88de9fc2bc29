/* SPDX-License-Identifier: Apache-2.0 */
/* See answer.h. */
#include "answer.h"

#include <stdbool.h>

#include "check.h"
#include "instance.h"
#include "policies.h"
#include "request_state.h"

/* Bytes of the fields of one answer. A policy has four limits with names of 63 bytes at most. */
#define FIELDS_SIZE 1024

#define NS_PER_S UINT64_C(1000000000)

ngx_conf_enum_t answer_styles[] = {
    {ngx_string("off"), HEADERS_OFF},
    {ngx_string("draft"), WEIR_HEADERS_DRAFT_11},
    {ngx_string("trio"), WEIR_HEADERS_TRIO},
    {ngx_string("x"), WEIR_HEADERS_X_UNIX},
    {ngx_string("x_iso8601"), WEIR_HEADERS_X_ISO8601},
    {ngx_string("retry_after"), WEIR_HEADERS_RETRY_AFTER},
    {ngx_null_string, 0},
};

static ngx_http_output_header_filter_pt next_filter;

/* Adds one field, "Name: value". */
static bool add_field(ngx_http_request_t *r, u_char *line, size_t length)
{
    u_char *colon = ngx_strlchr(line, line + length, ':');
    ngx_table_elt_t *field = colon != NULL ? ngx_list_push(&r->headers_out.headers) : NULL;
    if (field == NULL) {
        return false;
    }
    *field = (ngx_table_elt_t){
        .hash = 1, .key = {(size_t) (colon - line), line}, .value = {length - (size_t) (colon - line) - 2, colon + 2}};
    return true;
}

/* Adds the fields of a text whose lines end in CR LF. */
static bool add_fields(ngx_http_request_t *r, u_char *text, size_t length)
{
    u_char *const end = text + length;
    while (text < end) {
        u_char *line_end = ngx_strlchr(text, end, '\r');
        if (line_end == NULL || !add_field(r, text, (size_t) (line_end - text))) {
            return false;
        }
        text = line_end + 2;
    }
    return true;
}

static ngx_int_t header_filter(ngx_http_request_t *r)
{
    const struct checked *checked = r == r->main ? request_state_checked(r) : NULL;
    if (checked == NULL || checked->policy == NULL || checked->location->header_style == HEADERS_OFF) {
        return next_filter(r);
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    const weir *w = instance_weir(http->instance);
    u_char *text = ngx_pnalloc(r->pool, FIELDS_SIZE);
    if (text == NULL || w == NULL) {
        return next_filter(r);
    }
    const int length = weir_write_headers((weir_header_style) checked->location->header_style, w, checked->policy->id,
                                          &checked->verdict, (char *) text, FIELDS_SIZE);
    if (length > 0 && length < FIELDS_SIZE && !add_fields(r, text, (size_t) length)) {
        return NGX_ERROR;
    }
    return next_filter(r);
}

void answer_add_filter(void)
{
    next_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = header_filter;
}

enum variable { REMAINING, RETRY_AFTER, POLICY, BASIS };

static ngx_int_t set_text(ngx_http_variable_value_t *value, const ngx_str_t *text)
{
    value->valid = 1;
    value->no_cacheable = 1; /* an internal redirect may decide */
    value->not_found = 0;
    value->len = text->len & 0xfffffff; /* a field of 28 bits */
    value->data = text->data;
    return NGX_OK;
}

static ngx_int_t set_number(ngx_http_request_t *r, ngx_http_variable_value_t *value, uint64_t number)
{
    u_char *text = ngx_pnalloc(r->pool, NGX_INT64_LEN);
    if (text == NULL) {
        return NGX_ERROR;
    }
    const ngx_str_t written = {(size_t) (ngx_sprintf(text, "%uL", number) - text), text};
    return set_text(value, &written);
}

/* Seconds, rounded up: a client that waits so long passes, if no other request comes. */
static ngx_int_t set_retry_after(ngx_http_request_t *r, ngx_http_variable_value_t *value, const weir_verdict *verdict)
{
    static const ngx_str_t never = ngx_string("never");
    if (verdict->allowed) {
        value->not_found = 1;
        return NGX_OK;
    }
    if (verdict->retry_after_ns == UINT64_MAX) {
        return set_text(value, &never);
    }
    return set_number(r, value, verdict->retry_after_ns / NS_PER_S + (verdict->retry_after_ns % NS_PER_S != 0));
}

static ngx_int_t get_variable(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t which)
{
    static const ngx_str_t bases[] = {
        [WEIR_BASIS_PROCESS] = ngx_string("process"),
        [WEIR_BASIS_FLEET] = ngx_string("fleet"),
        [WEIR_BASIS_OUTAGE] = ngx_string("outage"),
    };
    const struct checked *checked = request_state_checked(r);
    if (checked == NULL || checked->policy == NULL) {
        value->not_found = 1;
        return NGX_OK;
    }
    switch ((enum variable) which) {
    case REMAINING:
        return set_number(r, value, checked->verdict.remaining);
    case RETRY_AFTER:
        return set_retry_after(r, value, &checked->verdict);
    case POLICY:
        return set_text(value, &checked->policy->name);
    case BASIS:
        break;
    }
    return set_text(value, &bases[checked->verdict.basis]);
}

ngx_int_t answer_add_variables(ngx_conf_t *cf)
{
    static const struct {
        ngx_str_t name;
        enum variable which;
    } all[] = {
        {ngx_string("weir_remaining"), REMAINING},
        {ngx_string("weir_retry_after"), RETRY_AFTER},
        {ngx_string("weir_policy"), POLICY},
        {ngx_string("weir_basis"), BASIS},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ngx_str_t name = all[i].name;
        ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
        if (variable == NULL) {
            return NGX_ERROR;
        }
        variable->get_handler = get_variable;
        variable->data = all[i].which;
    }
    return NGX_OK;
}
