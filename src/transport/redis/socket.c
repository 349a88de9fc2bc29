/* SPDX-License-Identifier: Apache-2.0 */
/* See socket.h. */
#include "transport/redis/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/digits.h"

#define RECEIVE_SIZE 16384 /* bytes of one read: on the stack, and an answer of a batch of 500 takes one or two */

/* Bytes of a reply. A round is answered with a few integers per record, and a slot map is shorter than this. */
#define UNREAD_MAX ((size_t) 4 << 20)

/* Elements of an array: more do not fit in UNREAD_MAX bytes of overrides. */
#define ELEMENTS_MAX (1 << 18)

/* Integers of one reply that the socket keeps memory for: those of the largest batch. */
#define INTEGERS_MAX 4096

void socket_init(struct socket *sock)
{
    memset(sock, 0, sizeof(*sock));
    sock->fd = -1;
    sock->unread_max = UNREAD_MAX;
}

/* In this order, so that a child which is forked in between does not close another descriptor of the same number. */
static void close_descriptor(struct socket *sock)
{
    const int fd = sock->fd;
    sock->fd = -1;
    if (fd >= 0) {
        (void) close(fd);
    }
}

static int connect_to(struct socket *sock, int family, const struct sockaddr *address, socklen_t length)
{
    sock->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (sock->fd < 0) {
        return -errno;
    }
    if (family != AF_UNIX) {
        const int on = 1;
        (void) setsockopt(sock->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void) setsockopt(sock->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (connect(sock->fd, address, length) == 0) {
        return 0;
    }
    return errno == EINPROGRESS || errno == EINTR ? 0 : -errno;
}

static void forget_addresses(struct socket *sock)
{
    if (sock->found != NULL) {
        freeaddrinfo(sock->found);
    }
    sock->found = NULL;
    sock->untried = 0;
}

/* Begins to connect to the addresses that are left, up to one that does not refuse at once. */
static int connect_next(struct socket *sock)
{
    int result = -EHOSTUNREACH;
    while (result != 0 && sock->untried != 0 && sock->next != NULL) {
        const struct addrinfo *a = sock->next;
        sock->next = a->ai_next != NULL ? a->ai_next : sock->found;
        sock->untried--;
        sock->tried++;
        close_descriptor(sock);
        result = connect_to(sock, a->ai_family, a->ai_addr, a->ai_addrlen);
    }
    return result;
}

static int open_socket(struct socket *sock, const struct socket_target *target)
{
    if (target->path != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", target->path);
        return connect_to(sock, AF_UNIX, (const struct sockaddr *) &address, sizeof(address));
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(target->host, target->port, &hints, &sock->found) != 0) {
        hints.ai_flags = AI_NUMERICSERV;
        sock->unresolved = getaddrinfo(target->host, target->port, &hints, &sock->found);
        if (sock->unresolved != 0) {
            sock->found = NULL;
            return sock->unresolved == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
        }
    }
    for (const struct addrinfo *a = sock->found; a != NULL; a = a->ai_next) {
        sock->untried++;
    }
    unsigned place = sock->untried != 0 ? sock->tried % sock->untried : 0;
    for (sock->next = sock->found; place != 0 && sock->next != NULL; place--) {
        sock->next = sock->next->ai_next;
    }
    return connect_next(sock);
}

/* Bytes of a length in the protocol: its kind, digits, CR LF, and the 0 that decimal_write adds. */
#define LENGTH_MOST (1 + DECIMAL_SIZE + 2)

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* hiredis allocates an array when it has read the length, before any element has come. */
static void *create_array(const redisReadTask *task, element_count count)
{
    const struct socket *sock = task->privdata;
    return count > (element_count) ELEMENTS_MAX ? NULL : sock->hiredis_functions->createArray(task, count);
}

/* Marks an integer in the socket's own memory, by the `len` that only strings use. */
#define OWN_INTEGER SIZE_MAX

/* Keeps integers in the socket's own memory: a round is answered with thousands of them. */
static void *create_integer(const redisReadTask *task, long long value)
{
    struct socket *sock = task->privdata;
    const size_t at = sock->integer_count++;
    if (task->parent == NULL || at >= sock->integer_size) {
        return sock->hiredis_functions->createInteger(task, value);
    }
    redisReply *const array = task->parent->obj;
    redisReply *const reply = &sock->integers[at];
    *reply = (redisReply){.type = REDIS_REPLY_INTEGER, .integer = value, .len = OWN_INTEGER};
    array->element[task->idx] = reply;
    return reply;
}

/* Removes the socket's own integers from a reply, so that hiredis can free the rest. */
static void disown(redisReply *reply)
{
    for (size_t i = 0; reply->element != NULL && i < reply->elements; i++) {
        redisReply *const element = reply->element[i];
        if (element != NULL && element->type == REDIS_REPLY_INTEGER && element->len == OWN_INTEGER) {
            reply->element[i] = NULL;
        } else if (element != NULL) {
            disown(element);
        }
    }
}

static void free_reply(void *reply)
{
    disown(reply);
    freeReplyObject(reply);
}

void socket_free_reply(struct socket *sock, redisReply *reply)
{
    free_reply(reply);
    if (sock->integer_count > sock->integer_size && sock->integer_size < INTEGERS_MAX) {
        /* The next reply will be as long. Without memory the size stays. */
        const size_t size = sock->integer_count < INTEGERS_MAX ? sock->integer_count : INTEGERS_MAX;
        redisReply *grown = malloc(size * sizeof(*grown));
        if (grown != NULL) {
            free(sock->integers);
            sock->integers = grown;
            sock->integer_size = size;
        }
    }
    sock->integer_count = 0;
}

static bool make_reader(struct socket *sock)
{
    sock->reader = redisReaderCreate();
    if (sock->reader == NULL) {
        return false;
    }
    sock->hiredis_functions = sock->reader->fn;
    sock->functions = *sock->hiredis_functions;
    sock->functions.createArray = create_array;
    sock->functions.createInteger = create_integer;
    sock->functions.freeObject = free_reply;
    sock->reader->fn = &sock->functions;
    sock->reader->privdata = sock;
    return true;
}

const char *socket_failure(const struct socket *sock, int result)
{
    switch (sock->unresolved) {
    case 0:
    case EAI_SYSTEM:
        return strerror(-result);
    case EAI_NONAME:
#ifdef EAI_NODATA
    case EAI_NODATA: /* the name exists and has no address */
#endif
        return "name not found";
    case EAI_AGAIN:
        return "name lookup failed for now (the name servers do not answer)";
    default:
        return gai_strerror(sock->unresolved);
    }
}

int socket_open(struct socket *sock, const struct socket_target *target)
{
    socket_close(sock);
    sock->target = *target;
    sock->unresolved = 0;
    if (!make_reader(sock)) {
        return -ENOMEM;
    }
    const int result = open_socket(sock, target);
    if (result != 0) {
        socket_close(sock);
        return result;
    }
    sock->connecting = true;
    return 0;
}

void socket_close(struct socket *sock)
{
    tls_close(sock->tls);
    sock->tls = NULL;
    close_descriptor(sock);
    if (sock->reader != NULL) {
        redisReaderFree(sock->reader);
        sock->reader = NULL;
    }
    forget_addresses(sock);
    free(sock->out);
    sock->out = NULL;
    sock->out_size = sock->out_length = sock->out_sent = sock->received = 0;
    sock->connecting = false;
}

void socket_abandon(struct socket *sock)
{
    close_descriptor(sock);
}

void socket_free(struct socket *sock)
{
    socket_close(sock);
    free(sock->integers);
}

int socket_connected(struct socket *sock)
{
    if (!sock->connecting) {
        return 0;
    }
    struct pollfd fd = {.fd = sock->fd, .events = POLLOUT};
    if (poll(&fd, 1, 0) <= 0) {
        return -EINPROGRESS;
    }
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        return -errno;
    }
    if (error != 0 && sock->untried != 0) {
        const int result = connect_next(sock);
        return result == 0 ? -EINPROGRESS : result;
    }
    forget_addresses(sock);
    if (error == 0 && sock->target.tls != NULL) {
        error = -tls_open(sock->target.tls, sock->fd, sock->target.name, &sock->tls);
    }
    sock->connecting = error != 0;
    return -error;
}

/* Room for `length` bytes behind the queued ones; NULL: out of memory. */
static char *out_room(struct socket *sock, size_t length)
{
    if (sock->out_sent == sock->out_length) {
        sock->out_sent = sock->out_length = 0;
    }
    if (sock->out_length + length > sock->out_size) {
        const size_t size = (sock->out_length + length) * 2;
        char *grown = realloc(sock->out, size);
        if (grown == NULL) {
            return NULL;
        }
        sock->out = grown;
        sock->out_size = size;
    }
    return sock->out + sock->out_length;
}

/* Writes "*2\r\n" or "$5\r\n". */
static char *write_length(char *to, char kind, size_t length)
{
    *to++ = kind;
    to += decimal_write(to, length);
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

int socket_command(struct socket *sock, const struct command *command)
{
    const int argc = command->argc;
    const size_t *const lengths = command->lengths;
    size_t most = LENGTH_MOST;
    for (int i = 0; i < argc; i++) {
        most += LENGTH_MOST + lengths[i] + 2;
    }
    char *const begin = out_room(sock, most);
    if (begin == NULL) {
        return -ENOMEM;
    }
    char *to = write_length(begin, '*', (size_t) argc);
    for (int i = 0; i < argc; i++) {
        to = write_length(to, '$', lengths[i]);
        memcpy(to, command->argv[i], lengths[i]);
        to += lengths[i];
        *to++ = '\r';
        *to++ = '\n';
    }
    sock->out_length += (size_t) (to - begin);
    return 0;
}

/* Bytes sent; 0: none can be sent now; negative: why the connection is lost. */
static ssize_t send_some(struct socket *sock, const char *bytes, size_t size)
{
    if (sock->tls != NULL) {
        return tls_write(sock->tls, bytes, size);
    }
    const ssize_t sent = send(sock->fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    return sent;
}

int socket_flush(struct socket *sock)
{
    while (sock->out_sent < sock->out_length) {
        const ssize_t sent = send_some(sock, sock->out + sock->out_sent, sock->out_length - sock->out_sent);
        if (sent <= 0) {
            return (int) sent;
        }
        sock->out_sent += (size_t) sent;
        sock->sent += (size_t) sent;
    }
    return sock->tls != NULL ? tls_flush(sock->tls) : 0;
}

/* Bytes read; 0: none are there; negative: why the connection is lost. */
static ssize_t read_some(struct socket *sock, char *buffer, size_t size)
{
    if (sock->tls != NULL) {
        return tls_read(sock->tls, buffer, size);
    }
    const ssize_t got = recv(sock->fd, buffer, size, 0);
    if (got < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    return got != 0 ? got : -ECONNRESET;
}

/* Feeds received bytes to the reader. 1: some; 0: none are there; negative: why the connection is lost. */
static int receive(struct socket *sock)
{
    char buffer[RECEIVE_SIZE];
    const ssize_t got = read_some(sock, buffer, sizeof(buffer));
    if (got <= 0) {
        return (int) got;
    }
    sock->received += (size_t) got;
    if (sock->received > sock->unread_max || redisReaderFeed(sock->reader, buffer, (size_t) got) != REDIS_OK) {
        return -EPROTO;
    }
    return 1;
}

int socket_reply(struct socket *sock, redisReply **reply)
{
    for (;;) {
        void *complete = NULL;
        if (redisReaderGetReply(sock->reader, &complete) != REDIS_OK) {
            return -EPROTO;
        }
        if (complete != NULL) {
            sock->received = 0;
#ifdef REDIS_REPLY_PUSH
            if (((redisReply *) complete)->type == REDIS_REPLY_PUSH) {
                socket_free_reply(sock, complete); /* a RESP3 push is not the reply to a call */
                continue;
            }
#endif
            *reply = complete;
            return 1;
        }
        const int result = receive(sock);
        if (result <= 0) {
            return result;
        }
    }
}

void socket_wait_for(const struct socket *sock, struct pollfd *fd)
{
    const bool writes =
        sock->connecting || sock->out_sent < sock->out_length || (sock->tls != NULL && tls_unsent(sock->tls));
    *fd = (struct pollfd){.fd = sock->fd, .events = (short) (POLLIN | (writes ? POLLOUT : 0))};
}
