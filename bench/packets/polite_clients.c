/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-polite: many clients that keep to their rate. Each packet has the time at which it was sent, and the backend
 * sends it back. The clients count what is lost, and how long each answer took, until the kernel received it
 * (SO_TIMESTAMPNS): what this program waits for a processor is not in it.
 *
 * The host of a virtual machine may slow its processors down for some 20 ms every other second, and the p99 of many
 * seconds is the length of such a moment then. So each quarter of a second has a p99, too; `calm` is their lower
 * quartile.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "packets.h"

#define CLIENTS_MOST 4096
#define SIZE_LEAST   16
#define SIZE_MOST    1400
#define EVENTS       64
/* After the last packet was sent: time for answers to come. */
#define LINGER_NS    (500 * UINT64_C(1000000))
#define WINDOW_NS    (250 * UINT64_C(1000000))
#define WINDOWS_MOST 1024

static const char usage[] =
    "weir-polite --to IPV4:PORT --clients IPV4,COUNT [--step N] [--rate N] [--seconds N]\n"
    "            [--size BYTES]\n"
    "Sends from COUNT addresses, each of which this host has, to an echo, and prints what came back and when.\n"
    "  --step N     from one client's address to the next (1)\n"
    "  --rate N     packets a second, of all clients together (1000)\n"
    "  --seconds N  how long (10)\n"
    "  --size BYTES of payload, 16 to 1400 (64)\n";

struct stamp {
    uint64_t sent_ns; /* CLOCK_REALTIME, as the kernel stamps what it receives */
    uint64_t run;     /* answers to another run's packets do not count */
};

struct answer {
    uint64_t sent_ns, took_ns;
};

struct polite {
    struct in_addr to, first;
    uint16_t port;
    uint64_t count, step, rate, seconds, size;
    int epoll_fd, sockets[CLIENTS_MOST];
    uint64_t run, sent, unsent, returned;
    struct answer *answers; /* as many as are sent */
};

static void fail(const char *what)
{
    (void) fprintf(stderr, "weir-polite: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wrong(const char *what)
{
    (void) fprintf(stderr, "weir-polite: %s\n%s", what, usage);
    exit(2);
}

static uint64_t real_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * SECOND_NS + (uint64_t) now.tv_nsec;
}

static void open_client(struct polite *p, uint32_t number)
{
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(ntohl(p->first.s_addr) + number * (uint32_t) p->step)};
    const struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = p->to, .sin_port = htons(p->port)};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    const int one = 1;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof(one)) != 0 ||
        bind(fd, (const struct sockaddr *) (const void *) &from, sizeof(from)) != 0 ||
        connect(fd, (const struct sockaddr *) (const void *) &to, sizeof(to)) != 0 ||
        epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        fail("a client's socket");
    }
    p->sockets[number] = fd;
}

static void send_one(struct polite *p)
{
    unsigned char packet[SIZE_MOST] = {0};
    const struct stamp stamp = {real_ns(), p->run};
    memcpy(packet, &stamp, sizeof(stamp));
    if (send(p->sockets[p->sent % p->count], packet, p->size, 0) < 0) {
        p->unsent++;
    }
    p->sent++;
}

/* When the kernel received a message. */
static uint64_t received_ns(struct msghdr *header)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at != NULL; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec time;
            memcpy(&time, CMSG_DATA(at), sizeof(time));
            return (uint64_t) time.tv_sec * SECOND_NS + (uint64_t) time.tv_nsec;
        }
    }
    return 0;
}

static void take_answers(struct polite *p, int fd)
{
    unsigned char packet[SIZE_MOST];
    union {
        struct cmsghdr aligned;
        char bytes[256];
    } control;
    struct iovec piece = {packet, sizeof(packet)};
    for (;;) {
        struct msghdr header = {
            .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        const ssize_t size = recvmsg(fd, &header, MSG_DONTWAIT);
        struct stamp stamp;
        if (size < (ssize_t) sizeof(stamp)) {
            return;
        }
        memcpy(&stamp, packet, sizeof(stamp));
        const uint64_t at_ns = received_ns(&header);
        if (stamp.run == p->run && p->returned < p->sent) {
            const uint64_t took_ns = at_ns > stamp.sent_ns ? at_ns - stamp.sent_ns : 0;
            p->answers[p->returned++] = (struct answer){stamp.sent_ns, took_ns};
        }
    }
}

static void wait_until(struct polite *p, uint64_t until_ns)
{
    struct epoll_event events[EVENTS];
    const uint64_t now_ns = packets_now_ns();
    const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec left = {.tv_sec = (time_t) (left_ns / SECOND_NS), .tv_nsec = (long) (left_ns % SECOND_NS)};
    const int count = epoll_pwait2(p->epoll_fd, events, EVENTS, &left, NULL);
    for (int i = 0; i < count; i++) {
        take_answers(p, p->sockets[events[i].data.u32]);
    }
}

static void run(struct polite *p)
{
    const uint64_t start_ns = packets_now_ns();
    const uint64_t packets = p->rate * p->seconds;
    while (p->sent < packets) {
        const uint64_t due_ns = start_ns + p->sent * SECOND_NS / p->rate;
        if (packets_now_ns() >= due_ns) {
            send_one(p);
        } else {
            wait_until(p, due_ns);
        }
    }
    const uint64_t last_ns = packets_now_ns();
    while (p->returned < p->sent && packets_now_ns() < last_ns + LINGER_NS) {
        wait_until(p, last_ns + LINGER_NS);
    }
}

static int by_time(const void *a, const void *b)
{
    const uint64_t one_ns = ((const struct answer *) a)->took_ns;
    const uint64_t other_ns = ((const struct answer *) b)->took_ns;
    return (one_ns > other_ns) - (one_ns < other_ns);
}

static int by_sent(const void *a, const void *b)
{
    const uint64_t one_ns = ((const struct answer *) a)->sent_ns;
    const uint64_t other_ns = ((const struct answer *) b)->sent_ns;
    return (one_ns > other_ns) - (one_ns < other_ns);
}

/* Sorts answers. Returns the least time that so large a part of them did not take longer than; 0 of none. */
static uint64_t time_of(struct answer *answers, uint64_t count, double part)
{
    qsort(answers, count, sizeof(*answers), by_time);
    const uint64_t place = (uint64_t) (part * (double) count);
    return count == 0 ? 0 : answers[place < count ? place : count - 1].took_ns;
}

/* The lower quartile of the windows' p99. Sorts the answers of each window. */
static uint64_t calm_p99(struct polite *p)
{
    static struct answer windows[WINDOWS_MOST]; /* took_ns: the p99 */
    uint64_t count = 0;
    qsort(p->answers, p->returned, sizeof(*p->answers), by_sent);
    for (uint64_t from = 0, to = 0; from < p->returned && count < WINDOWS_MOST; from = to) {
        const uint64_t end_ns = p->answers[from].sent_ns + WINDOW_NS;
        while (to < p->returned && p->answers[to].sent_ns < end_ns) {
            to++;
        }
        windows[count++].took_ns = time_of(p->answers + from, to - from, 0.99);
    }
    return time_of(windows, count, 0.25);
}

static void report(struct polite *p)
{
    const uint64_t calm_ns = calm_p99(p);
    (void) printf("{\"sent\":%" PRIu64 ",\"unsent\":%" PRIu64 ",\"returned\":%" PRIu64 ",\"calm_p99_us\":%.1f", p->sent,
                  p->unsent, p->returned, (double) calm_ns / 1e3);
    static const struct {
        const char *name;
        double part;
    } parts[] = {{"p50", 0.5}, {"p99", 0.99}, {"p999", 0.999}, {"most", 1}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        const uint64_t took_ns = time_of(p->answers, p->returned, parts[i].part);
        (void) printf(",\"%s_us\":%.1f", parts[i].name, (double) took_ns / 1e3);
    }
    (void) printf("}\n");
}

static const struct option long_options[] = {
    {"to", required_argument, NULL, 't'},      {"clients", required_argument, NULL, 'c'},
    {"step", required_argument, NULL, 's'},    {"rate", required_argument, NULL, 'r'},
    {"seconds", required_argument, NULL, 'd'}, {"size", required_argument, NULL, 'b'},
    {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
};

static void take_option(struct polite *p, int option, char *value)
{
    uint64_t *const numbers[] = {
        ['s' - 'a'] = &p->step, ['r' - 'a'] = &p->rate, ['d' - 'a'] = &p->seconds, ['b' - 'a'] = &p->size};
    if (option == 'h') {
        (void) fputs(usage, stdout);
        exit(0);
    }
    const bool good = option == 't'   ? packets_read_target(value, &p->to, &p->port)
                      : option == 'c' ? packets_read_range(value, &p->first, &p->count)
                                      : option != '?' && packets_read_number(value, numbers[option - 'a']);
    if (!good) {
        wrong("an option is unknown, or its value is none");
    }
}

/* As many sockets as the system permits; a turn on the processor before whoever sends as fast as it can. */
static void take_rights(void)
{
    struct rlimit limit;
    const struct sched_param first = {.sched_priority = 1};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
    (void) sched_setscheduler(0, SCHED_FIFO, &first);
}

int main(int argc, char **argv)
{
    static struct polite polite = {.step = 1, .rate = 1000, .seconds = 10, .size = 64};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        take_option(&polite, option, optarg);
    }
    if (polite.port == 0 || polite.count == 0 || polite.count > CLIENTS_MOST || polite.rate == 0 ||
        polite.seconds == 0 || polite.size < SIZE_LEAST || polite.size > SIZE_MOST || optind < argc) {
        wrong("--to and --clients are needed; at most 4096 clients, a rate above 0");
    }
    take_rights();
    polite.run = real_ns() ^ (uint64_t) getpid();
    polite.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < polite.count; i++) {
        open_client(&polite, i);
    }
    polite.answers = calloc(polite.rate * polite.seconds, sizeof(struct answer));
    if (polite.answers == NULL) {
        fail("memory for the answers");
    }
    run(&polite);
    report(&polite);
    free(polite.answers);
    return 0;
}
