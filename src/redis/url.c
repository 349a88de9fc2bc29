/* SPDX-License-Identifier: Apache-2.0 */
#include "redis/url.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define EXPECTED "give redis://[user:password@]host[:port][/database] or unix://[user:password@]/path[?db=database]"

static int bad(weir_error *error, const char *what)
{
    return error_set(error, -EINVAL, "redis_url: %s; " EXPECTED, what);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Copies [from, to) with %xx undone. False: too long, or not well-formed. */
static bool decode(char *out, size_t size, const char *from, const char *to)
{
    size_t at = 0;
    for (; from < to; from++) {
        char c = *from;
        if (c == '%') {
            const int high = to - from > 2 ? hex_digit(from[1]) : -1;
            const int low = high >= 0 ? hex_digit(from[2]) : -1;
            if (low < 0 || high * 16 + low == 0) {
                return false;
            }
            c = (char) (high * 16 + low);
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

/* user[:password] */
static int parse_user(const char *from, const char *to, struct redis_url *out, weir_error *error)
{
    const char *colon = memchr(from, ':', (size_t) (to - from));
    const char *user_end = colon != NULL ? colon : to;
    if (!decode(out->user, sizeof(out->user), from, user_end)) {
        return bad(error, "the user is too long or holds a malformed %xx");
    }
    if (colon != NULL && !decode(out->password, sizeof(out->password), colon + 1, to)) {
        return bad(error, "the password is too long or holds a malformed %xx");
    }
    if (out->password[0] == '\0') {
        return bad(error, "there is a user without a password");
    }
    return 0;
}

/* host[:port][/database] */
static int parse_tcp(const char *rest, struct redis_url *out, weir_error *error)
{
    const char *end = rest + strlen(rest);
    const char *slash = strchr(rest, '/');
    const char *place_end = slash != NULL ? slash : end;
    const char *host = rest;
    const char *host_end = place_end;
    const char *after = place_end;
    if (*rest == '[') {
        host++;
        host_end = memchr(host, ']', (size_t) (place_end - host));
        if (host_end == NULL) {
            return bad(error, "the address has a '[' without its ']'");
        }
        after = host_end + 1;
    } else {
        const char *colon = memchr(rest, ':', (size_t) (place_end - rest));
        if (colon != NULL) {
            host_end = after = colon;
        }
    }
    if (host == host_end || !decode(out->host, sizeof(out->host), host, host_end)) {
        return bad(error, host == host_end ? "there is no host" : "the host is too long or malformed");
    }
    int port = 6379;
    if (after != place_end && (*after != ':' || !number(after + 1, place_end, 65535, &port) || port == 0)) {
        return bad(error, "the port is not a number from 1 to 65535");
    }
    (void) snprintf(out->port, sizeof(out->port), "%d", port);
    if (slash != NULL && slash + 1 != end && !number(slash + 1, end, 1000000, &out->database)) {
        return bad(error, "the database is not a number");
    }
    return 0;
}

/* /path[?db=database] */
static int parse_socket(const char *rest, struct redis_url *out, weir_error *error)
{
    const char *end = rest + strlen(rest);
    const char *query = strchr(rest, '?');
    const char *path_end = query != NULL ? query : end;
    if (*rest != '/') {
        return bad(error, "the socket's path does not begin with '/'");
    }
    if (!decode(out->path, sizeof(out->path), rest, path_end)) {
        return bad(error, "the socket's path is longer than 107 bytes or malformed");
    }
    if (query != NULL && (strncmp(query, "?db=", 4) != 0 || !number(query + 4, end, 1000000, &out->database))) {
        return bad(error, "what follows the '?' is not db= and a number");
    }
    return 0;
}

int redis_url_parse(const char *text, struct redis_url *out, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    const char *rest = strstr(text, "://");
    if (rest == NULL) {
        return bad(error, "there is no scheme");
    }
    const size_t scheme_size = (size_t) (rest - text);
    rest += 3;
    const bool tcp = scheme_size == 5 && strncmp(text, "redis", 5) == 0;
    const bool local = scheme_size == 4 && strncmp(text, "unix", 4) == 0;
    if (scheme_size == 6 && strncmp(text, "rediss", 6) == 0) {
        return bad(error, "rediss:// asks for TLS, which this build does not speak");
    }
    if (!tcp && !local) {
        return bad(error, "the scheme is neither redis:// nor unix://");
    }
    /* The last @ ends the user: a path or a database cannot hold one, a careless password can. */
    const char *at = strrchr(rest, '@');
    if (at != NULL) {
        const int result = parse_user(rest, at, out, error);
        if (result != 0) {
            return result;
        }
        rest = at + 1;
    }
    return tcp ? parse_tcp(rest, out, error) : parse_socket(rest, out, error);
}
