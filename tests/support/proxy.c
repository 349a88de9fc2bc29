/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread, one poll loop. A connection is a client, a server, and for copies a second server; bytes on their way are
 * chunks with a time before which they are not sent. What a client sent before it went still goes to Redis; the replies
 * are dropped.
 */
#include "support/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/support.h"

#define CONNECTIONS 64
#define STEP_MS     2
#define LINGER_NS   (300 * MILLISECOND)

/* For each piece of replies it is decided whether the piece is lost: one piece of so many is. */
#define SWALLOW_ONE_OF 4

struct chunk {
    struct chunk *next;
    uint64_t due_ns;
    size_t length, sent;
    unsigned char bytes[];
};

struct queue {
    struct chunk *first, *last;
};

struct connection {
    int client, server, copy; /* -1: none */
    struct queue to_client, to_server, to_copy;
    bool used;
    bool swallowed;   /* a reply is missing: none may follow */
    uint64_t gone_ns; /* when the client went; 0: it is there */
};

struct inside {
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows, up to `listener` */
    enum proxy_mode mode;
    uint32_t delay_ms;
    const char *bytes;
    size_t size;
    char target[128];
    bool cuts, ends;
    uint64_t harm;
    int listener;
    struct connection connections[CONNECTIONS];
    uint64_t rng;
};

static void queue_add(struct queue *queue, const void *bytes, size_t length, uint64_t due_ns)
{
    struct chunk *chunk = malloc(sizeof(*chunk) + length);
    if (chunk == NULL) {
        return;
    }
    *chunk = (struct chunk){.due_ns = due_ns, .length = length};
    memcpy(chunk->bytes, bytes, length);
    if (queue->last != NULL) {
        queue->last->next = chunk;
        /* Bytes of one direction keep their order. */
        chunk->due_ns = chunk->due_ns > queue->last->due_ns ? chunk->due_ns : queue->last->due_ns;
    } else {
        queue->first = chunk;
    }
    queue->last = chunk;
}

static void queue_pop(struct queue *queue)
{
    struct chunk *chunk = queue->first;
    queue->first = chunk->next;
    queue->last = queue->first == NULL ? NULL : queue->last;
    free(chunk);
}

static void queue_clear(struct queue *queue)
{
    while (queue->first != NULL) {
        queue_pop(queue);
    }
}

/* Sends what is due. False: the other end is gone. */
static bool queue_send(struct queue *queue, int fd, uint64_t now_ns, size_t at_once)
{
    while (queue->first != NULL && queue->first->due_ns <= now_ns) {
        struct chunk *chunk = queue->first;
        const size_t left = chunk->length - chunk->sent;
        const ssize_t sent =
            send(fd, chunk->bytes + chunk->sent, left < at_once ? left : at_once, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        }
        chunk->sent += (size_t) sent;
        if (chunk->sent == chunk->length) {
            queue_pop(queue);
        }
        if (at_once < left) {
            return true; /* the rest another time */
        }
    }
    return true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void) close(*fd);
        *fd = -1;
    }
}

static void connection_end(struct connection *c)
{
    close_fd(&c->client);
    close_fd(&c->server);
    close_fd(&c->copy);
    queue_clear(&c->to_client);
    queue_clear(&c->to_server);
    queue_clear(&c->to_copy);
    c->used = false;
}

/* The client has gone, or its connection is closed. What the client sent still goes to Redis. */
static void client_end(struct connection *c, uint64_t now_ns)
{
    close_fd(&c->client);
    queue_clear(&c->to_client);
    c->gone_ns = c->gone_ns == 0 ? now_ns : c->gone_ns;
}

static int connect_target(const struct inside *p)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, p->target, strnlen(p->target, sizeof(address.sun_path) - 1));
    /* Blocks for no longer than a full backlog does: Redis's kernel accepts, hung or not. */
    if (fd >= 0 && connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0) {
        (void) close(fd);
        return -1;
    }
    return fd;
}

static void accept_one(struct inside *p)
{
    const int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    struct connection *c = NULL;
    for (size_t i = 0; i < CONNECTIONS && c == NULL; i++) {
        c = p->connections[i].used ? NULL : &p->connections[i];
    }
    if (c == NULL || p->mode == PROXY_CUT) {
        (void) close(fd);
        return;
    }
    *c = (struct connection){.client = fd, .server = -1, .copy = -1, .used = true};
    if (p->mode != PROXY_BLACKHOLE) {
        c->server = connect_target(p);
        /* From its first byte on: a copy that begins in the middle of a command would be none. */
        c->copy = p->mode == PROXY_DUPLICATE ? connect_target(p) : -1;
        if (c->server < 0) {
            connection_end(c);
        }
    }
}

static void from_client(struct inside *p, struct connection *c, uint64_t now_ns)
{
    unsigned char buffer[65536];
    const ssize_t got = recv(c->client, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        client_end(c, now_ns);
        return;
    }
    queue_add(&c->to_server, buffer, (size_t) got, now_ns);
    if (c->copy >= 0) {
        p->harm += (uint64_t) got;
        const uint64_t half_ns = (uint64_t) p->delay_ms * MILLISECOND / 2;
        queue_add(&c->to_copy, buffer, (size_t) got, now_ns + half_ns + random_below(&p->rng, half_ns + 1));
    }
}

static void from_server(struct inside *p, struct connection *c, uint64_t now_ns)
{
    unsigned char buffer[65536];
    const ssize_t got = recv(c->server, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        connection_end(c);
        return;
    }
    if (c->client < 0) {
        return; /* the client is gone */
    }
    if (p->mode == PROXY_SWALLOW && !c->swallowed && random_below(&p->rng, SWALLOW_ONE_OF) == 0) {
        c->swallowed = true;
        if (random_below(&p->rng, 2) == 0) {
            client_end(c, now_ns);
        }
    }
    if (c->swallowed) {
        p->harm += (uint64_t) got;
    } else if (p->mode == PROXY_MANGLE) {
        p->harm += (uint64_t) got;
        c->swallowed = true;
        queue_add(&c->to_client, p->bytes, p->size, now_ns);
    } else {
        queue_add(&c->to_client, buffer, (size_t) got,
                  now_ns + (p->mode == PROXY_DUPLICATE ? 0 : (uint64_t) p->delay_ms * MILLISECOND));
    }
}

/* Drops the answers to copies. */
static void from_copy(struct connection *c)
{
    unsigned char buffer[65536];
    const ssize_t got = recv(c->copy, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        close_fd(&c->copy);
        queue_clear(&c->to_copy);
    }
}

static void connection_step(struct inside *p, struct connection *c, uint64_t now_ns)
{
    if (p->mode == PROXY_BLACKHOLE) {
        return;
    }
    if (c->client >= 0 && c->server < 0) {
        connection_end(c); /* the connection was made while the proxy was a black hole */
        return;
    }
    if (c->client >= 0) {
        from_client(p, c, now_ns);
    }
    if (c->copy >= 0) {
        from_copy(c);
    }
    if (!queue_send(&c->to_server, c->server, now_ns, SIZE_MAX)) {
        connection_end(c);
        return;
    }
    if (c->copy >= 0 && !queue_send(&c->to_copy, c->copy, now_ns, SIZE_MAX)) {
        queue_clear(&c->to_copy);
    }
    from_server(p, c, now_ns);
    if (!c->used) {
        return;
    }
    const size_t at_once = p->mode == PROXY_TRICKLE ? 1 + (size_t) random_below(&p->rng, 200) : SIZE_MAX;
    if (c->client >= 0 && !queue_send(&c->to_client, c->client, now_ns, at_once)) {
        client_end(c, now_ns);
    }
    /* Closed with replies unread a socket is reset, and Redis might not read what it was sent: so not at once. */
    if (c->gone_ns != 0 && c->to_server.first == NULL && c->to_copy.first == NULL && now_ns > c->gone_ns + LINGER_NS) {
        connection_end(c);
    }
}

/* Copies that are on their way arrive all the same: they are late. */
static void cut_all(struct inside *p, uint64_t now_ns)
{
    for (size_t i = 0; i < CONNECTIONS; i++) {
        struct connection *c = &p->connections[i];
        if (c->used && c->copy >= 0 && !p->ends) {
            client_end(c, now_ns);
        } else if (c->used) {
            connection_end(c);
        }
    }
    p->cuts = false;
}

static void *proxy_main(void *arg)
{
    struct inside *p = arg;
    for (;;) {
        struct pollfd fds[1 + 3 * CONNECTIONS] = {{.fd = p->listener, .events = POLLIN}};
        (void) pthread_mutex_lock(&p->lock);
        for (size_t i = 0; i < CONNECTIONS; i++) {
            const struct connection *c = &p->connections[i];
            /* In a black hole nothing is read, so nothing may wake the loop: it then goes by the time-out of poll. */
            const bool reads = c->used && p->mode != PROXY_BLACKHOLE;
            fds[1 + 3 * i] = (struct pollfd){.fd = reads ? c->client : -1, .events = POLLIN};
            fds[2 + 3 * i] = (struct pollfd){.fd = reads ? c->server : -1, .events = POLLIN};
            fds[3 + 3 * i] = (struct pollfd){.fd = reads ? c->copy : -1, .events = POLLIN};
        }
        (void) pthread_mutex_unlock(&p->lock);
        (void) poll(fds, sizeof(fds) / sizeof(fds[0]), STEP_MS);
        (void) pthread_mutex_lock(&p->lock);
        const uint64_t now_ns = real_ns();
        if (p->cuts || p->mode == PROXY_CUT || p->ends) {
            cut_all(p, now_ns);
        }
        if (p->ends) {
            (void) pthread_mutex_unlock(&p->lock);
            return NULL;
        }
        if ((fds[0].revents & POLLIN) != 0) {
            accept_one(p);
        }
        for (size_t i = 0; i < CONNECTIONS; i++) {
            if (p->connections[i].used) {
                connection_step(p, &p->connections[i], now_ns);
            }
        }
        (void) pthread_mutex_unlock(&p->lock);
    }
}

void proxy_start(struct proxy *proxy, const char *target)
{
    struct inside *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    (void) pthread_mutex_init(&p->lock, NULL);
    (void) snprintf(p->target, sizeof(p->target), "%s", target);
    p->rng = test_seed();
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    assert_int_equal(bind(p->listener, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(p->listener, CONNECTIONS), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *) &address, &length), 0);
    assert_int_equal(pthread_create(&p->thread, NULL, proxy_main, p), 0);
    *proxy = (struct proxy){.port = ntohs(address.sin_port), .inside = p};
}

void proxy_stop(struct proxy *proxy)
{
    struct inside *p = proxy->inside;
    if (p == NULL) {
        return;
    }
    (void) pthread_mutex_lock(&p->lock);
    p->ends = true;
    (void) pthread_mutex_unlock(&p->lock);
    (void) pthread_join(p->thread, NULL);
    (void) close(p->listener);
    (void) pthread_mutex_destroy(&p->lock);
    free(p);
    proxy->inside = NULL;
}

void proxy_set(const struct proxy *proxy, enum proxy_mode mode)
{
    struct inside *p = proxy->inside;
    (void) pthread_mutex_lock(&p->lock);
    /* Copies are of whole connections, and a swallowed one would hang for as long as the client bears it. */
    p->cuts = p->cuts || mode == PROXY_DUPLICATE;
    p->mode = mode;
    (void) pthread_mutex_unlock(&p->lock);
}

void proxy_delay(const struct proxy *proxy, uint32_t delay_ms)
{
    struct inside *p = proxy->inside;
    (void) pthread_mutex_lock(&p->lock);
    p->delay_ms = delay_ms;
    (void) pthread_mutex_unlock(&p->lock);
}

void proxy_mangle(const struct proxy *proxy, const char *bytes, size_t size)
{
    struct inside *p = proxy->inside;
    (void) pthread_mutex_lock(&p->lock);
    p->bytes = bytes;
    p->size = size;
    p->mode = PROXY_MANGLE;
    (void) pthread_mutex_unlock(&p->lock);
}

void proxy_retarget(const struct proxy *proxy, const char *target)
{
    struct inside *p = proxy->inside;
    (void) pthread_mutex_lock(&p->lock);
    if (target != NULL) {
        (void) snprintf(p->target, sizeof(p->target), "%s", target);
    }
    p->cuts = true;
    (void) pthread_mutex_unlock(&p->lock);
}

uint64_t proxy_harm(const struct proxy *proxy)
{
    struct inside *p = proxy->inside;
    (void) pthread_mutex_lock(&p->lock);
    const uint64_t harm = p->harm;
    (void) pthread_mutex_unlock(&p->lock);
    return harm;
}

void proxy_url(const struct proxy *proxy, char *out, size_t size)
{
    (void) snprintf(out, size, "redis://127.0.0.1:%d", proxy->port);
}
