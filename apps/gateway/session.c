/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "backends/transparent.h"
#include "listen_socket.h"
#include "network.h"
#include "offload.h"
#include "refusal.h"

/* No session. */
#define NONE UINT32_MAX

/* Packets that may come to a socket before it is connected: more than its buffer takes from the kernel's defaults. */
#define EARLY_MOST 4096

/* How many bits of an address are a source's, and a network's, for the shares of the table. */
#define V4_SOURCE  32
#define V4_NETWORK 24
#define V6_NETWORK 48

static void free_parts(struct session_table *table)
{
    free(table->sessions);
    free(table->chains);
    shares_close(table->shares);
    *table = (struct session_table){.free = NONE};
}

int session_table_open(struct session_table *table, uint32_t capacity, const struct session_parts *parts, bool merges)
{
    uint32_t chain_count = 64;
    while (chain_count < capacity) {
        chain_count *= 2;
    }
    *table = (struct session_table){.chain_mask = chain_count - 1,
                                    .capacity = capacity,
                                    .free = NONE,
                                    .view = parts->view,
                                    .ports = parts->ports,
                                    .sockets = parts->sockets,
                                    .epoll_fd = parts->epoll_fd,
                                    .merges = merges};
    table->sessions = calloc(capacity, sizeof(*table->sessions));
    table->chains = malloc(chain_count * sizeof(*table->chains));
    table->shares = shares_open(capacity);
    if (table->sessions == NULL || table->chains == NULL || table->shares == NULL) {
        free_parts(table);
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

static uint32_t number_of(const struct session_table *table, const struct session *session)
{
    return (uint32_t) (session - table->sessions);
}

static void tell(const struct session_table *table, const struct session *session, enum session_change change)
{
    if (table->changes != NULL) {
        table->changes(table->changes_arg, number_of(table, session), change);
    }
}

/* The port begins to rest before another socket could have it. */
static void close_upstream(const struct session_table *table, const struct session *session)
{
    if (session->port != 0) {
        ports_release(table->ports, session->name, session->port, session->seen);
    }
    (void) close(session->fd); /* leaves the epoll set with it */
}

static void session_end(struct session_table *table, uint32_t index)
{
    struct session *session = &table->sessions[index];
    uint32_t *link = &table->chains[(uint32_t) session->name & table->chain_mask];
    while (*link != index) {
        link = &table->sessions[*link].next;
    }
    *link = session->next;
    shares_remove(table->shares, index);
    tell(table, session, SESSION_ENDS);
    close_upstream(table, session);
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
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->sessions[i].fd >= 0) {
            session_end(table, i);
        }
    }
    free_parts(table);
}

/*
 * The client's name, which gateways that are started later find as well: so it has the listener's address, and not its
 * number here.
 */
static uint64_t name_of(const struct session_table *table, const struct client *client)
{
    const struct address *listen = &table->sockets[client->listener].address;
    struct {
        struct in6_addr address, local, listen;
        uint32_t scope;
        uint16_t port, listen_port;
        uint16_t family, unused;
    } bytes = {.local = client->local, .family = client->address.u.any.sa_family};
    if (bytes.family == AF_INET) {
        memcpy(&bytes.address, &client->address.u.v4.sin_addr, 4);
        memcpy(&bytes.listen, &listen->u.v4.sin_addr, 4);
        bytes.port = client->address.u.v4.sin_port;
        bytes.listen_port = listen->u.v4.sin_port;
    } else {
        bytes.address = client->address.u.v6.sin6_addr;
        bytes.listen = listen->u.v6.sin6_addr;
        bytes.scope = client->address.u.v6.sin6_scope_id;
        bytes.port = client->address.u.v6.sin6_port;
        bytes.listen_port = listen->u.v6.sin6_port;
    }
    return ports_client(table->ports, &bytes, sizeof(bytes));
}

/* An open socket, and the port that it has for the client: see struct session. */
struct upstream {
    int fd;
    uint16_t port;
    bool came_back; /* the client had the port before */
};

/* Drops what came to a bound socket before it was connected: that may be anybody's. */
static void drop_early(int fd)
{
    char byte;
    for (int i = 0; i < EARLY_MOST && (recv(fd, &byte, 1, 0) >= 0 || errno != EAGAIN); i++) {
    }
}

/* Binds a socket and connects it to a backend. False: errno says why not. */
static bool connect_upstream(struct session_table *table, const struct address *backend, const struct session *of,
                             uint64_t now, struct upstream *up)
{
    const int family = backend->u.any.sa_family;
    if (table->transparent) {
        if (transparent_bind(up->fd, family, &of->client.address) != 0) {
            return false;
        }
    } else {
        const int port = ports_bind(table->ports, of->name, up->fd, family, now, &up->came_back);
        if (port < 0) {
            table->lacks_port = errno == EADDRNOTAVAIL; /* of connect() it would mean something else */
            return false;
        }
        up->port = (uint16_t) port;
    }
    if (connect(up->fd, &backend->u.any, backend->length) != 0) {
        return false;
    }
    drop_early(up->fd);
    if (!table->transparent) {
        ports_share(up->fd);
    }
    return true;
}

/* Closes a socket that no session has. Keeps errno. */
static void give_up(const struct session_table *table, const struct session *of, const struct upstream *up,
                    uint64_t now)
{
    const int error = errno;
    if (up->port != 0) {
        ports_release(table->ports, of->name, up->port, now);
    }
    (void) close(up->fd);
    errno = error;
}

/* A socket to a backend for the client of `of`. False: errno says why not. */
static bool open_upstream(struct session_table *table, uint8_t place, const struct session *of, uint64_t now,
                          struct upstream *up)
{
    const struct address *backend = &view_backend(table->view, place)->address;
    table->tried = place;
    *up = (struct upstream){.fd = socket(backend->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (up->fd < 0) {
        return false;
    }
    if (table->merges) {
        (void) offload_receive(up->fd);
    }
    if (!connect_upstream(table, backend, of, now, up)) {
        /* With the client's address the error may be of that address: a client is to bring no backend down. */
        errno = table->transparent && is_refusal(errno) ? EADDRNOTAVAIL : errno;
        give_up(table, of, up, now);
        return false;
    }
    return true;
}

/* Has the table's epoll set watch a session's socket. */
static bool watch(const struct session_table *table, struct session *session, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = session};
    return epoll_ctl(table->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void evict(struct session_table *table)
{
    const uint32_t victim = shares_victim(table->shares);
    table->evicted[shares_use(table->shares, victim)]++;
    session_end(table, victim);
}

/* Whom a client's session is counted for. */
static struct session_holders holders_of(const struct session_table *table, const struct client *client)
{
    const bool is_v4 = network_is_v4(&client->address);
    unsigned char source[NETWORK_KEY_SIZE];
    unsigned char network[NETWORK_KEY_SIZE];
    const size_t source_size = network_of(&client->address, is_v4 ? V4_SOURCE : SOURCE_PREFIX, source);
    const size_t network_size = network_of(&client->address, is_v4 ? V4_NETWORK : V6_NETWORK, network);
    return (struct session_holders){ports_client(table->ports, source, source_size),
                                    ports_client(table->ports, network, network_size)};
}

static struct session *session_open_slow(struct session_table *table, const struct client *client, uint64_t name,
                                         uint64_t now)
{
    const uint8_t place = view_choose(table->view, &client->address);
    const struct session made = {.seen = now, .name = name, .backend = place, .client = *client};
    struct upstream up;
    table->lacks_port = false;
    if (place == BACKEND_NONE) {
        errno = ENOENT;
        return NULL;
    }
    bool is_open = open_upstream(table, place, &made, now, &up);
    if (!is_open && (errno == EMFILE || errno == ENFILE) && table->count != 0) {
        evict(table);
        is_open = open_upstream(table, place, &made, now, &up);
    }
    if (!is_open) {
        return NULL;
    }
    if (table->free == NONE) { /* nobody makes way for a client that there is no socket for */
        evict(table);
    }
    struct session *session = &table->sessions[table->free];
    if (!watch(table, session, up.fd)) {
        give_up(table, &made, &up, now);
        return NULL;
    }
    const uint32_t index = table->free;
    uint32_t *chain = &table->chains[(uint32_t) name & table->chain_mask];
    table->free = session->next;
    *session = made;
    session->fd = up.fd;
    session->port = up.port;
    session->next = *chain;
    *chain = index;
    view_note_session(table->view, place, 1);
    const struct session_holders holders = holders_of(table, client);
    shares_add(table->shares, index, &holders, up.came_back ? USE_USED : USE_WAITING);
    table->count++;
    tell(table, session, SESSION_BEGINS);
    return session;
}

/* Notes that a session has just been used. */
static void touch(struct session_table *table, struct session *session, uint64_t now)
{
    if (session->port != 0 && now / 1000 != session->seen / 1000) {
        ports_note(table->ports, session->name, session->port, now);
    }
    session->seen = now;
}

void session_answered(struct session_table *table, struct session *session, uint64_t now)
{
    touch(table, session, now);
    shares_answered(table->shares, number_of(table, session));
}

/*
 * A session's backend is down: its client goes to another one, by another socket with the same port. Where there is
 * none, or no socket, the session stays what it is.
 */
static void session_move_slow(struct session_table *table, struct session *session, uint64_t now)
{
    struct upstream up;
    const uint8_t place = view_choose(table->view, &session->client.address);
    if (place == session->backend || place == BACKEND_NONE) {
        return;
    }
    if (!open_upstream(table, place, session, now, &up)) {
        if (is_refusal(errno)) {
            view_note_refusals(table->view, place, 1, errno, (uint32_t) (now / 1000));
        }
        return;
    }
    if (!watch(table, session, up.fd)) {
        give_up(table, session, &up, now);
        return;
    }
    tell(table, session, SESSION_MOVES);
    close_upstream(table, session);
    session->fd = up.fd;
    session->port = up.port;
    view_note_session(table->view, session->backend, -1);
    view_note_session(table->view, place, 1);
    session->backend = place;
    table->moved++;
}

struct session *session_of(struct session_table *table, const struct client *client, uint64_t now)
{
    const uint64_t name = name_of(table, client);
    for (uint32_t i = table->chains[(uint32_t) name & table->chain_mask]; i != NONE; i = table->sessions[i].next) {
        struct session *session = &table->sessions[i];
        if (session->client.listener == client->listener &&
            address_is_same(&session->client.address, &client->address) &&
            IN6_ARE_ADDR_EQUAL(&session->client.local, &client->local)) {
            if (!table->view->stays[session->backend]) {
                session_move_slow(table, session, now);
            }
            touch(table, session, now);
            shares_sent(table->shares, i);
            return session;
        }
    }
    return session_open_slow(table, client, name, now);
}

void session_expire(struct session_table *table, uint64_t now, uint32_t idle)
{
    for (enum session_use use = 0; use < USE_COUNT; use++) {
        uint32_t oldest = shares_oldest(table->shares, use);
        while (oldest != SHARES_NONE && now - table->sessions[oldest].seen > UINT64_C(1000) * idle) {
            session_end(table, oldest);
            oldest = shares_oldest(table->shares, use);
        }
    }
}

void session_end_listener(struct session_table *table, uint32_t listener)
{
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->sessions[i].fd >= 0 && table->sessions[i].client.listener == listener) {
            session_end(table, i);
        }
    }
}

void session_end_gone(struct session_table *table)
{
    for (uint32_t i = 0; i < table->capacity; i++) {
        if (table->sessions[i].fd >= 0 && table->view->is_gone[table->sessions[i].backend]) {
            session_end(table, i);
        }
    }
}
