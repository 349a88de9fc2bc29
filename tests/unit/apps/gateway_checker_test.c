/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that looks after the health of backends, turn by turn: the test is its clock, its sockets and its poll().
 *
 * Guards: apps/gateway/backends/checker.c, apps/gateway/backends/health.c, apps/gateway/clock.h
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../apps/gateway/backends/checker.h"
#include "../apps/gateway/log.h"
#include "support/support.h"

#define MOST     4
#define FIRST_FD 1000
#define START_S  100
#define TICK_MS  100

/* What the sockets of a backend do. */
struct peer {
    unsigned opened, closed, asked, read;
    int open_error;       /* why no socket can be opened */
    int send_error;       /* by which a probe is refused */
    enum probe_news news; /* that waits to be read */
};

static struct backends backends;
static struct backend_reports reports;
static struct backend_reports *reporters[] = {&reports};
static struct checker *checker;
static struct peer peers[MOST];
static struct probe_payload payload; /* of the last probe */
static sem_t is_waiting, may_go;
static bool is_stopping;
static uint64_t now_ms;
static char said[4096];

void __wrap_log_line(weir_log_level level, const char *format, ...);
int __wrap_poll(struct pollfd *polled, nfds_t count, int timeout_ms);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
uint32_t __wrap_health_now(void);
int __wrap_probe_open(const struct address *backend);
enum probe_news __wrap_probe_send(int fd, const struct probe_payload *sent, int *error);
enum probe_news __wrap_probe_read(int fd, int *error);
int __real_close(int fd);
int __wrap_close(int fd);

__attribute__((format(printf, 2, 3))) void __wrap_log_line(weir_log_level level, const char *format, ...)
{
    (void) level;
    const size_t length = strlen(said);
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(said + length, sizeof(said) - length, format, arguments);
    va_end(arguments);
    (void) strncat(said, "\n", sizeof(said) - strlen(said) - 1);
}

int __wrap_poll(struct pollfd *polled, nfds_t count, int timeout_ms)
{
    assert_int_equal(timeout_ms, TICK_MS);
    (void) sem_post(&is_waiting);
    (void) sem_wait(&may_go);
    for (nfds_t i = 0; i + 1 < count; i++) {
        const struct peer *peer = &peers[polled[i].fd - FIRST_FD];
        assert_int_equal(polled[i].events, POLLIN);
        polled[i].revents = peer->news != PROBE_NOTHING ? POLLIN : 0;
    }
    polled[count - 1].revents = is_stopping ? POLLIN : 0;
    return 1;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    (void) clock;
    *out = (struct timespec){.tv_sec = (time_t) (now_ms / 1000), .tv_nsec = (long) (now_ms % 1000) * 1000000};
    return 0;
}

uint32_t __wrap_health_now(void)
{
    return (uint32_t) (now_ms / 1000);
}

/* Backend n has the address 10.0.0.n. */
static struct backend_choice choice(unsigned n)
{
    struct backend_choice out = {.weight = 1};
    (void) snprintf(out.text, sizeof(out.text), "10.0.0.%u:7", n);
    out.address.length = sizeof(out.address.u.v4);
    out.address.u.v4.sin_family = AF_INET;
    out.address.u.v4.sin_addr.s_addr = htonl(0x0a000000 + n);
    out.address.u.v4.sin_port = htons(7);
    return out;
}

int __wrap_probe_open(const struct address *backend)
{
    const unsigned n = ntohl(backend->u.v4.sin_addr.s_addr) - 0x0a000000;
    errno = peers[n].open_error;
    peers[n].opened += errno == 0;
    return errno == 0 ? FIRST_FD + (int) n : -1;
}

enum probe_news __wrap_probe_send(int fd, const struct probe_payload *sent, int *error)
{
    struct peer *peer = &peers[fd - FIRST_FD];
    payload = *sent;
    peer->asked++;
    *error = peer->send_error;
    return peer->send_error != 0 ? PROBE_REFUSED : PROBE_NOTHING;
}

enum probe_news __wrap_probe_read(int fd, int *error)
{
    struct peer *peer = &peers[fd - FIRST_FD];
    const enum probe_news news = peer->news;
    peer->read++;
    peer->news = PROBE_NOTHING;
    *error = ECONNREFUSED;
    return news;
}

int __wrap_close(int fd)
{
    if (fd < FIRST_FD) {
        return __real_close(fd);
    }
    peers[fd - FIRST_FD].closed++;
    return 0;
}

/* Puts backends in force: a letter each, "s" for one that serves, "d" for one that drains, "-" for none. */
static void put_in_force(const char *roles)
{
    struct backend_choice choices[MOST];
    char problem[256];
    unsigned count = 0;
    for (unsigned n = 0; roles[n] != '\0'; n++) {
        if (roles[n] != '-') {
            choices[count] = choice(n);
            choices[count++].drain = roles[n] == 'd';
        }
    }
    assert_int_equal(backends_replace(&backends, choices, count, problem, sizeof(problem)), 0);
}

static void start(const struct checker_options *options, const char *roles)
{
    memset(&reports, 0, sizeof(reports));
    memset(peers, 0, sizeof(peers));
    now_ms = START_S * 1000;
    is_stopping = false;
    said[0] = '\0';
    assert_int_equal(sem_init(&is_waiting, 0, 0), 0);
    assert_int_equal(sem_init(&may_go, 0, 0), 0);
    backends_init(&backends, NULL, reporters, 1);
    put_in_force(roles);
    checker = checker_start(&backends, options);
    assert_non_null(checker);
    (void) sem_wait(&is_waiting);
}

static void stop(void)
{
    is_stopping = true;
    (void) sem_post(&may_go);
    checker_stop(checker);
    checker = NULL;
    for (unsigned n = 0; n < MOST; n++) {
        assert_int_equal(peers[n].opened, peers[n].closed);
    }
}

/* Where a test has failed, the thread ends as well. */
static int end(void **state)
{
    (void) state;
    if (checker != NULL) {
        is_stopping = true;
        (void) sem_post(&may_go);
        checker_stop(checker);
        checker = NULL;
    }
    return 0;
}

/* Lets a tick pass, and the thread have its turn. */
static void turn(void)
{
    now_ms += TICK_MS;
    (void) sem_post(&may_go);
    (void) sem_wait(&is_waiting);
}

static void turns(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        turn();
    }
}

static unsigned place_of(unsigned n)
{
    unsigned place = 0;
    while (strcmp(backends.places[place].text, choice(n).text) != 0) {
        place++;
        assert_true(place < BACKEND_PLACES);
    }
    return place;
}

static struct backend_health *health(unsigned n)
{
    return &backends.places[place_of(n)].health;
}

static uint32_t reasons(unsigned n)
{
    return health_reasons(health(n));
}

/* A worker's packet to the backend was refused. */
static void refuse(unsigned n)
{
    (void) health_refused(health(n), choice(n).text, ECONNREFUSED, (uint32_t) (now_ms / 1000));
}

static unsigned count_said(const char *line)
{
    unsigned count = 0;
    for (const char *at = said; (at = strstr(at, line)) != NULL; at += strlen(line)) {
        count++;
    }
    return count;
}

static const struct checker_options no_probes = {.interval_ms = 1000, .rise = 1, .fall = 1};

static void test_one_that_refused_is_tried_each_second_and_is_up_after_three_without_an_error(void **state)
{
    (void) state;
    start(&no_probes, "ss");
    turns(5);
    assert_int_equal(peers[0].asked + peers[1].asked, 0); /* nobody asks one that is up */
    refuse(0);
    for (unsigned tick = 1; tick <= 80; tick++) { /* a trial at once, and one each second */
        turn();
        /* Refused in second 100; the first trial after it is in second 101. */
        assert_int_equal(reasons(0) == 0, now_ms >= 104000);
        assert_int_equal(peers[0].asked, now_ms < 104000 ? 1 + (tick - 1) / 10 : 4);
    }
    assert_int_equal(payload.size, 0);
    assert_int_equal(count_said("backend 10.0.0.0:7 is up: it accepts packets again\n"), 1);
    assert_int_equal(peers[1].asked, 0);
    /* One that is refused in between begins anew, and what was tried the last time counts for nothing. */
    refuse(0);
    turns(15);
    peers[0].send_error = ECONNREFUSED;
    turns(10);
    peers[0].send_error = 0;
    const uint64_t refused_s = atomic_load(&health(0)->refused_at);
    while (reasons(0) != 0) {
        assert_true(now_ms < (refused_s + 4) * 1000);
        turn();
    }
    assert_int_equal(now_ms, (refused_s + 4) * 1000);
    stop();
}

static void test_packets_of_clients_are_trials_too_and_answers_end_them(void **state)
{
    (void) state;
    /* The one backend there is: clients' packets go on, and the checker sends none. */
    start(&no_probes, "sd");
    refuse(0);
    turns(12);
    health_sent_slow(health(0), (uint32_t) (now_ms / 1000)); /* in second 101 */
    while (reasons(0) != 0) {
        assert_true(now_ms < 104000);
        turn();
    }
    assert_int_equal(now_ms, 104000);
    assert_int_equal(peers[0].asked, 0);
    stop();
    /* A client's first packet counts before the checker's first trial, even if its second is the next one. */
    start(&no_probes, "ss");
    refuse(0);
    turns(15);
    health_sent_slow(health(0), 102);
    turns(34);
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    turn();
    assert_int_equal(now_ms, 105000);
    assert_int_equal(reasons(0), 0);
    /* An answer to a trial does it at once, if it comes in a later second than the refusal; one more refusal undoes. */
    refuse(1);
    turns(2);
    peers[1].news = PROBE_ANSWERED;
    turn();
    assert_int_equal(reasons(1), BACKEND_REFUSES);
    turns(10);
    peers[1].news = PROBE_ANSWERED;
    turn();
    assert_int_equal(reasons(1), 0);
    assert_int_equal(count_said("backend 10.0.0.1:7 is up: it replies\n"), 1);
    assert_int_equal(reasons(0), 0);
    peers[1].news = PROBE_REFUSED;
    turn();
    assert_int_equal(reasons(1), BACKEND_REFUSES);
    assert_int_equal(reasons(0), 0);
    stop();
}

static void test_a_trial_that_this_host_cannot_send_says_nothing(void **state)
{
    (void) state;
    start(&no_probes, "ss");
    refuse(0);
    turn();
    (void) health_refused(health(1), choice(1).text, EPERM, START_S);
    assert_int_equal(reasons(1), 0);
    peers[0].open_error = EMFILE; /* the socket is there already */
    turns(38);
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    turn();
    assert_int_equal(reasons(0), 0);
    stop();
    start(&no_probes, "ss");
    peers[0].open_error = EMFILE;
    refuse(0);
    turns(100);
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    peers[0].open_error = ENETUNREACH;
    turns(20);
    assert_true(atomic_load(&health(0)->refused_at) >= START_S + 10);
    peers[0].open_error = 0;
    turns(60);
    assert_int_equal(reasons(0), 0);
    stop();
}

static void test_probes_in_a_row_decide(void **state)
{
    (void) state;
    const struct checker_options options = {
        .payload = {.bytes = "ping", .size = 4}, .interval_ms = 200, .rise = 2, .fall = 3};
    /* What becomes of each probe: "a" answered, "d" by two packets, "." not. And whether the backend is up then. */
    static const struct {
        const char *probes, *up;
    } rows[] = {
        {"aaaaaaaa", "uuuuuuuu"}, {".......", "uu-----"},     {"..a..a...a", "uuuuuuuu--"},   {"...aa.", "uu--uu"},
        {"...a.aa.", "uu----uu"}, {"....d.dd.", "uu-----uu"}, {"...aa...aa.", "uu--uuu--uu"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool was_up = true;
        start(&options, "ss");
        assert_true(backends.has_probes);
        turn();
        for (size_t n = 0; rows[i].probes[n] != '\0'; n++) {
            const bool is_up = rows[i].up[n] == 'u';
            assert_int_equal(peers[0].asked, n + 1);
            peers[1].news = PROBE_ANSWERED;
            peers[0].news = rows[i].probes[n] != '.' ? PROBE_ANSWERED : PROBE_NOTHING;
            turn();
            assert_int_equal(reasons(0) == 0, was_up || is_up); /* it is up with an answer, not a probe later */
            peers[0].news = rows[i].probes[n] == 'd' ? PROBE_ANSWERED : PROBE_NOTHING;
            turn();
            assert_int_equal(reasons(0), is_up ? 0 : BACKEND_HAS_NO_ANSWER);
            assert_int_equal(reasons(1), 0);
            was_up = is_up;
        }
        assert_int_equal(payload.size, 4);
        assert_memory_equal(payload.bytes, "ping", 4);
        assert_int_equal(count_said("backend 10.0.0.0:7 is down: 3 probes in a row had no answer\n") != 0,
                         strchr(rows[i].up, '-') != NULL);
        assert_int_equal(count_said("10.0.0.1"), 0);
        stop();
    }
}

static void test_with_probes_a_refusal_is_over_when_they_are_answered_and_by_nothing_else(void **state)
{
    (void) state;
    const struct checker_options options = {
        .payload = {.bytes = "ping", .size = 4}, .introduces = true, .interval_ms = 1000, .rise = 2, .fall = 3};
    start(&options, "ss");
    turn();
    assert_int_equal(payload.size, 20); /* behind a header of 16 bytes */
    assert_memory_equal(payload.bytes, "\r\n\r\n", 4);
    assert_memory_equal(payload.bytes + 16, "ping", 4);
    for (unsigned n = 0; n < 10; n++) {
        peers[0].news = PROBE_ANSWERED;
        turns(10);
    }
    refuse(0); /* a client's packet: answers count from here on */
    turns(10);
    peers[0].news = PROBE_ANSWERED;
    turn();
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    turns(9);
    peers[0].news = PROBE_ANSWERED;
    turn();
    assert_int_equal(reasons(0), 0);
    /* A probe that is refused, when it is sent or later, is a word of the backend. */
    peers[0].send_error = ECONNREFUSED;
    turns(10);
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    peers[0].send_error = 0;
    turns(15);
    health_sent_slow(health(0), (uint32_t) (now_ms / 1000));
    turns(10); /* it accepts packets, and that is no answer */
    assert_true((reasons(0) & BACKEND_REFUSES) != 0);
    /* Where this host has no socket for a probe, nothing has gone without an answer. */
    stop();
    start(&options, "ss");
    peers[0].open_error = EMFILE;
    turns(200);
    assert_int_equal(reasons(0), 0);
    assert_int_equal(peers[1].asked, 20);
    peers[0].open_error = EHOSTUNREACH;
    turns(11);
    assert_int_equal(reasons(0), BACKEND_REFUSES);
    stop();
}

static void test_silence_is_packets_of_every_second_and_no_reply(void **state)
{
    (void) state;
    const struct checker_options options = {.interval_ms = 1000, .rise = 1, .fall = 1, .silence_seconds = 3};
    /* What clients and the backend do in each second: "s" send, "r" reply, "b" both. And whether the backend is up. */
    static const struct {
        const char *seconds, *up;
    } rows[] = {
        {"ssssss", "uuu---"},
        {"s.sssss", "uuuuu--"},
        {"ss.ss.ss.ss", "uuuuuuuuuuu"},
        {"ssrssss", "uuuuuu-"},
        {"bbbbbbbb", "uuuuuuuu"},
        {"sssssr..", "uuu--uuu"},
        {"sssss.........s..s", "uuu-----------uuuu"},
        {"rrrrr", "uuuuu"},
        {"........", "uuuuuuuu"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        start(&options, "ss");
        turns(9);
        for (size_t n = 0; rows[i].seconds[n] != '\0'; n++) {
            const char does = rows[i].seconds[n];
            turn(); /* the second begins */
            atomic_fetch_add(&reports.of[place_of(0)].sent, does == 's' || does == 'b');
            atomic_fetch_add(&reports.of[place_of(0)].replies, does == 'r' || does == 'b');
            turns(9);
            assert_int_equal(reasons(0), rows[i].up[n] == 'u' ? 0 : BACKEND_IS_SILENT);
            assert_int_equal(reasons(1), 0);
        }
        assert_int_equal(
            count_said("backend 10.0.0.0:7 is down: clients sent it packets for 3 seconds, and it replied to none\n"),
            strchr(rows[i].up, '-') != NULL);
        stop();
    }
    /* The only one that serves is not spared, so it gets clients anyway. */
    start(&options, "sd");
    for (unsigned n = 0; n < 30; n++) {
        turns(10);
        atomic_fetch_add(&reports.of[place_of(0)].sent, n < 5);
        assert_int_equal(reasons(0) == 0, n < 4);
    }
    stop();
}

static void test_it_is_told_once_that_all_are_down(void **state)
{
    (void) state;
    static const char none[] = "all 2 backends are down: packets go on to them as if all were up\n";
    static const char again[] = "packets go to the backends that are up\n";
    start(&no_probes, "sds");
    refuse(1);
    refuse(0);
    turns(5);
    assert_int_equal(count_said(none), 0);
    refuse(2);
    turns(5);
    assert_int_equal(count_said(none), 1);
    assert_int_equal(count_said(again), 0);
    now_ms += 1000;
    (void) health_replied_slow(health(2), choice(2).text, (uint32_t) (now_ms / 1000));
    turns(5);
    assert_int_equal(count_said(again), 1);
    refuse(2);
    turns(5);
    assert_int_equal(count_said(none), 2);
    assert_int_equal(count_said(again), 1);
    stop();
    start(&no_probes, "sd"); /* of one there is nothing to say beside its own line */
    refuse(0);
    turns(5);
    put_in_force("ss");
    turns(5);
    assert_int_equal(count_said(none) + count_said(again), 0);
    stop();
}

static void test_a_place_that_another_backend_gets_has_another_socket(void **state)
{
    (void) state;
    const struct checker_options options = {
        .payload = {.bytes = "ping", .size = 4}, .interval_ms = 1000, .rise = 1, .fall = 3};
    start(&options, "sss");
    turns(12);
    assert_int_equal(peers[0].asked + peers[1].asked + peers[2].asked, 6);
    put_in_force("s-ss");
    turn();
    assert_true(peers[0].closed == 0 && peers[1].closed == 1 && peers[2].closed == 0);
    assert_true(peers[3].opened == 1 && peers[3].asked == 1);
    peers[1].news = PROBE_REFUSED; /* of nobody */
    turns(50);
    assert_int_equal(peers[1].read, 0);
    assert_int_equal(reasons(3), BACKEND_HAS_NO_ANSWER);
    peers[3].news = PROBE_ANSWERED;
    turn();
    assert_true(peers[3].read == 1 && reasons(3) == 0 && reasons(2) == BACKEND_HAS_NO_ANSWER);
    stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_that_refused_is_tried_each_second_and_is_up_after_three_without_an_error,
                                  end),
        cmocka_unit_test_teardown(test_packets_of_clients_are_trials_too_and_answers_end_them, end),
        cmocka_unit_test_teardown(test_a_trial_that_this_host_cannot_send_says_nothing, end),
        cmocka_unit_test_teardown(test_probes_in_a_row_decide, end),
        cmocka_unit_test_teardown(test_with_probes_a_refusal_is_over_when_they_are_answered_and_by_nothing_else, end),
        cmocka_unit_test_teardown(test_silence_is_packets_of_every_second_and_no_reply, end),
        cmocka_unit_test_teardown(test_it_is_told_once_that_all_are_down, end),
        cmocka_unit_test_teardown(test_a_place_that_another_backend_gets_has_another_socket, end),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_checker", tests, NULL, NULL);
}
