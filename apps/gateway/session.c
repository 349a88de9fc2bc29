/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "backends/transparent.h"
#include "mix.h"
#include "offload.h"
#include "refusal.h"

/* No session. */
#define NONE UINT32_MAX

int session_table_open(struct session_table *table, uint32_t capacity, struct backends_view *view, int epoll_fd,
                       bool merges)
{
    uint32_t chain_count = 64;
    while (chain_count < capacity) {
        chain_count *= 2;
    }
    *table = (struct session_table){.chain_mask = chain_count - 1,
                                    .free = NONE,
                                    .newest = NONE,
                                    .oldest = NONE,
                                    .view = view,
                                    .epoll_fd = epoll_fd,
                                    .merges = merges};
    table->sessions = calloc(capacity, sizeof(*table->sessions));
    table->chains = malloc(chain_count * sizeof(*table->chains));
    if (table->sessions == NULL || table->chains == NULL ||
        getrandom(table->secret, sizeof(table->secret), 0) != sizeof(table->secret)) {
        free(table->sessions);
        free(table->chains);
        *table = (struct session_table){.newest = NONE, .oldest = NONE, .free = NONE};
        return -ENOMEM;
    }
    memset(table->chains, 0xff, chain_count * sizeof(*table->chains));
    for (uint32_t i = capacity; i-- > 0;) {
        table->sessions[i].fd = -1;
        table->sessions[i].next = table->free;
        table->free = i;
    }
    return 0;
}

static void list_remove(struct session_table *table, const struct session *session)
{
    *(session->newer != NONE ? &table->sessions[session->newer].older : &table->newest) = session->older;
    *(session->older != NONE ? &table->sessions[session->older].newer : &table->oldest) = session->newer;
}

static void list_add(struct session_table *table, struct session *session)
{
    const uint32_t index = (uint32_t) (session - table->sessions);
    session->newer = NONE;
    session->older = table->newest;
    *(table->newest != NONE ? &table->sessions[table->newest].newer : &table->oldest) = index;
    table->newest = index;
}

static void tell(const struct session_table *table, const struct session *session, enum session_change change)
{
    if (table->changes != NULL) {
        table->changes(table->changes_arg, (uint32_t) (session - table->sessions), change);
    }
}

static void session_end(struct session_table *table, uint32_t index)
{
    struct session *session = &table->sessions[index];
    uint32_t *link = &table->chains[session->chain];
    while (*link != index) {
        link = &table->sessions[*link].next;
    }
    *link = session->next;
    list_remove(table, session);
    tell(table, session, SESSION_ENDS);
    (void) close(session->fd); /* leaves the epoll set with it */
    session->fd = -1;
    view_note_session(table->view, session->backend, -1);
    session->next = table->free;
    table->free = index;
    table->count--;
}

void session_table_close(struct session_table *table)
{
    if (table->sessions == NULL) {
        return; /* it was not opened */
    }
    while (table->oldest != NONE) {
        session_end(table, table->oldest);
    }
    free(table->sessions);
    free(table->chains);
    table->sessions = NULL;
    table->chains = NULL;
}

/* With a secret that clients do not know: none can aim at one chain. */
static uint32_t chain_of(const struct session_table *table, const struct client *client)
{
    uint64_t words[4] = {0, 0, 0, 0};
    if (client->address.u.any.sa_family == AF_INET) {
        words[0] = (uint64_t) client->address.u.v4.sin_addr.s_addr << 16 | client->address.u.v4.sin_port;
    } else {
        memcpy(words, &client->address.u.v6.sin6_addr, 16);
        words[2] = client->address.u.v6.sin6_port;
    }
    uint64_t halves[2];
    memcpy(halves, &client->local, sizeof(halves));
    words[2] ^= halves[0] << 16 ^ (uint64_t) client->listener << 56;
    words[3] = halves[1];
    const uint64_t first = mix(words[0] ^ table->secret[0], words[1] ^ table->secret[1]);
    return (uint32_t) mix(first ^ words[2] ^ table->secret[1], words[3] ^ table->secret[0] ^ first) & table->chain_mask;
}

/* A socket to a backend that the table's epoll set watches; -1: errno says why not. */
static int open_upstream(struct session_table *table, struct session *session, uint8_t place,
                         const struct client *client)
{
    const struct address *backend = &view_backend(table->view, place)->address;
    table->tried = place;
    const int fd = socket(backend->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (table->merges) {
        (void) offload_receive(fd);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    if ((table->transparent && transparent_bind(fd, backend->u.any.sa_family, &client->address) != 0) ||
        connect(fd, &backend->u.any, backend->length) != 0 ||
        epoll_ctl(table->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        /* With the client's address the error may be of that address: a client is to bring no backend down. */
        const int error = table->transparent && is_refusal(errno) ? EADDRNOTAVAIL : errno;
        (void) close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static struct session *session_open_slow(struct session_table *table, const struct client *client, uint32_t chain,
                                         uint32_t now)
{
    const uint8_t place = view_choose(table->view, &client->address);
    if (place == BACKEND_NONE) {
        errno = ENOENT;
        return NULL;
    }
    if (table->free == NONE) {
        session_end(table, table->oldest);
        table->evicted++;
    }
    struct session *session = &table->sessions[table->free];
    int fd = open_upstream(table, session, place, client);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && table->oldest != NONE) {
        session_end(table, table->oldest);
        table->evicted++;
        session = &table->sessions[table->free];
        fd = open_upstream(table, session, place, client);
    }
    if (fd < 0) {
        return NULL;
    }
    const uint32_t index = table->free;
    table->free = session->next;
    *session = (struct session){
        .fd = fd, .seen = now, .next = table->chains[chain], .chain = chain, .backend = place, .client = *client};
    table->chains[chain] = index;
    view_note_session(table->view, place, 1);
    list_add(table, session);
    table->count++;
    tell(table, session, SESSION_BEGINS);
    return session;
}

void session_touch(struct session_table *table, struct session *session, uint32_t now)
{
    session->seen = now;
    if (session->newer != NONE) {
        list_remove(table, session);
        list_add(table, session);
    }
}

/*
 * A session's backend is down: its client goes to another one, by another socket. Where there is none, or no socket,
 * the session stays what it is.
 */
static void session_move_slow(struct session_table *table, struct session *session, uint32_t now)
{
    const uint8_t place = view_choose(table->view, &session->client.address);
    if (place == session->backend || place == BACKEND_NONE) {
        return;
    }
    const int fd = open_upstream(table, session, place, &session->client);
    if (fd < 0) {
        if (is_refusal(errno)) {
            view_note_refusals(table->view, place, 1, errno, now);
        }
        return;
    }
    tell(table, session, SESSION_MOVES);
    (void) close(session->fd); /* leaves the epoll set with it */
    session->fd = fd;
    view_note_session(table->view, session->backend, -1);
    view_note_session(table->view, place, 1);
    session->backend = place;
    table->moved++;
}

struct session *session_of(struct session_table *table, const struct client *client, uint32_t now)
{
    const uint32_t chain = chain_of(table, client);
    for (uint32_t i = table->chains[chain]; i != NONE; i = table->sessions[i].next) {
        struct session *session = &table->sessions[i];
        if (session->client.listener == client->listener &&
            address_is_same(&session->client.address, &client->address) &&
            IN6_ARE_ADDR_EQUAL(&session->client.local, &client->local)) {
            if (!table->view->stays[session->backend]) {
                session_move_slow(table, session, now);
            }
            session_touch(table, session, now);
            return session;
        }
    }
    return session_open_slow(table, client, chain, now);
}

void session_expire(struct session_table *table, uint32_t now, uint32_t idle)
{
    while (table->oldest != NONE && now - table->sessions[table->oldest].seen > idle) {
        session_end(table, table->oldest);
    }
}

void session_end_listener(struct session_table *table, uint32_t listener)
{
    for (uint32_t i = table->oldest; i != NONE;) {
        const uint32_t newer = table->sessions[i].newer;
        if (table->sessions[i].client.listener == listener) {
            session_end(table, i);
        }
        i = newer;
    }
}

void session_end_gone(struct session_table *table)
{
    for (uint32_t i = table->oldest; i != NONE;) {
        const uint32_t newer = table->sessions[i].newer;
        if (table->view->is_gone[table->sessions[i].backend]) {
            session_end(table, i);
        }
        i = newer;
    }
}
