/* SPDX-License-Identifier: Apache-2.0 */
/*
 * URLs of Redis. One is refused with a sentence that does not hold its password, or what is read of it, written as a
 * URL in which each byte is escaped, is read as the same.
 */
#include <errno.h>

#include "fuzz.h"
#include "transport/redis/url.h"

/* Room for all fields, each byte of which takes three. */
#define WRITTEN_MOST 32768

struct writer {
    char text[WRITTEN_MOST];
    size_t length;
};

static void put(struct writer *w, const char *text)
{
    w->length += (size_t) snprintf(w->text + w->length, sizeof(w->text) - w->length, "%s", text);
    CHECK(w->length < sizeof(w->text));
}

static void put_escaped(struct writer *w, const char *before, const char *text)
{
    put(w, before);
    for (const char *c = text; *c != '\0'; c++) {
        char escaped[4];
        (void) snprintf(escaped, sizeof(escaped), "%%%02x", (unsigned char) *c);
        put(w, escaped);
    }
}

static void put_option(struct writer *w, const char *name, const char *value)
{
    if (*value != '\0') {
        put(w, "&");
        put(w, name);
        put_escaped(w, "=", value);
    }
}

static void write_url(const struct redis_url *url, struct writer *w)
{
    static const char *const kinds[] = {
        [REDIS_SERVER] = "", [REDIS_SENTINEL] = "+sentinel", [REDIS_CLUSTER] = "+cluster"};
    const bool is_socket = url->seed_count == 0;
    char number[64];
    w->length = 0;
    put(w, is_socket ? "unix" : url->tls ? "rediss" : "redis");
    put(w, kinds[url->kind]);
    put(w, "://");
    if (url->password[0] != '\0') {
        put_escaped(w, "", url->user);
        put_escaped(w, ":", url->password);
        put(w, "@");
    }
    for (size_t i = 0; i < url->seed_count; i++) {
        put_escaped(w, i == 0 ? "" : ",", url->seeds[i].host);
        put(w, ":");
        put(w, url->seeds[i].port);
    }
    if (is_socket) {
        put_escaped(w, "/", url->path + 1);
    } else if (url->kind == REDIS_SENTINEL) {
        put_escaped(w, "/", url->primary);
    }
    (void) snprintf(number, sizeof(number), "?db=%d&protocol=%d", url->database, url->protocol);
    put(w, number);
    put_option(w, "ca", url->ca);
    put_option(w, "cert", url->cert);
    put_option(w, "key", url->key);
    put_option(w, "servername", url->servername);
    put_option(w, "sentinel_user", url->sentinel_user);
    put_option(w, "sentinel_password", url->sentinel_password);
}

static bool is_same(const struct redis_url *a, const struct redis_url *b)
{
    bool same = a->kind == b->kind && a->tls == b->tls && a->seed_count == b->seed_count &&
                a->database == b->database && a->protocol == b->protocol;
    for (size_t i = 0; i < a->seed_count && same; i++) {
        same = strcmp(a->seeds[i].host, b->seeds[i].host) == 0 && strcmp(a->seeds[i].port, b->seeds[i].port) == 0;
    }
    return same && strcmp(a->path, b->path) == 0 && strcmp(a->user, b->user) == 0 &&
           strcmp(a->password, b->password) == 0 && strcmp(a->primary, b->primary) == 0 &&
           strcmp(a->sentinel_user, b->sentinel_user) == 0 && strcmp(a->sentinel_password, b->sentinel_password) == 0 &&
           strcmp(a->ca, b->ca) == 0 && strcmp(a->cert, b->cert) == 0 && strcmp(a->key, b->key) == 0 &&
           strcmp(a->servername, b->servername) == 0;
}

static void check_url(const struct redis_url *url)
{
    static struct writer w;
    struct redis_url again;
    weir_error error;
    CHECK(url->seed_count <= URL_SEEDS_MAX && (url->seed_count != 0) == (url->path[0] == '\0'));
    CHECK(url->protocol == 2 || url->protocol == 3);
    CHECK(url->database >= 0 && url->database <= 1000000);
    CHECK(url->kind != REDIS_SENTINEL || url->primary[0] != '\0');
    for (size_t i = 0; i < url->seed_count; i++) {
        const int port = atoi(url->seeds[i].port);
        CHECK(url->seeds[i].host[0] != '\0' && port >= 1 && port <= 65535);
    }
    write_url(url, &w);
    CHECK(url_parse(w.text, &again, &error) == 0);
    CHECK(is_same(url, &again));
}

/* No sentence shows a password, whatever stands behind it. */
static void check_refusal(const char *text, const weir_error *error)
{
    static const char secret[] = "s3cr3t-of-none";
    const char *scheme = strstr(text, "://");
    struct redis_url url;
    weir_error other = {.code = 0};
    check_sentence(error->message, sizeof(error->message));
    if (scheme == NULL || strstr(text, secret) != NULL) {
        return;
    }
    char *with = malloc(strlen(text) + sizeof(secret) + 8);
    CHECK(with != NULL);
    (void) sprintf(with, "%.*s://u:%s%s", (int) (scheme - text), text, secret, scheme + 3);
    (void) url_parse(with, &url, &other);
    CHECK(other.code == 0 || strstr(other.message, secret) == NULL);
    free(with);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct redis_url url;
    weir_error error = {.code = 0};
    char *text = input_text(&in, NULL);
    const int result = url_parse(text, &url, &error);
    CHECK(result == 0 || (result == -EINVAL && error.code == result));
    if (result == 0) {
        check_url(&url);
    } else {
        check_refusal(text, &error);
    }
    free(text);
    return 0;
}
