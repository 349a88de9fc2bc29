/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir-flood: sends UDP packets with forged sources at a network interface, below IP, so that the sender costs little.
 * For the tests and benchmarks of the gateway, on a veth pair of theirs.
 *
 * Source number n of COUNT is FIRST + n * STRIDE modulo COUNT: each source is used once in COUNT packets, and sources
 * in a row are far apart.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/ether.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "frame_sender.h"
#include "packets.h"

#define BATCH     64
#define SIZE_MOST 1400
#define HEADERS   42 /* Ethernet, IPv4, UDP */
#define AT_CHECK  24 /* the checksum of IPv4 */
#define AT_SOURCE 26
#define AT_PORT   34 /* of the source */

static const char usage[] =
    "weir-flood --interface NAME --to IPV4:PORT --mac MAC --sources IPV4,COUNT [--rate N] [--packets N]\n"
    "           [--seconds N] [--size BYTES] [--frames [--at-once N] [--wait]]\n"
    "Sends UDP packets from COUNT forged sources to the host with the address MAC, and prints how many.\n"
    "  --rate N     packets a second; 0: as many as there can be (0)\n"
    "  --packets N  ends after so many (0: when the time is over)\n"
    "  --seconds N  how long (10)\n"
    "  --size BYTES of payload, at most 1400 (22: an Ethernet frame of 64 bytes)\n"
    "  --frames     sends without a socket, as a network card does (Linux 5.18, libbpf)\n"
    "  --at-once N  frames, as a network card gathers some before it interrupts (1)\n"
    "  --wait       waits for a frame's time in the kernel, and has the processor to itself. Without it frames\n"
    "               are taken and given back meanwhile, and the receiver, which gives its frames back to the\n"
    "               same pool, waits for the pool's lock\n";

struct flood {
    struct in_addr to, first;
    uint16_t port;
    uint64_t count, rate, packets, seconds, size, at_once;
    unsigned char mac[ETH_ALEN];
    const char *interface;
    bool without_socket, waits;
    int fd;
    unsigned interface_number;
    uint64_t next; /* number of the packet, and of its source */
    uint64_t refused;
    uint32_t check; /* of IPv4's header without the source, not folded */
    unsigned char contents[BATCH][HEADERS + SIZE_MOST];
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH];
};

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void) number;
    interrupted = 1;
}

static void fail(const char *what)
{
    (void) fprintf(stderr, "weir-flood: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wrong(const char *what)
{
    (void) fprintf(stderr, "weir-flood: %s\n%s", what, usage);
    exit(2);
}

static bool read_mac(const char *text, unsigned char out[ETH_ALEN])
{
    struct ether_addr address;
    if (ether_aton_r(text, &address) == NULL) {
        return false;
    }
    memcpy(out, &address, ETH_ALEN);
    return true;
}

static void put16(unsigned char *at, uint64_t value)
{
    const uint16_t word = htons((uint16_t) value);
    memcpy(at, &word, sizeof(word));
}

/* What all frames share. */
static void make_frames(struct flood *f, const unsigned char own[ETH_ALEN])
{
    unsigned char *frame = f->contents[0];
    memcpy(frame, f->mac, ETH_ALEN);
    memcpy(frame + ETH_ALEN, own, ETH_ALEN);
    put16(frame + 12, ETH_P_IP);
    frame[14] = 0x45;
    put16(frame + 16, 28 + f->size);
    frame[22] = 64; /* hops */
    frame[23] = IPPROTO_UDP;
    memcpy(frame + 30, &f->to, sizeof(f->to));
    put16(frame + 36, f->port);
    put16(frame + 38, 8 + f->size);
    for (size_t i = 14; i < AT_PORT; i += 2) {
        f->check += (uint32_t) frame[i] << 8 | frame[i + 1];
    }
    for (size_t i = 0; i < BATCH; i++) {
        memcpy(f->contents[i], frame, HEADERS);
        f->pieces[i] = (struct iovec){f->contents[i], HEADERS + f->size};
        f->messages[i].msg_hdr = (struct msghdr){.msg_iov = &f->pieces[i], .msg_iovlen = 1};
    }
}

static void open_socket(struct flood *f)
{
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_ifindex = (int) if_nametoindex(f->interface)};
    struct ifreq request = {.ifr_flags = 0};
    const int one = 1;
    f->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0); /* protocol 0: it receives nothing */
    if (f->fd < 0) {
        fail("a packet socket");
    }
    (void) snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", f->interface);
    if (at.sll_ifindex == 0 || ioctl(f->fd, SIOCGIFHWADDR, &request) != 0 ||
        bind(f->fd, (const struct sockaddr *) (const void *) &at, sizeof(at)) != 0) {
        fail(f->interface);
    }
    f->interface_number = (unsigned) at.sll_ifindex;
    (void) setsockopt(f->fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof(one));
    make_frames(f, (const unsigned char *) request.ifr_hwaddr.sa_data);
}

static void set_source(struct flood *f, unsigned char *frame)
{
    const uint64_t number = f->next % f->count * FRAMES_STRIDE % f->count;
    const uint32_t source = ntohl(f->first.s_addr) + (uint32_t) number;
    uint32_t check = f->check + (source >> 16) + (source & 0xffff);
    check = (check & 0xffff) + (check >> 16);
    check = (check & 0xffff) + (check >> 16);
    const uint32_t address = htonl(source);
    memcpy(frame + AT_SOURCE, &address, sizeof(address));
    put16(frame + AT_CHECK, ~check);
    put16(frame + AT_PORT, FRAMES_PORT + number % 1000);
    f->next++;
}

static void send_packets(struct flood *f, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        set_source(f, f->contents[i]);
    }
    for (size_t done = 0; done < count;) {
        const int sent = sendmmsg(f->fd, f->messages + done, (unsigned) (count - done), 0);
        if (sent > 0) {
            done += (size_t) sent;
        } else if (errno != EINTR) {
            f->refused++;
            done++;
        }
    }
}

static void report(const struct flood *f, uint64_t took_ns)
{
    (void) printf("{\"sent\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"seconds\":%.6f}\n", f->next - f->refused, f->refused,
                  (double) took_ns / (double) SECOND_NS);
}

static void run(struct flood *f)
{
    const uint64_t start_ns = packets_now_ns();
    const uint64_t end_ns = start_ns + f->seconds * SECOND_NS;
    const uint64_t last = f->packets != 0 ? f->packets : UINT64_MAX;
    uint64_t now_ns = start_ns;
    while (!interrupted && now_ns < end_ns && f->next < last) {
        uint64_t due = f->rate == 0 ? BATCH : (now_ns - start_ns) / 1000 * f->rate / 1000000 - f->next;
        due = due < last - f->next ? due : last - f->next;
        if (due == 0 && f->rate != 0) {
            packets_sleep_until(start_ns + (f->next + 1) * SECOND_NS / f->rate);
        } else {
            send_packets(f, due < BATCH ? (size_t) due : BATCH);
        }
        now_ns = packets_now_ns();
    }
    report(f, now_ns - start_ns);
}

/* Until the time is over, by frames of no socket. */
static void run_frames(struct flood *f)
{
    const uint64_t start_ns = packets_now_ns();
    const struct frames_to to = {.count = f->count,
                                 .start_ns = start_ns,
                                 .every_ns = f->rate != 0 ? SECOND_NS / f->rate : 0,
                                 .at_once = f->at_once,
                                 .first = ntohl(f->first.s_addr),
                                 .check = f->check,
                                 .interface = f->interface_number,
                                 .waits = f->waits};
    struct frame_sender *sender = frame_sender_open(&to, f->contents[0], HEADERS + f->size);
    /* Again and again, as the first signal may come before the kernel begins to send. */
    const struct itimerval end = {.it_interval.tv_usec = 20000, .it_value.tv_sec = (time_t) f->seconds};
    if (sender == NULL || f->packets != 0 || f->seconds == 0) {
        errno = sender == NULL ? errno : EINVAL;
        fail("--frames needs --seconds, no --packets, libbpf and Linux 5.18");
    }
    (void) setitimer(ITIMER_REAL, &end, NULL);
    while (!interrupted && (f->next = frame_sender_run(sender)) != UINT64_MAX) {
    }
    if (f->next == UINT64_MAX) {
        fail("--frames");
    }
    report(f, packets_now_ns() - start_ns);
}

static const struct option long_options[] = {
    {"interface", required_argument, NULL, 'i'},
    {"to", required_argument, NULL, 't'},
    {"mac", required_argument, NULL, 'm'},
    {"sources", required_argument, NULL, 's'},
    {"rate", required_argument, NULL, 'r'},
    {"packets", required_argument, NULL, 'p'},
    {"seconds", required_argument, NULL, 'd'},
    {"frames", no_argument, NULL, 'f'},
    {"at-once", required_argument, NULL, 'o'},
    {"wait", no_argument, NULL, 'w'},
    {"size", required_argument, NULL, 'b'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void take_option(struct flood *f, int option, char *value)
{
    switch (option) {
    case 'i':
        f->interface = value;
        return;
    case 't':
        if (!packets_read_target(value, &f->to, &f->port)) {
            wrong("--to takes an address such as 10.0.0.1:7000");
        }
        return;
    case 'm':
        if (!read_mac(value, f->mac)) {
            wrong("--mac takes an address such as 02:00:00:00:00:01");
        }
        return;
    case 's':
        if (!packets_read_range(value, &f->first, &f->count) || f->count % FRAMES_STRIDE == 0) {
            wrong("--sources takes the first address and how many there are, such as 10.0.0.1,1000");
        }
        return;
    case 'f':
        f->without_socket = true;
        return;
    case 'w':
        f->waits = true;
        return;
    case 'h':
        (void) fputs(usage, stdout);
        exit(0);
    default:
        break;
    }
    uint64_t *const numbers[] = {['r' - 'a'] = &f->rate,
                                 ['p' - 'a'] = &f->packets,
                                 ['d' - 'a'] = &f->seconds,
                                 ['b' - 'a'] = &f->size,
                                 ['o' - 'a'] = &f->at_once};
    uint64_t *number = option == '?' ? NULL : numbers[option - 'a'];
    if (number == NULL || !packets_read_number(value, number)) {
        wrong("an option is unknown, or its number is none");
    }
}

int main(int argc, char **argv)
{
    static struct flood flood = {.count = 0, .seconds = 10, .size = 22, .at_once = 1};
    int option;
    while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        take_option(&flood, option, optarg);
    }
    if (flood.interface == NULL || flood.port == 0 || flood.count == 0 || flood.size > SIZE_MOST ||
        flood.at_once == 0 || optind < argc) {
        wrong("--interface, --to, --mac and --sources are needed; --at-once is 1 or more");
    }
    const struct sigaction action = {.sa_handler = interrupt};
    (void) sigaction(SIGINT, &action, NULL);
    (void) sigaction(SIGTERM, &action, NULL);
    (void) sigaction(SIGALRM, &action, NULL);
    open_socket(&flood);
    if (flood.without_socket) {
        run_frames(&flood);
    } else {
        run(&flood);
    }
    return 0;
}
