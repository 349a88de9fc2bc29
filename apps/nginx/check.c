/* SPDX-License-Identifier: Apache-2.0 */
/* See check.h. */
#include "check.h"

#include "address.h"
#include "policies.h"
#include "quote.h"
#include "units.h"

static bool starts_with(const ngx_str_t *value, const char *text)
{
    return value->len > ngx_strlen(text) && ngx_strncmp(value->data, text, ngx_strlen(text)) == 0;
}

/* The text with variables after the '=' of a parameter. */
static bool compile_rest(ngx_conf_t *cf, const ngx_str_t *value, const char *name, struct expression *out)
{
    const size_t length = ngx_strlen(name);
    const ngx_str_t rest = {value->len - length, value->data + length};
    return protocol_compile(cf, &rest, out);
}

static bool read_parameter(ngx_conf_t *cf, const ngx_str_t *value, struct check *check)
{
    uint64_t units;
    if (starts_with(value, "cost=")) {
        if (!compile_rest(cf, value, "cost=", &check->cost)) {
            return false;
        }
        if (check->cost.constant && !units_read(check->cost.text.data, check->cost.text.len, &units)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid cost \"%V\": it is a number of units, or a variable",
                               &check->cost.text);
            return false;
        }
        return true;
    }
    if (starts_with(value, "tier=")) {
        return compile_rest(cf, value, "tier=", &check->tier);
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
    return false;
}

char *check_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct check_list *list = (void *) ((char *) conf + command->offset);
    const ngx_str_t *values = cf->args->elts;
    if (list->checks.elts == NULL && ngx_array_init(&list->checks, cf->pool, 1, sizeof(struct check *)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    if (list->checks.nelts == WEIR_MAX_KEYS_AT_ONCE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "there are more than %d \"weir\" in one place", WEIR_MAX_KEYS_AT_ONCE);
        return NGX_CONF_ERROR;
    }
    struct check *check = ngx_pcalloc(cf->pool, sizeof(*check));
    struct check **place = ngx_array_push(&list->checks);
    struct check **place_of_all = ngx_array_push(&protocol_block(cf)->checks);
    if (check == NULL || place == NULL || place_of_all == NULL ||
        ngx_array_init(&check->tiers, cf->pool, 4, sizeof(struct tier)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    check->policy_name = values[1];
    check->file = cf->conf_file->file.name;
    check->line = cf->conf_file->line;
    if (!address_compile_key(cf, &values[2], &check->key)) {
        return NGX_CONF_ERROR;
    }
    check->address = address_of_key(&values[2]);
    for (ngx_uint_t i = 3; i < cf->args->nelts; i++) {
        if (!read_parameter(cf, &values[i], check)) {
            return NGX_CONF_ERROR;
        }
    }
    *place = check;
    *place_of_all = check;
    return NGX_CONF_OK;
}

void check_inherit(const struct check_list *outside, struct check_list *list)
{
    if (list->checks.elts == NULL) {
        list->checks = outside->checks;
        list->charges = list->charges.elts == NULL ? outside->charges : list->charges;
    }
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

bool check_finish(const struct block *block, ngx_conf_t *cf)
{
    struct check *const *checks = block->checks.elts;
    for (ngx_uint_t i = 0; i < block->checks.nelts; i++) {
        struct check *check = checks[i];
        check->policy = policies_find(&block->file, &check->policy_name);
        if (check->policy == NULL && block->file.path.len == 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "\"weir\" needs a file of policies: \"weir_policies\" in %V:%ui",
                          &check->file, check->line);
            return false;
        }
        if (check->policy == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "there is no policy \"%V\" in \"%V\", for \"weir\" in %V:%ui",
                          &check->policy_name, &block->file.path, &check->file, check->line);
            return false;
        }
        check->policy->key_bits =
            policies_join_bits(check->policy->key_bits, check->address != NULL ? check->address->bits : KEYS_MIXED);
        if (check->tier.compiled != NULL && !find_tiers(&block->file, check)) {
            return false;
        }
    }
    for (ngx_uint_t i = 0; i < block->checks.nelts; i++) {
        if (policies_key_bits(&block->file, checks[i]->policy) == KEYS_MIXED) {
            checks[i]->address = NULL;
        }
    }
    return true;
}

/* The tier's policy, or the check's own where there is no such tier. NULL: no memory. */
static const struct policy *choose_policy(const struct asker *asker, const struct check *check)
{
    ngx_str_t name;
    if (check->tier.compiled == NULL) {
        return check->policy;
    }
    if (!protocol_evaluate(asker, &check->tier, &name)) {
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

/* False: no memory. An empty cost is 1. So is one that is no number, and the log says so. */
static bool read_cost(const struct asker *asker, struct check *check, uint64_t *out)
{
    char end[RARE_LINE_END_SIZE];
    const char *more;
    ngx_str_t text;
    *out = 1;
    if (check->cost.compiled == NULL) {
        return true;
    }
    if (!protocol_evaluate(asker, &check->cost, &text)) {
        return false;
    }
    if (text.len != 0 && !units_read(text.data, text.len, out) &&
        (more = rare_line_end(&check->bad_cost, end)) != NULL) {
        char quoted[QUOTE_SIZE];
        ngx_log_error(NGX_LOG_ERR, asker->log, 0, "the cost \"%V\" of policy \"%V\" is no number: \"%s\"%s",
                      &check->cost.text, &check->policy_name, quote(quoted, text.data, text.len), more);
    }
    return true;
}

/* Adds one check of the list to those of the request. False: no memory. */
static bool prepare_one(const struct asker *asker, size_t index, const weir *w, struct checked *checked)
{
    struct check *check = ((struct check *const *) checked->list->checks.elts)[index];
    struct asked asked = {.check = check, .policy = choose_policy(asker, check)};
    ngx_str_t key;
    if (asked.policy == NULL || !(check->address != NULL ? address_key(asker, check->address, &key)
                                                         : protocol_evaluate(asker, &check->key, &key))) {
        return false;
    }
    if (key.len == 0) {
        checked->unkeyed |= UINT32_C(1) << index;
        return true;
    }
    asked.key = weir_make_key(w, asked.policy->id, key.data, key.len);
    checked->asked[checked->count++] = asked;
    return read_cost(asker, check, &checked->asked[checked->count - 1].cost);
}

struct checked *check_prepare(const struct asker *asker, const struct check_list *list, const weir *w)
{
    struct checked *checked = ngx_pcalloc(asker->pool, sizeof(*checked));
    if (checked == NULL) {
        return NULL;
    }
    checked->list = list;
    for (ngx_uint_t i = 0; i < list->checks.nelts; i++) {
        if (!prepare_one(asker, i, w, checked)) {
            return NULL;
        }
    }
    return checked;
}

void check_note_unkeyed(const struct checked *checked, struct unkeyed_counts *counts, ngx_pool_t *pool,
                        ngx_str_t *names)
{
    struct check *const *checks = checked->list->checks.elts;
    for (size_t i = 0; checked->unkeyed >> i != 0; i++) {
        if ((checked->unkeyed >> i & 1) != 0) {
            unkeyed_note(counts, pool, names, &checks[i]->policy_name, checks[i]->policy->id);
        }
    }
}

static bool texts_equal(const ngx_str_t *a, const ngx_str_t *b)
{
    return a->len == b->len && ngx_strncmp(a->data, b->data, a->len) == 0;
}

static bool has_asked(const struct checked *before, const struct check *check)
{
    for (size_t i = 0; i < before->count; i++) {
        const struct check *asked = before->asked[i].check;
        if (texts_equal(&asked->policy_name, &check->policy_name) && texts_equal(&asked->key.text, &check->key.text)) {
            return true;
        }
    }
    return false;
}

void check_leave_out(struct checked *checked, const struct checked *before)
{
    size_t kept = 0;
    for (size_t i = 0; i < checked->count; i++) {
        if (!has_asked(before, checked->asked[i].check)) {
            checked->asked[kept++] = checked->asked[i];
        }
    }
    checked->count = kept;
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

bool check_decide_at_once(weir_thread *thread, struct checked *checked)
{
    if (checked->count == 0) {
        return true;
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

bool check_decide(weir_thread *thread, struct checked *checked)
{
    if (checked->count == 1 && checked->asked[0].policy->queue) {
        return take_place(thread, checked);
    }
    return check_decide_at_once(thread, checked);
}

void check_take_back(weir_thread *thread, struct checked *checked)
{
    for (size_t i = 0; i < checked->count; i++) {
        const struct asked *asked = &checked->asked[i];
        /* In shadow mode a key without room has taken nothing, and the verdict does not say which. */
        const bool taken = !asked->policy->shadow || (!checked->verdict.would_deny && !asked->policy->queue);
        if (asked->cost != 0 && taken) {
            weir_refund(thread, &asked->key, asked->cost);
        }
    }
    checked->policy = NULL;
}
