/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_link.h. */
#include "redis_link.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* How long one step may take: to connect, to be answered. A server that is slower is as good as gone. */
#define TIMEOUT_S 5

/* The most redirections of one command: Clusters need one, and two while a slot moves. */
#define MOVES_MOST 5

static void fail_link(struct redis_link *link, weir_error *error)
{
    const bool none = link->context == NULL;
    (void) error_set(error, -EIO, "Redis at %s: %s", link->server, none ? "out of memory" : link->context->errstr);
}

static void fail_answer(const struct redis_link *link, const redisReply *reply, weir_error *error)
{
    const bool wrong_type = reply->str != NULL && strncmp(reply->str, "WRONGTYPE ", 10) == 0;
    (void) error_set(error, wrong_type ? -EPROTOTYPE : -EIO, "Redis at %s: %s", link->server,
                     reply->str != NULL ? reply->str : "");
}

/* Sends a command. NULL: no answer. */
static redisReply *ask(struct redis_link *link, int argc, const char **argv)
{
    return redisCommandArgv(link->context, argc, argv, NULL);
}

/* Sends a command of the greeting. False: it is refused. */
static bool greet(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    redisReply *reply = ask(link, argc, argv);
    const bool good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply == NULL) {
        fail_link(link, error);
    } else if (!good) {
        fail_answer(link, reply, error);
    }
    freeReplyObject(reply);
    return good;
}

static bool log_in(struct redis_link *link, weir_error *error)
{
    const struct redis_url *url = &link->url;
    if (url->password[0] != '\0') {
        const bool named = url->user[0] != '\0';
        const char *login[] = {"AUTH", named ? url->user : url->password, url->password};
        if (!greet(link, named ? 3 : 2, login, error)) {
            return false;
        }
    }
    char number[16];
    (void) snprintf(number, sizeof(number), "%d", url->database);
    const char *choose[] = {"SELECT", number};
    return url->database == 0 || greet(link, 2, choose, error);
}

/* Connects to a host, or with host NULL to the URL's socket, in the place of the connection that there is. */
static bool connect_to(struct redis_link *link, const char *host, const char *port, weir_error *error)
{
    const struct timeval timeout = {TIMEOUT_S, 0};
    redisFree(link->context);
    if (host == NULL) {
        (void) snprintf(link->server, sizeof(link->server), "%s", link->url.path);
        link->context = redisConnectUnixWithTimeout(link->url.path, timeout);
    } else {
        (void) snprintf(link->server, sizeof(link->server), "%s:%s", host, port);
        link->context =
            redisConnectWithTimeout(host, atoi(port), timeout); /* NOLINT(cert-err34-c): url_parse has read it */
    }
    if (link->context == NULL || link->context->err != 0 || redisSetTimeout(link->context, timeout) != REDIS_OK) {
        fail_link(link, error);
        return false;
    }
    return log_in(link, error);
}

/* Connects to the first host of the URL from `first` on that answers. Returns its number; the count of them: none does.
 */
static size_t connect_from(struct redis_link *link, size_t first, weir_error *error)
{
    const struct redis_url *url = &link->url;
    if (url->seed_count == 0) {
        return connect_to(link, NULL, NULL, error) ? 0 : 1;
    }
    size_t seed = first;
    while (seed < url->seed_count && !connect_to(link, url->seeds[seed].host, url->seeds[seed].port, error)) {
        seed++;
    }
    return seed;
}

enum redis_link_result redis_link_open(struct redis_link *out, const char *url, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    if (url_parse(url, &out->url, error) != 0) {
        return REDIS_LINK_URL;
    }
    if (out->url.tls || out->url.kind == REDIS_SENTINEL) {
        (void) error_set(error, -EIO,
                         "redis_url: this command takes no %s; give the primary as redis://host:port, or unix:///path",
                         out->url.tls ? "TLS" : "Sentinel");
        return REDIS_LINK_URL;
    }
    const size_t count = out->url.seed_count != 0 ? out->url.seed_count : 1;
    return connect_from(out, 0, error) < count ? REDIS_LINK_GOOD : REDIS_LINK_FAILED;
}

static bool is_error(const redisReply *reply, const char *kind)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, kind, strlen(kind)) == 0;
}

/* Connects to where "MOVED slot host:port" leads. */
static bool follow(struct redis_link *link, const redisReply *reply, weir_error *error)
{
    char host[URL_FIELD_SIZE];
    const char *at = strrchr(reply->str, ' ');
    const char *colon = at != NULL ? strrchr(at, ':') : NULL;
    if (colon == NULL || colon - at - 1 >= (ptrdiff_t) sizeof(host)) {
        fail_answer(link, reply, error);
        return false;
    }
    /* Without a host it is the one that has answered. */
    const char *own = link->context->tcp.host != NULL ? link->context->tcp.host : "127.0.0.1";
    (void) snprintf(host, sizeof(host), "%.*s", (int) (colon - at - 1), at + 1);
    if (host[0] == '\0') {
        (void) snprintf(host, sizeof(host), "%s", own);
    }
    return connect_to(link, host, colon + 1, error);
}

redisReply *redis_link_try(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    size_t next = 1; /* host of the URL */
    for (unsigned moves = 0;;) {
        redisReply *reply = ask(link, argc, argv);
        if (reply == NULL) {
            fail_link(link, error);
            return NULL;
        }
        bool again;
        if (is_error(reply, "MOVED ") && moves++ < MOVES_MOST) {
            again = follow(link, reply, error);
        } else if (is_error(reply, "READONLY") && next < link->url.seed_count) {
            next = connect_from(link, next, error) + 1;
            again = next <= link->url.seed_count;
        } else {
            return reply;
        }
        freeReplyObject(reply);
        if (!again) {
            return NULL;
        }
    }
}

redisReply *redis_link_call(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    redisReply *reply = redis_link_try(link, argc, argv, error);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        fail_answer(link, reply, error);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

bool redis_link_send(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    const bool good = redisAppendCommandArgv(link->context, argc, argv, NULL) == REDIS_OK;
    if (!good) {
        fail_link(link, error);
    }
    return good;
}

redisReply *redis_link_receive(struct redis_link *link, weir_error *error)
{
    void *reply = NULL;
    if (redisGetReply(link->context, &reply) != REDIS_OK) {
        fail_link(link, error);
        return NULL;
    }
    return reply;
}

bool redis_link_is_wrong_type(const weir_error *error)
{
    return error->code == -EPROTOTYPE;
}

char *redis_link_take_url(const char *given)
{
    const char *url = given != NULL ? given : getenv("WEIR_REDIS_URL");
    char *copy = url != NULL && *url != '\0' ? strdup(url) : NULL;
    char *rest = given != NULL ? strstr(given, "://") : NULL;
    if (rest != NULL) {
        memset(rest + 3, '*', strlen(rest + 3));
    }
    return copy;
}

void redis_link_drop_url(char *url)
{
    if (url != NULL) {
        explicit_bzero(url, strlen(url));
    }
    free(url);
}

void redis_link_close(struct redis_link *link)
{
    redisFree(link->context);
    explicit_bzero(link, sizeof(*link));
}
