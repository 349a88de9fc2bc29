/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a socket asks of TLS, by a pretended one that turns the bits of each byte over: when a session begins and ends,
 * and that no byte goes past it. The linker's --wrap leads the library's calls here (tests/meson.build), so that this
 * runs in a build without TLS too.
 *
 * Guards: src/transport/redis/socket.c
 */
#include "transport/redis/socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/support.h"

struct tls {
    int fd;
    bool open;
    char unsent[64]; /* accepted, and sent by tls_flush */
    size_t unsent_size;
};

/* The sessions, one for each connection; what the next calls do. */
static struct tls sessions[8];
static size_t session_count, open_count;
static int open_result, lost; /* `lost`: what reads, writes and flushes return */
static size_t accepts;        /* bytes that tls_write takes at once */

int __wrap_tls_open(struct tls_context *context, int fd, const char *name, struct tls **out);
void __wrap_tls_close(struct tls *tls);
ssize_t __wrap_tls_read(struct tls *tls, char *buffer, size_t size);
ssize_t __wrap_tls_write(struct tls *tls, const char *bytes, size_t size);
int __wrap_tls_flush(struct tls *tls);
bool __wrap_tls_unsent(const struct tls *tls);

int __wrap_tls_open(struct tls_context *context, int fd, const char *name, struct tls **out)
{
    assert_ptr_equal(context, sessions);
    assert_string_equal(name, "redis.example");
    if (open_result == 0) {
        *out = &sessions[session_count++];
        **out = (struct tls){.fd = fd, .open = true};
        open_count++;
    }
    return open_result;
}

void __wrap_tls_close(struct tls *tls)
{
    if (tls != NULL) {
        assert_true(tls->open);
        tls->open = false;
        open_count--;
    }
}

static void turn(char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (char) ~bytes[i];
    }
}

ssize_t __wrap_tls_read(struct tls *tls, char *buffer, size_t size)
{
    assert_true(tls->open);
    const ssize_t got = lost != 0 ? lost : recv(tls->fd, buffer, size, MSG_DONTWAIT);
    turn(buffer, got > 0 ? (size_t) got : 0);
    return lost == 0 && got < 0 ? 0 : got;
}

ssize_t __wrap_tls_write(struct tls *tls, const char *bytes, size_t size)
{
    assert_true(tls->open);
    const size_t count = size < accepts ? size : accepts;
    memcpy(tls->unsent + tls->unsent_size, bytes, count);
    turn(tls->unsent + tls->unsent_size, count);
    tls->unsent_size += count;
    accepts -= count;
    return lost != 0 ? lost : (ssize_t) count;
}

int __wrap_tls_flush(struct tls *tls)
{
    assert_true(tls->open);
    if (lost == 0) {
        assert_int_equal(send(tls->fd, tls->unsent, tls->unsent_size, MSG_NOSIGNAL), tls->unsent_size);
        tls->unsent_size = 0;
    }
    return lost;
}

bool __wrap_tls_unsent(const struct tls *tls)
{
    assert_true(tls->open);
    return tls->unsent_size != 0;
}

static int listener;
static char path[108];
static struct socket sock;
static struct socket_target target;

static int listen_there(void **state)
{
    (void) state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void) snprintf(path, sizeof(path), "/tmp/weir-secured-%d", (int) getpid());
    memcpy(address.sun_path, path, sizeof(path));
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(listener, (struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 8), 0);
    target =
        (struct socket_target){.path = path, .tls = (struct tls_context *) (void *) sessions, .name = "redis.example"};
    session_count = open_count = 0;
    open_result = lost = 0;
    accepts = 1000;
    socket_init(&sock);
    return 0;
}

static int listen_no_more(void **state)
{
    (void) state;
    socket_free(&sock);
    assert_int_equal(open_count, 0);
    (void) close(listener);
    return unlink(path);
}

/* Connects, up to the session. Returns the server's end. */
static int connect_there(void)
{
    assert_int_equal(socket_open(&sock, &target), 0);
    assert_null(sock.tls);
    const int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(socket_connected(&sock), 0);
    assert_non_null(sock.tls);
    assert_int_equal(sock.tls->fd, sock.fd);
    return fd;
}

static bool waits_to_write(void)
{
    struct pollfd fd;
    socket_wait_for(&sock, &fd);
    assert_int_equal(fd.fd, sock.fd);
    assert_int_equal(fd.events & ~POLLOUT, POLLIN);
    return (fd.events & POLLOUT) != 0;
}

static void queue_ping(void)
{
    const char *word = "PING";
    const size_t length = 4;
    const struct command ping = {.argc = 1, .argv = &word, .lengths = &length};
    assert_int_equal(socket_command(&sock, &ping), 0);
}

static void test_a_connection_has_one_session_which_ends_with_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < 3; i++) {
        const int server = connect_there(); /* the connection before is closed by that */
        assert_int_equal(session_count, i + 1);
        assert_int_equal(open_count, 1);
        assert_int_equal(socket_connected(&sock), 0); /* and begins no other */
        assert_int_equal(session_count, i + 1);
        (void) close(server);
        if (i == 1) {
            socket_close(&sock);
            assert_int_equal(open_count, 0);
            assert_null(sock.tls);
            socket_close(&sock);
        }
    }
    socket_close(&sock);
    open_result = -ENOMEM;
    assert_int_equal(socket_open(&sock, &target), 0);
    assert_int_equal(socket_connected(&sock), -ENOMEM);
    assert_null(sock.tls);
    socket_close(&sock);
    target.tls = NULL;
    assert_int_equal(socket_open(&sock, &target), 0);
    assert_int_equal(socket_connected(&sock), 0);
    assert_null(sock.tls);
    assert_false(waits_to_write());
    assert_int_equal(session_count, 3);
}

/* A connection that cannot be written to yet, as one is that the other end has not answered. */
static void test_a_session_begins_when_the_connection_stands(void **state)
{
    (void) state;
    assert_int_equal(socket_open(&sock, &target), 0);
    const int server = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    assert_true(server >= 0);
    char bytes[4096] = {0};
    while (send(sock.fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(socket_connected(&sock), -EINPROGRESS);
        assert_null(sock.tls);
        assert_true(waits_to_write());
    }
    while (recv(server, bytes, sizeof(bytes), 0) > 0) {
    }
    assert_int_equal(socket_connected(&sock), 0);
    assert_non_null(sock.tls);
    (void) close(server);
}

static void test_what_is_said_goes_through_the_session(void **state)
{
    (void) state;
    static const char said[] = "*1\r\n$4\r\nPING\r\n";
    char bytes[64];
    const int server = connect_there();
    assert_false(waits_to_write());
    queue_ping();
    accepts = 5;
    assert_int_equal(socket_flush(&sock), 0);
    assert_int_equal(sock.sent, 5);
    assert_true(waits_to_write());
    assert_int_equal(recv(server, bytes, sizeof(bytes), 0), -1); /* all is accepted before it is sent */
    accepts = 1000;
    assert_int_equal(socket_flush(&sock), 0);
    assert_int_equal(sock.sent, sizeof(said) - 1);
    assert_int_equal(recv(server, bytes, sizeof(bytes), 0), sizeof(said) - 1);
    turn(bytes, sizeof(said) - 1);
    assert_memory_equal(bytes, said, sizeof(said) - 1);
    assert_false(waits_to_write());
    sock.tls->unsent_size = 3; /* bytes of a handshake: nothing is queued, and they have to be sent */
    assert_true(waits_to_write());
    assert_int_equal(socket_flush(&sock), 0);
    assert_int_equal(recv(server, bytes, sizeof(bytes), 0), 3);
    assert_false(waits_to_write());

    redisReply *reply = NULL;
    assert_int_equal(socket_reply(&sock, &reply), 0);
    char pong[] = "+PONG\r\n";
    turn(pong, 7);
    assert_int_equal(send(server, pong, 7, 0), 7);
    assert_int_equal(socket_reply(&sock, &reply), 1);
    assert_string_equal(reply->str, "PONG");
    socket_free_reply(&sock, reply);
    (void) close(server);
}

static void test_a_session_that_is_lost_costs_the_connection(void **state)
{
    (void) state;
    redisReply *reply = NULL;
    const int server = connect_there();
    lost = -EPIPE;
    assert_int_equal(socket_reply(&sock, &reply), -EPIPE);
    assert_int_equal(socket_flush(&sock), -EPIPE); /* also where nothing is queued */
    queue_ping();
    assert_int_equal(socket_flush(&sock), -EPIPE);
    assert_int_equal(sock.sent, 0);
    lost = 0;
    (void) close(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_connection_has_one_session_which_ends_with_it, listen_there,
                                        listen_no_more),
        cmocka_unit_test_setup_teardown(test_a_session_begins_when_the_connection_stands, listen_there, listen_no_more),
        cmocka_unit_test_setup_teardown(test_what_is_said_goes_through_the_session, listen_there, listen_no_more),
        cmocka_unit_test_setup_teardown(test_a_session_that_is_lost_costs_the_connection, listen_there, listen_no_more),
    };
    return cmocka_run_group_tests_name("unit/transport/secured_socket", tests, NULL, NULL);
}
