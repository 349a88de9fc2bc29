/* SPDX-License-Identifier: Apache-2.0 */
/* See url.h. */
#include "transport/redis/url.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/error.h"

/* The rest of a text that is being parsed. `form` is what a right URL of its scheme looks like. */
struct reader {
    const char *at, *end;
    const char *form;
    weir_error *error;
};

#define FORM_SERVER   "redis://[user:password@]host[:port][,host...][/database], or unix://[user:password@]/path"
#define FORM_CLUSTER  "redis+cluster://[user:password@]host[:port][,host...]"
#define FORM_SENTINEL "redis+sentinel://[user:password@]host[:port][,host...]/primary-name[/database]"

static const struct scheme {
    const char *name;
    enum redis_kind kind;
    bool tls, socket;
    int port;
    const char *form;
} schemes[] = {
    {"redis", REDIS_SERVER, false, false, 6379, FORM_SERVER},
    {"rediss", REDIS_SERVER, true, false, 6379, FORM_SERVER},
    {"unix", REDIS_SERVER, false, true, 0, FORM_SERVER},
    {"redis+cluster", REDIS_CLUSTER, false, false, 6379, FORM_CLUSTER},
    {"rediss+cluster", REDIS_CLUSTER, true, false, 6379, FORM_CLUSTER},
    {"redis+sentinel", REDIS_SENTINEL, false, false, 26379, FORM_SENTINEL},
    {"rediss+sentinel", REDIS_SENTINEL, true, false, 26379, FORM_SENTINEL},
};

static int bad(const struct reader *r, const char *what)
{
    return error_set(r->error, -EINVAL, "redis_url: %s; give %s", what, r->form);
}

/* Copies [from, to) and decodes %xx. False: too long or malformed. */
static bool decode_percent(char *out, size_t size, const char *from, const char *to)
{
    size_t at = 0;
    for (; from < to; from++) {
        char c = *from;
        if (c == '%') {
            const int byte = to - from > 2 ? hex_read_byte(from + 1) : -1;
            if (byte <= 0) {
                return false;
            }
            c = (char) byte;
            from += 2;
        }
        if (at + 1 >= size) {
            return false;
        }
        out[at++] = c;
    }
    out[at] = '\0';
    return true;
}

/* A whole number of up to `most` that fills [from, to). */
static bool number(const char *from, const char *to, int most, int *out)
{
    long value = 0;
    if (from == to || to - from > 9) {
        return false;
    }
    for (; from < to; from++) {
        if (*from < '0' || *from > '9') {
            return false;
        }
        value = value * 10 + (*from - '0');
    }
    *out = (int) value;
    return value <= most;
}

static const char *find_char(const struct reader *r, char c)
{
    const char *found = memchr(r->at, c, (size_t) (r->end - r->at));
    return found != NULL ? found : r->end;
}

/* user[:password]@ */
static int parse_user(struct reader *r, struct redis_url *out)
{
    /* The last @ ends the user. A password may hold a plain @; a path or a database cannot. */
    const char *at = memrchr(r->at, '@', (size_t) (r->end - r->at));
    if (at == NULL) {
        return 0;
    }
    const char *colon = memchr(r->at, ':', (size_t) (at - r->at));
    const char *user_end = colon != NULL ? colon : at;
    if (!decode_percent(out->user, sizeof(out->user), r->at, user_end)) {
        return bad(r, "the user is too long or holds a malformed %xx");
    }
    if (colon != NULL && !decode_percent(out->password, sizeof(out->password), colon + 1, at)) {
        return bad(r, "the password is too long or holds a malformed %xx");
    }
    if (out->password[0] == '\0') {
        return bad(r, "there is a user without a password");
    }
    r->at = at + 1;
    return 0;
}

/* host[:port], which fills [from, to) */
static int parse_seed(const struct reader *r, const char *from, const char *to, int port, struct redis_seed *out)
{
    if (from >= to) {
        return bad(r, "a host is missing");
    }
    const char *host = from;
    const char *host_end = to;
    const char *after = to;
    if (*from == '[') {
        host++;
        host_end = memchr(host, ']', (size_t) (to - host));
        if (host_end == NULL) {
            return bad(r, "an address has a '[' without its ']'");
        }
        after = host_end + 1;
    } else {
        const char *colon = memchr(from, ':', (size_t) (to - from));
        if (colon != NULL) {
            host_end = after = colon;
        }
    }
    if (host == host_end || !decode_percent(out->host, sizeof(out->host), host, host_end)) {
        return bad(r, host == host_end ? "a host is missing" : "a host is too long or malformed");
    }
    if (after != to && (*after != ':' || !number(after + 1, to, 65535, &port) || port == 0)) {
        return bad(r, "a port is not a number from 1 to 65535");
    }
    (void) snprintf(out->port, sizeof(out->port), "%d", port);
    return 0;
}

/* host[:port][,host[:port]...] */
static int parse_seeds(struct reader *r, int port, struct redis_url *out)
{
    const char *end = find_char(r, '/');
    for (;;) {
        const char *comma = memchr(r->at, ',', (size_t) (end - r->at));
        if (out->seed_count == URL_SEEDS_MAX) {
            return bad(r, "there are more than 16 hosts");
        }
        const int result = parse_seed(r, r->at, comma != NULL ? comma : end, port, &out->seeds[out->seed_count]);
        if (result != 0) {
            return result;
        }
        out->seed_count++;
        if (comma == NULL) {
            break;
        }
        r->at = comma + 1;
    }
    r->at = end;
    return 0;
}

/* [/primary][/database] */
static int parse_path(struct reader *r, struct redis_url *out)
{
    if (out->kind == REDIS_SENTINEL) {
        r->at += r->at < r->end;
        const char *end = find_char(r, '/');
        if (r->at == end || !decode_percent(out->primary, sizeof(out->primary), r->at, end)) {
            return bad(r, r->at == end ? "the name of the primary is missing, as the Sentinels know it"
                                       : "the name of the primary is too long or malformed");
        }
        r->at = end;
    }
    if (r->end - r->at > 1 && !number(r->at + 1, r->end, 1000000, &out->database)) {
        return bad(r, "the database is not a number");
    }
    return 0;
}

/* A socket's path. */
static int parse_socket(struct reader *r, struct redis_url *out)
{
    if (r->at == r->end || *r->at != '/') {
        return bad(r, "the socket's path does not begin with '/'");
    }
    if (!decode_percent(out->path, sizeof(out->path), r->at, r->end)) {
        return bad(r, "the socket's path is longer than 107 bytes or malformed");
    }
    return 0;
}

/* Options with a text as value. The alias is the name that redis-py uses. */
enum { FOR_TLS = 1, FOR_SENTINEL };

static const struct option {
    const char *name, *alias;
    size_t offset;
    int needs;
} options[] = {
    {"ca", "ssl_ca_certs", offsetof(struct redis_url, ca), FOR_TLS},
    {"cert", "ssl_certfile", offsetof(struct redis_url, cert), FOR_TLS},
    {"key", "ssl_keyfile", offsetof(struct redis_url, key), FOR_TLS},
    {"servername", "server_name", offsetof(struct redis_url, servername), FOR_TLS},
    {"sentinel_user", "sentinel_username", offsetof(struct redis_url, sentinel_user), FOR_SENTINEL},
    {"sentinel_password", "sentinel_password", offsetof(struct redis_url, sentinel_password), FOR_SENTINEL},
};

static bool is_word(const char *word, const char *from, const char *to)
{
    return strlen(word) == (size_t) (to - from) && memcmp(word, from, (size_t) (to - from)) == 0;
}

/* Says what is wrong with the option whose name is [from, to); never its value. */
static int bad_option(const struct reader *r, const char *from, const char *to, const char *what)
{
    char name[32];
    (void) snprintf(name, sizeof(name), "%.*s", (int) (to - from < 24 ? to - from : 24), from);
    for (char *c = name; *c != '\0'; c++) {
        *c = *c > ' ' && *c < 0x7f ? *c : '?';
    }
    return error_set(
        r->error, -EINVAL,
        "redis_url: option \"%s\" %s; options are db, protocol=2|3, for rediss ca, cert, key and servername, "
        "for sentinels sentinel_user and sentinel_password",
        name, what);
}

static int parse_option(const struct reader *r, const char *from, const char *to, struct redis_url *out)
{
    const char *equals = memchr(from, '=', (size_t) (to - from));
    if (equals == NULL) {
        return bad_option(r, from, from,
                          "has no '='"); /* the option may be the end of a password, so it is not shown */
    }
    if (is_word("db", from, equals)) {
        return number(equals + 1, to, 1000000, &out->database) ? 0 : bad_option(r, from, equals, "is not a number");
    }
    if (is_word("protocol", from, equals)) {
        const bool good = number(equals + 1, to, 3, &out->protocol) && out->protocol >= 2;
        return good ? 0 : bad_option(r, from, equals, "is neither 2 nor 3");
    }
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const struct option *option = &options[i];
        if (!is_word(option->name, from, equals) && !is_word(option->alias, from, equals)) {
            continue;
        }
        if (option->needs == FOR_TLS ? !out->tls : out->kind != REDIS_SENTINEL) {
            return bad_option(r, from, equals,
                              option->needs == FOR_TLS ? "is for rediss://" : "is for redis+sentinel://");
        }
        if (!decode_percent((char *) out + option->offset, URL_FIELD_SIZE, equals + 1, to) || equals + 1 == to) {
            return bad_option(r, from, equals, "is empty, too long, or holds a malformed %xx");
        }
        return 0;
    }
    return bad_option(r, from, equals, "is not known");
}

/* name=value&... */
static int parse_query(const struct reader *r, const char *query, const char *end, struct redis_url *out)
{
    while (query < end) {
        const char *ampersand = memchr(query, '&', (size_t) (end - query));
        const char *to = ampersand != NULL ? ampersand : end;
        const int result = parse_option(r, query, to, out);
        if (result != 0) {
            return result;
        }
        query = ampersand != NULL ? ampersand + 1 : end;
    }
    return 0;
}

/* Checks that need the complete URL. */
static int check_whole(const struct reader *r, const struct redis_url *url)
{
    if (url->kind == REDIS_CLUSTER && url->database != 0) {
        return bad(r, "a Cluster has database 0 alone");
    }
    if ((url->cert[0] == '\0') != (url->key[0] == '\0')) {
        return bad(r, url->cert[0] == '\0' ? "key= has no cert= beside it" : "cert= has no key= beside it");
    }
    if (url->sentinel_user[0] != '\0' && url->sentinel_password[0] == '\0') {
        return bad(r, "sentinel_user= has no sentinel_password= beside it");
    }
    return 0;
}

int url_parse(const char *text, struct redis_url *out, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    out->protocol = 2;
    struct reader r = {text, text + strlen(text), FORM_SERVER "; " FORM_SENTINEL, error};
    const char *rest = strstr(text, "://");
    if (rest == NULL) {
        return bad(&r, "there is no scheme");
    }
    const struct scheme *scheme = NULL;
    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        scheme = is_word(schemes[i].name, text, rest) ? &schemes[i] : scheme;
    }
    if (scheme == NULL) {
        return error_set(error, -EINVAL,
                         "redis_url: the scheme is not known; give redis://, rediss:// (with TLS), unix://, "
                         "redis+sentinel:// or redis+cluster://");
    }
    out->kind = scheme->kind;
    out->tls = scheme->tls;
    r.form = scheme->form;
    r.at = rest + 3;
    int result = parse_user(&r, out);
    const char *end = r.end;
    r.end = find_char(&r, '?');
    if (result == 0) {
        result = scheme->socket ? parse_socket(&r, out) : parse_seeds(&r, scheme->port, out);
    }
    if (result == 0 && !scheme->socket) {
        result = parse_path(&r, out);
    }
    if (result == 0 && r.end != end) {
        result = parse_query(&r, r.end + 1, end, out);
    }
    return result != 0 ? result : check_whole(&r, out);
}
