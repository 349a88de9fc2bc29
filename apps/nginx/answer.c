/* SPDX-License-Identifier: Apache-2.0 */
/* See answer.h. */
#include "answer.h"

#include "address.h"
#include "check.h"
#include "instance.h"
#include "policies.h"
#include "request_state.h"
#include "variables.h"

/* Bytes of the fields of one answer. A policy has four limits with names of 63 bytes at most. */
#define FIELDS_SIZE 1024

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
    const struct location *location = request_state_location(r);
    if (checked == NULL || checked->policy == NULL || location->header_style == HEADERS_OFF) {
        return next_filter(r);
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    const weir *w = instance_weir(http->block.instance);
    u_char *text = ngx_pnalloc(r->pool, FIELDS_SIZE);
    if (text == NULL || w == NULL) {
        return next_filter(r);
    }
    weir_verdict told = checked->verdict;
    if (request_state_get(r) == REQUEST_REJECTED_DRY_RUN) { /* clients are not to slow down */
        told.allowed = true;
        told.retry_after_ns = 0;
    }
    const int length = weir_write_headers((weir_header_style) location->header_style, w, checked->policy->id, &told,
                                          (char *) text, FIELDS_SIZE);
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

static ngx_int_t get_variable(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t which)
{
    return variable_write(r->pool, value, request_state_checked(r), (enum variable) which);
}

static ngx_int_t get_address(ngx_http_request_t *r, ngx_http_variable_value_t *value, uintptr_t which)
{
    const struct asker asker = http_asker(r);
    ngx_str_t text;
    return address_value(&asker, &addresses[which], &text) ? variable_set_text(value, &text) : NGX_ERROR;
}

static bool add_variable(ngx_conf_t *cf, ngx_str_t name, ngx_http_get_variable_pt handler, uintptr_t data)
{
    ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
    if (variable == NULL) {
        return false;
    }
    variable->get_handler = handler;
    variable->data = data;
    return true;
}

ngx_int_t answer_add_variables(ngx_conf_t *cf)
{
    bool added = true;
    for (size_t i = 0; i < VARIABLE_COUNT && added; i++) {
        added = add_variable(cf, variable_names[i].name, get_variable, variable_names[i].which);
    }
    for (size_t i = 0; i < ADDRESS_COUNT && added; i++) {
        added = add_variable(cf, addresses[i].name, get_address, i);
    }
    return added ? NGX_OK : NGX_ERROR;
}
