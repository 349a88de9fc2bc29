/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-traffic: many clients in one program. Each group of clients sends at its own rate, from source addresses of its
 * own out of 127.0.0.0/8, and counts what comes back.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#include "burst.h"
#include "offload.h"
#include "outbox.h"
#include "traffic.h"

#define GROUPS_MAX     8
#define SOURCES_MAX    4096
#define RATE_MAX       100000000
#define SIZE_MAX_BYTES 1400
#define SECOND_NS      UINT64_C(1000000000)
#define SLOT_NS        UINT64_C(1000000)

/* No --seconds was given. */
#define SECONDS_DEFAULT UINT_MAX

static const char usage[] =
    "weir-traffic --to ADDR --client NAME,COUNT,RATE[,SIZE] ... [--seconds N] [--offload] [--json]\n"
    "             [--report-every MS] [--linger MS]\n"
    "weir-traffic --echo ADDR [--seconds N] [--offload]\n"
    "Sends UDP packets from many source addresses and prints what came back; or echoes what it receives.\n"
    "\n"
    "  --client NAME,COUNT,RATE[,SIZE]  a group: COUNT addresses of 127.0.0.0/8, RATE packets a second together (0: "
    "as\n"
    "                                   fast as possible) of SIZE bytes (64)\n"
    "  --seconds N                      how long (10, of an echo for ever; 0: for ever)\n"
    "  --offload                        packets in a row leave as one, and replies come as one (UDP_SEGMENT, UDP_GRO)\n"
    "  --json                           rows as JSON\n"
    "  --report-every MS                rows so far, every MS milliseconds\n"
    "  --linger MS                      waits for replies until all have come, or none for MS milliseconds (300)\n"
    "  --help, --version\n";

struct group {
    char name[32];
    unsigned count, size;
    uint64_t rate;
    int *sockets;
    unsigned next; /* socket to send from */
    uint64_t sent, unsent, returned;
    struct outbox box; /* bytes of the client that sends now */
};

struct traffic {
    struct address to;
    struct group groups[GROUPS_MAX];
    size_t group_count;
    unsigned seconds, report_ms, linger_ms;
    bool json, offload;
    int epoll_fd;
    struct burst replies;
};

uint64_t traffic_now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * SECOND_NS + (uint64_t) now.tv_nsec;
}

static _Noreturn void wrong(const char *what)
{
    (void) fprintf(stderr, "weir-traffic: %s; weir-traffic --help lists the options\n", what);
    exit(2);
}

/* Reads a whole number up to `end_char`, which it steps over; false: it is none, or is out of range. */
static bool parse_number(const char **text, char end_char, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end = NULL;
    errno = 0;
    *out = strtoull(*text, &end, 10);
    if (**text < '0' || **text > '9' || *end != end_char || errno != 0 || *out < least || *out > most) {
        return false;
    }
    *text = end + (end_char != '\0');
    return true;
}

static unsigned parse_option(const char *text, uint64_t most, const char *otherwise)
{
    uint64_t n = 0;
    if (!parse_number(&text, '\0', 0, most, &n)) {
        wrong(otherwise);
    }
    return (unsigned) n;
}

/* NAME,COUNT,RATE[,SIZE]; the name goes into JSON as it is. */
static void parse_group(struct traffic *traffic, const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (traffic->group_count == GROUPS_MAX) {
        wrong("there are too many --client groups; 8 is the most");
    }
    struct group *group = &traffic->groups[traffic->group_count++];
    const size_t length = strspn(text, letters);
    uint64_t count = 0;
    uint64_t size = 64;
    bool good = length > 0 && length < sizeof(group->name) && text[length] == ',';
    if (good) {
        memcpy(group->name, text, length);
        const char *rest = text + length + 1;
        const bool has_size = strchr(rest, ',') != strrchr(rest, ',');
        good = parse_number(&rest, ',', 1, SOURCES_MAX, &count) &&
               parse_number(&rest, has_size ? ',' : '\0', 0, RATE_MAX, &group->rate) &&
               (!has_size || parse_number(&rest, '\0', 1, SIZE_MAX_BYTES, &size));
    }
    if (!good) {
        wrong("--client takes NAME,COUNT,RATE[,SIZE]: a name of up to 31 letters, digits, '.', '_' and '-', 1 to 4096 "
              "addresses, up to 100000000 packets a second, 1 to 1400 bytes");
    }
    group->count = (unsigned) count;
    group->size = (unsigned) size;
}

/* Group g's nth client is 127.(16 + g).x.y. */
static int open_socket(const struct traffic *traffic, size_t g, unsigned n)
{
    const int fd = socket(traffic->to.u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    struct sockaddr_in from = {.sin_family = AF_INET};
    from.sin_addr.s_addr = htonl(127U << 24 | (16U + (uint32_t) g) << 16 | (n / 250) << 8 | (n % 250 + 1));
    const bool ipv4 = traffic->to.u.any.sa_family == AF_INET;
    if ((ipv4 && bind(fd, (const struct sockaddr *) &from, sizeof(from)) != 0) ||
        connect(fd, &traffic->to.u.any, traffic->to.length) != 0) {
        (void) close(fd);
        return -1;
    }
    return fd;
}

static void open_groups(struct traffic *traffic)
{
    for (size_t g = 0; g < traffic->group_count; g++) {
        struct group *group = &traffic->groups[g];
        group->sockets = calloc(group->count, sizeof(int));
        for (unsigned n = 0; group->sockets != NULL && n < group->count; n++) {
            group->sockets[n] = open_socket(traffic, g, n);
            struct epoll_event event = {.events = EPOLLIN,
                                        .data.u64 = (uint64_t) g << 32 | (unsigned) group->sockets[n]};
            if (traffic->offload && group->sockets[n] >= 0) {
                (void) offload_receive(group->sockets[n]);
            }
            if (group->sockets[n] < 0 || epoll_ctl(traffic->epoll_fd, EPOLL_CTL_ADD, group->sockets[n], &event) != 0) {
                (void) fprintf(stderr, "weir-traffic: no socket for client %u of %s: %s\n", n, group->name,
                               strerror(errno));
                exit(1);
            }
        }
        const bool segments = traffic->offload && group->sockets != NULL && offload_can_send(group->sockets[0]);
        outbox_open(&group->box, -1, traffic->to.u.any.sa_family, segments);
    }
}

/* Sends `count` packets from one of the group's clients. */
static void send_some(struct group *group, unsigned count)
{
    static unsigned char packet[SIZE_MAX_BYTES] = "weir-traffic";
    const struct datagram datagram = {.data = packet, .size = group->size};
    struct outbox *box = &group->box;
    box->fd = group->sockets[group->next];
    for (unsigned i = 0; i < count; i++) {
        outbox_add(box, &datagram, NULL, NULL);
    }
    outbox_flush(box);
    group->next = (group->next + 1) % group->count;
    group->sent = box->sent;
    group->unsent = box->added - box->sent;
}

/* What a group owes by now. */
static void send_due(struct group *group, uint64_t elapsed_ns)
{
    if (group->rate == 0) {
        send_some(group, OUTBOX_COUNT);
        return;
    }
    const uint64_t due = (uint64_t) ((double) group->rate * (double) elapsed_ns / (double) SECOND_NS);
    while (group->sent + group->unsent < due) {
        const uint64_t owed = due - group->sent - group->unsent;
        /* One packet a client in turn, so that all send alike; more only where a slot owes them more than that. */
        const uint64_t each = owed / group->count + 1;
        const uint64_t due_now = each < owed ? each : owed;
        send_some(group, (unsigned) (due_now < OUTBOX_COUNT ? due_now : OUTBOX_COUNT));
    }
}

static void take_replies(struct traffic *traffic, int wait_ms)
{
    static struct datagram datagrams[BURST_COUNT];
    struct burst *burst = &traffic->replies;
    struct epoll_event events[64];
    const int ready = epoll_wait(traffic->epoll_fd, events, 64, wait_ms);
    for (int e = 0; e < ready; e++) {
        const size_t received = burst_receive(burst, (int) (events[e].data.u64 & 0xffffffff), 0, NULL);
        struct burst_cursor cursor = {.message = 0};
        size_t count;
        while ((count = burst_split(burst, received, &cursor, datagrams)) != 0) {
            traffic->groups[events[e].data.u64 >> 32].returned += count;
        }
        burst_ready(burst, 0, received, false);
    }
}

static void report(const struct traffic *traffic, double seconds)
{
    if (!traffic->json) {
        (void) printf("%8s  %-12s %8s %12s %12s %12s\n", "seconds", "clients", "count", "sent/s", "returned/s",
                      "returned");
    } else {
        (void) printf("{\"seconds\":%.3f,\"clients\":[", seconds);
    }
    for (size_t g = 0; g < traffic->group_count; g++) {
        const struct group *group = &traffic->groups[g];
        if (traffic->json) {
            (void) printf("%s{\"name\":\"%s\",\"count\":%u,\"sent\":%" PRIu64 ",\"returned\":%" PRIu64 "}",
                          g != 0 ? "," : "", group->name, group->count, group->sent, group->returned);
        } else {
            (void) printf("%8.1f  %-12s %8u %12.0f %12.0f %11.1f%%\n", seconds, group->name, group->count,
                          (double) group->sent / seconds, (double) group->returned / seconds,
                          group->sent != 0 ? 100.0 * (double) group->returned / (double) group->sent : 0.0);
        }
    }
    if (traffic->json) {
        (void) printf("]}\n");
    }
    (void) fflush(stdout);
}

static volatile sig_atomic_t interrupted; /* set by the signal handler: what the C standard allows there */

static void interrupt(int number)
{
    (void) number;
    interrupted = 1;
}

static uint64_t missing_replies(const struct traffic *traffic)
{
    uint64_t missing = 0;
    for (size_t g = 0; g < traffic->group_count; g++) {
        missing += traffic->groups[g].sent - traffic->groups[g].returned;
    }
    return missing;
}

static void run(struct traffic *traffic)
{
    const uint64_t start_ns = traffic_now_ns();
    const uint64_t end_ns = traffic->seconds != 0 ? start_ns + traffic->seconds * SECOND_NS : UINT64_MAX;
    uint64_t next_report_ns = traffic->report_ms != 0 ? start_ns + traffic->report_ms * SLOT_NS : UINT64_MAX;
    bool unlimited = false;
    for (size_t g = 0; g < traffic->group_count; g++) {
        unlimited = unlimited || traffic->groups[g].rate == 0;
    }
    uint64_t now_ns = start_ns;
    while (!interrupted && now_ns < end_ns) {
        for (size_t g = 0; g < traffic->group_count; g++) {
            send_due(&traffic->groups[g], now_ns - start_ns);
        }
        take_replies(traffic, unlimited ? 0 : 1);
        now_ns = traffic_now_ns();
        if (now_ns >= next_report_ns) {
            report(traffic, (double) (now_ns - start_ns) / (double) SECOND_NS);
            next_report_ns += traffic->report_ms * SLOT_NS;
        }
    }
    const double seconds = (double) (now_ns - start_ns) / (double) SECOND_NS;
    const uint64_t linger_ns = traffic->linger_ms * SLOT_NS;
    uint64_t until_ns = now_ns + linger_ns;
    for (uint64_t missing = missing_replies(traffic); missing != 0 && now_ns < until_ns;) {
        const uint64_t before = missing;
        take_replies(traffic, 10);
        now_ns = traffic_now_ns();
        missing = missing_replies(traffic);
        until_ns = missing != before ? now_ns + linger_ns : until_ns;
    }
    report(traffic, seconds);
}

static const struct option long_options[] = {
    {"to", required_argument, NULL, 't'},
    {"client", required_argument, NULL, 'c'},
    {"seconds", required_argument, NULL, 's'},
    {"echo", required_argument, NULL, 'e'},
    {"offload", no_argument, NULL, 'o'},
    {"json", no_argument, NULL, 'j'},
    {"report-every", required_argument, NULL, 'r'},
    {"linger", required_argument, NULL, 'l'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

/* Takes one option; --help and --version end the program. */
static void take_option(struct traffic *traffic, struct address *echo_at, int option, const char *value)
{
    switch (option) {
    case 't':
        if (!address_parse(value, &traffic->to)) {
            wrong("--to takes an address such as 127.0.0.1:7000");
        }
        break;
    case 'c':
        parse_group(traffic, value);
        break;
    case 's':
        traffic->seconds = parse_option(value, 1000000, "--seconds takes a whole number up to 1000000; 0: for ever");
        break;
    case 'e':
        if (!address_parse(value, echo_at)) {
            wrong("--echo takes an address such as 127.0.0.1:7001");
        }
        break;
    case 'o':
        traffic->offload = true;
        break;
    case 'j':
        traffic->json = true;
        break;
    case 'r':
        traffic->report_ms = parse_option(value, 1000000, "--report-every takes milliseconds up to 1000000; 0: never");
        break;
    case 'l':
        traffic->linger_ms = parse_option(value, 1000000, "--linger takes milliseconds up to 1000000");
        break;
    case 'h':
        (void) fputs(usage, stdout);
        exit(0);
    case 'v':
        (void) printf("weir-traffic %d.%d.%d\n", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
        exit(0);
    default:
        wrong("there is an unknown option");
    }
}

/* As many sockets as the system permits. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    static struct traffic traffic = {.seconds = SECONDS_DEFAULT, .linger_ms = 300};
    struct address echo_at = {.length = 0};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        take_option(&traffic, &echo_at, option, optarg);
    }
    raise_file_limit();
    if (optind < argc) {
        wrong("there is a word too many");
    }
    if (echo_at.length != 0) { /* others rely on an echo: it lasts until it is stopped */
        return echo_main(&echo_at, traffic.seconds != SECONDS_DEFAULT ? traffic.seconds : 0, traffic.offload);
    }
    traffic.seconds = traffic.seconds != SECONDS_DEFAULT ? traffic.seconds : 10;
    if (traffic.to.length == 0 || traffic.group_count == 0) {
        wrong("--to and at least one --client are needed");
    }
    const struct sigaction action = {.sa_handler = interrupt};
    (void) sigaction(SIGINT, &action, NULL);
    (void) sigaction(SIGTERM, &action, NULL);
    traffic.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    burst_ready(&traffic.replies, 0, BURST_COUNT, false);
    open_groups(&traffic);
    run(&traffic);
    return 0;
}
