/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures that the gateway writes of a packet from any address, cut anywhere. libpcap, by which weir simulate reads
 * captures, finds the packet with its time, its size and its sender in them, and the one behind it.
 *
 * An input is the kind of addresses (0: IPv4, 1: IPv6 that stands for IPv4, 2: IPv6), two addresses with ports (2 * 18
 * bytes), the time (8), how many bytes of the payload were left out (2), a comment up to a line end, and the payload.
 */
#include "../../apps/gateway/record/pcapng.h"
#include "../../apps/weir/trace/packets.h"
#include "fuzz.h"

#define SIZE_MOST    65507
#define TIME_MOST_NS (UINT64_C(1) << 62)

static struct address read_address(struct input *in, unsigned kind)
{
    static const unsigned char beginnings[][12] = {{0}, {[10] = 0xff, [11] = 0xff}, {0x20, 0x01}};
    static const size_t fixed[] = {0, 12, 2};
    struct address address = {.length = 0};
    unsigned char bytes[16];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        const unsigned char byte = (unsigned char) input_number(in, 1);
        bytes[i] = i < fixed[kind] ? beginnings[kind][i] : byte;
    }
    if (kind == 0) {
        address.u.v4.sin_family = AF_INET;
        address.u.v4.sin_port = (uint16_t) input_number(in, 2);
        memcpy(&address.u.v4.sin_addr, bytes, 4);
    } else {
        address.u.v6.sin6_family = AF_INET6;
        address.u.v6.sin6_port = (uint16_t) input_number(in, 2);
        memcpy(&address.u.v6.sin6_addr, bytes, 16);
    }
    return address;
}

/* Writes the beginning of a capture and the packet's block `count` times. Each block lies at the end of its memory. */
static unsigned char *write_capture(const struct pcapng_packet *packet, unsigned count, size_t *size)
{
    const size_t most = PCAPNG_PACKET_SIZE + packet->captured;
    unsigned char *capture = malloc(PCAPNG_BEGIN_SIZE + count * most);
    unsigned char *begin = malloc(PCAPNG_BEGIN_SIZE);
    CHECK(capture != NULL && begin != NULL);
    *size = pcapng_begin("weir-gateway", begin);
    CHECK(*size <= PCAPNG_BEGIN_SIZE);
    memcpy(capture, begin, *size);
    for (unsigned i = 0; i < count; i++) {
        unsigned char *block = malloc(most);
        CHECK(block != NULL);
        const size_t written = pcapng_packet(packet, block);
        CHECK(written <= most && written % 4 == 0);
        memcpy(capture + *size, block, written);
        *size += written;
        free(block);
    }
    free(begin);
    return capture;
}

static void check_capture(const unsigned char *capture, size_t size, const struct pcapng_packet *packet, unsigned kind)
{
    const struct selection selection = {.key = KEY_ADDRESS, .prefix = 128, .bytes = true};
    const void *source = kind == 0   ? (const void *) &packet->from->u.v4.sin_addr
                         : kind == 1 ? (const void *) (packet->from->u.v6.sin6_addr.s6_addr + 12)
                                     : (const void *) &packet->from->u.v6.sin6_addr;
    struct fault fault;
    struct record record;
    CHECK(packets_detect(capture, size));
    FILE *file = fmemopen((void *) (uintptr_t) capture, size, "r");
    CHECK(file != NULL);
    struct packets *packets = packets_open(file, &selection, &fault);
    CHECK(packets != NULL);
    for (unsigned i = 0; i < 2; i++) {
        CHECK(packets_next(packets, &record, &fault) == 1);
        CHECK(record.time_ms == packet->time_ns / 1000000 && record.cost == packet->size);
        CHECK(record.address && record.length == (kind == 2 ? 16 : 4));
        CHECK(memcmp(record.key, source, record.length) == 0);
    }
    CHECK(packets_next(packets, &record, &fault) == 0);
    bool found;
    CHECK(packets_service(packets, &found)->port == ntohs(address_port(packet->to)) && found);
    CHECK(packets_counts(packets)->elsewhere == 0 && packets_counts(packets)->kinds[DATAGRAM_CUT] == 0);
    packets_close(packets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    const unsigned kind = input_choice(&in, 3);
    const struct address from = read_address(&in, kind);
    const struct address to = read_address(&in, kind);
    struct pcapng_packet packet = {.from = &from, .to = &to, .time_ns = input_number(&in, 8) % TIME_MOST_NS};
    const size_t left_out = (size_t) input_number(&in, 2);
    char *comment = input_text(&in, "\n");
    char *payload = input_part(&in, NULL, &packet.captured);
    packet.comment = comment;
    packet.data = (const unsigned char *) payload;
    packet.size = packet.captured + left_out < SIZE_MOST ? packet.captured + left_out : SIZE_MOST;
    unsigned char *capture = write_capture(&packet, 2, &size);
    check_capture(capture, size, &packet, kind);
    free(capture);
    free(comment);
    input_free(payload);
    return 0;
}
