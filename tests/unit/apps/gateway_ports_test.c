/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which client has which local port: with times of the test, ports of the kernel, and processes that die.
 *
 * Guards: apps/gateway/ports.c
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../apps/gateway/ports.h"
#include "support/support.h"

#define REST_MS UINT64_C(4000)

/* Ports of the test alone, below those that the kernel gives: a block that no other test has, nor any program. */
#define BLOCK 16

static struct {
    char directory[64];
    char file[80];
    char range[4096], reserved[4096]; /* what the kernel says; empty: what it is */
    _Atomic unsigned binds;           /* since the last look */
    int base;                         /* the first port of the block */
    int claim;
    uint64_t ahead_ms;    /* of the clock */
    int locked;           /* holds the lock of those that open the file; -1: nothing does */
    unsigned pauses;      /* that an opener made */
    unsigned pauses_most; /* then it is unlocked */
    size_t descriptors;   /* when the test began */
} t;

/* What /proc has, where a test says something else. */
int __wrap_open64(const char *path, int flags, ...);
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __real_bind(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size);

/* A file with this text. */
static int text_file(const char *text)
{
    int ends[2] = {-1, -1};
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), (ssize_t) strlen(text));
    (void) close(ends[1]);
    return ends[0];
}

static int open_any(const char *path, int flags)
{
    if (strcmp(path, "/proc/sys/net/ipv4/ip_local_port_range") == 0 && t.range[0] != '\0') {
        return text_file(t.range);
    }
    if (strcmp(path, "/proc/sys/net/ipv4/ip_local_reserved_ports") == 0 && t.reserved[0] != '\0') {
        return text_file(t.reserved);
    }
    return __real_open(path, flags);
}

static int open_any_new(const char *path)
{
    return __real_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
}

int __wrap_open(const char *path, int flags, ...)
{
    return open_any(path, flags);
}

int __wrap_open64(const char *path, int flags, ...)
{
    return open_any(path, flags);
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size)
{
    t.binds++;
    return __real_bind(fd, address, size);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    const int result = __real_clock_gettime(clock, out);
    out->tv_sec += (time_t) (t.ahead_ms / 1000);
    return result;
}

static void set_file_lock(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    assert_int_equal(fcntl(t.locked, F_OFD_SETLK, &lock), 0);
}

/* An opener waits: it is unlocked some time. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (t.locked < 0) { /* another thread or process of the test has it */
        return __real_nanosleep(time, left);
    }
    t.ahead_ms += 1000;
    if (++t.pauses == t.pauses_most) {
        set_file_lock(F_UNLCK);
    }
    return 0;
}

static bool is_free(int port)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool good = __real_bind(fd, (const struct sockaddr *) &own, sizeof(own)) == 0;
    (void) close(fd);
    return good;
}

/* An abstract name says that a block is taken, until the socket is closed. */
static bool claim_block(int base)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int length = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "weir-ports-%d", base);
    t.claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = __real_bind(t.claim, (const struct sockaddr *) &name,
                            (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + (size_t) length)) == 0;
    for (int port = base; port < base + BLOCK && good; port++) {
        good = is_free(port);
    }
    if (!good) {
        (void) close(t.claim);
    }
    return good;
}

/* Has the kernel say that so many ports of the block are what it gives. */
static void set_range(unsigned count)
{
    (void) snprintf(t.range, sizeof(t.range), "%d\t%d\n", t.base, t.base + (int) count - 1);
}

static int begin(void **state)
{
    (void) state;
    memset(&t, 0, sizeof(t));
    t.locked = -1;
    t.descriptors = count_descriptors();
    for (t.base = 1100; !claim_block(t.base); t.base += BLOCK) {
        assert_true(t.base < 10000);
    }
    (void) snprintf(t.directory, sizeof(t.directory), "/dev/shm/weir-ports-test-XXXXXX");
    assert_non_null(mkdtemp(t.directory));
    (void) snprintf(t.file, sizeof(t.file), "%s/ports", t.directory);
    return 0;
}

static int end(void **state)
{
    (void) state;
    (void) close(t.claim);
    if (t.descriptors != count_descriptors()) {
        print_error("descriptors are left\n");
        return -1;
    }
    (void) unlink(t.file);
    return rmdir(t.directory);
}

static struct ports *open_ports(void)
{
    char problem[256] = "";
    struct ports *ports = ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem));
    if (ports == NULL) {
        fail_msg("%s", problem);
    }
    return ports;
}

static uint64_t client(const struct ports *ports, unsigned n)
{
    return ports_client(ports, &n, sizeof(n));
}

/* A socket for a client. */
struct held {
    int fd, port; /* -1: none was to be had */
    bool came_back;
};

static struct held take(struct ports *ports, unsigned n, uint64_t now)
{
    struct held held = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    assert_true(held.fd >= 0);
    held.port = ports_bind(ports, client(ports, n), held.fd, AF_INET, now, &held.came_back);
    if (held.port < 0) {
        assert_int_equal(errno, EADDRNOTAVAIL);
        (void) close(held.fd);
        held.fd = -1;
        return held;
    }
    struct sockaddr_in own = {.sin_port = 0};
    socklen_t size = sizeof(own);
    assert_int_equal(getsockname(held.fd, (struct sockaddr *) &own, &size), 0);
    assert_int_equal(ntohs(own.sin_port), held.port);
    assert_int_equal(own.sin_addr.s_addr, 0);
    ports_share(held.fd);
    return held;
}

static void give(struct ports *ports, unsigned n, struct held *held, uint64_t last)
{
    ports_release(ports, client(ports, n), (uint16_t) held->port, last);
    (void) close(held->fd);
    held->fd = -1;
}

static void test_a_port_rests_before_another_client_has_it(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    set_range(8);
    struct ports *ports = open_ports();
    const uint64_t now = ports_now();
    struct held held[8];
    assert_int_equal(ports_count(ports), 8);
    for (unsigned n = 0; n < 8; n++) {
        held[n] = take(ports, n, now);
        assert_true(held[n].port >= t.base && held[n].port < t.base + 8);
    }
    assert_int_equal(take(ports, 8, now).port, -1);
    const unsigned first = (unsigned) random_below(&rng, 8);
    give(ports, first, &held[first], now + 100);
    assert_int_equal(take(ports, 8, now + 100).port, -1);
    assert_int_equal(take(ports, 8, now + 100 + REST_MS - 1).port, -1);
    struct held other = take(ports, 8, now + 100 + REST_MS);
    assert_int_equal(other.port, held[first].port);
    /* And the one that had it gets no other one's. */
    assert_int_equal(take(ports, first, now + 100 + REST_MS).port, -1);
    give(ports, 8, &other, now + 10000);
    struct held again = take(ports, first, now + 10000 + REST_MS);
    assert_int_equal(again.port, held[first].port);
    assert_false(again.came_back);
    give(ports, first, &again, now + 20000);
    for (unsigned n = 0; n < 8; n++) {
        if (n != first) {
            give(ports, n, &held[n], now);
        }
    }
    ports_close(ports);
}

static void test_a_client_that_comes_back_has_its_port_at_any_time(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct ports *ports = open_ports();
    enum { CLIENTS = 200 };
    int had[CLIENTS];
    uint64_t now = ports_now();
    for (unsigned n = 0; n < CLIENTS; n++) {
        struct held held = take(ports, n, now);
        assert_false(held.came_back);
        had[n] = held.port;
        give(ports, n, &held, now);
    }
    for (unsigned i = 0; i < 1000; i++) {
        const unsigned n = (unsigned) random_below(&rng, CLIENTS);
        now += random_below(&rng, 2 * REST_MS);
        if (i % 100 == 99) { /* a restart */
            ports_close(ports);
            ports = open_ports();
        }
        struct held held = take(ports, n, now);
        assert_int_equal(held.port, had[n]);
        assert_true(held.came_back);
        give(ports, n, &held, now);
    }
    ports_close(ports);
}

static void test_the_kernels_range_and_what_it_reserves_are_kept_to(void **state)
{
    (void) state;
    /* %d: the first port of the block, and others of it. */
    static const struct {
        const char *range, *reserved;
        unsigned count;
        int first, last; /* below BLOCK: of the block */
    } cases[] = {
        {"32768\t60999\n", "\n", 28232, 32768, 60999},
        {"%d\t%d\n", "%d-%d,50000\n", 2, 0, 3},
        {"%d\t%d\n", "%d,%d\n", 2, 0, 3},
        {"%d %d\n", "1-%d,65535\n", 3, 1, 3},
        {"%d\t%d\n", "rubbish\n", 4, 0, 3},
        {"rubbish", "\n", 28232, 32768, 60999},
        {"5 4\n", "\n", 28232, 32768, 60999},
        {"1 70000\n", "\n", 28232, 32768, 60999},
        {"1024\t65535\n", "\n", 64512, 1024, 65535},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bool is_of_block = cases[i].last < BLOCK;
        const int first = cases[i].first + (is_of_block ? t.base : 0);
        const int last = cases[i].last + (is_of_block ? t.base : 0);
        const bool is_middle = is_of_block && strchr(cases[i].reserved, '-') != NULL && cases[i].first == 0;
        (void) snprintf(t.range, sizeof(t.range), cases[i].range, t.base, t.base + 3);
        (void) snprintf(t.reserved, sizeof(t.reserved), cases[i].reserved, t.base + is_middle, t.base + 2);
        struct ports *ports = ports_open_private((unsigned) REST_MS);
        assert_non_null(ports);
        assert_int_equal(ports_count(ports), cases[i].count);
        for (unsigned n = 0; n < cases[i].count && n < 50; n++) {
            struct held held = take(ports, n, ports_now());
            assert_true(held.port >= first && held.port <= last);
            assert_true(!is_middle || held.port == first || held.port == last);
            assert_true(i != 2 || held.port == first + 1 || held.port == last);
            give(ports, n, &held, 1);
        }
        ports_close(ports);
    }
}

static void test_ports_that_others_have_are_passed_over(void **state)
{
    (void) state;
    set_range(4);
    struct ports *ports = open_ports();
    const uint64_t now = ports_now();
    int others[3];
    for (unsigned i = 0; i < 3; i++) {
        const struct sockaddr_in own = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t) (t.base + (int) i)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        others[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        assert_int_equal(__real_bind(others[i], (const struct sockaddr *) &own, sizeof(own)), 0);
    }
    struct held held = take(ports, 1, now);
    assert_int_equal(held.port, t.base + 3);
    assert_int_equal(take(ports, 2, now).port, -1);
    give(ports, 1, &held, now);
    /* A stranger has the client's own port: it shares that with nobody, though the kernel would let the two. */
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t) (t.base + 3))};
    const int stranger = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    assert_int_equal(setsockopt(stranger, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
    assert_int_equal(__real_bind(stranger, (const struct sockaddr *) &own, sizeof(own)), 0);
    assert_int_equal(take(ports, 1, now).port, -1);
    (void) close(stranger);
    held = take(ports, 1, now);
    assert_int_equal(held.port, t.base + 3);
    give(ports, 1, &held, now);
    for (unsigned i = 0; i < 3; i++) {
        (void) close(others[i]);
    }
    ports_close(ports);
}

static void test_sockets_of_one_client_share_its_port_until_the_last_one_ends(void **state)
{
    (void) state;
    set_range(1);
    struct ports *first = open_ports();
    struct ports *second = open_ports(); /* as another gateway has it: a slot of its own */
    const uint64_t now = ports_now();
    struct held one = take(first, 1, now);
    struct held two = take(second, 1, now);
    assert_int_equal(one.port, t.base);
    assert_int_equal(two.port, t.base);
    assert_int_equal(take(second, 2, now + 2 * REST_MS).port, -1);
    give(first, 1, &one, now + 10);
    assert_int_equal(take(second, 2, now + 2 * REST_MS).port, -1); /* it is still held */
    one = take(first, 1, now + 20);
    assert_int_equal(one.port, t.base);
    give(second, 1, &two, now + 30);
    ports_note(first, client(first, 1), (uint16_t) t.base, now + 1000);
    give(first, 1, &one, now + 1500);
    assert_int_equal(take(second, 2, now + 1500 + REST_MS - 1).port, -1);
    two = take(second, 2, now + 1500 + REST_MS);
    assert_int_equal(two.port, t.base);
    /* What the one before says of the port counts no more. */
    ports_note(first, client(first, 1), (uint16_t) t.base, now + 90000);
    ports_release(first, client(first, 1), (uint16_t) t.base, now + 90000);
    give(second, 2, &two, now + 9000);
    two = take(second, 3, now + 9000 + REST_MS);
    assert_int_equal(two.port, t.base);
    give(second, 3, &two, now);
    ports_close(first);
    ports_close(second);
}

/* A process that has ports for clients 0 to 3, and is killed. */
static void die_with_ports(uint64_t now)
{
    const pid_t pid = fork();
    if (pid == 0) {
        struct ports *ports = open_ports();
        for (unsigned n = 0; n < 4; n++) {
            (void) take(ports, n, now);
        }
        (void) raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_ports_of_a_process_that_died_rest_and_come_back(void **state)
{
    (void) state;
    set_range(4);
    for (int runs_beside = 0; runs_beside < 2; runs_beside++) {
        struct ports *beside = runs_beside ? open_ports() : NULL;
        const uint64_t now = ports_now() + (runs_beside ? 100000 : 0);
        die_with_ports(now);
        struct ports *ports = runs_beside ? beside : open_ports();
        struct held own = take(ports, 2, now + 1);
        assert_true(own.port >= t.base);
        give(ports, 2, &own, now + 1000);
        /* The last note of a port may be a second old, but not later than the death was seen. */
        assert_int_equal(take(ports, 9, now + (runs_beside ? 999 : 0) + REST_MS - 1).port, -1);
        for (uint64_t later = 0; later < 4; later++) {
            struct held other = take(ports, 10 + (unsigned) later, now + 1000 + REST_MS);
            assert_true(other.port >= t.base);
            give(ports, 10 + (unsigned) later, &other, now + 1000 + REST_MS);
        }
        ports_close(ports);
        assert_int_equal(unlink(t.file), 0);
    }
}

/*
 * After a search of all ports in vain only those near where a client's search begins are looked at, for a tenth of a
 * second. Of some 28,000 ports 1,024 are near: a client finds one that has rested in between by luck alone.
 */
static void test_a_search_in_vain_costs_little_until_it_is_worth_it(void **state)
{
    (void) state;
    unsigned lucky = 0;
    enum { ROUNDS = 3 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        (void) snprintf(t.range, sizeof(t.range), "32768\t60999\n");
        struct ports *ports = ports_open_private((unsigned) REST_MS);
        const unsigned count = ports_count(ports);
        const uint64_t now = ports_now();
        struct held held = take(ports, 0, now - 1000); /* this one has rested a second before the others */
        const int early = held.port;
        give(ports, 0, &held, now - 1000);
        for (unsigned n = 1; n < count; n++) {
            held = take(ports, n, now);
            if (held.port >= 0) {
                give(ports, n, &held, now);
            }
        }
        t.binds = 0;
        assert_int_equal(take(ports, count, now - 1050 + REST_MS).port, -1); /* in vain */
        held = take(ports, count + 1, now - 990 + REST_MS);
        if (held.port < 0) {
            assert_int_equal(t.binds, 0);
            held = take(ports, count + 2, now - 950 + REST_MS);
        } else {
            lucky++;
        }
        assert_int_equal(held.port, early);
        (void) close(held.fd);
        ports_close(ports);
    }
    assert_true(lucky < ROUNDS);
}

static void test_files_that_are_not_as_they_should_be(void **state)
{
    (void) state;
    set_range(4);
    struct ports *ports = open_ports();
    struct held held = take(ports, 1, ports_now());
    const int port = held.port;
    give(ports, 1, &held, ports_now());
    ports_close(ports);
    /* Rubbish in all of its entries. */
    uint64_t rng = test_seed();
    const int fd = open_any(t.file, O_RDWR | O_CLOEXEC);
    for (off_t at = 4096; at < 4096 + 65536 * 16; at += 8) {
        const uint64_t word = random_next(&rng);
        assert_int_equal(pwrite(fd, &word, sizeof(word), at), sizeof(word));
    }
    ports = open_ports();
    const uint64_t now = ports_now();
    assert_int_equal(take(ports, 1, now).port, -1); /* all of it has been used just now */
    held = take(ports, 1, now + 2 * REST_MS);
    assert_true(held.port >= t.base);
    give(ports, 1, &held, now);
    ports_close(ports);
    /* A file that is too short, and one of something else. */
    assert_int_equal(ftruncate(fd, 100), 0);
    ports = open_ports();
    ports_close(ports);
    /* One that is not filled yet, as its maker died. */
    const uint64_t none = 0;
    assert_int_equal(pwrite(fd, &none, sizeof(none), 0), sizeof(none));
    ports = open_ports();
    held = take(ports, 1, ports_now());
    assert_true(held.port >= t.base && port >= t.base);
    give(ports, 1, &held, now);
    ports_close(ports);
    /* What is no table is left as it is. */
    static const char *const others[] = {"something else", "short", "\0\0\0\0\0\0\0\0zeros"};
    static const size_t sizes[] = {14, 5, 13};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        char problem[256];
        char text[64] = "";
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, others[i], sizes[i], 0), (ssize_t) sizes[i]);
        assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
        assert_non_null(strstr(problem, "its file \"ports\" is no table of ports; give another directory"));
        assert_int_equal(pread(fd, text, sizeof(text), 0), (ssize_t) sizes[i]);
        assert_memory_equal(text, others[i], sizes[i]);
    }
    (void) close(fd);
}

/* Another start of the machine: its times say nothing, and what was used before it begins to rest. */
static void test_times_of_another_start_of_the_machine_begin_to_rest(void **state)
{
    (void) state;
    set_range(2);
    struct ports *ports = open_ports();
    struct held held = take(ports, 1, ports_now() + 1000);
    const int port = held.port;
    give(ports, 1, &held, 1000);
    ports_close(ports);
    const int fd = open_any(t.file, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "another", 7, 8), 7);
    (void) close(fd);
    ports = open_ports();
    const uint64_t now = ports_now();
    held = take(ports, 2, now); /* the one that was never used */
    assert_int_not_equal(held.port, port);
    struct held own = take(ports, 1, now);
    assert_int_equal(own.port, port);
    give(ports, 1, &own, now);
    assert_int_equal(take(ports, 3, now + REST_MS - 1000).port, -1);
    own = take(ports, 3, now + 1000 + REST_MS);
    assert_int_equal(own.port, port);
    give(ports, 3, &own, now);
    give(ports, 2, &held, now);
    ports_close(ports);
}

static void test_directories_of_others_are_refused(void **state)
{
    (void) state;
    char problem[256];
    assert_int_equal(chmod(t.directory, 0770), 0);
    assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
    assert_non_null(strstr(problem, "it is another user's, or others may write to it"));
    assert_int_equal(chmod(t.directory, 0700), 0);
    if (geteuid() == 0) {
        assert_int_equal(chown(t.directory, 65534, 65534), 0);
        assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
        assert_non_null(strstr(problem, "it is another user's, or others may write to it"));
        assert_int_equal(chown(t.directory, 0, 0), 0);
    }
    assert_int_equal(mkdir(t.file, 0700), 0);
    assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
    assert_non_null(strstr(problem, t.directory));
    assert_int_equal(rmdir(t.file), 0);
    /* A link in the place of the file: what it leads to, here a file of the test's own, stays as it is. */
    char other[100];
    char text[16] = "";
    (void) snprintf(other, sizeof(other), "%s/other", t.directory);
    const int fd = open_any_new(other);
    assert_int_equal(write(fd, "other", 5), 5);
    assert_int_equal(symlink(other, t.file), 0);
    assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
    assert_int_equal(pread(fd, text, sizeof(text), 0), 5);
    assert_string_equal(text, "other");
    (void) close(fd);
    assert_int_equal(unlink(other), 0);
    /* By the name that it has where nobody gives one, a link is refused as well; that of systemd is one. */
    assert_int_equal(unlink(t.file), 0);
    assert_int_equal(setenv("RUNTIME_DIRECTORY", t.directory, 1), 0);
    struct ports *ports = ports_open(NULL, (unsigned) REST_MS, problem, sizeof(problem));
    assert_non_null(ports);
    assert_int_equal(access(t.file, F_OK), 0);
    ports_close(ports);
    assert_int_equal(unsetenv("RUNTIME_DIRECTORY"), 0);
}

static void test_an_opener_waits_until_another_one_has_filled_the_file(void **state)
{
    (void) state;
    char problem[256] = "";
    char wanted[256];
    ports_close(open_ports());
    t.locked = open_any(t.file, O_RDWR | O_CLOEXEC);
    set_file_lock(F_WRLCK);
    t.pauses_most = 3;
    ports_close(open_ports());
    assert_int_equal(t.pauses, 3);
    set_file_lock(F_WRLCK);
    t.pauses_most = 0; /* an opener that does not go on */
    assert_null(ports_open(t.directory, (unsigned) REST_MS, problem, sizeof(problem)));
    (void) snprintf(wanted, sizeof(wanted), "%s: %s", t.directory, strerror(EAGAIN));
    assert_string_equal(problem, wanted);
    assert_true(t.pauses > 3 && t.pauses < 3 + 10);
    (void) close(t.locked);
    t.locked = -1;
    (void) snprintf(wanted, sizeof(wanted), "%s/none/deep", t.directory);
    assert_null(ports_open(wanted, (unsigned) REST_MS, problem, sizeof(problem)));
    assert_non_null(strstr(problem, strerror(ENOENT)));
}

/* Another process opens the table again and again. */
static void *open_again(void *arg)
{
    (void) arg;
    for (unsigned i = 0; i < 300; i++) {
        ports_close(open_ports());
    }
    return NULL;
}

/* One that looks for ports of the dead holds the locks of all slots for a moment, and keeps nobody from starting. */
static void test_gateways_start_while_others_look_for_ports_of_the_dead(void **state)
{
    (void) state;
    set_range(1);
    struct ports *ports = open_ports();
    uint64_t now = ports_now();
    struct held held = take(ports, 1, now);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_again, NULL), 0);
    for (unsigned i = 0; i < 300; i++) {
        now += 1000;
        assert_int_equal(take(ports, 2, now).port, -1);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    give(ports, 1, &held, now);
    ports_close(ports);
}

static void test_what_has_rested_has_rested_for_those_who_start_later(void **state)
{
    (void) state;
    set_range(1);
    struct ports *ports = open_ports();
    struct held held = take(ports, 1, ports_now());
    give(ports, 1, &held, ports_now());
    ports_close(ports);
    t.ahead_ms = REST_MS - 2000;
    ports = open_ports();
    assert_int_equal(take(ports, 2, ports_now()).port, -1);
    ports_close(ports);
    t.ahead_ms = REST_MS + 2000;
    ports = open_ports();
    held = take(ports, 2, ports_now());
    assert_int_equal(held.port, t.base);
    give(ports, 2, &held, ports_now());
    ports_close(ports);
}

static void test_sockets_of_ipv6(void **state)
{
    (void) state;
    set_range(1);
    struct ports *ports = open_ports();
    const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 && errno == EAFNOSUPPORT) {
        ports_close(ports);
        print_message("# no IPv6 here\n");
        return;
    }
    /* A program that has the port for IPv4 alone is in nobody's way. */
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t) t.base)};
    const int stranger = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(__real_bind(stranger, (const struct sockaddr *) &v4, sizeof(v4)), 0);
    struct sockaddr_in6 own = {.sin6_port = 0};
    socklen_t size = sizeof(own);
    bool came_back = true;
    assert_int_equal(ports_bind(ports, client(ports, 1), fd, AF_INET6, ports_now(), &came_back), t.base);
    assert_false(came_back);
    assert_int_equal(getsockname(fd, (struct sockaddr *) &own, &size), 0);
    assert_int_equal(ntohs(own.sin6_port), t.base);
    assert_true(IN6_IS_ADDR_UNSPECIFIED(&own.sin6_addr));
    ports_release(ports, client(ports, 1), (uint16_t) t.base, ports_now());
    (void) close(fd);
    (void) close(stranger);
    ports_close(ports);
}

/* Its table says that the port is held for the client; but who held it is dead, and a stranger has the port. */
static void test_a_strangers_port_is_shared_with_nobody_whatever_the_table_says(void **state)
{
    (void) state;
    set_range(4);
    struct ports *ports = open_ports();
    const uint64_t now = ports_now();
    die_with_ports(now);
    int strangers[4];
    for (int i = 0; i < 4; i++) {
        const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t) (t.base + i))};
        strangers[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ports_share(strangers[i]);
        assert_int_equal(__real_bind(strangers[i], (const struct sockaddr *) &own, sizeof(own)), 0);
    }
    for (unsigned n = 0; n < 4; n++) {
        assert_int_equal(take(ports, n, now + 1).port, -1);
    }
    for (int i = 0; i < 4; i++) {
        (void) close(strangers[i]);
    }
    for (unsigned n = 0; n < 4; n++) {
        struct held held = take(ports, n, now + 2);
        assert_true(held.port >= t.base);
        give(ports, n, &held, now + 2);
    }
    ports_close(ports);
}

static void test_a_port_that_is_in_use_after_all_is_held_again(void **state)
{
    (void) state;
    set_range(1);
    struct ports *ports = open_ports();
    const uint64_t now = ports_now();
    struct held held = take(ports, 1, now);
    ports_release(ports, client(ports, 1), (uint16_t) held.port, now); /* as when a sweep took it for a dead one's */
    ports_note(ports, client(ports, 1), (uint16_t) held.port, now + 1000);
    struct held also = take(ports, 1, now + 1001); /* so another socket may share it */
    assert_int_equal(also.port, held.port);
    give(ports, 1, &also, now + 1001);
    give(ports, 1, &held, now + 1002);
    assert_int_equal(take(ports, 2, now + 1001 + REST_MS).port, -1);
    held = take(ports, 2, now + 1002 + REST_MS);
    assert_int_equal(held.port, t.base);
    give(ports, 2, &held, now);
    ports_close(ports);
}

/* Threads and processes that take and give the few ports there are: no two clients ever have one at the same time. */
#define RACE_PORTS  12
#define RACE_ROUNDS 3000

struct race {
    struct ports *ports;
    unsigned number;
    uint64_t seed;
    unsigned got;
};

static void *race(void *arg)
{
    struct race *race = arg;
    for (unsigned i = 0; i < RACE_ROUNDS; i++) {
        const unsigned n = (unsigned) random_below(&race->seed, 40);
        const uint64_t now = ports_now() + i * (REST_MS / 4); /* each thread's own time goes on quickly */
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        bool came_back;
        const int port = ports_bind(race->ports, client(race->ports, n), fd, AF_INET, now, &came_back);
        if (port >= 0) {
            const struct sockaddr_in to = {
                .sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7f000001 + n)};
            race->got++;
            assert_int_equal(connect(fd, (const struct sockaddr *) &to, sizeof(to)), 0);
            ports_share(fd);
            ports_note(race->ports, client(race->ports, n), (uint16_t) port, now);
            ports_release(race->ports, client(race->ports, n), (uint16_t) port, now);
        }
        (void) close(fd);
    }
    return NULL;
}

static void test_threads_and_processes_take_and_give_ports(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    set_range(RACE_PORTS);
    struct ports *ports = open_ports();
    const uint64_t seed = random_next(&rng);
    const pid_t pid = fork();
    if (pid == 0) {
        struct race mine = {.ports = open_ports(), .seed = seed};
        (void) race(&mine);
        _exit(mine.got != 0 ? 0 : 1);
    }
    struct race races[3];
    pthread_t threads[3];
    for (unsigned i = 0; i < 3; i++) {
        races[i] = (struct race){.ports = ports, .number = i, .seed = random_next(&rng)};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &races[i]), 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(races[i].got != 0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    /* Nothing is left behind: every port comes to a client again. */
    struct held held[RACE_PORTS];
    for (unsigned n = 0; n < RACE_PORTS; n++) {
        held[n] = take(ports, 1000 + n, ports_now() + 1000 * REST_MS * RACE_ROUNDS);
        assert_true(held[n].port >= 0);
    }
    for (unsigned n = 0; n < RACE_PORTS; n++) {
        give(ports, 1000 + n, &held[n], ports_now());
    }
    ports_close(ports);
}

#define ports_case(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ports_case(test_a_port_rests_before_another_client_has_it),
        ports_case(test_a_client_that_comes_back_has_its_port_at_any_time),
        ports_case(test_the_kernels_range_and_what_it_reserves_are_kept_to),
        ports_case(test_ports_that_others_have_are_passed_over),
        ports_case(test_sockets_of_one_client_share_its_port_until_the_last_one_ends),
        ports_case(test_ports_of_a_process_that_died_rest_and_come_back),
        ports_case(test_a_search_in_vain_costs_little_until_it_is_worth_it),
        ports_case(test_files_that_are_not_as_they_should_be),
        ports_case(test_times_of_another_start_of_the_machine_begin_to_rest),
        ports_case(test_directories_of_others_are_refused),
        ports_case(test_an_opener_waits_until_another_one_has_filled_the_file),
        ports_case(test_gateways_start_while_others_look_for_ports_of_the_dead),
        ports_case(test_what_has_rested_has_rested_for_those_who_start_later),
        ports_case(test_sockets_of_ipv6),
        ports_case(test_a_strangers_port_is_shared_with_nobody_whatever_the_table_says),
        ports_case(test_a_port_that_is_in_use_after_all_is_held_again),
        ports_case(test_threads_and_processes_take_and_give_ports),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_ports", tests, NULL, NULL);
}
