/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See status.h.
 *
 * All workers share one weir, so the answer of any worker is that of all.
 */
#include "status.h"

#include <inttypes.h>

#include "instance.h"
#include "text.h"

enum format { FORMAT_BY_ACCEPT, FORMAT_PAGE, FORMAT_JSON, FORMAT_PROMETHEUS, FORMAT_TABLE };

static const char *const links[] = {[WEIR_LINK_NONE] = "none", [WEIR_LINK_DOWN] = "down", [WEIR_LINK_UP] = "up"};

/* A policy in force. */
struct listed {
    char name[WEIR_MAX_NAME + 1];
    weir_policy_id id;
    bool shadow;
    bool local;
};

struct listing {
    struct listed *all;
    size_t count;
    size_t room;
};

static void add_listed(void *arg, const weir_policy_info *info)
{
    struct listing *listing = arg;
    if (listing->count == listing->room) {
        return; /* policies have changed since they were counted */
    }
    struct listed *listed = &listing->all[listing->count++];
    (void) ngx_cpystrn((u_char *) listed->name, (u_char *) info->policy->name, sizeof(listed->name));
    listed->id = info->id;
    listed->shadow = info->policy->mode == WEIR_SHADOW;
    listed->local = info->policy->scope == WEIR_SCOPE_PROCESS;
}

static struct listing list_policies(ngx_pool_t *pool, const weir *w)
{
    struct listing listing = {.room = weir_list_policies(w, NULL, NULL)};
    listing.all = ngx_palloc(pool, (listing.room + 1) * sizeof(*listing.all));
    listing.room = listing.all != NULL ? listing.room : 0;
    (void) weir_list_policies(w, add_listed, &listing);
    return listing;
}

/* What weir writes into a buffer. */
static void write_library(struct text *text, const weir *w, int (*write)(const weir *, char *, size_t))
{
    const int size = write(w, NULL, 0);
    /* Room for numbers that grow meanwhile. */
    char *room = size > 0 ? text_room(text, 2 * (size_t) size) : NULL;
    const int written = room != NULL ? write(w, room, 2 * (size_t) size) : -1;
    text->failed = text->failed || written < 0 || written >= 2 * size;
    text->length += written > 0 && !text->failed ? (size_t) written : 0;
}

static void write_prometheus(struct text *text, const weir *w, const struct unkeyed_counts *unkeyed)
{
    const struct listing listing = list_policies(text->pool, w);
    write_library(text, w, weir_write_metrics);
    text_add(text, "# HELP weir_nginx_without_key_total Requests without a key, for which the policy was not asked.\n"
                   "# TYPE weir_nginx_without_key_total counter\n");
    for (size_t i = 0; i < listing.count; i++) {
        text_add(text, "weir_nginx_without_key_total{policy=\"%s\"} %" PRIu64 "\n", listing.all[i].name,
                 unkeyed_count(unkeyed, listing.all[i].id));
    }
}

/* The library's object, with one more field at its end. */
static void write_json(struct text *text, const weir *w, const struct unkeyed_counts *unkeyed)
{
    const struct listing listing = list_policies(text->pool, w);
    write_library(text, w, weir_write_status);
    text->length -= text->failed ? 0 : strlen("}\n");
    text_add(text, ",\"without_key\":{");
    for (size_t i = 0; i < listing.count; i++) {
        text_add(text, "%s\"%s\":%" PRIu64, i != 0 ? "," : "", listing.all[i].name,
                 unkeyed_count(unkeyed, listing.all[i].id));
    }
    text_add(text, "}}\n");
}

/* The page asks for "?format=json" of its own address. */
static void write_page(struct text *text, const weir *w, const struct unkeyed_counts *unkeyed)
{
    size_t length;
    const char *page = weir_status_page(&length);
    char *room = text_room(text, length);
    (void) w;
    (void) unkeyed;
    if (room != NULL) {
        memcpy(room, page, length);
        text->length += length;
    }
}

static void write_row(struct text *text, const char *name, uint64_t value)
{
    text_add(text, "<tr><th scope=\"row\">%s</th><td>%" PRIu64 "</td></tr>\n", name, value);
}

static void write_policy(struct text *text, const weir *w, const struct listed *listed, uint64_t unkeyed)
{
    weir_offender offenders[WEIR_TOP_OFFENDERS];
    const size_t count = weir_top_offenders(w, listed->id, offenders, WEIR_TOP_OFFENDERS);
    text_add(text, "<h2>%s</h2>\n<p>%s%s; %" PRIu64 " requests without a key</p>\n", listed->name,
             listed->shadow ? "shadow mode: nothing is refused" : "enforced",
             listed->local ? ", this machine alone" : "", unkeyed);
    if (count == 0) {
        return;
    }
    text_add(text, "<table>\n<tr><th scope=\"col\">denied most</th><th scope=\"col\">units</th></tr>\n");
    for (size_t i = 0; i < count; i++) {
        text_add(text, "<tr><td>");
        text_add_html(text, offenders[i].key);
        text_add(text, "</td><td>%" PRIu64 "</td></tr>\n", offenders[i].denied_units);
    }
    text_add(text, "</table>\n");
}

/* For browsers that run no script. */
static void write_table(struct text *text, const weir *w, const struct unkeyed_counts *unkeyed)
{
    weir_stats stats;
    weir_get_stats(w, &stats);
    text_add(text, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta name=\"viewport\" content=\"width=device-width\">\n"
                   "<meta http-equiv=\"refresh\" content=\"5\">\n<title>weir</title>\n<style>\n"
                   ":root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }\n"
                   "body { max-width: 50rem; margin: 2rem auto; padding: 0 1rem }\n"
                   "table { border-collapse: collapse }\n"
                   "th, td { text-align: left; padding: .1rem 1.5rem .1rem 0 }\n"
                   "td:last-child { text-align: right; font-variant-numeric: tabular-nums }\n"
                   "</style>\n</head>\n<body>\n<h1>weir</h1>\n");
    text_add(text, "<p>version %s, Redis: %s</p>\n<table>\n", weir_version(), links[stats.link]);
    write_row(text, "requests and charges allowed", stats.allowed_count);
    write_row(text, "denied", stats.denied_count);
    write_row(text, "would be denied, in shadow mode", stats.would_deny_count);
    write_row(text, "keys", stats.key_count);
    write_row(text, "room for keys", stats.key_capacity);
    write_row(text, "processes", stats.process_count);
    write_row(text, "requests that passed without a limit, as their worker found no place", stats.unlimited_count);
    write_row(text, "nodes of the fleet", stats.live_nodes);
    write_row(text, "syncs", stats.sync_count);
    write_row(text, "syncs that failed", stats.sync_error_count);
    text_add(text, "</table>\n");
    const struct listing listing = list_policies(text->pool, w);
    for (size_t i = 0; i < listing.count; i++) {
        write_policy(text, w, &listing.all[i], unkeyed_count(unkeyed, listing.all[i].id));
    }
    text_add(text, "</body>\n</html>\n");
}

/* The value of a header field of the request, or an empty text. */
static ngx_str_t request_field(const ngx_http_request_t *r, const char *name)
{
    const size_t length = ngx_strlen(name);
    for (const ngx_list_part_t *part = &r->headers_in.headers.part; part != NULL; part = part->next) {
        const ngx_table_elt_t *fields = part->elts;
        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (fields[i].key.len == length && ngx_strncmp(fields[i].lowcase_key, name, length) == 0) {
                return fields[i].value;
            }
        }
    }
    return (ngx_str_t) ngx_null_string;
}

static bool has_text(const ngx_str_t *value, const char *text)
{
    return value->len != 0 &&
           ngx_strlcasestrn(value->data, value->data + value->len, (u_char *) text, ngx_strlen(text) - 1) != NULL;
}

/* "?format=json" counts first, then the directive, then what the client accepts. */
static enum format choose_format(ngx_http_request_t *r, enum format format)
{
    ngx_str_t wanted = ngx_null_string;
    if (ngx_http_arg(r, (u_char *) "format", 6, &wanted) == NGX_OK) {
        return has_text(&wanted, "json")    ? FORMAT_JSON
               : has_text(&wanted, "table") ? FORMAT_TABLE
               : has_text(&wanted, "html")  ? FORMAT_PAGE
                                            : FORMAT_PROMETHEUS;
    }
    if (format != FORMAT_BY_ACCEPT) {
        return format;
    }
    const ngx_str_t accept = request_field(r, "accept");
    return has_text(&accept, "text/html")          ? FORMAT_PAGE
           : has_text(&accept, "application/json") ? FORMAT_JSON
                                                   : FORMAT_PROMETHEUS;
}

/* False: no memory. */
static bool add_field(ngx_http_request_t *r, const char *name, const char *value)
{
    ngx_table_elt_t *field = ngx_list_push(&r->headers_out.headers);
    if (field == NULL) {
        return false;
    }
    memset(field, 0, sizeof(*field));
    field->hash = 1;
    field->key = (ngx_str_t){ngx_strlen(name), (u_char *) (uintptr_t) name};
    field->value = (ngx_str_t){ngx_strlen(value), (u_char *) (uintptr_t) value};
    return true;
}

static ngx_int_t send_text(ngx_http_request_t *r, const struct text *text)
{
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = (off_t) text->length;
    const ngx_int_t result = ngx_http_send_header(r);
    if (result == NGX_ERROR || result > NGX_OK || r->header_only) {
        return result;
    }
    ngx_buf_t *buffer = ngx_calloc_buf(r->pool);
    if (buffer == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    buffer->pos = (u_char *) text->bytes;
    buffer->last = buffer->pos + text->length;
    buffer->memory = 1;
    buffer->last_buf = r == r->main;
    buffer->last_in_chain = 1;
    ngx_chain_t chain = {buffer, NULL};
    return ngx_http_output_filter(r, &chain);
}

static ngx_int_t answer_as(ngx_http_request_t *r, enum format configured)
{
    static const struct {
        ngx_str_t type;
        void (*write)(struct text *text, const weir *w, const struct unkeyed_counts *unkeyed);
    } formats[] = {
        [FORMAT_PAGE] = {ngx_string("text/html; charset=utf-8"), write_page},
        [FORMAT_JSON] = {ngx_string("application/json"), write_json},
        [FORMAT_PROMETHEUS] = {ngx_string("text/plain; version=0.0.4"), write_prometheus},
        [FORMAT_TABLE] = {ngx_string("text/html; charset=utf-8"), write_table},
    };
    if ((r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD)) == 0) {
        return NGX_HTTP_NOT_ALLOWED;
    }
    const ngx_int_t result = ngx_http_discard_request_body(r);
    if (result != NGX_OK) {
        return result;
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    if (http->block.instance == NULL) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }
    (void) instance_thread(http->block.instance, r->connection->log); /* a worker without a place may read, too */
    const weir *w = instance_weir(http->block.instance);
    if (w == NULL) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }
    const enum format format = choose_format(r, configured);
    struct text text = {.pool = r->pool};
    formats[format].write(&text, w, instance_unkeyed(http->block.instance));
    if (text.failed) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (!add_field(r, "X-Content-Type-Options", "nosniff") ||
        (format == FORMAT_PAGE && !add_field(r, "Content-Security-Policy", "frame-ancestors 'none'"))) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    r->headers_out.content_type = formats[format].type;
    r->headers_out.content_type_len = formats[format].type.len;
    return send_text(r, &text);
}

/* nginx gives a content handler no argument, so there is one for each word of the directive. */
static ngx_int_t answer_by_accept(ngx_http_request_t *r)
{
    return answer_as(r, FORMAT_BY_ACCEPT);
}

static ngx_int_t answer_page(ngx_http_request_t *r)
{
    return answer_as(r, FORMAT_PAGE);
}

static ngx_int_t answer_json(ngx_http_request_t *r)
{
    return answer_as(r, FORMAT_JSON);
}

static ngx_int_t answer_prometheus(ngx_http_request_t *r)
{
    return answer_as(r, FORMAT_PROMETHEUS);
}

char *status_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf)
{
    static const struct {
        const char *word;
        ngx_http_handler_pt handler;
    } words[] = {{"html", answer_page}, {"json", answer_json}, {"prometheus", answer_prometheus}};
    ngx_http_core_loc_conf_t *core = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    const ngx_str_t *values = cf->args->elts;
    (void) command;
    (void) conf;
    core->handler = answer_by_accept;
    for (size_t i = 0; cf->args->nelts == 2 && i < sizeof(words) / sizeof(words[0]); i++) {
        if (ngx_strcmp(values[1].data, words[i].word) == 0) {
            core->handler = words[i].handler;
            return NGX_CONF_OK;
        }
    }
    return cf->args->nelts == 1 ? NGX_CONF_OK : "takes html, json or prometheus";
}
