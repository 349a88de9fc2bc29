/* SPDX-License-Identifier: Apache-2.0 */
/* See activation.h. The protocol is written out here for the reasons of notify.c. */
#include "activation.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The first descriptor that is handed over, SD_LISTEN_FDS_START. */
#define FIRST_FD 3

/* Descriptors that may be handed over: as many as all listeners have threads. */
#define FDS_MAX 1024L

/* The name by which a unit's socket is that of the pages, and not of another program. */
#define METRICS_NAME "metrics"

/* A socket that is handed over. */
struct handed {
    int fd;
    char name[64]; /* FileDescriptorName; "" without one */
    int type;
    struct address address;
};

/* How many descriptors are for this process. -1: LISTEN_FDS is no number. */
static long count_fds(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *text = getenv("LISTEN_FDS");
    if (pid == NULL || text == NULL || strtol(pid, NULL, 10) != (long) getpid()) {
        return 0; /* they are for a process that this one was started by */
    }
    char *end = NULL;
    errno = 0;
    const long count = strtol(text, &end, 10);
    return end == text || *end != '\0' || errno != 0 || count < 0 ? -1 : count;
}

/* Copies the name of descriptor `index` of LISTEN_FDNAMES, which has colons between them. */
static void read_name(const char *names, size_t index, char *out, size_t size)
{
    out[0] = '\0';
    for (; names != NULL && index > 0; index--) {
        names = strchr(names, ':');
        names = names != NULL ? names + 1 : NULL;
    }
    if (names != NULL) {
        (void) snprintf(out, size, "%.*s", (int) strcspn(names, ":"), names);
    }
}

static int option_of(int fd, int option)
{
    int value = 0;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

static bool is_connected(int fd)
{
    struct address peer;
    peer.length = sizeof(peer.u);
    return getpeername(fd, &peer.u.any, &peer.length) == 0;
}

/* What is wrong with a socket; NULL: it can be used. Finds its type and address. */
static const char *look_at(struct handed *handed)
{
    const int domain = option_of(handed->fd, SO_DOMAIN);
    handed->type = option_of(handed->fd, SO_TYPE);
    handed->address.length = sizeof(handed->address.u);
    if (fcntl(handed->fd, F_GETFD) < 0) {
        return "is not open";
    }
    if (handed->type < 0) {
        return "is no socket; give ListenDatagram= or ListenStream= with a port";
    }
    if (domain != AF_INET && domain != AF_INET6) {
        return "is no socket of IPv4 or IPv6; give a port, such as ListenDatagram=7000";
    }
    if (handed->type != SOCK_DGRAM && handed->type != SOCK_STREAM) {
        return "is a socket of neither UDP nor TCP; give ListenDatagram= or ListenStream=";
    }
    if (getsockname(handed->fd, &handed->address.u.any, &handed->address.length) != 0) {
        return strerror(errno);
    }
    if (handed->type == SOCK_STREAM) {
        return option_of(handed->fd, SO_ACCEPTCONN) == 1 ? NULL : "is a connection; give Accept=no";
    }
    if (strcmp(handed->name, METRICS_NAME) == 0) {
        return "is of UDP, and metrics are served over TCP; give ListenStream=";
    }
    if (address_port(&handed->address) == 0) {
        return "is bound to no port";
    }
    return is_connected(handed->fd) ? "is connected to one client" : NULL;
}

const struct handed_listener *activation_find(const struct activation *activation, const struct address *address)
{
    for (size_t i = 0; i < activation->listener_count; i++) {
        if (address_is_same(&activation->listeners[i].address, address)) {
            return &activation->listeners[i];
        }
    }
    return NULL;
}

/* What is wrong; NULL: nothing. */
static const char *add_listener(struct activation *activation, const struct handed *handed)
{
    size_t i = 0;
    while (i < activation->listener_count && !address_is_same(&activation->listeners[i].address, &handed->address)) {
        i++;
    }
    struct handed_listener *listener = &activation->listeners[i];
    if (i == LISTENERS_MAX) {
        return "is one address too many; a gateway listens on 16 at most";
    }
    if (i == activation->listener_count) {
        activation->listener_count++;
        *listener = (struct handed_listener){.address = handed->address};
    }
    if (listener->count == HANDED_MAX) {
        return "is one too many of its address; give one for each thread";
    }
    listener->fds[listener->count++] = handed->fd;
    return NULL;
}

/* The socket of the pages is the one of that name, or the only one of TCP. What is wrong; NULL: nothing. */
static const char *add_metrics(struct activation *activation, const struct handed *handed, size_t stream_count)
{
    if (stream_count > 1 && strcmp(handed->name, METRICS_NAME) != 0) {
        return "is one of several of TCP; name the one for the pages: FileDescriptorName=metrics";
    }
    if (activation->metrics_fd >= 0) {
        return "is a second one for the pages; leave one out";
    }
    activation->metrics_fd = handed->fd;
    activation->metrics = handed->address;
    return NULL;
}

static size_t count_streams(long count)
{
    size_t streams = 0;
    for (int fd = FIRST_FD; fd < FIRST_FD + count; fd++) {
        streams += option_of(fd, SO_TYPE) == SOCK_STREAM;
    }
    return streams;
}

static void forget_variables(void)
{
    (void) unsetenv("LISTEN_PID");
    (void) unsetenv("LISTEN_FDS");
    (void) unsetenv("LISTEN_FDNAMES");
}

bool activation_open(struct activation *activation, char *problem, size_t size)
{
    const char *names = getenv("LISTEN_FDNAMES");
    const long count = count_fds();
    *activation = (struct activation){.metrics_fd = -1};
    if (count < 0 || count > FDS_MAX) {
        (void) snprintf(problem, size, "LISTEN_FDS is no number of descriptors, from 0 to %ld", FDS_MAX);
        return false;
    }
    const size_t streams = count_streams(count);
    for (long i = 0; i < count; i++) {
        struct handed handed = {.fd = FIRST_FD + (int) i};
        read_name(names, (size_t) i, handed.name, sizeof(handed.name));
        const char *wrong = look_at(&handed);
        if (wrong == NULL) {
            wrong = handed.type == SOCK_DGRAM ? add_listener(activation, &handed)
                                              : add_metrics(activation, &handed, streams);
        }
        if (wrong != NULL) {
            (void) snprintf(problem, size, "socket %d%s%s%s of LISTEN_FDS %s", handed.fd,
                            *handed.name != '\0' ? " (" : "", handed.name, *handed.name != '\0' ? ")" : "", wrong);
            return false;
        }
    }
    forget_variables();
    return true;
}
