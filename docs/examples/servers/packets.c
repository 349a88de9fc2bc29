/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits packets by their source addresses, in bursts: reads a capture file or an interface with libpcap, decides on up
 * to 64 packets by one weir_check_burst, and writes the packets that may pass to another capture file.
 *
 *   packets FROM TO [LIMIT [PERIOD_MS [FILTER]]]    FROM: a file, or an interface; TO: a file, "-": standard output
 *
 * Each source may send 1,000 packets in 1,000 ms; IPv6 sources are told apart by their first 64 bits. What is not IP
 * passes. FILTER is an expression of libpcap, such as "udp port 53". A file is read by the times of its packets, an
 * interface by the clock. SIGTERM and SIGINT end it; it then says on standard error what it has seen.
 */
#include <pcap/pcap.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <weir/weir.h>

enum { BURST = 64, SNAPSHOT = 65535, TIMEOUT_MS = 10, TOP = 3 };

#define MS UINT64_C(1000000)

static pcap_t *from;
static pcap_dumper_t *to;
static weir *w;
static weir_thread *thread;
static weir_policy_id source;
static bool is_file;
static uint64_t first_ns, file_ns; /* the time of a file, as far as it was read, begins at 1 */
static unsigned long long seen, passed, others;

/* A burst that is being collected. */
static struct pcap_pkthdr heads[BURST];
static unsigned char packets[BURST][SNAPSHOT];
static weir_key keys[BURST];
static uint8_t addresses[BURST][8];
static size_t count;

static uint64_t clock_ns(void *arg)
{
    (void) arg;
    return file_ns;
}

/* Where the IP header of a packet begins; 0 to `size`, or beyond that where there is none. */
static size_t ip_offset(const unsigned char *packet, size_t size)
{
    size_t at = 14;
    switch (pcap_datalink(from)) {
    case DLT_RAW:
        return 0;
    case DLT_NULL:
    case DLT_LOOP:
        return 4;
    case DLT_LINUX_SLL:
        return 16;
    case DLT_LINUX_SLL2:
        return 20;
    case DLT_EN10MB:
        while (at + 4 <= size && ((packet[at - 2] == 0x81 && packet[at - 1] == 0) || /* tags of virtual networks */
                                  (packet[at - 2] == 0x88 && packet[at - 1] == 0xa8))) {
            at += 4;
        }
        return at <= size && ((packet[at - 2] == 0x08 && packet[at - 1] == 0) ||
                              (packet[at - 2] == 0x86 && packet[at - 1] == 0xdd))
                   ? at
                   : SIZE_MAX;
    default:
        return SIZE_MAX;
    }
}

/* The key of a packet: the bytes of its source address, as weir_address_form(64) has them. 0: it is not IP. */
static size_t read_source(const unsigned char *packet, size_t size, uint8_t address[8])
{
    const size_t at = ip_offset(packet, size);
    if (at < size && packet[at] >> 4 == 4 && size - at >= 20) {
        memcpy(address, packet + at + 12, 4);
        return 4;
    }
    if (at < size && packet[at] >> 4 == 6 && size - at >= 40) {
        memcpy(address, packet + at + 8, 8);
        return 8;
    }
    return 0;
}

/* The limiting: decides on the burst, and writes what may pass. */
static void decide(void)
{
    uint64_t allowed = 0; /* a bit for each packet: BURST is 64 */
    if (is_file) {
        (void) weir_poll(w); /* takes the time of the file */
    }
    passed += weir_check_burst(thread, keys, NULL, count, &allowed);
    for (size_t i = 0; i < count; i++) {
        if ((allowed >> i & 1) != 0) {
            pcap_dump((u_char *) to, &heads[i], packets[i]);
        }
    }
    count = 0;
}

static void on_packet(u_char *arg, const struct pcap_pkthdr *head, const u_char *packet)
{
    const uint64_t packet_ns = (uint64_t) head->ts.tv_sec * 1000 * MS + (uint64_t) head->ts.tv_usec; /* nanoseconds */
    (void) arg;
    first_ns = first_ns != 0 ? first_ns : packet_ns;
    const uint64_t at_ns = packet_ns > first_ns ? packet_ns - first_ns + 1 : 1;
    if (count == BURST || (is_file && count != 0 && at_ns > file_ns + MS)) {
        decide(); /* packets of one millisecond are decided at one time */
    }
    if (count == 0 && at_ns > file_ns) {
        file_ns = at_ns; /* a clock does not go back, though a file may */
    }
    seen++;
    const size_t size = read_source(packet, head->caplen, addresses[count]);
    if (size == 0) {
        others++;
        pcap_dump((u_char *) to, head, packet); /* ahead of packets that are being collected */
        return;
    }
    heads[count] = *head;
    memcpy(packets[count], packet, head->caplen < SNAPSHOT ? head->caplen : SNAPSHOT);
    keys[count] = weir_make_key(w, source, addresses[count], size);
    count++;
}

static void on_signal(int number)
{
    (void) number;
    pcap_breakloop(from);
}

/* True: `from` can be read. */
static bool open_source(const char *name, const char *filter)
{
    char problem[PCAP_ERRBUF_SIZE] = "";
    struct stat file;
    struct bpf_program program;
    is_file = stat(name, &file) == 0;
    from = is_file ? pcap_open_offline_with_tstamp_precision(name, PCAP_TSTAMP_PRECISION_NANO, problem)
                   : pcap_create(name, problem);
    if (from == NULL) {
        return fprintf(stderr, "packets: %s: %s\n", name, problem), false;
    }
    if (!is_file && (pcap_set_snaplen(from, SNAPSHOT) != 0 || pcap_set_timeout(from, TIMEOUT_MS) != 0 ||
                     pcap_set_tstamp_precision(from, PCAP_TSTAMP_PRECISION_NANO) != 0 || pcap_activate(from) < 0)) {
        return fprintf(stderr, "packets: %s: %s\n", name, pcap_geterr(from)), false;
    }
    if (filter != NULL &&
        (pcap_compile(from, &program, filter, 1, PCAP_NETMASK_UNKNOWN) != 0 || pcap_setfilter(from, &program) != 0)) {
        return fprintf(stderr, "packets: filter \"%s\": %s\n", filter, pcap_geterr(from)), false;
    }
    if (filter != NULL) {
        pcap_freecode(&program);
    }
    return true;
}

static bool open_limits(uint64_t limit_count, uint64_t period_ms)
{
    static const weir_clock file_clock = {.monotonic_ns = clock_ns, .wall_ns = clock_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = is_file;
    options.clock = is_file ? &file_clock : NULL;
    file_ns = 1;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = limit_count;
    limit.period_ns = period_ms * MS;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "source";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "source", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "packets: %s\n", error.message), false;
    }
    source = weir_find_policy(w, "source");
    thread = weir_attach(w);
    return true;
}

static void report(void)
{
    weir_offender top[TOP];
    const size_t found = weir_top_offenders(w, source, top, TOP);
    fprintf(stderr, "%llu packets: %llu passed, %llu over the limit, %llu not IP\n", seen, passed,
            seen - passed - others, others);
    for (size_t i = 0; i < found; i++) {
        fprintf(stderr, "%s: some %llu over the limit lately\n", top[i].key, (unsigned long long) top[i].denied_units);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        return fprintf(stderr, "usage: packets FROM TO [LIMIT [PERIOD_MS [FILTER]]]\n"), 2;
    }
    if (!open_source(argv[1], argc > 5 ? argv[5] : NULL) ||
        !open_limits(argc > 3 ? strtoull(argv[3], NULL, 10) : 1000, argc > 4 ? strtoull(argv[4], NULL, 10) : 1000)) {
        return 1;
    }
    to = pcap_dump_open(from, argv[2]);
    if (to == NULL) {
        return fprintf(stderr, "packets: %s: %s\n", argv[2], pcap_geterr(from)), 1;
    }
    struct sigaction action = {.sa_handler = on_signal};
    (void) sigaction(SIGINT, &action, NULL);
    (void) sigaction(SIGTERM, &action, NULL);
    int got = 0;
    do {
        got = pcap_dispatch(from, BURST, on_packet, NULL);
        if (count != 0 && !is_file) {
            decide(); /* what has come; of a file the packets of a millisecond are collected */
            (void) pcap_dump_flush(to);
        }
    } while (got > 0 || (got == 0 && !is_file));
    if (count != 0) {
        decide();
    }
    if (got == PCAP_ERROR) {
        fprintf(stderr, "packets: %s: %s\n", argv[1], pcap_geterr(from));
    }
    const bool written = pcap_dump_flush(to) == 0;
    if (!written) {
        fprintf(stderr, "packets: %s: cannot be written\n", argv[2]);
    }
    weir_detach(thread); /* what the thread has counted is in the lists then */
    report();
    pcap_dump_close(to);
    pcap_close(from);
    weir_close(w);
    return got == PCAP_ERROR || !written;
}
