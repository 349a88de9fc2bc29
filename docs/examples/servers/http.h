/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As much of HTTP/1.1 (RFC 9112) as the servers of this folder need: the head of a request, the head of an answer; a
 * listening socket. A request with a body may have a Content-Length; the servers skip the body. What this parser does
 * not understand it refuses, as a request that two programs read differently is how requests are smuggled.
 */
#ifndef HTTP_H
#define HTTP_H

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HTTP_HEAD_MAX   8192      /* bytes of a request's head */
#define HTTP_BODY_MAX   (1 << 20) /* bytes of a request's body */
#define HTTP_ANSWER_MAX 2048      /* bytes that one answer of these servers has at most */

struct http_request {
    size_t head_size; /* with the empty line */
    size_t body_size;
    bool head;       /* the method is HEAD: the answer has no body */
    bool keep_alive; /* the client may send another request */
};

/*
 * A listening socket at the port, at which other threads and processes may have one as well; of IPv6 with IPv4, else of
 * IPv4 alone. *port 0: any that is free. -1: errno says why.
 */
static inline int http_listen(uint16_t *port)
{
    const int on = 1, off = 0;
    struct sockaddr_in6 at6 = {.sin6_family = AF_INET6, .sin6_port = htons(*port)};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(*port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool is_6 = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
    struct sockaddr *at = is_6 ? (struct sockaddr *) &at6 : (struct sockaddr *) &at4;
    socklen_t size = is_6 ? sizeof at6 : sizeof at4;
    fd = fd >= 0 ? fd : socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0 || bind(fd, at, size) != 0 ||
        listen(fd, SOMAXCONN) != 0 || getsockname(fd, at, &size) != 0) {
        const int problem = errno;
        (void) (fd >= 0 ? close(fd) : 0);
        errno = problem;
        return -1;
    }
    *port = ntohs(is_6 ? at6.sin6_port : at4.sin_port);
    return fd;
}

static inline bool http_is_word(const char *begin, const char *end)
{
    for (const char *c = begin; c < end; c++) {
        if (*c <= ' ' || *c == 127 || strchr("\"(),/:;<=>?@[\\]{}", *c) != NULL) {
            return false;
        }
    }
    return begin < end;
}

/* "GET /path HTTP/1.1". Returns 0 or a status. */
static inline int http_request_line(const char *begin, const char *end, struct http_request *request, bool *is_11)
{
    const char *space = (const char *) memchr(begin, ' ', (size_t) (end - begin));
    if (space == NULL || !http_is_word(begin, space) || (space[1] != '/' && space[1] != '*')) {
        return 400;
    }
    const char *target = space + 1;
    const char *behind = (const char *) memchr(target, ' ', (size_t) (end - target));
    if (behind == NULL || end - behind != 9 || memcmp(behind, " HTTP/", 6) != 0) {
        return 400;
    }
    for (const char *c = target; c < behind; c++) {
        if ((unsigned char) *c < ' ' || *c == 127) {
            return 400;
        }
    }
    if (memcmp(behind + 6, "1.0", 3) != 0 && memcmp(behind + 6, "1.1", 3) != 0) {
        return 505;
    }
    request->head = space - begin == 4 && memcmp(begin, "HEAD", 4) == 0;
    request->keep_alive = *is_11 = behind[8] == '1';
    return 0;
}

static inline bool http_is(const char *begin, const char *end, const char *word)
{
    return (size_t) (end - begin) == strlen(word) && strncasecmp(begin, word, strlen(word)) == 0;
}

/* One field, "Name: value". Returns 0 or a status. */
static inline int http_field(const char *begin, const char *end, struct http_request *request, int *hosts, int *lengths)
{
    const char *colon = (const char *) memchr(begin, ':', (size_t) (end - begin));
    if (colon == NULL || !http_is_word(begin, colon) || memchr(begin, '\0', (size_t) (end - begin)) != NULL ||
        memchr(begin, '\n', (size_t) (end - begin)) != NULL) {
        return 400; /* a space before the colon, or a line that goes on with the last one, too */
    }
    const char *value = colon + 1;
    value += strspn(value, " \t");
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    if (http_is(begin, colon, "host")) {
        (*hosts)++;
    } else if (http_is(begin, colon, "transfer-encoding")) {
        return 501;
    } else if (http_is(begin, colon, "connection")) {
        request->keep_alive = http_is(value, end, "close") ? false : request->keep_alive;
    } else if (http_is(begin, colon, "content-length")) {
        request->body_size = 0;
        for (const char *c = value; c < end; c++) {
            if (*c < '0' || *c > '9') {
                return 400;
            }
            request->body_size = request->body_size * 10 + (size_t) (*c - '0');
            if (request->body_size > HTTP_BODY_MAX) {
                return 413;
            }
        }
        return value == end || (*lengths)++ != 0 ? 400 : 0;
    }
    return 0;
}

/*
 * The head of the request that `bytes` begin with. Returns 200; 0: there is more to come; else the status to refuse the
 * request with, after which the connection is to be closed.
 */
static inline int http_parse(const char *bytes, size_t size, struct http_request *request)
{
    const char *end = (const char *) memmem(bytes, size, "\r\n\r\n", 4);
    if (end == NULL) {
        return size >= HTTP_HEAD_MAX ? 431 : 0;
    }
    int hosts = 0, lengths = 0;
    bool is_11 = false;
    memset(request, 0, sizeof *request);
    request->head_size = (size_t) (end - bytes) + 4;
    for (const char *line = bytes; line < end + 2;) {
        const char *next = (const char *) memmem(line, (size_t) (end + 2 - line), "\r\n", 2);
        const int status = line == bytes ? http_request_line(line, next, request, &is_11)
                                         : http_field(line, next, request, &hosts, &lengths);
        if (status != 0) {
            return status;
        }
        line = next + 2;
    }
    return hosts > 1 || (is_11 && hosts == 0) ? 400 : 200;
}

static inline const char *http_reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 413:
        return "Content Too Large";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Error";
    }
}

/* Writes an answer; `fields` are more lines of its head, such as weir_write_headers makes. Returns its bytes. */
static inline size_t http_answer(char out[HTTP_ANSWER_MAX], const struct http_request *request, int status,
                                 const char *fields)
{
    char date[64], body[64];
    struct tm utc;
    const time_t now = time(NULL);
    (void) strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &utc));
    const int body_size = snprintf(body, sizeof body, "%s\n", status == 200 ? "served" : http_reason(status));
    const int size =
        snprintf(out, HTTP_ANSWER_MAX,
                 "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s%s\r\n%s", status,
                 http_reason(status), date, body_size, fields, request->keep_alive ? "" : "Connection: close\r\n",
                 request->head ? "" : body);
    return size > 0 && size < HTTP_ANSWER_MAX ? (size_t) size : 0;
}

#endif
