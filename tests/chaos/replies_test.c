/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that is no Redis, or no longer: errors that a real Redis rarely gives, malformed answers, answers without
 * an end, and a network without any answer. For nodes this is an outage: they go on limiting, take no memory, and
 * close in time.
 *
 * Guards: src/transport/redis/socket.c, src/transport/redis/server.c, src/transport/redis/answer.c
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "chaos/chaos.h"

#define MEBIBYTE ((size_t) 1 << 20)

/* What is unread of one reply is bounded, and takes some twenty times as much when it is parsed; a sanitizer adds to
 * that what it likes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_BOUND (1024 * MEBIBYTE)
#else
#define MEMORY_BOUND (48 * MEBIBYTE)
#endif

/* What is sent for each piece that comes; and then, where there is any, `tail` again and again. */
struct answer {
    const char *head;
    size_t head_size;
    const char *tail;
    size_t tail_size;
};

#define ANSWER(text)                                                                                                   \
    {                                                                                                                  \
        text, sizeof(text) - 1, NULL, 0                                                                                \
    }
#define ENDLESS(text, then_text)                                                                                       \
    {                                                                                                                  \
        text, sizeof(text) - 1, then_text, sizeof(then_text) - 1                                                       \
    }

struct hostile {
    const struct answer *answer;
    int listener, port; /* port 0: not running */
    pthread_t thread;
    pthread_mutex_t lock;
    bool ends;
};

static bool ends(struct hostile *h)
{
    (void) pthread_mutex_lock(&h->lock);
    const bool now = h->ends;
    (void) pthread_mutex_unlock(&h->lock);
    return now;
}

static bool send_all(int fd, const char *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t sent = send(fd, bytes + at, size - at, MSG_NOSIGNAL); /* gives up after the socket's timeout */
        if (sent <= 0) {
            return false;
        }
        at += (size_t) sent;
    }
    return true;
}

static void serve(struct hostile *h, int fd)
{
    const struct answer *answer = h->answer;
    const struct timeval soon = {.tv_usec = 50000};
    static _Thread_local char tail[65536];
    size_t tail_size = 0;
    while (answer->tail_size != 0 && tail_size + answer->tail_size <= sizeof(tail)) {
        memcpy(tail + tail_size, answer->tail, answer->tail_size);
        tail_size += answer->tail_size;
    }
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon));
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon));
    while (!ends(h)) {
        char buffer[65536];
        const ssize_t got = recv(fd, buffer, sizeof(buffer), 0);
        if (got == 0 || (got > 0 && !send_all(fd, answer->head, answer->head_size))) {
            return;
        }
        while (got > 0 && tail_size != 0 && !ends(h)) {
            if (!send_all(fd, tail, tail_size)) {
                return;
            }
        }
    }
}

static void *hostile_main(void *arg)
{
    struct hostile *h = arg;
    while (!ends(h)) {
        struct pollfd fd = {.fd = h->listener, .events = POLLIN};
        if (poll(&fd, 1, 50) > 0) {
            const int connection = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);
            if (connection >= 0) {
                serve(h, connection);
                (void) close(connection);
            }
        }
    }
    return NULL;
}

static int listen_at_any_port(int backlog, int *port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *) &address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

/* They live as long as the test, whose teardown does not know them: so they are static, and stopped by its own. */
static struct hostile hostiles[CHAOS_NODES];

static void hostile_start(struct hostile *h, const struct answer *answer)
{
    *h = (struct hostile){.answer = answer, .lock = PTHREAD_MUTEX_INITIALIZER};
    h->listener = listen_at_any_port(64, &h->port);
    assert_int_equal(pthread_create(&h->thread, NULL, hostile_main, h), 0);
}

static void hostile_stop(struct hostile *h)
{
    if (h->port != 0) {
        (void) pthread_mutex_lock(&h->lock);
        h->ends = true;
        (void) pthread_mutex_unlock(&h->lock);
        (void) pthread_join(h->thread, NULL);
        (void) close(h->listener);
        h->port = 0;
    }
}

static int replies_teardown(void **state)
{
    for (size_t i = 0; i < CHAOS_NODES; i++) {
        hostile_stop(&hostiles[i]);
    }
    return chaos_teardown(state);
}

static void limits_on(const struct chaos *c, size_t node)
{
    /* "tight" is `local` in an outage. */
    (void) chaos_ask(c, node, CHAOS_TIGHT, 0, 1, CHAOS_TIGHT_LIMIT);
    assert_int_equal(fleet_node_admitted(&c->nodes[node], CHAOS_TIGHT), CHAOS_TIGHT_LIMIT);
    assert_int_equal(chaos_ask(c, node, CHAOS_TIGHT, 0, 1, 10).allowed, 0);
}

/* A node for each answer, all at a time. */
static void survive(void **state, const struct answer *answers, size_t count)
{
    struct chaos *c = chaos_begin(state);
    size_t before[CHAOS_NODES];
    assert_true(count <= CHAOS_NODES);
    c->config.timeout_ms = 200;
    (void) setenv("MALLOC_PERTURB_", "1", 1); /* so that what is taken is present, and seen */
    for (size_t i = 0; i < count; i++) {
        hostile_start(&hostiles[i], &answers[i]);
        (void) snprintf(c->config.url, sizeof(c->config.url), "redis://127.0.0.1:%d", hostiles[i].port);
        chaos_nodes(c, 1);
        before[i] = fleet_node_peak(&c->nodes[i]);
    }
    struct fleet_work work = chaos_usual_work(c, 500);
    work.policies = CHAOS_ALL & ~(1u << CHAOS_TIGHT);
    work.rate = 1000;
    chaos_work(c, work);
    for (size_t i = 0; i < count; i++) {
        chaos_wait_basis(c, i, WEIR_BASIS_OUTAGE);
        limits_on(c, i);
        const size_t now = fleet_node_peak(&c->nodes[i]);
        if (now > before[i] + MEMORY_BOUND) {
            fail_msg("\"%.40s\": %zu MiB more", answers[i].head, (now - before[i]) / MEBIBYTE);
        }
        assert_int_equal(chaos_stats(c, i).sync_count, 0);
    }
    for (size_t i = 0; i < count; i++) {
        assert_true(fleet_node_close(&c->nodes[i]) < 10 * SECOND);
    }
}

#define SURVIVE(state, answers) survive(state, answers, sizeof(answers) / sizeof((answers)[0]))

static void test_errors(void **state)
{
    static const struct answer answers[] = {
        ANSWER("-LOADING Redis is loading the dataset in memory\r\n"),
        ANSWER("-CLUSTERDOWN Hash slot not served\r\n"),
        ANSWER("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"),
        ANSWER("-ERR max number of clients reached\r\n"),
        ANSWER("-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ANSWER("-DENIED Redis is running in protected mode\r\n"),
        ANSWER("-UNKNOWN\x01\x7f\xff%s%n%s%n\r\n"),
        ANSWER("-\r\n"),
    };
    SURVIVE(state, answers);
}

static void test_redirections_to_nowhere(void **state)
{
    static const struct answer answers[] = {
        ANSWER("-MOVED 1 127.0.0.1:1\r\n"),
        ANSWER("-MOVED 99999 :0\r\n"),
        ANSWER("-MOVED\r\n"),
        ANSWER("-ASK 1 127.0.0.1:1\r\n"),
        ANSWER("-ASK -1 [::1]:999999\r\n"),
        ANSWER("-MOVED 1 no-such-host.invalid:6379\r\n"),
    };
    SURVIVE(state, answers);
}

static void test_malformed_replies(void **state)
{
    static const struct answer answers[] = {
        ANSWER("\0\0\0\0"),
        ANSWER("$-7\r\n"),
        ANSWER("*-7\r\n"),
        ANSWER(":99999999999999999999999999\r\n"),
        ANSWER("$999999999999999999999\r\n"),
        ANSWER("*2\r\n$3\r\nfoobar\r\n"),
        ANSWER("\r\n\r\n\r\n"),
        ANSWER("SSH-2.0-OpenSSH_9.2\r\n"),
    };
    SURVIVE(state, answers);
}

static void test_replies_of_other_kinds(void **state)
{
    static const struct answer answers[] = {
        ANSWER("_\r\n"),
        ANSWER("#t\r\n,1.5\r\n(123456789012345678901234567890\r\n"),
        ANSWER("%1\r\n+key\r\n:1\r\n"),
        ANSWER("~2\r\n:1\r\n:2\r\n>2\r\n+message\r\n+x\r\n"),
        ANSWER("*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n*0\r\n"),
        ANSWER("$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n"),
        ANSWER(":-1\r\n:-1\r\n:-1\r\n:-1\r\n:-1\r\n:-1\r\n:-1\r\n:-1\r\n"),
        ANSWER("$5\r\nhello\r\n$5\r\nhello\r\n+OK\r\n"),
    };
    SURVIVE(state, answers);
}

static void test_replies_without_an_end(void **state)
{
    static const struct answer answers[] = {
        ENDLESS("+", "aaaaaaaaaaaaaaaa"),
        ENDLESS("-ERR ", "aaaaaaaaaaaaaaaa"),
        ENDLESS("$536870912\r\n", "aaaaaaaaaaaaaaaa"),
        ENDLESS("*1000000\r\n", ":1\r\n"),
        ENDLESS("", "*1\r\n"),
        ENDLESS("", ":1\r\n"),
        ENDLESS("", "+OK\r\n"),
        ENDLESS("", "\r\n"),
    };
    SURVIVE(state, answers);
}

/* What a reply says of its length is no reason to take memory: nothing of it has come. */
static void test_replies_that_promise_too_much(void **state)
{
    static const struct answer answers[] = {
        ANSWER("*20000000\r\n"),
        ANSWER("*3\r\n*20000000\r\n"),
        ANSWER("$400000000\r\n"),
        ANSWER("*20000000\r\n:1\r\n:1\r\n"),
    };
    SURVIVE(state, answers);
}

/* A Redis that greets well and carries out commands, but something else comes in place of its reply. */
static void test_garbage_in_place_of_replies(void **state)
{
    static const struct answer garbage[] = {
        ANSWER("*-1\r\n"),
        ANSWER("garbage\r\n"),
        ANSWER("*4\r\n:1\r\n:2\r\n:3\r\n"),
        ANSWER("*4\r\n:-5\r\n:2\r\n:3\r\n:4\r\n"),
        ANSWER("-ERR no\r\n-ERR no\r\n"),
        ANSWER("*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n*1\r\n$4\r\nnone\r\n*1\r\n:1\r\n"),
    };
    struct chaos *c = chaos_begin(state);
    chaos_nodes(c, 2);
    chaos_work(c, chaos_usual_work(c, 200));
    chaos_work_begin(c, chaos_usual_work(c, 3000));
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        const uint64_t before = proxy_harm(&c->proxy);
        const uint64_t until_ns = real_ns() + 60 * SECOND;
        proxy_mangle(&c->proxy, garbage[i].head, garbage[i].head_size);
        while (proxy_harm(&c->proxy) == before && real_ns() < until_ns) {
            chaos_nap_ms(5);
        }
        chaos_nap_ms(50);
        proxy_set(&c->proxy, PROXY_PASS);
        proxy_retarget(&c->proxy, NULL);
        chaos_nap_ms(300);
    }
    chaos_work_end(c);
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

/* No connection is made: packets are dropped, as by a firewall. Also a connection that is made and stays silent. */
static void test_a_black_hole(void **state)
{
    struct chaos *c = chaos_begin(state);
    char through_proxy[160];
    int port = 0;
    int fillers[16];
    memcpy(through_proxy, c->config.url, sizeof(through_proxy));
    const int listener = listen_at_any_port(0, &port);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((in_port_t) port)};
    for (size_t i = 0; i < 16; i++) { /* more than fit the backlog: from then on, no answer to a SYN */
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        (void) connect(fillers[i], (struct sockaddr *) &address, sizeof(address));
    }
    (void) snprintf(c->config.url, sizeof(c->config.url), "redis://127.0.0.1:%d", port);
    chaos_nodes(c, 1);
    proxy_set(&c->proxy, PROXY_BLACKHOLE);
    memcpy(c->config.url, through_proxy, sizeof(through_proxy));
    chaos_nodes(c, 1);
    chaos_work(c, chaos_usual_work(c, 1000));
    for (size_t i = 0; i < 2; i++) {
        chaos_wait_basis(c, i, WEIR_BASIS_OUTAGE);
        (void) chaos_ask(c, i, CHAOS_TIGHT, 0, 1, CHAOS_TIGHT_LIMIT);
        assert_int_equal(chaos_ask(c, i, CHAOS_TIGHT, 0, 1, 10).allowed, 0);
        assert_int_equal(chaos_stats(c, i).sync_count, 0);
    }
    assert_true(fleet_node_close(&c->nodes[0]) < 10 * SECOND);
    for (size_t i = 0; i < 16; i++) {
        (void) close(fillers[i]);
    }
    (void) close(listener);
    /* The other node's network comes back, and the node reports everything. */
    proxy_set(&c->proxy, PROXY_PASS);
    fleet_node_drop(&c->nodes[0]);
    c->nodes[0] = c->nodes[1];
    memset(&c->nodes[1], 0, sizeof(c->nodes[1]));
    c->node_count = 1;
    chaos_settle(c);
    chaos_compare(c, &c->primary);
}

#define replies_test(f) cmocka_unit_test_setup_teardown(f, chaos_setup, replies_teardown)

int main(int argc, char **argv)
{
    int code = 0;
    if (chaos_main(argc, argv, &code)) {
        return code;
    }
    const struct CMUnitTest tests[] = {
        replies_test(test_errors),
        replies_test(test_redirections_to_nowhere),
        replies_test(test_malformed_replies),
        replies_test(test_replies_of_other_kinds),
        replies_test(test_replies_without_an_end),
        replies_test(test_replies_that_promise_too_much),
        replies_test(test_garbage_in_place_of_replies),
        replies_test(test_a_black_hole),
    };
    return cmocka_run_group_tests_name("chaos/replies", tests, NULL, NULL);
}
