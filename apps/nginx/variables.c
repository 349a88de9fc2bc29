/* SPDX-License-Identifier: Apache-2.0 */
/* See variables.h. */
#include "variables.h"

#include "policies.h"

#define NS_PER_S UINT64_C(1000000000)

const struct variable_name variable_names[VARIABLE_COUNT] = {
    {ngx_string("weir_remaining"), REMAINING},
    {ngx_string("weir_retry_after"), RETRY_AFTER},
    {ngx_string("weir_policy"), POLICY},
    {ngx_string("weir_basis"), BASIS},
};

ngx_int_t variable_set_text(ngx_variable_value_t *value, const ngx_str_t *text)
{
    value->valid = 1;
    value->no_cacheable = 1; /* an internal redirect may decide */
    value->not_found = 0;
    value->len = text->len & VARIABLE_MOST_LENGTH;
    value->data = text->data;
    return NGX_OK;
}

static ngx_int_t set_number(ngx_pool_t *pool, ngx_variable_value_t *value, uint64_t number)
{
    u_char *text = ngx_pnalloc(pool, NGX_INT64_LEN);
    if (text == NULL) {
        return NGX_ERROR;
    }
    const ngx_str_t written = {(size_t) (ngx_sprintf(text, "%uL", number) - text), text};
    return variable_set_text(value, &written);
}

/* Seconds, rounded up: a client that waits so long passes, if no other request comes. */
static ngx_int_t set_retry_after(ngx_pool_t *pool, ngx_variable_value_t *value, const weir_verdict *verdict)
{
    static const ngx_str_t never = ngx_string("never");
    if (verdict->allowed) {
        value->not_found = 1;
        return NGX_OK;
    }
    if (verdict->retry_after_ns == UINT64_MAX) {
        return variable_set_text(value, &never);
    }
    return set_number(pool, value, verdict->retry_after_ns / NS_PER_S + (verdict->retry_after_ns % NS_PER_S != 0));
}

ngx_int_t variable_write(ngx_pool_t *pool, ngx_variable_value_t *value, const struct checked *checked,
                         enum variable which)
{
    static const ngx_str_t bases[] = {
        [WEIR_BASIS_PROCESS] = ngx_string("process"),
        [WEIR_BASIS_FLEET] = ngx_string("fleet"),
        [WEIR_BASIS_OUTAGE] = ngx_string("outage"),
    };
    if (checked == NULL || checked->policy == NULL) {
        value->not_found = 1;
        return NGX_OK;
    }
    switch (which) {
    case REMAINING:
        return set_number(pool, value, checked->verdict.remaining);
    case RETRY_AFTER:
        return set_retry_after(pool, value, &checked->verdict);
    case POLICY:
        return variable_set_text(value, &checked->policy->name);
    case BASIS:
        break;
    }
    return variable_set_text(value, &bases[checked->verdict.basis]);
}
