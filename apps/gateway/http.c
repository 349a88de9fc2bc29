/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP: the pages, and how many connections there may be.
 *
 * Each connection ends with its answer. Where there are many, a new one takes the place of the oldest: clients that
 * send a byte now and then keep nobody out, however many they are and whatever address they share. No time limit would
 * do: the time-out of libmicrohttpd is of silence alone, and a limit per address would shut out all that come through
 * one proxy.
 *
 * One thread of libmicrohttpd's runs all callbacks; the list of connections is touched by that thread alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <microhttpd.h>

#include "gateway.h"
#include "status.h"

/* So many connections stay; the rest of GATEWAY_HTTP_CONNECTIONS is for those that are about to end. */
#define KEPT_MAX 24

struct connection {
    bool used, ending;
    int fd;
    uint64_t turn; /* smaller than that of any that began later */
};

struct http {
    struct MHD_Daemon *daemon;
    struct gateway *gateway;
    uint64_t turns;
    struct connection connections[GATEWAY_HTTP_CONNECTIONS];
};

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned code, const char *type, struct text text)
{
    struct MHD_Response *response =
        text.bytes != NULL ? MHD_create_response_from_buffer(text.length, text.bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL) {
        free(text.bytes);
        return MHD_NO;
    }
    (void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void) MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void) MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    const enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_words(struct MHD_Connection *connection, unsigned code, const char *words)
{
    return answer(connection, code, "text/plain", (struct text){.bytes = strdup(words), .length = strlen(words)});
}

/* The page is constant, and permits its own script and style by their hashes. */
static enum MHD_Result answer_page(struct MHD_Connection *connection)
{
    size_t length;
    const char *page = weir_status_page(&length);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, (void *) (uintptr_t) page, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        return MHD_NO;
    }
    (void) MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/html; charset=utf-8");
    (void) MHD_add_response_header(response, "Content-Security-Policy", "frame-ancestors 'none'");
    (void) MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    const enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* The status in a format: "json" and "table", else the page. */
static enum MHD_Result answer_status(struct gateway *gateway, struct MHD_Connection *connection, const char *format)
{
    if (gateway->weir == NULL) {
        return answer_words(connection, MHD_HTTP_NOT_FOUND, "nothing is limited: the gateway has no --policies\n");
    }
    if (format != NULL && strcmp(format, "json") == 0) {
        return answer(connection, MHD_HTTP_OK, "application/json", write_weir_status(gateway));
    }
    if (format != NULL && strcmp(format, "table") == 0) {
        return answer(connection, MHD_HTTP_OK, "text/html; charset=utf-8", write_status_table(gateway));
    }
    return answer_page(connection);
}

/* "/": the status for a browser, and for all others a list. */
static enum MHD_Result answer_root(struct gateway *gateway, struct MHD_Connection *connection, const char *format)
{
    static const char list[] = "weir-gateway\n"
                               "/metrics      Prometheus text\n"
                               "/status       JSON: packets and policies\n"
                               "/status.html  a page for people\n"
                               "/status.json  JSON: the limiter and its fleet\n"
                               "/healthz      whether it serves\n";
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const bool browser = accept != NULL && strstr(accept, "text/html") != NULL;
    return gateway->weir != NULL && (browser || format != NULL) ? answer_status(gateway, connection, format)
                                                                : answer_words(connection, MHD_HTTP_OK, list);
}

static enum MHD_Result handle(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_size, void **state)
{
    struct gateway *gateway = ((struct http *) arg)->gateway;
    const char *format = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "format");
    (void) version;
    (void) body;
    (void) body_size;
    (void) state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return answer_words(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET only\n");
    }
    if (strcmp(url, "/metrics") == 0) {
        return answer(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", write_metrics(gateway));
    }
    if (strcmp(url, "/status") == 0) {
        return answer(connection, MHD_HTTP_OK, "application/json", write_status(gateway));
    }
    if (strcmp(url, "/status.json") == 0) {
        return answer_status(gateway, connection, "json");
    }
    if (strcmp(url, "/status.html") == 0) {
        return answer_status(gateway, connection, format);
    }
    if (strcmp(url, "/healthz") == 0) {
        const bool serves = !atomic_load(&gateway->stopping) && !atomic_load(&gateway->failed);
        return serves ? answer_words(connection, MHD_HTTP_OK, "ok\n")
                      : answer_words(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "stopping\n");
    }
    if (strcmp(url, "/") == 0) {
        return answer_root(gateway, connection, format);
    }
    return answer_words(connection, MHD_HTTP_NOT_FOUND, "there is nothing here; / lists what there is\n");
}

/* Ends the oldest connection where there are too many. */
static void make_room(struct http *http)
{
    struct connection *oldest = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < GATEWAY_HTTP_CONNECTIONS; i++) {
        struct connection *connection = &http->connections[i];
        if (connection->used && !connection->ending) {
            kept++;
            oldest = oldest == NULL || connection->turn < oldest->turn ? connection : oldest;
        }
    }
    if (kept > KEPT_MAX) {
        oldest->ending = true;
        (void) shutdown(oldest->fd, SHUT_RDWR); /* libmicrohttpd finds it ended, and closes it */
    }
}

static void connection_changed(void *arg, struct MHD_Connection *mhd, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct http *http = arg;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct connection *connection = *context;
        if (connection != NULL) {
            *connection = (struct connection){.used = false};
        }
        return;
    }
    *context = NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    for (size_t i = 0; i < GATEWAY_HTTP_CONNECTIONS && info != NULL; i++) {
        struct connection *connection = &http->connections[i];
        if (!connection->used) {
            *connection = (struct connection){.used = true, .fd = info->connect_fd, .turn = ++http->turns};
            *context = connection;
            break;
        }
    }
    make_room(http);
}

/* What a socket from elsewhere may lack. Returns it, or -1: errno says why not. */
static int take(int fd)
{
    const int flags = fcntl(fd, F_GETFL);
    const bool good = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
    return good ? fd : -1;
}

/* A socket that listens; -1: errno says why not. */
static int listen_at(const struct address *address)
{
    const int fd = socket(address->u.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    const int on = 1;
    const int off = 0;
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->u.any.sa_family == AF_INET6) {
        (void) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* IPv4 as well */
    }
    if (bind(fd, &address->u.any, address->length) != 0 || listen(fd, SOMAXCONN) != 0) {
        const int error = errno;
        (void) close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

struct http *http_start(struct gateway *gateway, const struct address *address, int handed)
{
    struct http *http = calloc(1, sizeof(*http));
    const int fd = http == NULL ? -1 : handed >= 0 ? take(handed) : listen_at(address);
    if (fd < 0) {
        const int error = errno;
        free(http);
        errno = error;
        return NULL;
    }
    http->gateway = gateway;
    /*
     * AUTO is epoll or poll. The default is select, which cannot hold a descriptor above 1023: clients have those. With
     * ITC the daemon ends without a shutdown of its socket, which others may have as well.
     */
    http->daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, handle, http,
                                    MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_TIMEOUT, 10U,
                                    MHD_OPTION_CONNECTION_LIMIT, (unsigned) GATEWAY_HTTP_CONNECTIONS,
                                    MHD_OPTION_NOTIFY_CONNECTION, connection_changed, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        (void) close(fd);
        free(http);
        errno = ENOMEM;
        return NULL;
    }
    return http;
}

void http_stop(struct http *http)
{
    if (http != NULL) {
        MHD_stop_daemon(http->daemon);
        free(http);
    }
}
