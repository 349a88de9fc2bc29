/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See redis.h.
 *
 * The library says what is wrong with a URL, a prefix or a time: a small weir without a thread is opened and closed
 * while the configuration is read. Such a weir connects to nothing, so an unreachable Redis is no error. nginx adds the
 * file and the line to the sentence.
 */
#include "redis.h"

/* The least table that the library makes: the trial holds no keys. */
#define TRIAL_KEYS 1000

void redis_to_options(const struct redis_settings *redis, weir_options *options)
{
    options->redis_url = redis->url;
    if (redis->prefix != NULL) {
        options->prefix = redis->prefix;
    }
    if (redis->timeout_ms != 0) {
        options->redis_timeout_ms = redis->timeout_ms;
    }
    if (redis->interval_ms != 0) {
        options->sync_interval_ms = redis->interval_ms;
    }
    options->expected_nodes = redis->nodes;
}

static bool texts_equal(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : ngx_strcmp(a, b) == 0;
}

bool redis_equal(const struct redis_settings *a, const struct redis_settings *b)
{
    return texts_equal(a->url, b->url) && texts_equal(a->prefix, b->prefix) && a->timeout_ms == b->timeout_ms &&
           a->interval_ms == b->interval_ms && a->nodes == b->nodes;
}

/* False: the library takes no such settings, and the log says why. */
static bool try_settings(ngx_conf_t *cf, const struct redis_settings *redis)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_error error;
    weir *w = NULL;
    redis_to_options(redis, &options);
    options.max_keys = TRIAL_KEYS;
    options.no_thread = true;
    if (weir_open(&options, &w, &error) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s", error.message);
        return false;
    }
    weir_close(w);
    return true;
}

/* If the parameter is `name` (with its '='), stores the text after that. Arguments of nginx are terminated. */
static bool parameter_text(const ngx_str_t *parameter, const char *name, const char **out)
{
    const size_t length = ngx_strlen(name);
    if (parameter->len <= length || ngx_strncmp(parameter->data, name, length) != 0) {
        return false;
    }
    *out = (const char *) parameter->data + length;
    return true;
}

/* A time in nginx's words (200ms, 1s), in milliseconds; false: the text is none, or 0. */
static bool read_time(const char *text, uint32_t *out)
{
    ngx_str_t value = {ngx_strlen(text), (u_char *) text};
    const ngx_int_t ms = ngx_parse_time(&value, 0);
    if (ms <= 0 || ms > NGX_MAX_INT32_VALUE) {
        return false;
    }
    *out = (uint32_t) ms;
    return true;
}

static bool read_count(const char *text, uint32_t *out)
{
    const ngx_int_t count = ngx_atoi((u_char *) text, ngx_strlen(text));
    if (count <= 0 || count > NGX_MAX_INT32_VALUE) {
        return false;
    }
    *out = (uint32_t) count;
    return true;
}

/* False: the parameter is unknown or has no such value. */
static bool read_parameter(const ngx_str_t *parameter, struct redis_settings *redis)
{
    const char *text;
    if (parameter_text(parameter, "timeout=", &text)) {
        return read_time(text, &redis->timeout_ms);
    }
    if (parameter_text(parameter, "interval=", &text)) {
        return read_time(text, &redis->interval_ms);
    }
    if (parameter_text(parameter, "nodes=", &text)) {
        return read_count(text, &redis->nodes);
    }
    return parameter_text(parameter, "prefix=", &redis->prefix);
}

char *redis_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct redis_settings *redis = (void *) ((char *) conf + command->offset);
    const ngx_str_t *values = cf->args->elts;
    if (redis->given) {
        return "is duplicate";
    }
    redis->given = true;
    const bool off = ngx_strcmp(values[1].data, "off") == 0;
    if (off && cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }
    redis->url = (const char *) values[1].data;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (off || !read_parameter(&values[i], redis)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", &values[i]);
            return NGX_CONF_ERROR;
        }
    }
    return try_settings(cf, redis) ? NGX_CONF_OK : NGX_CONF_ERROR;
}
