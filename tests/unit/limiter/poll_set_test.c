/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptor for a host's loop, by itself: what makes it readable, once, and what arms it again. No time is waited
 * for: the times are over, or an hour away.
 *
 * Guards: src/limiter/poll_set.c
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "limiter/poll_set.h"
#include "support/support.h"

static struct {
    struct poll_set set;
    int own[2], peer[2]; /* two connections */
    uint64_t later_ns, now_ns;
    size_t descriptors;
    int kept;
} d;

static bool readable(void)
{
    struct pollfd wait = {.fd = d.set.epoll_fd, .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
}

static int open_set(void **state)
{
    (void) state;
    d.descriptors = count_descriptors();
    poll_set_init(&d.set);
    for (size_t i = 0; i < 2; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
        d.own[i] = ends[0];
        d.peer[i] = ends[1];
    }
    d.kept = take_0_away(); /* in a server without an input the set has this one, which is one like any other */
    assert_int_equal(poll_set_open(&d.set, true), 0);
    assert_int_equal(d.set.epoll_fd, 0);
    d.now_ns = real_ns();
    d.later_ns = d.now_ns + HOUR;
    return 0;
}

static int close_set(void **state)
{
    (void) state;
    poll_set_close(&d.set);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    give_back_0(d.kept);
    for (size_t i = 0; i < 2; i++) {
        (void) close(d.own[i]);
        (void) close(d.peer[i]);
    }
    assert_int_equal(count_descriptors(), d.descriptors);
    return 0;
}

static uint64_t update(const struct pollfd *fds, size_t count, bool changed, uint64_t until_ns)
{
    return poll_set_update(&d.set, fds, count, changed, d.now_ns, until_ns);
}

/* Waits for reading from both connections, until an hour is over. */
static void watch_both(bool changed)
{
    const struct pollfd fds[] = {{.fd = d.own[0], .events = POLLIN}, {.fd = d.own[1], .events = POLLIN}};
    assert_int_equal(update(fds, 2, changed, d.later_ns), d.later_ns);
}

static void send_to(size_t i)
{
    assert_int_equal(write(d.peer[i], "x", 1), 1);
}

static void receive(size_t i)
{
    char byte;
    assert_int_equal(read(d.own[i], &byte, 1), 1);
}

static void test_without_a_set_everything_may_be_ready_and_no_time_changes(void **state)
{
    (void) state;
    struct poll_set none;
    const struct pollfd fd = {.fd = -1, .events = POLLIN};
    poll_set_init(&none);
    assert_true(poll_set_take(&none));
    assert_int_equal(poll_set_update(&none, &fd, 1, true, 5, 70), 70);
    assert_true(none.epoll_fd == -1 && none.timer_fd == -1);
    poll_set_close(&none);
}

static void test_it_is_made_once_and_is_readable_until_the_first_update(void **state)
{
    (void) state;
    const int fd = d.set.epoll_fd;
    assert_int_equal(count_descriptors(), d.descriptors + 4 + 2); /* the set and its timer */
    assert_int_equal(poll_set_open(&d.set, true), 0);
    assert_int_equal(d.set.epoll_fd, fd);
    assert_int_equal(count_descriptors(), d.descriptors + 4 + 2);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 && (fcntl(d.set.timer_fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true(readable());
    assert_true(poll_set_take(&d.set)); /* no socket was looked at yet */
    assert_true(readable());
    watch_both(false); /* all are armed the first time */
    assert_false(readable());
    assert_false(poll_set_take(&d.set));
    send_to(1);
    assert_true(readable());
    poll_set_close(&d.set);
    assert_true(d.set.epoll_fd == -1 && d.set.timer_fd == -1);
    assert_int_equal(count_descriptors(), d.descriptors + 4);
    assert_int_equal(poll_set_open(&d.set, false), 0); /* the kernel does not know the host's clock */
    assert_int_equal(count_descriptors(), d.descriptors + 4 + 1);
    assert_int_equal(d.set.timer_fd, -1);
    assert_int_equal(update(NULL, 0, false, 1), 1);
    assert_false(readable());
}

static void test_a_socket_is_told_of_once_until_it_is_armed_again(void **state)
{
    (void) state;
    for (size_t i = 0; i < 2; i++) {
        watch_both(true);
        assert_false(poll_set_take(&d.set));
        send_to(i);
        assert_true(readable());
        assert_true(poll_set_take(&d.set));
        assert_false(readable()); /* though nothing was read */
        assert_false(poll_set_take(&d.set));
        watch_both(false); /* nothing changed: nobody looked at the socket */
        assert_false(readable());
        watch_both(true);
        assert_true(readable() && poll_set_take(&d.set));
        receive(i);
    }
    watch_both(true);
    assert_false(readable());
}

/* Another socket, or another event, is armed without being told of a change; so is one that is new. */
static void test_what_is_waited_for_is_armed_where_it_differs(void **state)
{
    (void) state;
    struct pollfd fds[] = {{.fd = d.own[0], .events = POLLIN}, {.fd = d.own[1], .events = POLLIN}};
    (void) update(fds, 1, true, d.later_ns);
    send_to(1);
    assert_false(readable()); /* not waited for */
    (void) update(fds, 2, false, d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
    assert_false(readable());
    (void) update(fds, 1, false, d.later_ns);
    assert_false(readable());
    (void) update(fds, 2, false, d.later_ns); /* gone meanwhile, and back */
    assert_true(readable() && poll_set_take(&d.set));
    fds[0].events = POLLOUT; /* there is room to write */
    (void) update(fds, 2, false, d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
    fds[0].events = POLLIN | POLLOUT;
    (void) update(fds, 2, false, d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
    fds[0].events = POLLIN;
    (void) update(fds, 2, false, d.later_ns);
    assert_false(readable());
    fds[0].fd = d.own[1];
    fds[1].fd = d.own[0];
    (void) update(fds, 2, false, d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
    receive(1);
    send_to(0);
    (void) update(fds, 2, true, d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
    /* One that waits to write alone is not told of what there is to read. */
    while (write(d.own[0], "x", 1) == 1) {
    }
    fds[0] = (struct pollfd){.fd = d.own[0], .events = POLLOUT};
    (void) update(fds, 1, true, d.later_ns);
    assert_false(readable());
    char bytes[4096];
    while (read(d.peer[0], bytes, sizeof(bytes)) > 0) {
    }
    assert_true(readable() && poll_set_take(&d.set));
}

static void test_the_time_makes_it_readable_and_no_socket_ready(void **state)
{
    (void) state;
    const uint64_t over_ns[] = {d.now_ns, d.now_ns - SECOND, 1, 0};
    watch_both(true);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(update(NULL, 0, false, over_ns[i]), over_ns[i]);
        assert_true(readable());
        assert_false(poll_set_take(&d.set));
        assert_true(readable()); /* until the time is set anew */
        assert_int_equal(update(NULL, 0, false, over_ns[i]), over_ns[i]);
        assert_true(readable());
        assert_int_equal(update(NULL, 0, false, d.later_ns), d.later_ns);
        assert_false(readable());
    }
    watch_both(true);
    const struct pollfd fd = {.fd = d.own[0], .events = POLLIN};
    (void) update(&fd, 1, true, d.now_ns);
    send_to(0);
    assert_true(poll_set_take(&d.set)); /* both */
}

/* Sockets that cannot be put into the set are looked at every 10 ms, until they can. */
static void test_a_socket_that_has_no_place_in_the_set_is_looked_at_often(void **state)
{
    (void) state;
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* which epoll refuses */
    assert_true(file >= 0);
    struct pollfd fds[] = {{.fd = file, .events = POLLIN}, {.fd = d.own[0], .events = POLLIN}};
    const uint64_t soon_ns = d.now_ns + 10 * MILLISECOND;
    assert_int_equal(update(fds, 2, true, d.later_ns), soon_ns);
    assert_int_equal(update(fds, 2, false, d.later_ns), soon_ns);
    assert_int_equal(update(fds, 2, false, soon_ns - 1), soon_ns - 1);
    assert_true(poll_set_take(&d.set)); /* it may be ready */
    send_to(0);
    assert_true(readable() && poll_set_take(&d.set));
    fds[0].fd = d.own[1];
    assert_int_equal(update(fds, 2, false, d.later_ns), d.later_ns);
    assert_true(readable()); /* all were armed again, as nobody knows which were ready */
    assert_true(poll_set_take(&d.set));
    assert_false(poll_set_take(&d.set));
    (void) close(file);
}

/* A socket that was closed has left the set, and another one may have its number. */
static void test_a_socket_with_the_number_of_an_earlier_one_is_waited_for(void **state)
{
    (void) state;
    watch_both(true);
    assert_int_equal(dup2(d.own[1], d.own[0]), d.own[0]);
    send_to(1);
    assert_true(poll_set_take(&d.set)); /* by its first number */
    const struct pollfd fd = {.fd = d.own[0], .events = POLLIN};
    assert_int_equal(update(&fd, 1, true, d.later_ns), d.later_ns);
    assert_true(readable() && poll_set_take(&d.set));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_set_everything_may_be_ready_and_no_time_changes),
        cmocka_unit_test_setup_teardown(test_it_is_made_once_and_is_readable_until_the_first_update, open_set,
                                        close_set),
        cmocka_unit_test_setup_teardown(test_a_socket_is_told_of_once_until_it_is_armed_again, open_set, close_set),
        cmocka_unit_test_setup_teardown(test_what_is_waited_for_is_armed_where_it_differs, open_set, close_set),
        cmocka_unit_test_setup_teardown(test_the_time_makes_it_readable_and_no_socket_ready, open_set, close_set),
        cmocka_unit_test_setup_teardown(test_a_socket_that_has_no_place_in_the_set_is_looked_at_often, open_set,
                                        close_set),
        cmocka_unit_test_setup_teardown(test_a_socket_with_the_number_of_an_earlier_one_is_waited_for, open_set,
                                        close_set),
    };
    return cmocka_run_group_tests_name("unit/limiter/poll_set", tests, NULL, NULL);
}
