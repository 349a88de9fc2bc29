/* SPDX-License-Identifier: Apache-2.0 */
/* See zone.h. */
#include "zone.h"

#include "address.h"
#include "rate.h"

/* What nginx asks of a zone at least, and what is left of the memory of a zone: pages. */
#define LEAST_PAGES 8

/* A zone's name up to the hash of a name that is too long, and the bytes of that ending. */
#define HASH_TEXT_SIZE 10

/* The policy of a zone. */
static struct own_policy to_policy(struct zone *zone)
{
    struct own_policy own = {.name = zone->policy_name, .limit = WEIR_LIMIT_INIT, .id = &zone->policy};
    own.limit.algorithm = WEIR_LEAKY_BUCKET;
    own.limit.limit = zone->rate;
    own.limit.period_ns = RATE_PERIOD_NS;
    /* One for the request that goes at once, and one so that the longest wait decides and not the queue's size. */
    own.limit.burst = ngx_min(zone->burst, rate_most_burst(zone->rate)) + 2;
    own.scope = zone->local ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET;
    own.key_bits = zone->address != NULL ? zone->address->bits : 0;
    return own;
}

static bool is_plain(u_char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

void zone_policy_name(const ngx_str_t *zone, char *out)
{
    u_char *at = (u_char *) out;
    u_char *const end = at + WEIR_MAX_NAME;
    u_char *cut = at; /* up to here there is room for a hash */
    size_t i = 0;
    for (; i < zone->len; i++) {
        const u_char c = zone->data[i];
        const size_t size = is_plain(c) ? 1 : 3;
        if (at + size > end) {
            break;
        }
        at = is_plain(c) ? (*at = c, at + 1) : ngx_sprintf(at, ".%02xd", (u_int) c);
        if (at + HASH_TEXT_SIZE <= end) {
            cut = at;
        }
    }
    if (i < zone->len) {
        at = ngx_sprintf(cut, "..%08xD", ngx_crc32_long(zone->data, zone->len));
    }
    *at = '\0';
}

/* nginx calls this for each zone when it makes shared memory; `data` is the zone of the cycle before. */
static ngx_int_t zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    const struct zone *zone = shm_zone->data;
    const struct zone *before = data;
    if (before != NULL && (zone->key.text.len != before->key.text.len ||
                           ngx_strncmp(zone->key.text.data, before->key.text.data, zone->key.text.len) != 0)) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "weir_limit_req \"%V\" uses the \"%V\" key while previously it used the \"%V\" key",
                      &shm_zone->shm.name, &zone->key.text, &before->key.text);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* "NAME:SIZE". */
static bool read_name(ngx_conf_t *cf, const ngx_str_t *value, struct zone *zone)
{
    u_char *const first = value->data + ngx_strlen("zone=");
    u_char *const last = value->data + value->len;
    u_char *const colon = ngx_strlchr(first, last, ':');
    if (colon == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid zone size \"%V\"", value);
        return false;
    }
    ngx_str_t size_text = {(size_t) (last - colon) - 1, colon + 1};
    const ssize_t size = ngx_parse_size(&size_text);
    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid zone size \"%V\"", value);
        return false;
    }
    if (size < (ssize_t) (LEAST_PAGES * ngx_pagesize)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "zone \"%V\" is too small", value);
        return false;
    }
    zone->name = (ngx_str_t){(size_t) (colon - first), first};
    zone->size = (size_t) size;
    return true;
}

/* "10r/s" or "30r/m". */
static bool read_rate(ngx_conf_t *cf, const ngx_str_t *value, struct zone *zone)
{
    u_char *const first = value->data + ngx_strlen("rate=");
    size_t length = value->len - ngx_strlen("rate=");
    uint64_t times = 60;
    if (length > 3 && ngx_strncmp(first + length - 3, "r/s", 3) == 0) {
        length -= 3;
    } else if (length > 3 && ngx_strncmp(first + length - 3, "r/m", 3) == 0) {
        length -= 3;
        times = 1;
    }
    const ngx_int_t rate = ngx_atoi(first, length);
    if (rate <= 0 || (uint64_t) rate > RATE_MOST / times) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid rate \"%V\"", value);
        return false;
    }
    zone->rate = (uint64_t) rate * times;
    return true;
}

static bool starts_with(const ngx_str_t *value, const char *text)
{
    return value->len >= ngx_strlen(text) && ngx_strncmp(value->data, text, ngx_strlen(text)) == 0;
}

static bool read_parameter(ngx_conf_t *cf, const ngx_str_t *value, struct zone *zone)
{
    if (starts_with(value, "zone=")) {
        return read_name(cf, value, zone);
    }
    if (starts_with(value, "rate=")) {
        return read_rate(cf, value, zone);
    }
    if (ngx_strcmp(value->data, "redis=on") == 0 || ngx_strcmp(value->data, "redis=off") == 0) {
        zone->local = value->data[value->len - 1] == 'f';
        return true;
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
    return false;
}

/* The index of the variable that a text is; NGX_ERROR: the text is another one. "$1" is what an expression matched. */
static ngx_int_t find_variable(ngx_conf_t *cf, const ngx_str_t *text)
{
    ngx_str_t name = {text->len, text->data};
    if (name.len < 2 || *name.data++ != '$') {
        return NGX_ERROR;
    }
    name.len--;
    if (name.len > 2 && name.data[0] == '{' && name.data[name.len - 1] == '}') {
        name = (ngx_str_t){name.len - 2, name.data + 1};
    }
    if (name.data[0] >= '0' && name.data[0] <= '9') {
        return NGX_ERROR;
    }
    for (size_t i = 0; i < name.len; i++) {
        const u_char c = name.data[i];
        if (c == '-' || !is_plain(c)) {
            return NGX_ERROR;
        }
    }
    return ngx_http_get_variable_index(cf, &name);
}

char *zone_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    struct http_weir *http = conf;
    ngx_str_t *values = cf->args->elts;
    struct zone *zone = ngx_pcalloc(cf->pool, sizeof(*zone));
    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }
    zone->rate = 60;
    if (!address_compile_key(cf, &values[1], &zone->key)) {
        return NGX_CONF_ERROR;
    }
    zone->address = address_of_key(&zone->key.text);
    zone->variable = find_variable(cf, &zone->key.text);
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (!read_parameter(cf, &values[i], zone)) {
            return NGX_CONF_ERROR;
        }
    }
    if (zone->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" must have \"zone\" parameter", &command->name);
        return NGX_CONF_ERROR;
    }
    zone_policy_name(&zone->name, zone->policy_name);
    ngx_shm_zone_t *shm_zone = ngx_shared_memory_add(cf, &zone->name, zone->size, &ngx_http_weir_module);
    struct zone **place = ngx_array_push(&http->zones);
    if (shm_zone == NULL || place == NULL) {
        return NGX_CONF_ERROR;
    }
    if (shm_zone->data != NULL) {
        const struct zone *other = shm_zone->data;
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V \"%V\" is already bound to key \"%V\"", &command->name,
                           &zone->name, &other->key.text);
        return NGX_CONF_ERROR;
    }
    if (http->zones.nelts > WEIR_MAX_POLICIES) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "there are more than %d zones", WEIR_MAX_POLICIES);
        return NGX_CONF_ERROR;
    }
    shm_zone->init = zone_init;
    shm_zone->data = zone;
    zone->shm_zone = shm_zone;
    *place = zone;
    return NGX_CONF_OK;
}

/* The waits in the zone's queue that the limit's requests take. */
static void finish_limit(struct limit *limit, struct zone *zone)
{
    zone->burst = ngx_max(zone->burst, limit->burst / 1000);
    limit->longest_wait_ns = rate_longest_wait_ns(zone->rate, limit->burst);
    limit->undelayed_ns = rate_longest_wait_ns(zone->rate, limit->delay);
    limit->delay_ns = rate_wait_ns(zone->rate, limit->delay);
}

bool zone_finish(struct http_weir *http, ngx_conf_t *cf)
{
    struct zone *const *zones = http->zones.elts;
    struct limit *const *limits = http->limits.elts;
    for (ngx_uint_t i = 0; i < http->limits.nelts; i++) {
        struct zone *zone = limits[i]->shm_zone->data;
        if (zone != NULL) { /* else nginx refuses the configuration: the zone has no size */
            finish_limit(limits[i], zone);
        }
    }
    if (ngx_array_init(&http->block.own, cf->pool, http->zones.nelts + 1, sizeof(struct own_policy)) != NGX_OK) {
        return false;
    }
    for (ngx_uint_t i = 0; i < http->zones.nelts; i++) {
        struct own_policy *own = ngx_array_push(&http->block.own); /* there is room */
        *own = to_policy(zones[i]);
        http->block.own_size += zones[i]->size;
        zones[i]->shm_zone->shm.size = LEAST_PAGES * ngx_pagesize;
    }
    return true;
}
