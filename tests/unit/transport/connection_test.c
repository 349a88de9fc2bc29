/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport whose servers are this test: attempts, greetings, calls and replies, and how connections are lost. The
 * resolver is this file's, and gives host names sockets of the file system, where nothing has to be waited for.
 *
 * Guards: src/transport/redis/server.c, src/transport/redis/socket.c, src/transport/redis/redis.c
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/redis_scene.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"

#define NOW   SCENE_NOW
#define HOSTS 4

static char directory[64];
static int listeners[HOSTS]; /* of the hosts "0" to "3"; -1: nobody listens there */
static int port_of_tcp;      /* of the host "tcp" */

static void path_of(char host, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void) snprintf(address->sun_path, sizeof(address->sun_path), "%s/%c", directory, host);
}

/* In place of the C library's. A name has the addresses of its letters. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    static struct addrinfo list[HOSTS];
    static struct sockaddr_un addresses[HOSTS];
    static struct sockaddr_in tcp;
    (void) service;
    assert_true((hints->ai_flags & AI_NUMERICSERV) != 0 && hints->ai_socktype == SOCK_STREAM);
    if ((hints->ai_flags & AI_NUMERICHOST) != 0) {
        return EAI_NONAME;
    }
    if (strcmp(name, "none") == 0) {
        errno = ENOMEM;
        return EAI_SYSTEM;
    }
    if (strcmp(name, "tcp") == 0) {
        tcp = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t) port_of_tcp)};
        tcp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        list[0] = (struct addrinfo){.ai_family = AF_INET, .ai_addrlen = sizeof(tcp)};
        list[0].ai_addr = (struct sockaddr *) &tcp;
    }
    for (size_t i = 0; strcmp(name, "tcp") != 0 && i < strlen(name); i++) {
        path_of(name[i], &addresses[i]);
        list[i] = (struct addrinfo){.ai_family = AF_UNIX, .ai_addrlen = sizeof(addresses[i])};
        list[i].ai_addr = (struct sockaddr *) &addresses[i];
        list[i].ai_next = i + 1 < strlen(name) ? &list[i + 1] : NULL;
    }
    *found = list;
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    (void) list;
}

/* In place of the C library's. So many addresses say that they refuse once the attempt has begun. */
static int refusals;

int getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
    const int result = (int) syscall(SYS_getsockopt, fd, level, name, value, length);
    if (level == SOL_SOCKET && name == SO_ERROR && refusals > 0) {
        refusals--;
        *(int *) value = ECONNREFUSED;
    }
    return result;
}

static void host_listen(int host)
{
    struct sockaddr_un address;
    path_of((char) ('0' + host), &address);
    listeners[host] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listeners[host], (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(listeners[host], 8), 0);
}

static int hosts_begin(void **state)
{
    (void) state;
    (void) snprintf(directory, sizeof(directory), "/tmp/weir-connection-XXXXXX");
    assert_non_null(mkdtemp(directory));
    for (int i = 0; i < HOSTS; i++) {
        listeners[i] = -1;
    }
    return 0;
}

static int hosts_end(void **state)
{
    (void) state;
    for (int i = 0; i < HOSTS; i++) {
        struct sockaddr_un address;
        path_of((char) ('0' + i), &address);
        if (listeners[i] >= 0) {
            (void) close(listeners[i]);
        }
        (void) unlink(address.sun_path);
    }
    return rmdir(directory);
}

/* The connection that a host has got; -1: none. */
static int host_accept(int host)
{
    return accept4(listeners[host], NULL, NULL, SOCK_NONBLOCK);
}

/* What a server has got, as a text without CR; "" if nothing. */
static const char *got(int fd)
{
    static char text[8192];
    char bytes[sizeof(text)];
    const ssize_t count = recv(fd, bytes, sizeof(bytes) - 1, 0);
    size_t length = 0;
    for (ssize_t i = 0; i < count; i++) {
        if (bytes[i] != '\r') {
            text[length++] = bytes[i];
        }
    }
    text[length] = '\0';
    return text;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t) strlen(text));
}

static enum transport_event step(struct redis_transport *t, uint64_t now_ns)
{
    return t->base.ops->step(&t->base, now_ns);
}

#define GREETING "*2\n$4\nINFO\n$6\nserver\n*2\n$4\nINFO\n$11\nreplication\n"
#define GREETED  "$10\r\nrun_id:1\r\n\r\n$17\r\nmaster_replid:2\r\n\r\n"

/* A transport on host 0, which is greeted. `fd`: the server's end. */
static struct redis_transport *connect_to_host(int *fd)
{
    host_listen(0);
    struct redis_transport *t = scene_open("redis://0");
    assert_int_equal(step(t, NOW), TRANSPORT_NOTHING);
    *fd = host_accept(0);
    assert_true(*fd >= 0);
    assert_string_equal(got(*fd), GREETING);
    say(*fd, GREETED);
    assert_int_equal(step(t, NOW), TRANSPORT_NOTHING);
    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_READY);
    return t;
}

/* By when a step is due, and for how many descriptors it waits. */
static uint64_t deadline_of(struct redis_transport *t, size_t descriptors)
{
    struct pollfd fds[TRANSPORT_MAX_POLLFDS];
    uint64_t deadline_ns = UINT64_MAX;
    assert_int_equal(t->base.ops->wait_for(&t->base, fds, &deadline_ns), descriptors);
    return deadline_ns;
}

static void test_a_transport_connects_greets_and_is_ready(void **state)
{
    (void) state;
    host_listen(0);
    struct redis_transport *t = scene_open("redis://0");
    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_DOWN);
    assert_string_equal(t->base.ops->server(&t->base), "redis");
    struct round round = {.node = "n"};
    assert_int_equal(t->base.ops->begin(&t->base, &round, NOW), -ENOTCONN);
    assert_int_equal(step(t, NOW), TRANSPORT_NOTHING);
    struct server_conn *server = t->primary;
    assert_string_equal(t->base.ops->server(&t->base), "redis 0:6379");
    const int fd = host_accept(0);
    assert_string_equal(got(fd), GREETING);
    assert_int_equal(server->stage, SERVER_GREETING);
    assert_int_equal(deadline_of(t, 1), NOW + SECOND);
    assert_int_equal(t->base.ops->begin(&t->base, &round, NOW), -ENOTCONN);
    say(fd, "$10\r\nrun_id:1\r");
    (void) step(t, NOW);
    assert_int_equal(server->greetings_due, 2);
    say(fd, "\n\r\n$0\r\n\r\n");
    (void) step(t, NOW + SECOND - 1);
    assert_int_equal(server->stage, SERVER_READY);
    assert_string_equal(server->identity, "1 ");
    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_READY);
    assert_int_equal(deadline_of(t, 1), UINT64_MAX); /* nothing is awaited */
    (void) step(t, NOW + HOUR);
    assert_int_equal(server->stage, SERVER_READY);
    assert_null(t->base.ops->problem(&t->base));
    const struct transport_counts counts = t->base.ops->counts(&t->base);
    assert_int_equal(counts.attempts, 1);
    assert_int_equal(counts.connections, 1);
    assert_int_equal(counts.failures, 0);
    (void) close(fd);
    scene_close(t);
}

/* The pause doubles, and is at least half of that, and never the same for all. */
static void test_attempts_become_rarer_and_are_spread(void **state)
{
    (void) state;
    for (int sentinel = 0; sentinel < 2; sentinel++) {
        bool differs = false;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct redis_transport *t = scene_open(sentinel != 0 ? "redis+sentinel://3/p" : "redis://3");
            struct server_conn *server = t->servers[0];
            t->random = seed;
            uint64_t now_ns = NOW;
            uint64_t wait_ms = 50;
            for (unsigned failures = 0; failures < 12; failures++) {
                assert_int_equal(server->failures, failures);
                (void) step(t, now_ns);
                assert_int_equal(server->failures, failures + 1);
                assert_int_equal(t->counts.failures, failures + 1);
                const uint64_t wait_ns = server->next_try_ns - now_ns;
                assert_in_range(wait_ns, wait_ms * MILLISECOND / 2, wait_ms * MILLISECOND);
                differs = differs || wait_ns > wait_ms * MILLISECOND * 3 / 4;
                now_ns = server->next_try_ns - 1;
                (void) step(t, now_ns++); /* not before */
                assert_true(server->wanted);
                assert_int_equal(deadline_of(t, 0), now_ns);
                const uint64_t most_ms = sentinel != 0 ? 500 : 3000;
                wait_ms = 2 * wait_ms < most_ms ? 2 * wait_ms : most_ms;
            }
            assert_int_equal(t->counts.attempts, 12);
            assert_int_equal(t->counts.connections, 0);
            assert_string_equal(t->problem, "cannot connect: No such file or directory");
            scene_close(t);
        }
        assert_true(differs);
    }
}

/* An attempt begins where the last one has ended, and passes over addresses where nobody listens. */
static void test_the_addresses_of_a_name_have_their_turns(void **state)
{
    (void) state;
    host_listen(1);
    host_listen(3);
    struct redis_transport *t = scene_open("redis://0123");
    static const int reached[] = {1, 3, 1, 3};
    for (size_t i = 0; i < sizeof(reached) / sizeof(reached[0]); i++) {
        (void) step(t, NOW + i * 10 * SECOND);
        assert_int_equal(t->servers[0]->stage, SERVER_GREETING);
        const int fd = host_accept(reached[i]);
        assert_true(fd >= 0);
        assert_int_equal(host_accept(4 - reached[i]), -1);
        (void) close(fd);
        (void) step(t, NOW + i * 10 * SECOND);
        assert_int_equal(t->servers[0]->stage, SERVER_OFF);
        assert_int_equal(host_accept(1), -1);
    }
    scene_close(t);
    t = scene_open("redis://02");
    (void) step(t, NOW);
    assert_string_equal(t->problem, "cannot connect: No such file or directory");
    scene_close(t);
    t = scene_open("redis://none");
    (void) step(t, NOW);
    assert_string_equal(t->problem, "cannot connect: Cannot allocate memory");
    scene_close(t);
}

/*
 * An address may refuse a moment after the attempt has begun, as the system pleases: "localhost" is two addresses, and
 * a Redis listens on one of them. The attempt goes on with the others, and fails once all have refused.
 */
static void test_an_address_that_refuses_later_is_passed_over(void **state)
{
    (void) state;
    host_listen(0);
    host_listen(2);
    struct redis_transport *t = scene_open("redis://0123");
    const struct transport_ops *ops = t->base.ops;
    refusals = 1;
    (void) step(t, NOW);
    assert_int_equal(t->servers[0]->stage, SERVER_CONNECTING);
    assert_false(ops->refused(&t->base));
    assert_int_equal(deadline_of(t, 1), NOW + SECOND); /* of the whole attempt */
    (void) step(t, NOW + 5);
    assert_int_equal(t->servers[0]->stage, SERVER_GREETING);
    assert_int_equal(ops->counts(&t->base).attempts, 1);
    assert_int_equal(ops->counts(&t->base).failures, 0);
    const int fd = host_accept(2); /* nobody listens at 1 */
    assert_string_equal(got(fd), GREETING);
    (void) close(fd);
    (void) close(host_accept(0));
    scene_close(t);
    t = scene_open("redis://0123");
    refusals = 2;
    (void) step(t, NOW);
    (void) step(t, NOW);
    assert_int_equal(refusals, 0);
    assert_int_equal(t->servers[0]->stage, SERVER_OFF);
    assert_true(ops->refused(&t->base));
    assert_string_equal(t->problem, "cannot connect: No such file or directory"); /* of 3 */
    assert_int_equal(ops->counts(&t->base).failures, 1);
    scene_close(t);
    t = scene_open("redis://30");
    refusals = 1;
    (void) step(t, NOW);
    assert_int_equal(t->servers[0]->stage, SERVER_OFF);
    assert_true(ops->refused(&t->base));
    assert_string_equal(t->problem, "cannot connect: Connection refused");
    scene_close(t);
}

static void test_a_socket_sends_at_once_and_is_not_inherited(void **state)
{
    (void) state;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    assert_int_equal(bind(listener, (struct sockaddr *) &address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *) &address, &length), 0);
    port_of_tcp = ntohs(address.sin_port);
    struct redis_transport *t = scene_open("redis://tcp");
    (void) step(t, NOW);
    const int fd = t->servers[0]->socket.fd;
    static const int options[][2] = {{IPPROTO_TCP, TCP_NODELAY}, {SOL_SOCKET, SO_KEEPALIVE}};
    for (size_t i = 0; i < 2; i++) {
        int on = 0;
        length = sizeof(on);
        assert_int_equal(getsockopt(fd, options[i][0], options[i][1], &on, &length), 0);
        assert_true(on != 0);
    }
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    scene_close(t);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    (void) close(listener);
}

/* Of a copy that a child has got, the descriptor is closed, and no memory is given back: the next call does that. */
static void test_a_copy_is_abandoned_without_its_memory(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    const int own = t->primary->socket.fd;
    t->base.ops->abandon(&t->base);
    assert_int_equal(fcntl(own, F_GETFD), -1);
    assert_int_equal(t->primary->socket.fd, -1);
    assert_non_null(t->primary->socket.reader);
    assert_string_equal(got(fd), ""); /* nothing was written: the connection is the parent's */
    (void) close(fd);
    scene_close(t);
}

static void test_what_takes_too_long_is_given_up(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    struct server_conn *server = t->primary;
    /* A reply: the time is that of the oldest call without one. */
    const char *word = "PING";
    const size_t length = 4;
    const struct command ping = {1, &word, &length};
    assert_true(server_call(t, server, (struct call){.kind = CALL_ASKING}, &ping, NOW));
    assert_true(server_call(t, server, (struct call){.kind = CALL_ASKING}, &ping, NOW + 5));
    assert_int_equal(server->deadline_ns, NOW + SECOND);
    assert_int_equal(deadline_of(t, 1), NOW + SECOND);
    (void) step(t, NOW + SECOND - 1);
    assert_string_equal(got(fd), "*1\n$4\nPING\n*1\n$4\nPING\n");
    say(fd, "+PONG\r\n");
    (void) step(t, NOW + 7);
    assert_int_equal(server->deadline_ns, NOW + 7 + SECOND);
    assert_int_equal(server->call_count, 1);
    (void) step(t, NOW + 6 + SECOND);
    assert_int_equal(server->stage, SERVER_READY);
    (void) step(t, NOW + 7 + SECOND);
    assert_int_equal(server->stage, SERVER_OFF);
    assert_string_equal(t->problem, "no answer after 1000 ms");
    assert_int_equal(t->counts.failures, 1);
    assert_int_equal(server->call_count, 0);
    assert_false(server->dropped);
    (void) close(fd);
    /* The greeting. */
    (void) step(t, NOW + 5 * SECOND);
    assert_int_equal(server->stage, SERVER_GREETING);
    t->problem[0] = '\0';
    (void) step(t, NOW + 6 * SECOND - 1);
    assert_int_equal(server->stage, SERVER_GREETING);
    (void) step(t, NOW + 6 * SECOND);
    assert_int_equal(server->stage, SERVER_OFF);
    assert_string_equal(t->problem, "no answer after 1000 ms");
    /* The connection. */
    server->stage = SERVER_CONNECTING;
    server->deadline_ns = NOW + 20 * SECOND;
    assert_false(server_step(t, server, NOW + 20 * SECOND));
    assert_string_equal(t->problem, "no connection after 1000 ms");
    assert_int_equal(t->counts.attempts, 2);
    assert_int_equal(t->counts.connections, 2);
    assert_int_equal(t->counts.failures, 3);
    scene_close(t);
}

static void test_a_reply_answers_the_oldest_call(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    struct server_conn *server = t->primary;
    uint64_t rng = test_seed();
    uint32_t asked = 0;
    uint32_t answered = 0;
    const uint64_t before = server->sequence;
    for (unsigned i = test_draws(3000); i != 0; i--) {
        if (random_below(&rng, 5) < (i % 512 < 256 ? 2 : 3) || asked == answered) {
            char text[12];
            const size_t length = (size_t) snprintf(text, sizeof(text), "%u", asked);
            const char *word = text;
            assert_true(
                server_call(t, server, (struct call){CALL_BATCH, asked++}, &(struct command){1, &word, &length}, NOW));
            assert_int_equal(server->sequence - before, asked);
        } else {
            struct server_reply reply;
            char text[24];
            (void) snprintf(text, sizeof(text), ":%u\r\n", answered);
            say(fd, text);
            assert_true(server_read(t, server, &reply, NOW));
            assert_int_equal(reply.call.kind, CALL_BATCH);
            assert_int_equal(reply.call.batch, answered);
            assert_int_equal(reply.reply->integer, answered++);
            server_free_reply(server, &reply);
            assert_null(reply.reply);
        }
        assert_int_equal(server->call_count, asked - answered);
        (void) step(t, NOW);
        (void) recv(fd, (char[256]){0}, 256, MSG_DONTWAIT);
        assert_in_range(server->socket.out_size, 0, 4096); /* what has been sent takes no memory */
    }
    /* Calls are lost with their connection, the oldest first. */
    server_drop(t, server, NOW);
    struct call call;
    for (; server_take_lost_call(server, &call); answered++) {
        assert_int_equal(call.batch, answered);
    }
    assert_int_equal(answered, asked);
    assert_ptr_equal(server_take_dropped(t), server);
    assert_null(server_take_dropped(t));
    assert_false(server->dropped || t->has_dropped);
    (void) close(fd);
    scene_close(t);
}

/* What the server says, and what is wrong with it. "": it closes the connection. */
static void test_a_connection_that_says_what_it_should_not_is_dropped(void **state)
{
    (void) state;
    char many[32];
    (void) snprintf(many, sizeof(many), "*%d\r\n", (1 << 18) + 1);
    const struct {
        bool greets;
        const char *text, *problem;
    } cases[] = {
        {false, "", "connection lost: Connection reset by peer"},
        {true, "", "connection lost: Connection reset by peer"},
        {false, "-LOADING 90%s of it%n\r\n", "LOADING 90%s of it%n"},
        {true, "-WRONGPASS\t%s%n\r\n", "WRONGPASS\\x09%s%n"},
        {true, ":1\r\n", "an answer that is not weir's: is this a Redis?"},
        {false, ":1\r\n", "an answer to no question"},
        {false, "HTTP/1.1 400\r\n", "an answer that is not Redis's protocol"},
        {true, "HTTP/1.1 400\r\n", "an answer that is not Redis's protocol"},
        {false, many, "an answer that is not Redis's protocol"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void) hosts_end(NULL);
        (void) hosts_begin(NULL);
        host_listen(0);
        struct redis_transport *t = scene_open("redis://0");
        (void) step(t, NOW);
        struct server_conn *server = t->primary;
        const int fd = host_accept(0);
        (void) got(fd);
        if (!cases[i].greets) {
            say(fd, GREETED);
            (void) step(t, NOW);
            assert_int_equal(server->stage, SERVER_READY);
        }
        if (cases[i].text[0] != '\0') {
            say(fd, cases[i].text);
        } else {
            (void) close(fd);
        }
        (void) step(t, NOW);
        assert_int_equal(server->stage, SERVER_OFF);
        assert_string_equal(t->base.ops->problem(&t->base), cases[i].problem);
        assert_string_equal(t->base.ops->server(&t->base), "redis 0:6379");
        assert_int_equal(t->counts.failures, 1);
        if (cases[i].text[0] != '\0') {
            assert_int_equal(recv(fd, (char[1]){0}, 1, 0), 0); /* closed */
            (void) close(fd);
        }
        scene_close(t);
    }
}

/* A server that a Sentinel names as the new primary does not take the old one's place if it refuses the greeting. */
static void test_a_server_that_refuses_the_greeting_takes_nobodys_place(void **state)
{
    (void) state;
    host_listen(0);
    host_listen(1);
    struct redis_transport *t = scene_open("redis://0");
    (void) step(t, NOW);
    struct server_conn *primary = t->primary;
    const int old = host_accept(0);
    (void) got(old);
    say(old, GREETED);
    (void) step(t, NOW);
    t->candidate = server_at(t, "1", "6379", false);
    t->candidate->wanted = true;
    (void) step(t, NOW);
    const int new = host_accept(1);
    (void) got(new);
    say(new, "-WRONGPASS\r\n");
    (void) step(t, NOW);
    assert_ptr_equal(t->primary, primary);
    assert_int_equal(primary->stage, SERVER_READY);
    assert_true(primary->wanted);
    assert_null(t->candidate);
    (void) close(old);
    (void) close(new);
    scene_close(t);
}

/* A server that ends a reply never, or late: 4 MiB are read before it is complete. */
static void test_a_reply_of_more_than_four_mebibytes_is_refused(void **state)
{
    (void) state;
    enum { MOST = 4 << 20 };
    char *zeros = calloc(1, MOST + 1);
    assert_non_null(zeros);
    for (int extra = 0; extra < 2; extra++) {
        (void) hosts_end(NULL);
        (void) hosts_begin(NULL);
        int fd = -1;
        struct redis_transport *t = connect_to_host(&fd);
        struct server_conn *server = t->primary;
        server->stage = SERVER_READY;
        char head[24];
        const size_t length = (size_t) snprintf(head, sizeof(head), "$%d\r\n", MOST);
        say(fd, head);
        redisReply *reply = NULL;
        int result = 0;
        for (size_t sent = 0; sent < MOST - length + (size_t) extra && result == 0;) {
            const size_t left = MOST - length + (size_t) extra - sent;
            const ssize_t part = send(fd, zeros, left, MSG_NOSIGNAL);
            sent += part > 0 ? (size_t) part : 0;
            result = socket_reply(&server->socket, &reply);
        }
        assert_int_equal(result, extra != 0 ? -EPROTO : 0);
        assert_int_equal(server->socket.received, MOST + extra);
        (void) close(fd);
        scene_close(t);
    }
    free(zeros);
}

/* Compares a reply with one that hiredis has made alone. */
static void expect_same(const redisReply *reply, const redisReply *plain)
{
    assert_int_equal(reply->type, plain->type);
    assert_int_equal(reply->integer, plain->integer);
    if (plain->type == REDIS_REPLY_STRING) {
        assert_string_equal(reply->str, plain->str);
    }
    if (plain->type == REDIS_REPLY_ARRAY) {
        assert_int_equal(reply->elements, plain->elements);
        for (size_t i = 0; i < plain->elements; i++) {
            expect_same(reply->element[i], plain->element[i]);
        }
    }
}

/* Writes a random reply in the protocol. */
static size_t write_random(uint64_t *rng, char *out, int depth)
{
    switch (random_below(rng, depth < 3 ? 4 : 2)) {
    case 0:
        return (size_t) sprintf(out, "$3\r\n%03d\r\n", (int) random_below(rng, 1000));
    case 1:
        return (size_t) sprintf(out, ":%d\r\n", (int) random_below(rng, 1000000));
    default: {
        const size_t count = (size_t) random_below(rng, depth == 0 ? 40 : 6);
        size_t length = (size_t) sprintf(out, "*%zu\r\n", count);
        for (size_t i = 0; i < count; i++) {
            length += write_random(rng, out + length, depth + 1);
        }
        return length;
    }
    }
}

/* Replies that come in pieces, and whose integers are in the socket's own memory once it has some. */
static void test_replies_are_those_that_hiredis_reads(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    struct socket *sock = &t->primary->socket;
    uint64_t rng = test_seed();
    for (unsigned draw = test_draws(500); draw != 0; draw--) {
        static char text[1 << 16];
        const size_t length = write_random(&rng, text, 0);
        redisReader *reader = redisReaderCreate();
        void *plain = NULL;
        assert_int_equal(redisReaderFeed(reader, text, length), REDIS_OK);
        assert_int_equal(redisReaderGetReply(reader, &plain), REDIS_OK);
        redisReply *reply = NULL;
        for (size_t at = 0; at < length;) {
            assert_int_equal(socket_reply(sock, &reply), 0);
            const size_t part = (size_t) draw_between(&rng, 1, length - at);
            assert_int_equal(send(fd, text + at, part, MSG_NOSIGNAL), (ssize_t) part);
            at += part;
        }
        assert_int_equal(socket_reply(sock, &reply), 1);
        assert_int_equal(sock->received, 0);
        expect_same(reply, plain);
        socket_free_reply(sock, reply);
        assert_int_equal(sock->integer_count, 0);
        freeReplyObject(plain);
        redisReaderFree(reader);
    }
    /* There is memory for as many as came at once, up to a bound. */
    static const size_t counts[] = {300, 200, 4000, 6000, 6000};
    for (size_t i = 0; i < 5; i++) {
        static char text[1 << 16];
        size_t length = (size_t) sprintf(text, "*%zu\r\n", counts[i]);
        for (size_t n = 0; n < counts[i]; n++) {
            length += (size_t) sprintf(text + length, ":%zu\r\n", n);
        }
        assert_int_equal(send(fd, text, length, MSG_NOSIGNAL), (ssize_t) length);
        redisReply *reply = NULL;
        assert_int_equal(socket_reply(sock, &reply), 1);
        for (size_t n = 0; n < counts[i]; n++) {
            assert_int_equal(reply->element[n]->integer, n);
            const bool own =
                reply->element[n] >= sock->integers && reply->element[n] < sock->integers + sock->integer_size;
            assert_int_equal(own, n < sock->integer_size);
        }
        socket_free_reply(sock, reply);
        assert_int_equal(sock->integer_size, counts[i] < 300 ? 300 : counts[i] < 4096 ? counts[i] : 4096);
    }
    (void) close(fd);
    scene_close(t);
}

/* Commands that the socket does not take at once come in order, and each byte once. */
static void test_commands_wait_for_a_socket_that_is_full(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    struct server_conn *server = t->primary;
    struct socket *sock = &server->socket;
    enum { SIZE = 300000, COMMANDS = 4 };
    char *words = malloc(SIZE);
    char *expected = malloc((SIZE + 40) * COMMANDS);
    char *all = malloc((SIZE + 40) * COMMANDS);
    assert_true(words != NULL && expected != NULL && all != NULL);
    size_t length = 0;
    const size_t sent_before = sock->sent;
    struct pollfd wait;
    socket_wait_for(sock, &wait);
    assert_int_equal(wait.events, POLLIN);
    assert_int_equal(wait.fd, sock->fd);
    size_t had = 0;
    for (int i = 0; i < COMMANDS; i++) {
        memset(words, 'a' + i, SIZE);
        const char *argv[2] = {"SET", words};
        const size_t lengths[2] = {3, SIZE};
        assert_int_equal(socket_command(sock, &(struct command){2, argv, lengths}), 0);
        length += (size_t) sprintf(expected + length, "*2\r\n$3\r\nSET\r\n$%d\r\n", SIZE);
        memset(expected + length, 'a' + i, SIZE);
        length += SIZE;
        memcpy(expected + length, "\r\n", 2);
        length += 2;
        assert_int_equal(socket_flush(sock), 0);
        const ssize_t part = recv(fd, all + had, i == 1 ? length - had : 1000, 0);
        had += part > 0 ? (size_t) part : 0;
    }
    socket_wait_for(sock, &wait);
    assert_int_equal(wait.events, POLLIN | POLLOUT);
    while (had < length) {
        const ssize_t part = recv(fd, all + had, length - had, 0);
        had += part > 0 ? (size_t) part : 0;
        (void) step(t, NOW);
    }
    assert_memory_equal(all, expected, length);
    assert_int_equal(recv(fd, all, 1, 0), -1);
    assert_int_equal(sock->sent - sent_before, length);
    socket_wait_for(sock, &wait);
    assert_int_equal(wait.events, POLLIN);
    free(words);
    free(expected);
    free(all);
    (void) close(fd);
    scene_close(t);
}

#define SECONDS 1760000000 /* fleet time of the answers to a heartbeat */

/* The answers to a round of one window: heartbeat, overrides, window. */
static void say_heartbeat(int fd, unsigned created)
{
    char text[200];
    (void) snprintf(text, sizeof(text), "*8\r\n:%d\r\n:7\r\n:%d000\r\n:3\r\n:1\r\n:1234\r\n:%u\r\n:-12\r\n", SECONDS,
                    SECONDS, created);
    say(fd, text);
}

#define NO_OVERRIDES "*1\r\n$0\r\n\r\n"
#define SUM          "*1\r\n:5\r\n"

static struct report window_report(void)
{
    struct report report = {.kind = REPORT_WINDOW, .count = 5, .demand = 5, .expire_ms = 1000, .status = 1};
    (void) snprintf(report.record, sizeof(report.record), "weir:{a}:1");
    (void) snprintf(report.author, sizeof(report.author), "n-1");
    return report;
}

static void begin(struct redis_transport *t, struct round *round, struct report *report, uint64_t now_ns)
{
    *report = window_report();
    *round = (struct round){.reports = report, .report_count = 1, .node = "n", .node_lifetime_ms = 9000};
    assert_int_equal(t->base.ops->begin(&t->base, round, now_ns), 0);
    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_BUSY);
    assert_int_equal(t->base.ops->begin(&t->base, round, now_ns), -EBUSY);
}

static void test_a_round_ends_with_its_last_answer(void **state)
{
    (void) state;
    int fd = -1;
    struct redis_transport *t = connect_to_host(&fd);
    struct server_conn *server = t->primary;
    struct round round;
    struct report report;
    server->failures = 3;
    (void) strcpy(t->problem, "of earlier");
    begin(t, &round, &report, NOW);
    const size_t sent = (size_t) recv(fd, (char[8192]){0}, 8192, 0); /* begin sends at once */
    assert_int_equal(deadline_of(t, 1), NOW + SECOND);
    say_heartbeat(fd, 77);
    assert_int_equal(step(t, NOW + 1), TRANSPORT_NOTHING);
    say(fd, NO_OVERRIDES);
    assert_int_equal(step(t, NOW + 2), TRANSPORT_NOTHING);
    assert_int_equal(server->failures, 3);
    say(fd, SUM);
    assert_int_equal(step(t, NOW + 3), TRANSPORT_ROUND_DONE);
    assert_int_equal(t->base.ops->state(&t->base), TRANSPORT_READY);
    assert_int_equal(report.status, 0);
    assert_int_equal(report.sum, 5);
    assert_int_equal(round.sent_ns, NOW);
    assert_int_equal(round.received_ns, NOW + 1);
    assert_int_equal(round.fleet_wall_ns, SECONDS * SECOND + 7000);
    assert_int_equal(round.ahead_ns, -12 * (int64_t) MILLISECOND);
    assert_int_equal(round.live_nodes, 3);
    assert_int_equal(round.suspect_nodes, 1);
    assert_int_equal(round.watermark_ns, 1234 * MILLISECOND);
    assert_int_equal(round.sent_size, sent);
    assert_false(round.lost_state || round.overrides_new || t->doubtful);
    assert_int_equal(server->failures, 0);
    assert_null(t->base.ops->problem(&t->base));
    assert_string_equal(t->base.ops->server(&t->base), "redis 0:6379");
    assert_int_equal(deadline_of(t, 1), UINT64_MAX);
    assert_int_equal(step(t, NOW + 4), TRANSPORT_NOTHING);
    /* The heartbeat record is another one: data was lost, and a node's first round does not say so. */
    for (unsigned first = 0; first < 2; first++) {
        begin(t, &round, &report, NOW + 5);
        round.first = first != 0;
        (void) got(fd);
        say_heartbeat(fd, 78 + first);
        say(fd, NO_OVERRIDES SUM);
        assert_int_equal(step(t, NOW + 6), TRANSPORT_ROUND_DONE);
        assert_int_equal(round.lost_state, first == 0);
        assert_true(t->doubtful && !t->lost_state);
    }
    begin(t, &round, &report, NOW + 7);
    (void) got(fd);
    say_heartbeat(fd, 79);
    say(fd, NO_OVERRIDES SUM);
    assert_int_equal(step(t, NOW + 8), TRANSPORT_ROUND_DONE);
    assert_false(round.lost_state || t->doubtful);
    (void) close(fd);
    scene_close(t);
}

static void test_a_round_with_a_lost_call_fails(void **state)
{
    (void) state;
    struct round round;
    struct report report;
    static const struct {
        const char *answers; /* behind that of the heartbeat; NULL: without one */
        uint64_t at_ns;
        enum transport_event event;
        bool drops;
    } cases[] = {
        {NO_OVERRIDES "-ERR no\r\n", NOW, TRANSPORT_ROUND_FAILED, true},
        {NO_OVERRIDES "*1\r\n:5", NOW + SECOND - 1, TRANSPORT_NOTHING, false},
        {NO_OVERRIDES "*1\r\n:5", NOW + SECOND, TRANSPORT_ROUND_FAILED, true},
        {NO_OVERRIDES "-CLUSTERDOWN no\r\n", NOW, TRANSPORT_ROUND_FAILED, false},
        {NULL, NOW + SECOND, TRANSPORT_ROUND_FAILED, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void) hosts_end(NULL);
        (void) hosts_begin(NULL);
        int fd = -1;
        struct redis_transport *t = connect_to_host(&fd);
        begin(t, &round, &report, NOW);
        t->primary->failures = 3;
        t->primary->deadline_ns = NOW + 9 * SECOND;
        if (cases[i].answers != NULL) {
            say_heartbeat(fd, 77);
            say(fd, cases[i].answers);
        }
        assert_int_equal(step(t, cases[i].at_ns), cases[i].event);
        const bool failed = cases[i].event == TRANSPORT_ROUND_FAILED;
        assert_int_equal(report.status, failed ? -EAGAIN : 1);
        assert_int_equal(t->servers[0]->failures, cases[i].drops ? 4 : 3); /* not a good round */
        assert_int_equal(t->round == NULL, failed);
        assert_int_equal(t->doubtful, failed);
        assert_int_equal(round.live_nodes, 0);
        assert_int_equal(t->base.ops->problem(&t->base) != NULL, failed);
        t->round = NULL;
        (void) close(fd);
        scene_close(t);
    }
}

/* In a Cluster the other parts of a round count. */
static void test_a_round_of_a_cluster_does_without_a_lost_part(void **state)
{
    (void) state;
    int fd = -1;
    for (int owned = 0; owned < 3; owned++) {
        (void) hosts_end(NULL);
        (void) hosts_begin(NULL);
        struct redis_transport *t = connect_to_host(&fd);
        struct server_conn *server = t->primary;
        struct round round;
        struct report report = window_report();
        t->cluster = t->slot_map_known = server->in_slot_map = true;
        t->primary = NULL;
        t->slot_map_due_ns = NOW + HOUR;
        memset(t->slot_owner, owned == 2 ? SERVER_NONE : server->index, sizeof(t->slot_owner));
        t->slot_owner[slot_map_cluster_slot(report.record)] = owned == 0 ? server->index : SERVER_NONE;
        server->failures = 1;
        begin(t, &round, &report, NOW);
        assert_string_equal(t->base.ops->server(&t->base), "redis");
        assert_int_equal(deadline_of(t, 1), owned == 0 ? NOW + SECOND : 0);
        t->slot_map_earliest_ns = NOW + HOUR;
        assert_int_equal(deadline_of(t, 1), owned == 2 ? 0 : NOW + SECOND);
        (void) strcpy(t->problem, "of earlier");
        if (owned != 2) {
            say_heartbeat(fd, 77);
            say(fd, owned == 0 ? NO_OVERRIDES SUM : NO_OVERRIDES);
        }
        assert_int_equal(step(t, NOW), owned == 2 ? TRANSPORT_ROUND_FAILED : TRANSPORT_ROUND_DONE);
        assert_int_equal(report.status, owned == 0 ? 0 : -EAGAIN);
        assert_int_equal(server->failures, owned == 2);
        assert_string_equal(t->problem, owned == 0 ? "" : "of earlier");
        assert_int_equal(t->doubtful, owned != 0);
        (void) close(fd);
        scene_close(t);
    }
}

/* A Cluster's server that does not know ASKING would take the next call for one of another server's slot. */
static void test_a_server_that_refuses_asking_is_dropped(void **state)
{
    (void) state;
    for (int refuses = 0; refuses < 2; refuses++) {
        (void) hosts_end(NULL);
        (void) hosts_begin(NULL);
        int fd = -1;
        struct redis_transport *t = connect_to_host(&fd);
        struct server_conn *server = t->primary;
        const char *word = "ASKING";
        const size_t length = 6;
        assert_true(
            server_call(t, server, (struct call){.kind = CALL_ASKING}, &(struct command){1, &word, &length}, NOW));
        say(fd, refuses != 0 ? "-ERR no Cluster\r\n" : "+OK\r\n");
        (void) step(t, NOW);
        assert_int_equal(server->stage, refuses != 0 ? SERVER_OFF : SERVER_READY);
        assert_string_equal(t->problem, refuses != 0 ? "ERR no Cluster" : "");
        (void) close(fd);
        scene_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_transport_connects_greets_and_is_ready, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_attempts_become_rarer_and_are_spread, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_the_addresses_of_a_name_have_their_turns, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_an_address_that_refuses_later_is_passed_over, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_socket_sends_at_once_and_is_not_inherited, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_copy_is_abandoned_without_its_memory, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_what_takes_too_long_is_given_up, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_reply_answers_the_oldest_call, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_server_that_refuses_the_greeting_takes_nobodys_place, hosts_begin,
                                        hosts_end),
        cmocka_unit_test_setup_teardown(test_a_connection_that_says_what_it_should_not_is_dropped, hosts_begin,
                                        hosts_end),
        cmocka_unit_test_setup_teardown(test_a_reply_of_more_than_four_mebibytes_is_refused, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_replies_are_those_that_hiredis_reads, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_commands_wait_for_a_socket_that_is_full, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_round_ends_with_its_last_answer, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_round_with_a_lost_call_fails, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_round_of_a_cluster_does_without_a_lost_part, hosts_begin, hosts_end),
        cmocka_unit_test_setup_teardown(test_a_server_that_refuses_asking_is_dropped, hosts_begin, hosts_end),
    };
    return cmocka_run_group_tests_name("unit/transport/connection", tests, NULL, NULL);
}
