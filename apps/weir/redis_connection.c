/* SPDX-License-Identifier: Apache-2.0 */
/* See redis_connection.h. */
#include "redis_connection.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "transport/redis/socket.h"
#include "transport/redis/tls.h"

/* How long one step may take: to connect, to be answered. A server that is slower is as good as gone. */
#define TIMEOUT_MS 5000

/* Bytes of an answer: the notes of all overrides have the most. */
#define ANSWER_MAX ((size_t) 256 << 20)

static int64_t clock_ms(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct redis_connection *redis_connection_make(const struct redis_url *url, const char *host, const char *port,
                                               bool sentinel)
{
    struct redis_connection *made = calloc(1, sizeof(*made));
    struct socket *sock = calloc(1, sizeof(*sock));
    if (made == NULL || sock == NULL) {
        free(made);
        free(sock);
        return NULL;
    }
    made->socket = sock;
    socket_init(made->socket);
    made->socket->unread_max = ANSWER_MAX;
    made->sentinel = sentinel;
    (void) snprintf(made->host, sizeof(made->host), "%s", host);
    (void) snprintf(made->port, sizeof(made->port), "%s", port);
    (void) snprintf(made->name, sizeof(made->name), "%s at %s%s%s", sentinel ? "the Sentinel" : "Redis",
                    *host != '\0' ? host : url->path, *host != '\0' ? ":" : "", *host != '\0' ? port : "");
    return made;
}

void redis_connection_free(struct redis_connection *connection)
{
    if (connection != NULL) {
        socket_free(connection->socket);
        free(connection->socket);
    }
    free(connection);
}

void redis_connection_fail(const struct redis_connection *connection, const redisReply *reply, weir_error *error)
{
    (void) error_set(error, -EIO, "%s: %s", connection->name, reply->str != NULL ? reply->str : "");
}

/* Sets why the connection is lost, and closes it. */
static void fail(struct redis_connection *c, int result, weir_error *error)
{
    const char *tls = tls_problem(c->socket->tls);
    const char *why = tls != NULL             ? tls
                      : result == -EPROTO     ? "an answer that is not Redis's protocol"
                      : result == -ECONNRESET ? "the server has closed the connection"
                                              : strerror(-result);
    (void) snprintf(c->lost, sizeof(c->lost), "%s", why);
    (void) error_set(error, -ENOTCONN, "%s: %s", c->name, why);
    socket_close(c->socket);
}

/* Sets why the connection was lost before. Returns false. */
static bool fail_again(const struct redis_connection *c, weir_error *error)
{
    return error_set(error, -ENOTCONN, "%s: %s", c->name, c->lost) == 0;
}

/* Waits until the socket can go on. False: the time is over, which is why the connection is lost. */
static bool await(struct redis_connection *c, int64_t end_ms, weir_error *error)
{
    struct pollfd fd;
    const int64_t left_ms = end_ms - clock_ms();
    socket_wait_for(c->socket, &fd);
    if (left_ms <= 0) {
        fail(c, -ETIMEDOUT, error);
        return false;
    }
    (void) poll(&fd, 1, (int) left_ms);
    return true;
}

static bool connect_socket(struct redis_connection *c, const struct redis_url *url, struct tls_context *tls,
                           weir_error *error)
{
    struct socket_target target = {.host = c->host, .port = c->port, .tls = tls};
    target.path = c->host[0] == '\0' ? url->path : NULL;
    target.name = url->servername[0] != '\0' ? url->servername : c->host;
    int result = socket_open(c->socket, &target);
    if (result != 0) {
        (void) error_set(error, -ENOTCONN, "%s: cannot connect: %s", c->name, socket_failure(c->socket, result));
        return false;
    }
    const int64_t end_ms = clock_ms() + TIMEOUT_MS;
    while ((result = socket_connected(c->socket)) == -EINPROGRESS) {
        if (!await(c, end_ms, error)) {
            return false;
        }
    }
    if (result != 0) {
        fail(c, result, error);
        (void) error_set(error, -ENOTCONN, "%s: cannot connect: %s", c->name, c->lost);
    }
    return result == 0;
}

/* Queues a command. False: out of memory, and `error` has a sentence. */
static bool send_command(struct redis_connection *c, int argc, const char **argv, weir_error *error)
{
    size_t lengths[32];
    for (int i = 0; i < argc; i++) {
        lengths[i] = strlen(argv[i]);
    }
    if (c->socket->fd < 0) {
        return fail_again(c, error);
    }
    const int result = socket_command(c->socket, &(struct command){argc, argv, lengths});
    if (result != 0) {
        fail(c, result, error);
    }
    return result == 0;
}

/* The answer to a command. NULL: the connection is lost, and `error` has a sentence. */
static redisReply *receive(struct redis_connection *c, weir_error *error)
{
    const int64_t end_ms = clock_ms() + TIMEOUT_MS;
    while (c->socket->fd >= 0) {
        /* The reply is hiredis's own: no reply of this socket is given to socket_free_reply. */
        redisReply *reply = NULL;
        int result = socket_flush(c->socket);
        result = result == 0 ? socket_reply(c->socket, &reply) : result;
        if (result > 0) {
            return reply;
        }
        if (result < 0) {
            fail(c, result, error);
            return NULL;
        }
        if (!await(c, end_ms, error)) {
            return NULL;
        }
    }
    (void) fail_again(c, error);
    return NULL;
}

redisReply *redis_connection_ask(struct redis_connection *c, int argc, const char **argv, weir_error *error)
{
    return send_command(c, argc, argv, error) ? receive(c, error) : NULL;
}

/* Sends a command of the greeting. False: it is refused. */
static bool greet(struct redis_connection *c, int argc, const char **argv, weir_error *error)
{
    redisReply *reply = redis_connection_ask(c, argc, argv, error);
    const bool good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply != NULL && !good) {
        redis_connection_fail(c, reply, error);
    }
    freeReplyObject(reply);
    return good;
}

static bool log_in(struct redis_connection *c, const struct redis_url *url, weir_error *error)
{
    const char *user = c->sentinel ? url->sentinel_user : url->user;
    const char *password = c->sentinel ? url->sentinel_password : url->password;
    if (password[0] != '\0') {
        const bool named = user[0] != '\0';
        const char *login[] = {"AUTH", named ? user : password, password};
        if (!greet(c, named ? 3 : 2, login, error)) {
            return false;
        }
    }
    char number[16];
    (void) snprintf(number, sizeof(number), "%d", url->database);
    const char *choose[] = {"SELECT", number};
    return url->database == 0 || c->sentinel || greet(c, 2, choose, error);
}

/* Of TLS the handshake is then over: a host whose certificate is not good is passed over for the next one. */
static bool shake_hands(struct redis_connection *c, weir_error *error)
{
    const char *ping[] = {"PING"};
    redisReply *reply = redis_connection_ask(c, 1, ping, error);
    const bool good = reply != NULL;
    freeReplyObject(reply); /* an error, such as that of a user without the right, is an answer */
    return good;
}

bool redis_connection_open(struct redis_connection *c, const struct redis_url *url, struct tls_context *tls,
                           weir_error *error)
{
    if (c->socket->fd >= 0) {
        return true;
    }
    const bool good =
        connect_socket(c, url, tls, error) && (tls == NULL || shake_hands(c, error)) && log_in(c, url, error);
    if (!good) {
        socket_close(c->socket);
    }
    return good;
}
