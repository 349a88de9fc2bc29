/* SPDX-License-Identifier: Apache-2.0 */
/* See policies.h. */
#include "policies.h"

#include <string.h>

/* The least table that the library makes: the trial holds no keys. */
#define TRIAL_KEYS 1000

/* Keys that the policies of a file have room for, unless keys= says otherwise. */
#define DEFAULT_KEYS 65536

/* The library's most. */
#define MOST_KEYS 100000000

/* Where the policies of the trial go. */
struct listing {
    ngx_array_t *policies;
    ngx_pool_t *pool;
    bool failed; /* no memory */
};

static void add_policy(void *arg, const weir_policy_info *info)
{
    struct listing *listing = arg;
    struct policy *policy = ngx_array_push(listing->policies);
    const size_t length = ngx_strlen(info->policy->name);
    u_char *name = ngx_pnalloc(listing->pool, length + 1);
    if (policy == NULL || name == NULL) {
        listing->failed = true;
        return;
    }
    (void) ngx_cpystrn(name, (u_char *) info->policy->name, length + 1);
    *policy = (struct policy){.name = {length, name}, .queue = true, .shadow = info->policy->mode == WEIR_SHADOW};
    for (size_t i = 0; i < info->policy->limit_count; i++) {
        policy->queue = policy->queue && info->policy->limits[i].algorithm == WEIR_LEAKY_BUCKET;
    }
}

/* Whether two names have the same part before the first '/'. */
static bool one_group(const ngx_str_t *a, const ngx_str_t *b)
{
    size_t i = 0;
    while (i < a->len && i < b->len && a->data[i] == b->data[i] && a->data[i] != '/') {
        i++;
    }
    return (i == a->len || a->data[i] == '/') && (i == b->len || b->data[i] == '/');
}

unsigned policies_join_bits(unsigned one, unsigned other)
{
    return one == KEYS_UNKNOWN || one == other ? other : other == KEYS_UNKNOWN ? one : KEYS_MIXED;
}

unsigned policies_key_bits(const struct policy_file *file, const struct policy *policy)
{
    const struct policy *policies = file->policies.elts;
    unsigned bits = KEYS_UNKNOWN;
    for (ngx_uint_t i = 0; i < file->policies.nelts; i++) {
        bits = one_group(&policies[i].name, &policy->name) ? policies_join_bits(bits, policies[i].key_bits) : bits;
    }
    return bits;
}

/* The forms of a trial, which is a weir of its own. */
static int set_forms(const struct policy_file *file, weir *w, weir_error *error)
{
    const struct policy *policies = file->policies.elts;
    int result = 0;
    for (ngx_uint_t i = 0; i < file->policies.nelts && result == 0; i++) {
        char group[WEIR_MAX_NAME + 1];
        (void) ngx_cpystrn((u_char *) group, policies[i].name.data, sizeof(group));
        group[strcspn(group, "/")] = '\0';
        const weir_key_form *form = weir_address_form(policies_key_bits(file, &policies[i]));
        result = form != NULL ? weir_set_key_form(w, group, form, error) : 0;
    }
    return result;
}

/* Reads the file into a small weir without a thread, which says what is wrong. NULL: that was said. */
static weir *try_file(ngx_conf_t *cf, const struct policy_file *file)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = TRIAL_KEYS;
    options.no_thread = true;
    weir_error error;
    weir *w = NULL;
    int result = weir_open(&options, &w, &error);
    result = result != 0 ? result : set_forms(file, w, &error);
    result = result != 0 ? result : weir_load_policies(w, (const char *) file->path.data, &error);
    if (result != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s", error.message);
        weir_close(w);
        return NULL;
    }
    return w;
}

static bool read_file(ngx_conf_t *cf, struct policy_file *file)
{
    weir *w = try_file(cf, file);
    struct listing listing = {&file->policies, cf->pool, false};
    if (w == NULL) {
        return false;
    }
    (void) weir_list_policies(w, add_policy, &listing);
    weir_close(w);
    return !listing.failed;
}

bool policies_read_again(ngx_conf_t *cf, struct policy_file *file)
{
    const struct policy *policies = file->policies.elts;
    bool any = false;
    for (ngx_uint_t i = 0; i < file->policies.nelts; i++) {
        any = any || policies[i].key_bits > KEYS_MIXED;
    }
    weir *w = any ? try_file(cf, file) : NULL;
    weir_close(w);
    return !any || w != NULL;
}

/* "keys=N". */
static bool read_keys(ngx_conf_t *cf, const ngx_str_t *value, size_t *out)
{
    const size_t length = ngx_strlen("keys=");
    const ngx_int_t keys = value->len > length && ngx_strncmp(value->data, "keys=", length) == 0
                               ? ngx_atoi(value->data + length, value->len - length)
                               : NGX_ERROR;
    if (keys <= 0 || keys > MOST_KEYS) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
        return false;
    }
    *out = (size_t) keys;
    return true;
}

char *policies_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct policy_file *file = (void *) ((char *) conf + command->offset);
    const ngx_str_t *values = cf->args->elts;
    if (file->path.len != 0) {
        return "is duplicate";
    }
    file->path = values[1];
    file->keys = DEFAULT_KEYS;
    if (ngx_conf_full_name(cf->cycle, &file->path, 1) != NGX_OK ||
        ngx_array_init(&file->policies, cf->pool, 8, sizeof(struct policy)) != NGX_OK ||
        (cf->args->nelts == 3 && !read_keys(cf, &values[2], &file->keys)) || !read_file(cf, file)) {
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

struct policy *policies_find(const struct policy_file *file, const ngx_str_t *name)
{
    struct policy *policies = file->policies.elts;
    for (ngx_uint_t i = 0; i < file->policies.nelts; i++) {
        if (policies[i].name.len == name->len && ngx_strncmp(policies[i].name.data, name->data, name->len) == 0) {
            return &policies[i];
        }
    }
    return NULL;
}

bool policies_fit_own(const struct block *block, ngx_conf_t *cf)
{
    const struct own_policy *own = block->own.elts;
    for (ngx_uint_t i = 0; i < block->own.nelts; i++) {
        ngx_str_t name = {ngx_strlen(own[i].name), (u_char *) own[i].name};
        if (policies_find(&block->file, &name) != NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "policy \"%V\" of \"%V\" has the name of a zone; rename one",
                          &name, &block->file.path);
            return false;
        }
    }
    if (block->own.nelts + block->file.policies.nelts > WEIR_MAX_POLICIES) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "there are more than %d zones and policies", WEIR_MAX_POLICIES);
        return false;
    }
    return true;
}

void policies_set_ids(const struct policy_file *file, const weir *w)
{
    struct policy *policies = file->policies.elts;
    for (ngx_uint_t i = 0; i < file->policies.nelts; i++) {
        policies[i].id = weir_find_policy(w, (const char *) policies[i].name.data);
    }
}
