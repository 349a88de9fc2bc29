/* SPDX-License-Identifier: Apache-2.0 */
/* See charge.h. */
#include "charge.h"

#include "quote.h"
#include "units.h"

char *charge_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct check_list *list = (void *) ((char *) conf + command->offset);
    const ngx_str_t *values = cf->args->elts;
    if (list->charges.elts == NULL && ngx_array_init(&list->charges, cf->pool, 1, sizeof(struct charge)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    struct charge *charge = ngx_array_push(&list->charges);
    if (charge == NULL) {
        return NGX_CONF_ERROR;
    }
    *charge = (struct charge){.policy_name = ngx_null_string};
    if (!protocol_compile(cf, &values[1], &charge->units)) {
        return NGX_CONF_ERROR;
    }
    if (cf->args->nelts == 3) {
        const size_t length = ngx_strlen("policy=");
        if (values[2].len <= length || ngx_strncmp(values[2].data, "policy=", length) != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", &values[2]);
            return NGX_CONF_ERROR;
        }
        charge->policy_name = (ngx_str_t){values[2].len - length, values[2].data + length};
    }
    return NGX_CONF_OK;
}

static bool names_equal(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && ngx_strncmp(a->data, b->data, a->len) == 0;
}

static bool has_check(const struct check_list *list, const ngx_str_t *name)
{
    struct check *const *checks = list->checks.elts;
    for (ngx_uint_t i = 0; i < list->checks.nelts; i++) {
        if (names_equal(&checks[i]->policy_name, name)) {
            return true;
        }
    }
    return false;
}

bool charge_fits(const struct check_list *list, ngx_conf_t *cf)
{
    const struct charge *charges = list->charges.elts;
    for (ngx_uint_t i = 0; i < list->charges.nelts; i++) {
        const ngx_str_t *name = &charges[i].policy_name;
        if (name->len == 0 && list->checks.nelts != 1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"weir_charge\" needs one \"weir\" beside it, or policy=NAME; here are %ui",
                               list->checks.nelts);
            return false;
        }
        if (name->len != 0 && !has_check(list, name)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"weir_charge\" has policy=%V, and no \"weir\" asks this policy",
                               name);
            return false;
        }
    }
    return true;
}

static void charge_one(const struct charge *charge, const struct checked *checked, weir_thread *thread, uint64_t units)
{
    for (size_t i = 0; i < checked->count; i++) {
        const struct asked *asked = &checked->asked[i];
        if (charge->policy_name.len == 0 || names_equal(&charge->policy_name, &asked->check->policy_name)) {
            weir_charge(thread, &asked->key, units);
        }
    }
}

bool charge_all(const struct asker *asker, const struct checked *checked, weir_thread *thread)
{
    struct charge *charges = checked->list->charges.elts;
    for (ngx_uint_t i = 0; i < checked->list->charges.nelts; i++) {
        char end[RARE_LINE_END_SIZE];
        ngx_str_t text;
        uint64_t units;
        if (!protocol_evaluate(asker, &charges[i].units, &text)) {
            return false;
        }
        if (!units_read(text.data, text.len, &units)) {
            const char *more = rare_line_end(&charges[i].bad_units, end);
            char quoted[QUOTE_SIZE];
            if (more != NULL) {
                ngx_log_error(NGX_LOG_ERR, asker->log, 0, "\"%V\" of \"weir_charge\" is no number: \"%s\"%s",
                              &charges[i].units.text, quote(quoted, text.data, text.len), more);
            }
        } else if (units != 0) {
            charge_one(&charges[i], checked, thread, units);
        }
    }
    return true;
}
