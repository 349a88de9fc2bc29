/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel's program is told of denials, with memory of its own in place of the kernel's: the test is the clock,
 * the naps of the thread that sweeps, and the program that counts what it drops.
 *
 * Guards: apps/gateway/xdp/xdp.c
 */
#include <arpa/inet.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../apps/gateway/listeners.h"
#include "../apps/gateway/log.h"
#include "../apps/gateway/xdp/link.h"
#include "../apps/gateway/xdp/xdp.h"
#include "support/support.h"

#define START_S 5000

/* The link, as far as it is asked for. */
static struct {
    struct xdp_link_options options;
    struct drop_line *lines;
    struct drop_target target;
    enum link_mode mode;
    bool is_refused, is_open;
    unsigned found, attaches_to; /* 0: none */
    const char *problem;
    unsigned attached; /* how often */
} made;

/* What was logged, and what the watch was told. */
static char logged[1000];
static char watched[100];

static struct policies policies;
static struct fake_clock fake;
static weir *w;
static weir_thread *limits;
static struct xdp *xdp;
static struct xdp_view view;
static sem_t is_napping, may_wake;
static _Atomic bool ends;
static uint64_t naps_ns[64]; /* the first ones of the thread */
static _Atomic size_t nap_count;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_BOOTTIME) {
        return __real_clock_gettime(clock, out);
    }
    *out = (struct timespec){.tv_sec = (time_t) (fake.monotonic_ns / SECOND),
                             .tv_nsec = (long) (fake.monotonic_ns % SECOND)};
    return 0;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void) left;
    if (atomic_load(&ends)) {
        return 0;
    }
    const size_t nap = atomic_fetch_add(&nap_count, 1);
    if (nap < sizeof(naps_ns) / sizeof(naps_ns[0])) {
        naps_ns[nap] = (uint64_t) pause->tv_sec * SECOND + (uint64_t) pause->tv_nsec;
    }
    (void) sem_post(&is_napping);
    (void) sem_wait(&may_wake);
    fake_clock_advance(&fake, (uint64_t) pause->tv_sec * SECOND + (uint64_t) pause->tv_nsec);
    return 0;
}

struct xdp_link *xdp_link_open(const struct xdp_link_options *options, char *problem, size_t size)
{
    made.options = *options;
    made.is_open = !made.is_refused;
    if (made.is_refused) {
        (void) snprintf(problem, size, "as the test wants it");
        return NULL;
    }
    return (struct xdp_link *) (void *) &made;
}

void xdp_link_close(struct xdp_link *link)
{
    assert_true(link == (void *) &made && made.is_open);
    made.is_open = false;
}

unsigned xdp_link_find(const struct xdp_link *link)
{
    (void) link;
    return made.found;
}

unsigned xdp_link_attach(struct xdp_link *link, char *problem, size_t size)
{
    (void) link;
    made.attached++;
    made.found = made.attaches_to;
    if (made.found == 0) {
        (void) snprintf(problem, size, "%s", made.problem);
    }
    return made.found;
}

void log_line(weir_log_level level, const char *format, ...)
{
    va_list arguments;
    const size_t length = strlen(logged);
    (void) snprintf(logged + length, sizeof(logged) - length, "%d ", (int) level);
    va_start(arguments, format);
    (void) vsnprintf(logged + length + 2, sizeof(logged) - length - 2, format, arguments);
    va_end(arguments);
    (void) strncat(logged, "\n", sizeof(logged) - strlen(logged) - 1);
}

static void note_watch(void *arg, unsigned interface)
{
    const size_t length = strlen(watched);
    assert_true(arg == &made);
    (void) snprintf(watched + length, sizeof(watched) - length, "%u ", interface);
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    (void) link;
    return made.mode;
}

struct drop_line *xdp_link_lines(struct xdp_link *link)
{
    (void) link;
    return made.lines;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    (void) link;
    return &made.target;
}

uint64_t xdp_link_invalid_sources(const struct xdp_link *link)
{
    (void) link;
    return 0;
}

void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there)
{
    (void) link;
    assert_true(there && (address->family == 4 || address->family == 6));
}

static void test_options_are_an_interface_and_words_each_once(void **state)
{
    (void) state;
    static const struct {
        const char *option;
        bool good, forwards;
        enum link_mode mode;
    } rows[] = {
        {"eth0", true, false, LINK_ANY},
        {"eth0,mode=native", true, false, LINK_NATIVE},
        {"eth0,mode=generic", true, false, LINK_GENERIC},
        {"eth0,forward", true, true, LINK_ANY},
        {"eth0,mode=native,forward", true, true, LINK_NATIVE},
        {"eth0,forward,mode=generic", true, true, LINK_GENERIC},
        {"a23456789b12345,forward", true, true, LINK_ANY}, /* the longest name */
        {"a23456789b123456", false, false, LINK_ANY},
        {"", false, false, LINK_ANY},
        {",mode=native", false, false, LINK_ANY},
        {"eth0,", false, false, LINK_ANY},
        {"eth0,mode=fast", false, false, LINK_ANY},
        {"eth0,mode=nativ", false, false, LINK_ANY},
        {"eth0,mode=natives", false, false, LINK_ANY},
        {"eth0,mode=native,mode=native", false, false, LINK_ANY},
        {"eth0,mode=generic,mode=native", false, false, LINK_ANY},
        {"eth0,forward,forward", false, false, LINK_ANY},
        {"et h0", false, false, LINK_ANY},
        {"et\"h0", false, false, LINK_ANY},
        {"et\\h0,forward", false, false, LINK_ANY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char problem[100] = "";
        const struct xdp_forwarding forwarding = {.workers = (unsigned) (1 + i % 2), .sessions = 1000};
        assert_int_equal(xdp_option_is_good(rows[i].option), rows[i].good);
        assert_int_equal(xdp_wants_forward(rows[i].option), rows[i].forwards);
        if (!rows[i].good) {
            continue;
        }
        made.is_refused = true;
        assert_null(xdp_start(rows[i].option, rows[i].forwards ? &forwarding : NULL, &policies, NULL, problem,
                              sizeof(problem)));
        assert_string_equal(problem, "as the test wants it");
        assert_int_equal(made.options.mode, rows[i].mode);
        assert_int_equal(made.options.forward, rows[i].forwards);
        assert_int_equal(made.options.flows, rows[i].forwards && forwarding.workers > 1 ? 1000 : 0);
        assert_int_equal(strlen(made.options.interface), strcspn(rows[i].option, ","));
        assert_memory_equal(made.options.interface, rows[i].option, strlen(made.options.interface));
    }
    made.is_refused = false;
    assert_false(xdp_wants_forward(NULL));
    assert_false(xdp_get_status(NULL, NULL));
    xdp_stop(NULL);
    xdp_policies_changed(NULL);
    xdp_set_listener(NULL, 0, NULL, false);
}

/* Puts policies in force: one unit each, which is back after a time. A name behind "-" is known, and not in force. */
static void put_in_force(const char *const *names, size_t count, uint64_t period_ns)
{
    weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = period_ns, .burst = 1};
    weir_policy all[POLICIES_MAX];
    size_t given = 0;
    weir_error error;
    for (size_t i = 0; i < count; i++) {
        if (*names[i] != '-') {
            all[given++] = (weir_policy){.name = names[i], .limits = &limit, .limit_count = 1};
        }
    }
    assert_int_equal(weir_set_policies(w, all, given, &error), 0);
    for (size_t i = 0; i < count; i++) {
        struct gateway_policy *policy = &policies.all[i];
        assert_true(policy_kind_read(names[i] + (*names[i] == '-'), &policy->kind));
        atomic_store(&policy->id, *names[i] == '-' ? WEIR_NO_POLICY : weir_find_policy(w, names[i]));
    }
    atomic_store(&policies.count, count);
}

/* Opens all of it. The thread naps. */
static int begin(void **state)
{
    (void) state;
    char problem[100];
    weir_options options = WEIR_OPTIONS_INIT;
    static const char *const names[] = {"source"};
    fake_clock_init(&fake, UINT64_C(1767225600) * SECOND);
    fake.monotonic_ns = START_S * SECOND;
    options.clock = &fake.clock;
    memset(&made, 0, sizeof(made));
    memset(&view, 0, sizeof(view));
    made.lines = calloc(DROP_LINES, sizeof(*made.lines));
    assert_non_null(made.lines);
    made.mode = LINK_GENERIC;
    made.found = 5;
    logged[0] = watched[0] = '\0';
    atomic_store(&ends, false);
    atomic_store(&nap_count, 0);
    assert_int_equal(sem_init(&is_napping, 0, 0), 0);
    assert_int_equal(sem_init(&may_wake, 0, 0), 0);
    w = open_or_fail(&options);
    put_in_force(names, 1, SECOND);
    limits = weir_attach(w);
    xdp = xdp_start("eth0", NULL, &policies, w, problem, sizeof(problem));
    assert_non_null(xdp);
    view.xdp = xdp;
    (void) sem_wait(&is_napping);
    return 0;
}

static int end(void **state)
{
    (void) state;
    atomic_store(&ends, true);
    (void) sem_post(&may_wake);
    xdp_stop(xdp);
    assert_false(made.is_open);
    weir_detach(limits);
    weir_close(w);
    free(made.lines);
    return 0;
}

/* Lets the thread go on from nap to nap for a time. */
static void run_for(uint64_t ns)
{
    for (const uint64_t until_ns = fake.monotonic_ns + ns; fake.monotonic_ns < until_ns;) {
        (void) sem_post(&may_wake);
        (void) sem_wait(&is_napping);
    }
}

static struct address address_of(const char *text)
{
    struct address address;
    memset(&address, 0, sizeof(address));
    address.u.any.sa_family = strchr(text, ':') != NULL ? AF_INET6 : AF_INET;
    address.u.v4.sin_port = htons(700); /* where the other one is as well */
    assert_int_equal(inet_pton(address.u.any.sa_family, text,
                               address.u.any.sa_family == AF_INET ? (void *) &address.u.v4.sin_addr
                                                                  : (void *) &address.u.v6.sin6_addr),
                     1);
    return address;
}

/* The line that has a key. NULL: none has. *count: lines that have one. */
static struct drop_line *line_of(const char *text, unsigned prefix, size_t *count)
{
    struct drop_line *found = NULL;
    struct drop_key key = {.family = strchr(text, ':') != NULL ? 6 : 4, .prefix = (unsigned char) prefix};
    const struct address address = address_of(text);
    memcpy(key.address,
           key.family == 4 ? (const void *) &address.u.v4.sin_addr : (const void *) &address.u.v6.sin6_addr,
           key.family == 4 ? 4 : 16);
    *count = 0;
    for (size_t i = 0; i < DROP_LINES; i++) {
        *count += made.lines[i].key.family != 0;
        found = memcmp(&made.lines[i].key, &key, sizeof(key)) == 0 ? &made.lines[i] : found;
    }
    return found;
}

/* A packet of a source is denied by a policy, as the worker has it; `bytes`: its key. */
static void deny(size_t policy, const char *from, const void *bytes, size_t length, unsigned times)
{
    const struct address address = address_of(from);
    const weir_key key = weir_make_key(w, atomic_load(&policies.all[policy].id), bytes, length);
    for (unsigned i = 0; i < times; i++) {
        (void) weir_check(limits, &key, 1, NULL);
        xdp_denied(&view, limits, &key, &policies.all[policy], &address, (uint32_t) (fake.monotonic_ns / SECOND));
    }
}

static void test_prefixes_are_those_of_the_policies_in_force_the_shortest_first(void **state)
{
    (void) state;
    static const char *const names[] = {"network24",   "source",         "network9_bytes",  "overall",
                                        "network6_32", "network64",      "network6_20.own", "-network16",
                                        "source.own",  "network24_bytes"};
    static const unsigned char wanted4[] = {9, 24, 32}, wanted6[] = {32, 64};
    assert_true(made.target.count4 == 1 && made.target.prefixes4[0] == 32); /* since the start */
    assert_true(made.target.count6 == 1 && made.target.prefixes6[0] == 64);
    put_in_force(names, sizeof(names) / sizeof(names[0]), SECOND);
    xdp_policies_changed(xdp);
    assert_int_equal(made.target.count4, sizeof(wanted4));
    assert_int_equal(made.target.count6, sizeof(wanted6));
    assert_memory_equal(made.target.prefixes4, wanted4, sizeof(wanted4));
    assert_memory_equal(made.target.prefixes6, wanted6, sizeof(wanted6));
    /* More than there is room for: none is written beyond. */
    char many[20][16];
    const char *all[20];
    for (unsigned i = 0; i < 20; i++) {
        (void) snprintf(many[i], sizeof(many[i]), "network%u", 30 - i);
        all[i] = many[i];
    }
    put_in_force(all, 20, SECOND);
    xdp_policies_changed(xdp);
    assert_int_equal(made.target.count4, DROP_PREFIXES);
    assert_int_equal(made.target.count6, 0);
    for (unsigned i = 1; i < DROP_PREFIXES; i++) {
        assert_true(made.target.prefixes4[i - 1] < made.target.prefixes4[i]);
    }
}

static void test_listeners_are_told_with_their_families(void **state)
{
    (void) state;
    static const struct {
        const char *address;
        bool v4, v6, any;
    } rows[] = {
        {"192.0.2.1", true, false, false}, {"2001:db8::1", false, true, false},      {"::", true, true, true},
        {"0.0.0.0", true, false, true},    {"::ffff:192.0.2.1", true, false, false},
    };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct address address = address_of(rows[i].address);
        const unsigned number = 2 * i + 1;
        const struct drop_listener *listener = &made.target.listeners[number];
        xdp_set_listener(xdp, number, &address, i % 2 == 0);
        assert_int_equal(listener->port, htons(700));
        assert_int_equal(listener->is_v4, rows[i].v4);
        assert_int_equal(listener->is_v6, rows[i].v6);
        assert_int_equal(listener->any, rows[i].any);
        assert_int_equal(listener->forwards, i % 2 == 0);
        assert_int_equal(made.target.listener_count, number + 1);
        if (rows[i].v4 && !rows[i].any) {
            const struct address v4 = address_of("192.0.2.1");
            assert_int_equal(listener->address4, v4.u.v4.sin_addr.s_addr);
        } else if (!rows[i].any) {
            assert_memory_equal(listener->address6, &address.u.v6.sin6_addr, 16);
        }
    }
    const struct address address = address_of("192.0.2.1");
    xdp_set_listener(xdp, 0, &address, false); /* before others */
    assert_int_equal(made.target.listener_count, 10);
    xdp_set_listener(xdp, 3, NULL, false);
    assert_true(made.target.listeners[3].port == 0 && made.target.listeners[1].port != 0);
}

static void test_a_key_is_held_until_shortly_before_its_limit_lets_a_packet_pass(void **state)
{
    (void) state;
    static const char *const names[] = {"source"};
    /* When the limit has room again, and for how long the key is held by that; 0: it is not. */
    static const struct {
        uint64_t period_ns, held_ns;
    } rows[] = {
        {1000000, 0},
        {1600000, 0},
        {1800000, 300000},
        {100000000, 98500000},
        {1001000000, 999500000},
        {1002000000, XDP_HOLD_NS},
        {3600 * SECOND, XDP_HOLD_NS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        put_in_force(names, 1, rows[i].period_ns);
        xdp_policies_changed(xdp);
        memset(&view.repeats, 0, sizeof(view.repeats));
        char text[32];
        size_t count, before;
        (void) snprintf(text, sizeof(text), "198.51.100.%zu", i);
        (void) line_of(text, 32, &before);
        deny(0, text, text, strlen(text), REPEATS_LEAST - 1);
        assert_null(line_of(text, 32, &count));
        deny(0, text, text, strlen(text), 1);
        const struct drop_line *line = line_of(text, 32, &count);
        assert_int_equal(line != NULL, rows[i].held_ns != 0);
        assert_int_equal(count, before + (line != NULL));
        if (line != NULL) {
            const uint64_t held_ns = line->until_ns - fake.monotonic_ns;
            assert_true(held_ns <= rows[i].held_ns && held_ns + 1000 >= rows[i].held_ns);
        }
    }
}

static void test_keys_are_held_by_the_addresses_of_their_policy(void **state)
{
    (void) state;
    static const char *const names[] = {"source", "network20", "network6_28", "overall"};
    static const struct {
        size_t policy;
        const char *from, *held;
        unsigned prefix;
    } rows[] = {
        {0, "203.0.113.77", "203.0.113.77", 32},        {1, "203.0.127.77", "203.0.112.0", 20},
        {0, "::ffff:203.0.113.78", "203.0.113.78", 32}, {0, "2001:db8:1:2:3::4", "2001:db8:1:2::", 64},
        {2, "2001:dbf::4", "2001:db0::", 28},           {3, "203.0.113.77", NULL, 0},
    };
    put_in_force(names, 4, 3600 * SECOND);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        size_t count, before;
        (void) line_of("::", 0, &before);
        deny(rows[i].policy, rows[i].from, rows[i].from, 11, 2 * REPEATS_LEAST);
        const struct drop_line *line = line_of(rows[i].held != NULL ? rows[i].held : "::", rows[i].prefix, &count);
        assert_int_equal(line != NULL, rows[i].held != NULL);
        assert_int_equal(count, before + (line != NULL));
    }
    struct xdp_view nothing = {.xdp = NULL}; /* there is no program */
    const struct address from = address_of("203.0.113.77");
    const weir_key key = weir_make_key(w, atomic_load(&policies.all[0].id), "k", 1);
    for (unsigned i = 0; i < 20; i++) {
        xdp_denied(&nothing, limits, &key, &policies.all[0], &from, 1);
    }
}

static void test_what_was_dropped_is_told_and_who_goes_on_is_held_longer(void **state)
{
    (void) state;
    static const char *const names[] = {"source", "source_bytes"};
    const char *going_on = "203.0.113.1", *gone = "203.0.113.2", *counted = "203.0.113.3";
    size_t count;
    struct xdp_status status;
    put_in_force(names, 2, 3600 * SECOND);
    xdp_policies_changed(xdp);
    run_for(SECOND); /* until that has been seen */
    deny(0, going_on, going_on, 11, REPEATS_LEAST);
    deny(0, gone, gone, 11, REPEATS_LEAST);
    deny(1, counted, counted, 11, REPEATS_LEAST);
    struct drop_line *line = line_of(going_on, 32, &count), *last = line_of(gone, 32, &count),
                     *bytes = line_of(counted, 32, &count);
    assert_true(line != NULL && last != NULL && bytes != NULL && count == 3);
    const uint64_t held_until_ns = last->until_ns;
    assert_true(xdp_get_status(xdp, &status));
    assert_true(status.keys == 3 && status.packets == 0 && status.drops && !status.forwards);
    assert_string_equal(status.mode, "generic");
    assert_string_equal(status.interface, "eth0");
    uint64_t packets = 0;
    for (unsigned tenth = 0; tenth < 50; tenth++) { /* five seconds in which packets come, and are dropped */
        assert_true(line->until_ns > fake.monotonic_ns && line->until_ns <= fake.monotonic_ns + XDP_HOLD_NS);
        line->packets += 3;
        line->bytes += 700;
        packets += 3;
        if (tenth == 5) {
            bytes->packets = 2;
            bytes->bytes = 999;
            packets += 2;
        }
        run_for(SECOND / 10);
    }
    run_for(SECOND);
    assert_true(xdp_get_status(xdp, &status));
    assert_int_equal(status.packets, packets);
    assert_int_equal(status.bytes, 50 * 700 + 999);
    assert_int_equal(last->until_ns == held_until_ns || last->key.family == 0, true);
    assert_null(line_of(gone, 32, &count)); /* and let go */
    run_for(3 * SECOND);
    (void) line_of(going_on, 32, &count);
    assert_int_equal(count, 0);
    assert_true(xdp_get_status(xdp, &status) && status.keys == 0);
}

static void test_what_was_dropped_is_told_ten_times_a_second_and_of_many_keys_in_pieces(void **state)
{
    (void) state;
    static const char *const names[] = {"source"};
    static const unsigned keys[] = {50, 20000};
    struct xdp_status before, status;
    run_for(SECOND);
    for (size_t i = 0; i < 20; i++) { /* nothing is held */
        assert_int_equal(naps_ns[i], (i % 2 == 0 ? 2 : 98) * MILLISECOND);
    }
    put_in_force(names, 1, 3600 * SECOND);
    xdp_policies_changed(xdp);
    run_for(SECOND);
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t piece = i == 0 ? 64 : 20000 / 250 + 1;
        for (unsigned n = 0; n < keys[i]; n++) {
            char text[32];
            (void) snprintf(text, sizeof(text), "10.%u.%u.%u", i, n / 200, n % 200);
            deny(0, text, text, strlen(text), REPEATS_LEAST);
        }
        assert_true(xdp_get_status(xdp, &before));
        assert_int_equal(before.keys, i == 0 ? keys[0] : keys[1] + keys[0]);
        for (size_t n = 0; n < DROP_LINES; n++) {
            made.lines[n].packets += made.lines[n].key.family != 0;
        }
        const uint64_t wanted = before.packets + before.keys, until_ns = fake.monotonic_ns + 600 * MILLISECOND;
        uint64_t told = before.packets;
        while (fake.monotonic_ns < until_ns) {
            const uint64_t began_ns = fake.monotonic_ns;
            run_for(1);
            assert_true(fake.monotonic_ns - began_ns <= 100 * MILLISECOND);
            assert_true(xdp_get_status(xdp, &status) && status.packets - told <= piece);
            assert_true(status.packets == told || fake.monotonic_ns - began_ns == 2 * MILLISECOND);
            told = status.packets;
        }
        assert_int_equal(told, wanted);
    }
}

static void test_the_program_is_put_back_on_an_interface_that_went_and_came_back(void **state)
{
    (void) state;
    struct xdp_status status;
    xdp_watch(xdp, note_watch, &made);
    run_for(2 * SECOND + 200 * MILLISECOND);
    assert_string_equal(watched, "5 5 ");
    assert_true(made.attached == 0 && logged[0] == '\0');
    made.found = 0;
    made.problem = "it is away";
    run_for(3 * SECOND);
    assert_string_equal(watched, "5 5 0 0 0 0 0 0 "); /* before it is attached, and behind */
    assert_string_equal(logged, "1 --xdp eth0: it is away; packets are dropped here and not in the kernel until the "
                                "program is on it again\n");
    assert_true(xdp_get_status(xdp, &status) && !status.is_attached && strcmp(status.mode, "off") == 0);
    made.problem = "it is somebody's";
    run_for(2 * SECOND);
    assert_non_null(strstr(logged, "--xdp eth0: it is somebody's; packets"));
    logged[0] = watched[0] = '\0';
    made.attaches_to = 6;
    made.mode = LINK_NATIVE;
    run_for(2 * SECOND);
    assert_string_equal(watched, "0 6 6 ");
    assert_string_equal(logged, "2 --xdp eth0: the program is on the interface again (XDP, native)\n");
    assert_true(xdp_get_status(xdp, &status) && status.is_attached && strcmp(status.mode, "native") == 0);
    logged[0] = watched[0] = '\0';
    made.found = 0; /* and once more, between two looks */
    made.attaches_to = 7;
    xdp_watch(xdp, NULL, NULL);
    run_for(2 * SECOND);
    assert_string_equal(watched, "");
    assert_string_equal(logged, "2 --xdp eth0: the program is on the interface again (XDP, native)\n");
}

static void test_a_change_of_overrides_or_policies_lets_all_pass(void **state)
{
    (void) state;
    static const char *const names[] = {"source"};
    const char *source = "203.0.113.1";
    const uint64_t look_ns = XDP_OVERRIDES_MS * MILLISECOND;
    size_t count;
    weir_error error;
    put_in_force(names, 1, 3600 * SECOND);
    xdp_policies_changed(xdp);
    run_for(look_ns);
    deny(0, source, source, 11, REPEATS_LEAST);
    struct drop_line *line = line_of(source, 32, &count);
    assert_non_null(line);
    run_for(2 * look_ns);
    assert_true(line->until_ns > fake.monotonic_ns);
    xdp_policies_changed(xdp);
    assert_int_equal(line->until_ns, 0);
    deny(0, source, source, 11, 1);
    assert_true(line->until_ns != 0);
    run_for(look_ns); /* once more: a worker may have been about to hold a key by what there was before */
    assert_int_equal(line->until_ns, 0);
    deny(0, source, source, 11, 1);
    run_for(2 * look_ns);
    assert_true(line->until_ns != 0);
    for (unsigned change = 0; change < 3; change++) { /* one comes, is changed, and goes */
        const char *value = change == 0 ? "5" : change == 1 ? "6" : NULL;
        assert_int_equal(weir_set_override(w, "source:other", value, &error), 0);
        for (unsigned look = 0; look < 2; look++) {
            deny(0, source, source, 11, 1);
            assert_true(line->until_ns != 0);
            run_for(look_ns);
            assert_int_equal(line->until_ns, 0);
        }
        deny(0, source, source, 11, 1);
        run_for(2 * look_ns);
        assert_true(line->until_ns != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_an_interface_and_words_each_once),
        cmocka_unit_test_setup_teardown(test_the_program_is_put_back_on_an_interface_that_went_and_came_back, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_prefixes_are_those_of_the_policies_in_force_the_shortest_first, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_listeners_are_told_with_their_families, begin, end),
        cmocka_unit_test_setup_teardown(test_a_key_is_held_until_shortly_before_its_limit_lets_a_packet_pass, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_keys_are_held_by_the_addresses_of_their_policy, begin, end),
        cmocka_unit_test_setup_teardown(test_what_was_dropped_is_told_and_who_goes_on_is_held_longer, begin, end),
        cmocka_unit_test_setup_teardown(test_what_was_dropped_is_told_ten_times_a_second_and_of_many_keys_in_pieces,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_a_change_of_overrides_or_policies_lets_all_pass, begin, end),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_xdp", tests, NULL, NULL);
}
