/* SPDX-License-Identifier: Apache-2.0 */
/* See check.h. */
#include "check.h"

#include "policies.h"
#include "units.h"

static bool starts_with(const ngx_str_t *value, const char *text)
{
    return value->len > ngx_strlen(text) && ngx_strncmp(value->data, text, ngx_strlen(text)) == 0;
}

/* The text with variables after the '=' of a parameter; NULL: nginx has said what is wrong. */
static ngx_http_complex_value_t *compile_rest(ngx_conf_t *cf, const ngx_str_t *value, const char *name)
{
    const size_t length = ngx_strlen(name);
    ngx_str_t rest = {value->len - length, value->data + length};
    ngx_http_complex_value_t *compiled = ngx_pcalloc(cf->pool, sizeof(*compiled));
    ngx_http_compile_complex_value_t compile = {.cf = cf, .value = &rest, .complex_value = compiled};
    return compiled != NULL && ngx_http_compile_complex_value(&compile) == NGX_OK ? compiled : NULL;
}

static bool read_parameter(ngx_conf_t *cf, const ngx_str_t *value, struct check *check)
{
    uint64_t units;
    if (starts_with(value, "cost=")) {
        check->cost = compile_rest(cf, value, "cost=");
        if (check->cost != NULL && check->cost->lengths == NULL &&
            !units_read(check->cost->value.data, check->cost->value.len, &units)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid cost \"%V\": it is a number of units, or a variable",
                               &check->cost->value);
            return false;
        }
        return check->cost != NULL;
    }
    if (starts_with(value, "tier=")) {
        check->tier = compile_rest(cf, value, "tier=");
        return check->tier != NULL;
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
    return false;
}

char *check_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct location *location = conf;
    struct http_weir *http = ngx_http_conf_get_module_main_conf(cf, ngx_http_weir_module);
    ngx_str_t *values = cf->args->elts;
    (void) command;
    if (location->checks.elts == NULL &&
        ngx_array_init(&location->checks, cf->pool, 1, sizeof(struct check *)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    if (location->checks.nelts == WEIR_MAX_KEYS_AT_ONCE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "there are more than %d \"weir\" in one place", WEIR_MAX_KEYS_AT_ONCE);
        return NGX_CONF_ERROR;
    }
    struct check *check = ngx_pcalloc(cf->pool, sizeof(*check));
    struct check **place = ngx_array_push(&location->checks);
    struct check **place_of_all = ngx_array_push(&http->checks);
    if (check == NULL || place == NULL || place_of_all == NULL ||
        ngx_array_init(&check->tiers, cf->pool, 4, sizeof(struct tier)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    check->policy_name = values[1];
    check->file = cf->conf_file->file.name;
    check->line = cf->conf_file->line;
    ngx_http_compile_complex_value_t compile = {.cf = cf, .value = &values[2], .complex_value = &check->key};
    if (ngx_http_compile_complex_value(&compile) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        if (!read_parameter(cf, &values[i], check)) {
            return NGX_CONF_ERROR;
        }
    }
    *place = check;
    *place_of_all = check;
    return NGX_CONF_OK;
}

/* The policies whose name is the check's, a '/' and a tier. */
static bool find_tiers(const struct policy_file *file, struct check *check)
{
    const struct policy *policies = file->policies.elts;
    const size_t length = check->policy_name.len;
    for (ngx_uint_t i = 0; i < file->policies.nelts; i++) {
        const ngx_str_t *name = &policies[i].name;
        if (name->len > length + 1 && name->data[length] == '/' &&
            ngx_strncmp(name->data, check->policy_name.data, length) == 0) {
            struct tier *tier = ngx_array_push(&check->tiers);
            if (tier == NULL) {
                return false;
            }
            *tier = (struct tier){{name->len - length - 1, name->data + length + 1}, &policies[i]};
        }
    }
    return true;
}

bool check_finish(const struct http_weir *http, ngx_conf_t *cf)
{
    struct check *const *checks = http->checks.elts;
    for (ngx_uint_t i = 0; i < http->checks.nelts; i++) {
        struct check *check = checks[i];
        check->policy = policies_find(&http->file, &check->policy_name);
        if (check->policy == NULL && http->file.path.len == 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"weir\" needs a file of policies: \"weir_policies\" in %V:%ui",
                          &check->file, check->line);
            return false;
        }
        if (check->policy == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "there is no policy \"%V\" in \"%V\", for \"weir\" in %V:%ui",
                          &check->policy_name, &http->file.path, &check->file, check->line);
            return false;
        }
        check->policy->addresses += policies_is_address(&check->key);
        check->policy->others += !policies_is_address(&check->key);
        if (check->tier != NULL && !find_tiers(&http->file, check)) {
            return false;
        }
    }
    return true;
}

/* The tier's policy, or the check's own where there is no such tier. NULL: no memory. */
static const struct policy *choose_policy(ngx_http_request_t *r, const struct check *check)
{
    ngx_str_t name;
    if (check->tier == NULL) {
        return check->policy;
    }
    if (ngx_http_complex_value(r, check->tier, &name) != NGX_OK) {
        return NULL;
    }
    const struct tier *tiers = check->tiers.elts;
    for (ngx_uint_t i = 0; i < check->tiers.nelts; i++) {
        if (tiers[i].name.len == name.len && ngx_strncmp(tiers[i].name.data, name.data, name.len) == 0) {
            return tiers[i].policy;
        }
    }
    return check->policy;
}

/* False: no memory. A cost that is no number is 1, and the log says so. */
static bool read_cost(ngx_http_request_t *r, const struct check *check, uint64_t *out)
{
    ngx_str_t text;
    *out = 1;
    if (check->cost == NULL) {
        return true;
    }
    if (ngx_http_complex_value(r, check->cost, &text) != NGX_OK) {
        return false;
    }
    if (!units_read(text.data, text.len, out)) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "the cost \"%V\" of policy \"%V\" is no number: \"%V\"",
                      &check->cost->value, &check->policy_name, &text);
    }
    return true;
}

/* Adds one check to those of the request. False: no memory. */
static bool prepare_one(ngx_http_request_t *r, struct check *check, const weir *w, struct checked *checked)
{
    struct asked asked = {.check = check, .policy = choose_policy(r, check)};
    ngx_str_t key;
    if (asked.policy == NULL || ngx_http_complex_value(r, &check->key, &key) != NGX_OK) {
        return false;
    }
    if (key.len > UINT16_MAX) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "the value of the \"%V\" key is more than 65535 bytes: \"%V\"", &check->key.value, &key);
        return true;
    }
    if (key.len == 0) {
        return true;
    }
    asked.key = weir_make_key(w, asked.policy->id, key.data, key.len);
    checked->asked[checked->count++] = asked;
    return read_cost(r, check, &checked->asked[checked->count - 1].cost);
}

struct checked *check_prepare(ngx_http_request_t *r, const struct location *location, const weir *w)
{
    struct check *const *checks = location->checks.elts;
    struct checked *checked = ngx_pcalloc(r->pool, sizeof(*checked));
    if (checked == NULL) {
        return NULL;
    }
    checked->location = location;
    for (ngx_uint_t i = 0; i < location->checks.nelts; i++) {
        if (!prepare_one(r, checks[i], w, checked)) {
            return NULL;
        }
    }
    return checked;
}

/* A queue alone lets its request wait. The library says how long, and then what a client is told. */
static bool take_place(weir_thread *thread, struct checked *checked)
{
    const struct asked *asked = &checked->asked[0];
    const bool passed = weir_reserve(thread, &asked->key, asked->cost, UINT64_MAX, &checked->wait_ns);
    (void) weir_peek(thread, &asked->key, passed ? 0 : asked->cost, &checked->verdict);
    checked->verdict.allowed = passed;
    checked->verdict.retry_after_ns = passed ? 0 : checked->verdict.retry_after_ns;
    checked->policy = asked->policy;
    return passed;
}

bool check_decide(weir_thread *thread, struct checked *checked)
{
    if (checked->count == 0) {
        return true;
    }
    if (checked->count == 1 && checked->asked[0].policy->queue) {
        return take_place(thread, checked);
    }
    weir_key keys[WEIR_MAX_KEYS_AT_ONCE];
    uint64_t costs[WEIR_MAX_KEYS_AT_ONCE];
    for (size_t i = 0; i < checked->count; i++) {
        keys[i] = checked->asked[i].key;
        costs[i] = checked->asked[i].cost;
    }
    const bool passed = weir_check_all(thread, keys, costs, checked->count, &checked->verdict);
    checked->policy = checked->asked[checked->verdict.key_index].policy;
    return passed;
}

void check_take_back(weir_thread *thread, const struct checked *checked)
{
    for (size_t i = 0; i < checked->count; i++) {
        if (checked->asked[i].cost != 0) {
            weir_refund(thread, &checked->asked[i].key, checked->asked[i].cost);
        }
    }
}
