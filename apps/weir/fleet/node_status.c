/* SPDX-License-Identifier: Apache-2.0 */
/* See node_status.h. A request of HTTP/1.0, whose answer ends with the connection. */
#include "node_status.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/error.h"

/* How long one step may take: to connect, to be answered. A node that is slower is as good as gone. */
#define TIMEOUT_S 5

/* The most bytes of an answer: some kilobytes for each policy. */
#define ANSWER_MOST ((size_t) 16 << 20)

static bool fail(const char *address, const char *what, weir_error *error)
{
    return error_set(error, -EIO, "%.100s: %.120s", address, what) == 0;
}

/* The descriptor of a connection, or -1. */
static int connect_to(const char *address, weir_error *error)
{
    char host[NODE_STATUS_NAME_SIZE];
    const char *colon = strrchr(address, ':');
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct timeval timeout = {TIMEOUT_S, 0};
    struct addrinfo *found = NULL;
    if (colon == NULL || colon == address || (size_t) (colon - address) >= sizeof(host)) {
        (void) fail(address, "is no address of a node; give host:port", error);
        return -1;
    }
    const bool bracketed = *address == '[' && colon[-1] == ']';
    (void) snprintf(host, sizeof(host), "%.*s", (int) (colon - address) - (bracketed ? 2 : 0), address + bracketed);
    const int code = getaddrinfo(host, colon + 1, &hints, &found);
    if (code != 0) {
        (void) fail(address, gai_strerror(code), error);
        return -1;
    }
    int link = -1;
    for (const struct addrinfo *at = found; at != NULL && link < 0; at = at->ai_next) {
        link = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, 0);
        const bool good = link >= 0 && setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) == 0 &&
                          setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) == 0 &&
                          connect(link, at->ai_addr, at->ai_addrlen) == 0;
        if (!good) {
            (void) fail(address, errno == EINPROGRESS ? "no answer" : strerror(errno), error);
            if (link >= 0) {
                (void) close(link);
            }
            link = -1;
        }
    }
    freeaddrinfo(found);
    return link;
}

/* The whole answer, terminated. NULL: there is none. The caller frees it. */
static char *read_answer(int link, const char *address, weir_error *error)
{
    size_t size = 0;
    size_t room = 65536;
    char *text = malloc(room);
    ssize_t got = text != NULL ? 1 : -1;
    while (got > 0 && size < ANSWER_MOST) {
        if (size + 1 == room) {
            room *= 2;
            char *larger = realloc(text, room);
            if (larger == NULL) {
                break;
            }
            text = larger;
        }
        got = recv(link, text + size, room - size - 1, 0);
        size += got > 0 ? (size_t) got : 0;
    }
    if (got != 0) {
        (void) fail(address, got > 0 ? "the answer is too large" : "no answer", error);
        free(text);
        return NULL;
    }
    text[size] = '\0';
    return text;
}

/* The beginning of a line behind `begin`; NULL: no line begins so. */
static const char *find_line(const char *text, const char *begin)
{
    const size_t length = strlen(begin);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, begin, length) == 0) {
            return line + length;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return NULL;
}

static void copy_to_quote(char *out, size_t size, const char *from)
{
    const size_t length = from != NULL ? strcspn(from, "\"\n") : 0;
    (void) snprintf(out, size, "%.*s", (int) (length < size ? length : size - 1), from != NULL ? from : "");
}

/* The outage mode whose gauge is 1. */
static void find_mode(struct node_status *out, const char *text, const char *policy)
{
    static const char *const modes[] = {"fleet", "share", "local", "open", "closed"};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char begin[WEIR_MAX_NAME + 64];
        (void) snprintf(begin, sizeof(begin), "weir_outage_mode{policy=\"%s\",mode=\"%s\"} ", policy, modes[i]);
        const char *value = find_line(text, begin);
        if (value != NULL && *value == '1') {
            (void) snprintf(out->outage_mode, sizeof(out->outage_mode), "%s", modes[i]);
        }
    }
}

bool node_status_read(struct node_status *out, const char *text, const char *policy, weir_error *error)
{
    const char *node = find_line(text, "weir_node_info{node=\"");
    const char *name = node != NULL ? strstr(node, "\",name=\"") : NULL;
    if (name == NULL) {
        return fail(out->address, "its /metrics are no metrics of a node with Redis", error);
    }
    copy_to_quote(out->id, sizeof(out->id), node);
    copy_to_quote(out->name, sizeof(out->name), name + strlen("\",name=\""));
    find_mode(out, text, policy);
    const char *up = find_line(text, "weir_redis_up ");
    const char *age = find_line(text, "weir_fleet_age_seconds ");
    out->redis_up = up != NULL && *up == '1';
    out->fleet_age_s = age != NULL ? strtod(age, NULL) : -1;
    if (!isfinite(out->fleet_age_s)) {
        out->fleet_age_s = -1;
    }
    return true;
}

bool node_status_ask(struct node_status *out, const char *address, const char *policy, weir_error *error)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\nConnection: close\r\n\r\n";
    *out = (struct node_status){.fleet_age_s = -1};
    (void) snprintf(out->address, sizeof(out->address), "%s", address);
    const int link = connect_to(address, error);
    if (link < 0) {
        return false;
    }
    const bool sent = send(link, request, sizeof(request) - 1, MSG_NOSIGNAL) == (ssize_t) sizeof(request) - 1;
    char *text = sent ? read_answer(link, address, error) : NULL;
    if (!sent) {
        (void) fail(address, strerror(errno), error);
    }
    (void) close(link);
    const bool good = text != NULL && node_status_read(out, text, policy, error);
    free(text);
    return good;
}
