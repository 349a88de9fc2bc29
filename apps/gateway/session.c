/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Sets looked at in one sweep. */
#define SWEEP_SETS ((size_t) 64)

int session_table_open(struct session_table *table, size_t capacity, const struct address *backend, int epoll_fd)
{
    table->set_count = capacity / SESSION_WAYS;
    table->sessions = calloc(table->set_count * SESSION_WAYS, sizeof(*table->sessions));
    table->backend = backend;
    table->epoll_fd = epoll_fd;
    table->count = table->evicted = 0;
    if (table->sessions == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < table->set_count * SESSION_WAYS; i++) {
        table->sessions[i].fd = -1;
    }
    return 0;
}

static void end(struct session_table *table, struct session *session)
{
    (void) close(session->fd); /* leaves the epoll set with it */
    session->fd = -1;
    table->count--;
}

void session_table_close(struct session_table *table)
{
    for (size_t i = 0; table->sessions != NULL && i < table->set_count * SESSION_WAYS; i++) {
        if (table->sessions[i].fd >= 0) {
            end(table, &table->sessions[i]);
        }
    }
    free(table->sessions);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ (x >> 27)) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ (x >> 33);
}

static uint64_t hash_of(const struct address *a)
{
    if (a->u.any.sa_family == AF_INET) {
        return mix((uint64_t) a->u.v4.sin_addr.s_addr << 16 | a->u.v4.sin_port);
    }
    uint64_t halves[2];
    memcpy(halves, &a->u.v6.sin6_addr, sizeof(halves));
    return mix(mix(halves[0]) ^ halves[1] ^ a->u.v6.sin6_port);
}

static int is_same(const struct address *a, const struct address *b)
{
    if (a->u.any.sa_family != b->u.any.sa_family) {
        return 0;
    }
    if (a->u.any.sa_family == AF_INET) {
        return a->u.v4.sin_addr.s_addr == b->u.v4.sin_addr.s_addr && a->u.v4.sin_port == b->u.v4.sin_port;
    }
    return memcmp(&a->u.v6.sin6_addr, &b->u.v6.sin6_addr, 16) == 0 && a->u.v6.sin6_port == b->u.v6.sin6_port;
}

static int open_upstream(struct session_table *table, struct session *session)
{
    const int fd = socket(table->backend->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    if (connect(fd, &table->backend->u.any, table->backend->length) != 0 ||
        epoll_ctl(table->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        (void) close(fd);
        return -1;
    }
    return fd;
}

struct session *session_of(struct session_table *table, const struct address *client, uint32_t now)
{
    struct session *set = &table->sessions[hash_of(client) % table->set_count * SESSION_WAYS];
    struct session *oldest = &set[0];
    for (size_t i = 0; i < SESSION_WAYS; i++) {
        if (set[i].fd >= 0 && is_same(&set[i].client, client)) {
            set[i].seen = now;
            return &set[i];
        }
        if (oldest->fd >= 0 && (set[i].fd < 0 || set[i].seen < oldest->seen)) {
            oldest = &set[i];
        }
    }
    if (oldest->fd >= 0) {
        end(table, oldest);
        table->evicted++;
    }
    const int fd = open_upstream(table, oldest);
    if (fd < 0) {
        return NULL;
    }
    *oldest = (struct session){.fd = fd, .seen = now, .client = *client};
    table->count++;
    return oldest;
}

void session_sweep(struct session_table *table, uint32_t now, uint32_t idle, size_t *cursor)
{
    for (size_t n = 0; n < SWEEP_SETS * SESSION_WAYS; n++) {
        struct session *session = &table->sessions[*cursor];
        if (session->fd >= 0 && now - session->seen > idle) {
            end(table, session);
        }
        *cursor = (*cursor + 1) % (table->set_count * SESSION_WAYS);
    }
}
