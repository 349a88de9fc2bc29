/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest password that the library takes. */
#define PASSWORD_MAX 255

/* The longest secret of a fleet that the library takes. */
#define SECRET_MAX 1024

/* Where scheme://user:password@rest has its user and its password; [x, x) where it has none. */
struct parts {
    const char *user, *user_end, *password, *password_end, *rest;
};

/* False: there is no scheme, and the library will say so. */
static bool find_parts(const char *url, struct parts *out)
{
    const char *scheme_end = strstr(url, "://");
    if (scheme_end == NULL) {
        return false;
    }
    const char *user = scheme_end + 3;
    const char *at = memrchr(user, '@', strcspn(user, "?"));
    *out = (struct parts){user, user, user, user, user};
    if (at != NULL) {
        const char *colon = memchr(user, ':', (size_t) (at - user));
        out->user_end = colon != NULL ? colon : at;
        out->password = colon != NULL ? colon + 1 : at;
        out->password_end = at;
        out->rest = at + 1;
    }
    return true;
}

/* Where a secret is read from: an option of the command line, and its file. */
struct origin {
    const char *option, *path;
};

static _Noreturn void fail(const struct origin *from, int code, const char *what)
{
    (void) fprintf(stderr, "weir-gateway: --%s %s: %s\n", from->option, from->path, what);
    exit(code);
}

/* The first line of a file, of at most `most` bytes. `out` has room for two more, and the terminator. */
static void read_line(const struct origin *from, size_t most, char *out)
{
    FILE *file = fopen(from->path, "re");
    if (file == NULL) {
        fail(from, 1, strerror(errno));
    }
    const size_t size = fread(out, 1, most + 2, file);
    const int error = ferror(file) ? errno : 0;
    (void) fclose(file);
    if (error != 0) {
        fail(from, 1, strerror(error));
    }
    out[size] = '\0';
    const size_t length = strcspn(out, "\r\n");
    if (length == 0) {
        fail(from, 1, "its first line is empty; give the secret there");
    }
    if (length > most) {
        char what[60];
        (void) snprintf(what, sizeof(what), "its first line is longer than %zu bytes", most);
        fail(from, 1, what);
    }
    out[length] = '\0';
}

char *secret_read(const char *option, const char *path)
{
    const struct origin from = {option, path};
    char line[SECRET_MAX + 3];
    read_line(&from, SECRET_MAX, line);
    char *out = strdup(line);
    explicit_bzero(line, sizeof(line));
    if (out == NULL) {
        fail(&from, 1, "out of memory");
    }
    return out;
}

char *secret_url(const char *url, const char *password_file)
{
    const struct origin from = {"redis-password-file", password_file};
    struct parts parts;
    if (!find_parts(url, &parts)) {
        return strdup(url);
    }
    if (parts.password != parts.password_end) {
        fail(&from, 2, "the URL of Redis has a password of its own; leave one of them out");
    }
    char password[PASSWORD_MAX + 3];
    read_line(&from, PASSWORD_MAX, password);
    const size_t size = strlen(url) + 3 * strlen(password) + 3;
    char *out = malloc(size);
    if (out == NULL) {
        fail(&from, 1, "out of memory");
    }
    size_t length = (size_t) snprintf(out, size, "%.*s:", (int) (parts.user_end - url), url);
    for (const char *c = password; *c != '\0'; c++) {
        length += (size_t) snprintf(out + length, size - length, isalnum((unsigned char) *c) ? "%c" : "%%%02x",
                                    (unsigned char) *c);
    }
    (void) snprintf(out + length, size - length, "@%s", parts.rest);
    explicit_bzero(password, sizeof(password));
    return out;
}

char *secret_take(char *url)
{
    char *copy = strdup(url);
    struct parts parts;
    if (copy != NULL && find_parts(url, &parts)) {
        memset(url + (parts.password - url), '*', (size_t) (parts.password_end - parts.password));
    }
    return copy;
}
