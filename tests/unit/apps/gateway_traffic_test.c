/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-traffic from its first packet to its last row, in a network and a time of the test's own: how much each client
 * has sent by when, and what the rows say of it. Each run is a process of its own.
 *
 * Guards: apps/gateway/traffic.c, apps/gateway/echo.c
 */
#undef main
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../apps/gateway/burst.h"
#include "../apps/gateway/offload.h"
#include "../apps/gateway/outbox.h"
#include "../apps/gateway/traffic.h"
#include "support/support.h"

#define FIRST_FD    500
#define CLIENTS     600
#define TURNS       20000
#define ROWS_SIZE   20000
#define START_NS    (777 * SECOND + 1)
#define REFUSED_ONE 9 /* of so many packets, one cannot be sent */

int traffic_main(int argc, char **argv);

struct client {
    uint32_t address;
    uint64_t registered; /* what epoll gives back */
    uint64_t tried, sent, replies, bytes;
    bool connected, merges;
};

/* What the run did, in memory that it shares with the test. */
static struct shared {
    struct client clients[CLIENTS];
    size_t count;
    uint64_t now_ns, turn_ns; /* turn_ns: how far a turn brings the time, above what it waits */
    uint64_t packets;
    size_t turns;
    struct {
        uint64_t begun_ns, tried; /* before the wait */
        int wait_ms;
    } turn[TURNS];
    bool can_segment, answers, v6;
    unsigned opened, interrupt_at;
    size_t reply_turn;
    uint64_t echoed, flushed;
    uint64_t replied_ns, silent_from; /* the last reply, and the turn from which there are none; 0: never */
} * s;

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_socket(int family, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int wait_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC) {
        abort();
    }
    *out = (struct timespec){.tv_sec = (time_t) (s->now_ns / SECOND), .tv_nsec = (long) (s->now_ns % SECOND)};
    return 0;
}

/* In the run's process a failed assertion ends it. */
static void hold(bool good)
{
    if (!good) {
        _exit(99);
    }
}

static struct client *client_of(int fd)
{
    hold(fd >= FIRST_FD && fd < FIRST_FD + (int) s->count);
    return &s->clients[fd - FIRST_FD];
}

int __wrap_socket(int family, int type, int protocol)
{
    hold(family == (s->v6 ? AF_INET6 : AF_INET) && type == (SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC) &&
         protocol == 0 && s->count < CLIENTS);
    return FIRST_FD + (int) s->count++;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    const struct sockaddr_in *from = (const struct sockaddr_in *) (const void *) address;
    hold(length == sizeof(*from) && from->sin_family == AF_INET && from->sin_port == 0 && !s->v6);
    client_of(fd)->address = ntohl(from->sin_addr.s_addr);
    return 0;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    const struct sockaddr_in *to = (const struct sockaddr_in *) (const void *) address;
    hold(s->v6 || (length == sizeof(*to) && to->sin_port == htons(7001)));
    client_of(fd)->connected = true;
    return 0;
}

int __wrap_epoll_create1(int flags)
{
    hold(flags == EPOLL_CLOEXEC);
    return 400;
}

int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    hold(epoll == 400 && what == EPOLL_CTL_ADD && event->events == EPOLLIN);
    client_of(fd)->registered = event->data.u64;
    return 0;
}

/* A turn: some clients have replies, and time passes. */
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int most, int wait_ms)
{
    int count = 0;
    hold(epoll == 400 && s->turns < TURNS && most == 64);
    s->turn[s->turns].begun_ns = s->now_ns;
    s->turn[s->turns].tried = s->packets;
    s->turn[s->turns].wait_ms = wait_ms;
    s->turns++;
    s->now_ns += (uint64_t) wait_ms * MILLISECOND + s->turn_ns;
    const bool silent = s->silent_from != 0 && s->turns >= s->silent_from;
    for (size_t n = 0; s->answers && !silent && n < s->count && count < most; n++) {
        const size_t i = (64 * s->turns + n) % s->count;
        if (s->clients[i].sent > s->clients[i].replies) {
            events[count++] = (struct epoll_event){.events = EPOLLIN, .data.u64 = s->clients[i].registered};
        }
    }
    if (s->interrupt_at != 0 && s->turns == s->interrupt_at) {
        (void) raise(SIGTERM);
    }
    return count;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int wait_ms)
{
    hold(count == 1 && fds->fd == FIRST_FD && fds->events == POLLIN);
    s->turns++;
    if (s->interrupt_at != 0 && s->turns == s->interrupt_at) {
        _exit(0);
    }
    s->now_ns += (uint64_t) wait_ms * MILLISECOND;
    return 1;
}

bool address_parse(const char *text, struct address *out)
{
    *out = (struct address){.u.v4 = {.sin_family = AF_INET, .sin_port = htons(7001)}, .length = sizeof(out->u.v4)};
    if (strchr(text, '[') != NULL) {
        out->u.any.sa_family = AF_INET6;
        out->length = sizeof(out->u.v6);
    }
    return true;
}

int address_bind_udp(const struct address *address)
{
    hold(address->u.v4.sin_port == htons(7001));
    s->count = 1;
    return FIRST_FD;
}

bool offload_receive(int fd)
{
    client_of(fd)->merges = true;
    return true;
}

bool offload_can_send(int fd)
{
    (void) client_of(fd);
    return s->can_segment;
}

void burst_ready(struct burst *burst, size_t first, size_t end, bool with_address)
{
    (void) burst;
    hold(first == 0 && (end == BURST_COUNT || end <= 3) && (!with_address || s->echoed != UINT64_MAX));
}

/* Three messages of each socket that is asked, whose replies are as many as were sent and not answered yet. */
size_t burst_receive(struct burst *burst, int fd, size_t first, int *error)
{
    (void) burst;
    (void) client_of(fd);
    hold(first == 0 && error == NULL);
    s->reply_turn = (size_t) (fd - FIRST_FD);
    return 3;
}

size_t burst_split(struct burst *burst, size_t end, struct burst_cursor *cursor, struct datagram *out)
{
    struct client *client = &s->clients[s->reply_turn];
    hold(end == 3 && cursor->offset == 0);
    if (cursor->message++ == 3) {
        return 0;
    }
    if (!s->answers) { /* an echo: two a message, of one sender each */
        burst->from[cursor->message].length = (socklen_t) (100 + cursor->message);
        out[0] = (struct datagram){.data = burst->packets[0], .size = 10, .message = cursor->message};
        out[1] = (struct datagram){.data = burst->packets[1], .size = 20, .message = cursor->message};
        return 2;
    }
    const uint64_t open = client->sent - client->replies;
    const uint64_t count = cursor->message < 3 ? 1 : 2;
    client->replies += open < count ? 0 : count;
    s->replied_ns = open < count ? s->replied_ns : s->now_ns;
    return open < count ? 0 : (size_t) count;
}

void outbox_open(struct outbox *box, int fd, int family, bool segments)
{
    memset(box, 0, sizeof(*box));
    hold(fd == (s->answers || s->count != 1 ? -1 : fd) && family == (s->v6 ? AF_INET6 : AF_INET));
    box->fd = fd;
    box->segments = segments;
    s->opened += segments ? 100 : 1;
}

void outbox_add(struct outbox *box, const struct datagram *datagram, const struct address *to,
                const struct in6_addr *local)
{
    struct client *client = client_of(box->fd);
    if (to != NULL) {
        hold(to->length == 100 + datagram->message && memcmp(local, &in6addr_any, sizeof(*local)) == 0);
        s->echoed += datagram->size;
        return;
    }
    hold(local == NULL && memcmp(datagram->data, "weir-traffic", 12) == 0 && box->count < OUTBOX_COUNT);
    box->count++;
    box->added++;
    client->tried++;
    client->bytes += datagram->size;
    s->packets++;
    if (s->packets % REFUSED_ONE != 0) {
        box->sent++;
        client->sent++;
    }
}

void outbox_flush(struct outbox *box)
{
    box->count = 0;
    s->flushed++;
}

/* Runs weir-traffic with some words, split at spaces; its rows are in `rows`. */
static void run(const char *words, char rows[ROWS_SIZE])
{
    int pipes[2];
    char text[400], *argv[32];
    int argc = 0;
    size_t length = 0;
    (void) snprintf(text, sizeof(text), "weir-traffic %s", words);
    for (char *rest = text, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) dup2(pipes[1], STDOUT_FILENO);
        (void) close(pipes[0]);
        (void) close(pipes[1]);
        const int code = traffic_main(argc, argv);
        (void) fflush(stdout);
        _exit(code);
    }
    (void) close(pipes[1]);
    for (ssize_t got; (got = read(pipes[0], rows + length, ROWS_SIZE - 1 - length)) > 0; length += (size_t) got) {
    }
    rows[length] = '\0';
    (void) close(pipes[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void begin(uint64_t turn_ns)
{
    memset(s, 0, sizeof(*s));
    s->now_ns = START_NS;
    s->turn_ns = turn_ns;
    s->answers = true;
}

struct sums {
    uint64_t tried, sent, replies;
};

static struct sums sum_of(size_t first, size_t count)
{
    struct sums sums = {0, 0, 0};
    for (size_t i = first; i < first + count; i++) {
        sums.tried += s->clients[i].tried;
        sums.sent += s->clients[i].sent;
        sums.replies += s->clients[i].replies;
    }
    return sums;
}

static void test_each_client_sends_in_turn_what_is_due_by_then(void **state)
{
    (void) state;
    static char rows[ROWS_SIZE];
    static const uint64_t turns_ns[] = {0, 250000, 7000000, 130000000};
    for (unsigned i = 0; i < sizeof(turns_ns) / sizeof(turns_ns[0]); i++) {
        begin(turns_ns[i]);
        run("--to :7001 --seconds 2 --client some,300,9000 --client few,7,333,1400 --json", rows);
        assert_int_equal(s->count, 307);
        assert_int_equal(s->opened, 2);
        uint64_t end_ns = 0;
        for (size_t turn = 0; turn < s->turns && s->turn[turn].wait_ms == 1; turn++) {
            const uint64_t elapsed_ns = s->turn[turn].begun_ns - START_NS;
            const uint64_t due = 9000 * elapsed_ns / SECOND + 333 * elapsed_ns / SECOND;
            assert_int_equal(s->turn[turn].tried, due);
            end_ns = elapsed_ns + MILLISECOND + turns_ns[i];
        }
        assert_true(end_ns >= 2 * SECOND && end_ns - MILLISECOND - turns_ns[i] < 2 * SECOND);
        /* Then it waits for replies, until the last is there. */
        assert_int_equal(s->turn[s->turns - 1].wait_ms, s->now_ns == START_NS + end_ns ? 1 : 10);
        assert_true(s->now_ns == START_NS + end_ns || s->now_ns == s->replied_ns);
        assert_int_equal(sum_of(0, 307).replies, sum_of(0, 307).sent);
        for (size_t n = 0; n < s->count; n++) {
            const struct client *client = &s->clients[n];
            const unsigned k = (unsigned) (n < 300 ? n : n - 300);
            assert_int_equal(client->address,
                             0x7f000000U + (n < 300 ? 0x100000U : 0x110000U) + 256 * (k / 250) + k % 250 + 1);
            assert_int_equal(client->registered, (n < 300 ? 0 : UINT64_C(1) << 32) + FIRST_FD + n);
            assert_true(client->connected && !client->merges);
            assert_int_equal(client->bytes, client->tried * (n < 300 ? 64 : 1400));
            const uint64_t fair = n < 300 ? 9000 * 2 / 300 : 333 * 2 / 7;
            assert_true(client->tried + 65 >= fair && client->tried <= fair + 65 + fair * turns_ns[i] / SECOND);
            assert_true(turns_ns[i] > MILLISECOND || (client->tried + 2 >= fair && client->tried <= fair + 2));
        }
        const struct sums some = sum_of(0, 300), few = sum_of(300, 7);
        char wanted[400];
        (void) snprintf(wanted, sizeof(wanted),
                        "{\"seconds\":%.3f,\"clients\":[{\"name\":\"some\",\"count\":300,\"sent\":%" PRIu64
                        ",\"returned\":%" PRIu64 "},{\"name\":\"few\",\"count\":7,\"sent\":%" PRIu64
                        ",\"returned\":%" PRIu64 "}]}\n",
                        (double) end_ns / 1e9, some.sent, some.replies, few.sent, few.replies);
        assert_string_equal(rows, wanted);
        assert_true(some.replies > 0 && few.replies > 0);
        assert_int_equal(s->flushed > 0, true);
    }
}

static void test_it_waits_for_replies_until_none_has_come_for_a_time(void **state)
{
    (void) state;
    static char rows[ROWS_SIZE];
    static const struct {
        const char *words;
        uint64_t linger_ms;
    } cases[] = {{"", 300}, {" --linger 0", 0}, {" --linger 20000", 20000}, {" --linger 150000", 150000}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (unsigned silent_from = 900; silent_from <= 1020; silent_from += 60) {
            begin(0);
            s->silent_from = silent_from; /* of a thousand turns and those at the end, of 64 clients each */
            char words[100];
            (void) snprintf(words, sizeof(words), "--to :7001 --seconds 1 --client a,500,1000000%s", cases[i].words);
            run(words, rows);
            const uint64_t end_ns = START_NS + SECOND;
            const uint64_t from_ns = s->replied_ns > end_ns ? s->replied_ns : end_ns;
            assert_int_equal(s->replied_ns > end_ns, silent_from > 1000 && cases[i].linger_ms != 0);
            assert_int_equal(s->now_ns, from_ns + cases[i].linger_ms * MILLISECOND);
            assert_true(sum_of(0, 500).replies < sum_of(0, 500).sent);
        }
    }
}

static void test_rows_come_at_their_times_and_tell_rates_and_parts(void **state)
{
    (void) state;
    static char rows[ROWS_SIZE];
    begin(0);
    run("--to :7001 --seconds 1 --report-every 300 --client one,1,1000", rows);
    const char *at = rows;
    static const double seconds[] = {0.3, 0.6, 0.9, 1.0};
    for (unsigned i = 0; i < 4; i++) {
        char told[20], name[20];
        unsigned count;
        double sent, returned, part;
        static const char head[] = " seconds  clients         count       sent/s   returned/s     returned\n";
        assert_int_equal(strncmp(at, head, strlen(head)), 0);
        at += strlen(head);
        assert_int_equal(sscanf(at, "%19s %19s %u %lf %lf %lf%%", told, name, &count, &sent, &returned, &part), 6);
        const double wanted = seconds[i];
        char text[20];
        (void) snprintf(text, sizeof(text), "%.1f", wanted);
        assert_string_equal(told, text);
        assert_string_equal(name, "one");
        assert_int_equal(count, 1);
        /* Of a thousand a second, one in nine cannot be sent; and nearly all are answered. */
        assert_true(sent > 880 && sent < 892);
        assert_true(part > 95 && part <= 100 && returned > 0.95 * sent && returned <= sent);
        at = strchr(at, '\n') + 1;
    }
    assert_int_equal(*at, '\0');
    const struct sums one = sum_of(0, 1);
    char last[200];
    (void) snprintf(last, sizeof(last), "%8.1f  %-12s %8u %12.0f %12.0f %11.1f%%\n", 1.0, "one", 1, (double) one.sent,
                    (double) one.replies, 100.0 * (double) one.replies / (double) one.sent);
    assert_string_equal(at - strlen(last), last);
    /* Without a time it runs until it is told to end. What was not sent has not returned either. */
    begin(0);
    s->interrupt_at = 50;
    run("--to :7001 --seconds 0 --client none,2,0 --client idle,1,1", rows);
    assert_int_equal(s->turn[49].begun_ns, START_NS); /* it does not wait between packets */
    assert_int_equal(s->turn[49].wait_ms, 0);
    assert_int_equal(s->turn[50].wait_ms, 10);
    assert_int_equal(s->turn[49].tried, 50 * 64);
    assert_int_equal(s->clients[0].tried, s->clients[1].tried);
    assert_non_null(strstr(rows, "         0.0%\n"));
}

static void test_datagrams_are_merged_where_that_is_asked_for_and_the_kernel_can(void **state)
{
    (void) state;
    static char rows[ROWS_SIZE];
    for (unsigned with = 0; with < 4; with++) {
        begin(0);
        s->can_segment = (with & 1) != 0;
        s->v6 = with == 3;
        char words[100];
        (void) snprintf(words, sizeof(words), "--to %s --seconds 1 --client a,2,100 %s", s->v6 ? "[::1]:7001" : ":7001",
                        (with & 2) != 0 ? "--offload" : "");
        run(words, rows);
        assert_int_equal(s->clients[1].merges, (with & 2) != 0);
        assert_int_equal(s->opened, with == 3 ? 100 : 1);
        /* An echo answers each packet to where it came from. */
        begin(0);
        s->can_segment = (with & 1) != 0;
        s->answers = false;
        (void) snprintf(words, sizeof(words), "--echo :7001 --seconds 3 %s", (with & 2) != 0 ? "--offload" : "");
        run(words, rows);
        assert_string_equal(rows, "");
        assert_int_equal(s->turns, 15); /* of 200 ms */
        assert_int_equal(s->echoed, 15 * 3 * 30);
        assert_int_equal(s->flushed, 15);
        assert_int_equal(s->clients[0].merges, (with & 2) != 0);
        assert_int_equal(s->opened, with == 3 ? 100 : 1);
    }
}

static void test_an_echo_lasts_until_it_is_stopped(void **state)
{
    (void) state;
    static char rows[ROWS_SIZE];
    for (unsigned i = 0; i < 2; i++) {
        begin(0);
        s->answers = false;
        s->interrupt_at = 100000; /* hours */
        run(i == 0 ? "--echo :7001" : "--echo :7001 --seconds 0", rows);
        assert_int_equal(s->turns, s->interrupt_at);
    }
}

static int open_shared(void **state)
{
    (void) state;
    void *at = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    s = at;
    return at != MAP_FAILED ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_client_sends_in_turn_what_is_due_by_then),
        cmocka_unit_test(test_it_waits_for_replies_until_none_has_come_for_a_time),
        cmocka_unit_test(test_rows_come_at_their_times_and_tell_rates_and_parts),
        cmocka_unit_test(test_datagrams_are_merged_where_that_is_asked_for_and_the_kernel_can),
        cmocka_unit_test(test_an_echo_lasts_until_it_is_stopped),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_traffic", tests, open_shared, NULL);
}
