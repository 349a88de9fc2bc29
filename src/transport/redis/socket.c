/* SPDX-License-Identifier: Apache-2.0 */
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

#include "base/decimal.h"

#define RECEIVE_SIZE 16384

/* A reply of ours is a few integers per record, or a Cluster's map; nothing honest is longer than this. */
#define UNREAD_MAX ((size_t) 4 << 20)

/* Nor has more elements: of what fits there, an entry's field and value are the shortest there is. */
#define ELEMENTS_MAX (1 << 18)

/* Integers of one reply that the link has memory for: those of the largest batch. */
#define INTEGERS_MAX 4096

void link_init(struct link *link)
{
    memset(link, 0, sizeof(*link));
    link->fd = -1;
    link->unread_max = UNREAD_MAX;
}

static int connect_to(struct link *link, int family, const struct sockaddr *address, socklen_t length)
{
    link->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) {
        return -errno;
    }
    if (family != AF_UNIX) {
        const int on = 1;
        (void) setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void) setsockopt(link->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    }
    if (connect(link->fd, address, length) == 0) {
        return 0;
    }
    return errno == EINPROGRESS || errno == EINTR ? 0 : -errno;
}

/* The address at this place of a list, counted around. */
static const struct addrinfo *address_at(const struct addrinfo *list, unsigned place)
{
    unsigned count = 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        count++;
    }
    for (place = count != 0 ? place % count : 0; place != 0; place--) {
        list = list->ai_next;
    }
    return list;
}

static int open_socket(struct link *link, const struct link_target *target)
{
    if (target->path != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", target->path);
        return connect_to(link, AF_UNIX, (const struct sockaddr *) &address, sizeof(address));
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (getaddrinfo(target->host, target->port, &hints, &found) != 0) {
        hints.ai_flags = AI_NUMERICSERV;
        link->unresolved = getaddrinfo(target->host, target->port, &hints, &found);
        if (link->unresolved != 0) {
            return link->unresolved == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
        }
    }
    /* One that refuses at once is passed over; one that does so later has its turn again after the others. */
    const struct addrinfo *first = address_at(found, link->attempts++);
    const struct addrinfo *a = first;
    int result = -EHOSTUNREACH;
    do {
        if (link->fd >= 0) {
            (void) close(link->fd);
        }
        result = connect_to(link, a->ai_family, a->ai_addr, a->ai_addrlen);
        a = a->ai_next != NULL ? a->ai_next : found;
    } while (result != 0 && a != first);
    freeaddrinfo(found);
    return result;
}

/* A length of the protocol: its kind, digits, CR LF, and the end that decimal_write sets. */
#define LENGTH_MOST (1 + DECIMAL_SIZE + 2)

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* An array takes memory when its length is read, before anything of it has come. */
static void *create_array(const redisReadTask *task, element_count count)
{
    const struct link *link = task->privdata;
    return count > (element_count) ELEMENTS_MAX ? NULL : link->theirs->createArray(task, count);
}

/* Marks an integer that lies in the link's own memory: `len` is a string's. */
#define OWN SIZE_MAX

/* A round's answers are thousands of integers: those are not worth an allocation each. */
static void *create_integer(const redisReadTask *task, long long value)
{
    struct link *link = task->privdata;
    const size_t at = link->integer_count++;
    if (task->parent == NULL || at >= link->integer_size) {
        return link->theirs->createInteger(task, value);
    }
    redisReply *const array = task->parent->obj;
    redisReply *const reply = &link->integers[at];
    *reply = (redisReply){.type = REDIS_REPLY_INTEGER, .integer = value, .len = OWN};
    array->element[task->idx] = reply;
    return reply;
}

/* Takes the link's own integers out of a reply, so that hiredis can free the rest. */
static void disown(redisReply *reply)
{
    for (size_t i = 0; reply->element != NULL && i < reply->elements; i++) {
        redisReply *const element = reply->element[i];
        if (element != NULL && element->type == REDIS_REPLY_INTEGER && element->len == OWN) {
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

void link_free_reply(struct link *link, redisReply *reply)
{
    free_reply(reply);
    if (link->integer_count > link->integer_size && link->integer_size < INTEGERS_MAX) {
        /* Its like is to come again. Without memory it goes on as it was. */
        const size_t size = link->integer_count < INTEGERS_MAX ? link->integer_count : INTEGERS_MAX;
        redisReply *grown = malloc(size * sizeof(*grown));
        if (grown != NULL) {
            free(link->integers);
            link->integers = grown;
            link->integer_size = size;
        }
    }
    link->integer_count = 0;
}

static bool make_reader(struct link *link)
{
    link->reader = redisReaderCreate();
    if (link->reader == NULL) {
        return false;
    }
    link->theirs = link->reader->fn;
    link->functions = *link->theirs;
    link->functions.createArray = create_array;
    link->functions.createInteger = create_integer;
    link->functions.freeObject = free_reply;
    link->reader->fn = &link->functions;
    link->reader->privdata = link;
    return true;
}

const char *link_failure(const struct link *link, int result)
{
    switch (link->unresolved) {
    case 0:
    case EAI_SYSTEM:
        return strerror(-result);
    case EAI_NONAME:
#ifdef EAI_NODATA
    case EAI_NODATA: /* the name is there, and has no address */
#endif
        return "name not found";
    case EAI_AGAIN:
        return "name lookup failed for now (the name servers do not answer)";
    default:
        return gai_strerror(link->unresolved);
    }
}

int link_open(struct link *link, const struct link_target *target)
{
    link_close(link);
    link->target = *target;
    link->unresolved = 0;
    if (!make_reader(link)) {
        return -ENOMEM;
    }
    const int result = open_socket(link, target);
    if (result != 0) {
        link_close(link);
        return result;
    }
    link->connecting = true;
    return 0;
}

void link_close(struct link *link)
{
    tls_close(link->tls);
    link->tls = NULL;
    if (link->fd >= 0) {
        (void) close(link->fd);
        link->fd = -1;
    }
    if (link->reader != NULL) {
        redisReaderFree(link->reader);
        link->reader = NULL;
    }
    free(link->out);
    link->out = NULL;
    link->out_size = link->out_length = link->out_sent = link->received = 0;
    link->connecting = false;
}

void link_free(struct link *link)
{
    link_close(link);
    free(link->integers);
    link->integers = NULL;
    link->integer_size = link->integer_count = 0;
}

int link_connected(struct link *link)
{
    if (!link->connecting) {
        return 0;
    }
    struct pollfd fd = {.fd = link->fd, .events = POLLOUT};
    if (poll(&fd, 1, 0) <= 0) {
        return -EINPROGRESS;
    }
    int error = 0;
    socklen_t length = sizeof(error);
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        return -errno;
    }
    if (error == 0 && link->target.tls != NULL) {
        error = -tls_open(link->target.tls, link->fd, link->target.name, &link->tls);
    }
    link->connecting = error != 0;
    return -error;
}

/* Room for so many bytes more, behind what is queued; NULL: out of memory. */
static char *out_room(struct link *link, size_t length)
{
    if (link->out_sent == link->out_length) {
        link->out_sent = link->out_length = 0;
    }
    if (link->out_length + length > link->out_size) {
        const size_t size = (link->out_length + length) * 2;
        char *grown = realloc(link->out, size);
        if (grown == NULL) {
            return NULL;
        }
        link->out = grown;
        link->out_size = size;
    }
    return link->out + link->out_length;
}

/* "*2\r\n" and the like. */
static char *write_length(char *to, char kind, size_t length)
{
    *to++ = kind;
    to += decimal_write(to, length);
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

int link_command(struct link *link, int argc, const char **argv, const size_t *lengths)
{
    size_t most = LENGTH_MOST;
    for (int i = 0; i < argc; i++) {
        most += LENGTH_MOST + lengths[i] + 2;
    }
    char *const begin = out_room(link, most);
    if (begin == NULL) {
        return -ENOMEM;
    }
    char *to = write_length(begin, '*', (size_t) argc);
    for (int i = 0; i < argc; i++) {
        to = write_length(to, '$', lengths[i]);
        memcpy(to, argv[i], lengths[i]);
        to += lengths[i];
        *to++ = '\r';
        *to++ = '\n';
    }
    link->out_length += (size_t) (to - begin);
    return 0;
}

/* Bytes sent; 0: none can be now; else why the connection is lost. */
static ssize_t send_some(struct link *link, const char *bytes, size_t size)
{
    if (link->tls != NULL) {
        return tls_write(link->tls, bytes, size);
    }
    const ssize_t sent = send(link->fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    return sent;
}

int link_flush(struct link *link)
{
    while (link->out_sent < link->out_length) {
        const ssize_t sent = send_some(link, link->out + link->out_sent, link->out_length - link->out_sent);
        if (sent <= 0) {
            return (int) sent;
        }
        link->out_sent += (size_t) sent;
        link->sent += (size_t) sent;
    }
    return link->tls != NULL ? tls_flush(link->tls) : 0;
}

/* Bytes read; 0: none now; else why the connection is lost. */
static ssize_t read_some(struct link *link, char *buffer, size_t size)
{
    if (link->tls != NULL) {
        return tls_read(link->tls, buffer, size);
    }
    const ssize_t got = recv(link->fd, buffer, size, 0);
    if (got < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -errno;
    }
    return got != 0 ? got : -ECONNRESET;
}

/* Takes in what has come: 1: something; 0: nothing; else why the connection is lost. */
static int receive(struct link *link)
{
    char buffer[RECEIVE_SIZE];
    const ssize_t got = read_some(link, buffer, sizeof(buffer));
    if (got <= 0) {
        return (int) got;
    }
    link->received += (size_t) got;
    if (link->received > link->unread_max || redisReaderFeed(link->reader, buffer, (size_t) got) != REDIS_OK) {
        return -EPROTO;
    }
    return 1;
}

int link_reply(struct link *link, redisReply **reply)
{
    for (;;) {
        void *complete = NULL;
        if (redisReaderGetReply(link->reader, &complete) != REDIS_OK) {
            return -EPROTO;
        }
        if (complete != NULL) {
            link->received = 0;
#ifdef REDIS_REPLY_PUSH
            if (((redisReply *) complete)->type == REDIS_REPLY_PUSH) {
                link_free_reply(link, complete); /* RESP3: it answers nothing */
                continue;
            }
#endif
            *reply = complete;
            return 1;
        }
        const int result = receive(link);
        if (result <= 0) {
            return result;
        }
    }
}

void link_wait_for(const struct link *link, struct pollfd *fd)
{
    const bool writes =
        link->connecting || link->out_sent < link->out_length || (link->tls != NULL && tls_unsent(link->tls));
    *fd = (struct pollfd){.fd = link->fd, .events = (short) (POLLIN | (writes ? POLLOUT : 0))};
}
