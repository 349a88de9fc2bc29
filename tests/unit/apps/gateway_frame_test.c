/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames that are read and written without the network stack: known ones, and random ones against checksums that are
 * computed byte by byte.
 *
 * Guards: apps/gateway/xsk/frame.c
 */
#include <arpa/inet.h>
#include <string.h>

#include "../apps/gateway/xsk/frame.h"
#include "support/support.h"

#define ROOM 2048

/* Made by hand from the RFCs: 10.0.0.1:53 to 10.0.0.2:7000 with "hi!", from 02:..:01 to 02:..:02. */
static const unsigned char known_v4[] = {
    0x02, 0,  0,    0,    0,    0x02, 0x02, 0,    0,    0,    0,    0x01, 0x08, 0x00,                    /* Ethernet */
    0x45, 0,  0,    0x1f, 0x12, 0x34, 0,    0,    0x40, 0x11, 0x54, 0x98, 10,   0,    0, 1, 10, 0, 0, 2, /* IPv4 */
    0,    53, 0x1b, 0x58, 0,    0x0b, 0x46, 0xdf, 'h',  'i',  '!',                                       /* UDP */
};

/* As one reads RFC 1071. */
static uint32_t plain_sum(uint32_t sum, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        sum += i % 2 == 0 ? (uint32_t) bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/* The checksum of UDP that a frame should have, field and all: 0xffff where it is right. */
static uint32_t udp_sum(const unsigned char *frame, size_t ip_size)
{
    const unsigned char *ip = frame + 14;
    const unsigned char *udp = ip + ip_size;
    const size_t length = (size_t) udp[4] << 8 | udp[5];
    uint32_t sum = ip_size == 20 ? plain_sum(0, ip + 12, 8) : plain_sum(0, ip + 8, 32);
    const unsigned char rest[] = {0, 17, udp[4], udp[5]};
    return plain_sum(plain_sum(sum, rest, sizeof(rest)), udp, length);
}

/* What a frame has in the place of its checksum where that is left to the card. */
static uint32_t left_to_card(const unsigned char *frame, bool v4)
{
    const unsigned char *udp = frame + 14 + (v4 ? 20 : 40);
    const unsigned char rest[] = {0, 17, udp[4], udp[5]};
    return plain_sum(v4 ? plain_sum(0, frame + 26, 8) : plain_sum(0, frame + 22, 32), rest, sizeof(rest));
}

static uint64_t random_state;

static unsigned below(unsigned n)
{
    return (unsigned) random_below(&random_state, n);
}

static void fill(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bytes[i] = (unsigned char) below(256);
    }
}

static void test_a_known_frame_is_read_and_written_as_it_is(void **state)
{
    (void) state;
    unsigned char bytes[ROOM];
    struct frame frame;
    memcpy(bytes, known_v4, sizeof(known_v4));
    assert_int_equal(frame_read(bytes, sizeof(known_v4), &frame), FRAME_PLAIN);
    assert_int_equal(frame.ends.family, 4);
    assert_memory_equal(frame.ends.from, "\x0a\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_memory_equal(frame.ends.to, "\x0a\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_int_equal(ntohs(frame.ends.from_port), 53);
    assert_int_equal(ntohs(frame.ends.to_port), 7000);
    assert_int_equal(frame.size, 3);
    assert_memory_equal(frame.payload, "hi!", 3);
    assert_memory_equal(frame.from_mac, known_v4 + 6, 6);
    struct frame_head head;
    unsigned char out[ROOM];
    memcpy(out + 100, "hi!", 3);
    frame_head_make(&head, &frame.ends, frame.from_mac);
    unsigned char *start = frame_put(&head, frame.to_mac, out + 100, 3, frame.sum, htons(0x1234));
    assert_ptr_equal(start, out + 100 - 42);
    assert_memory_equal(start, known_v4, sizeof(known_v4));
}

/* Ends of a packet, and its frame in `bytes`; returns the frame's size. */
static size_t make_random(unsigned char *bytes, bool v4, size_t size, struct frame_ends *ends, unsigned char **start)
{
    unsigned char macs[12];
    struct frame_head head;
    memset(ends, 0, sizeof(*ends));
    ends->family = v4 ? 4 : 6;
    fill(ends->from, v4 ? 4 : 16);
    fill(ends->to, v4 ? 4 : 16);
    ends->from_port = (uint16_t) below(65536);
    ends->to_port = (uint16_t) below(65536);
    fill(macs, sizeof(macs));
    unsigned char *payload = bytes + 128 + below(64);
    fill(payload, size);
    frame_head_make(&head, ends, macs);
    *start = frame_put(&head, macs + 6, payload, size, frame_sum(payload, size), (uint16_t) below(65536));
    assert_memory_equal(*start, macs + 6, 6);
    assert_memory_equal(*start + 6, macs, 6);
    return (size_t) (payload - *start) + size;
}

static void test_random_frames_have_right_checksums_and_read_back(void **state)
{
    (void) state;
    static unsigned char bytes[ROOM];
    random_state = test_seed();
    for (unsigned n = 0; n < 20000; n++) {
        const bool v4 = n % 2 == 0;
        const size_t size = n < 64 ? n / 2 : below(1473);
        struct frame_ends ends;
        struct frame frame;
        unsigned char *start;
        const size_t total = make_random(bytes, v4, size, &ends, &start);
        assert_int_equal(udp_sum(start, v4 ? 20 : 40), 0xffff);
        assert_true(!v4 || plain_sum(0, start + 14, 20) == 0xffff);
        assert_int_equal(frame_read(start, total, &frame), FRAME_PLAIN);
        assert_memory_equal(&frame.ends, &ends, sizeof(ends));
        assert_int_equal(frame.size, size);
        /* Ethernet fills short frames up. */
        assert_int_equal(frame_read(start, total + below(20), &frame), FRAME_PLAIN);
        assert_int_equal(frame.size, size);
        /* And every cut is seen. */
        assert_int_equal(frame_read(start, below((unsigned) total), &frame), FRAME_ODD);
    }
}

static void test_one_changed_bit_is_damage_or_another_kind_of_packet(void **state)
{
    (void) state;
    static unsigned char bytes[ROOM];
    random_state = test_seed();
    for (unsigned n = 0; n < 20000; n++) {
        const bool v4 = n % 2 == 0;
        struct frame_ends ends;
        struct frame frame;
        unsigned char *start;
        const size_t total = make_random(bytes, v4, below(200), &ends, &start);
        /* Behind Ethernet's header, and not in IPv6's class, label and hop limit, which have no checksum. */
        const size_t at = v4 ? 14 + below((unsigned) total - 14) : 22 + below((unsigned) total - 22);
        const unsigned char bit = (unsigned char) (1U << below(8));
        unsigned char *check = start + (v4 ? 40 : 60);
        start[at] ^= bit;
        const uint32_t sum = (uint32_t) check[0] << 8 | check[1];
        if (sum == 0 || sum == left_to_card(start, v4)) {
            continue; /* none, for IPv4; or one that is not yet made, as one of 65536 seems to be */
        }
        assert_int_not_equal(frame_read(start, total, &frame), FRAME_PLAIN);
    }
}

static void test_a_checksum_may_be_left_to_the_card_or_left_out_with_ipv4(void **state)
{
    (void) state;
    static unsigned char bytes[ROOM];
    random_state = test_seed();
    for (unsigned n = 0; n < 2000; n++) {
        const bool v4 = n % 2 == 0;
        struct frame_ends ends;
        struct frame frame;
        unsigned char *start;
        const size_t total = make_random(bytes, v4, 1 + below(100), &ends, &start);
        const size_t ip_size = v4 ? 20 : 40;
        unsigned char *udp = start + 14 + ip_size;
        const uint32_t partial = left_to_card(start, v4);
        udp[6] = (unsigned char) (partial >> 8);
        udp[7] = (unsigned char) partial;
        udp[8] ^= 0x55; /* no checksum has it */
        assert_int_equal(frame_read(start, total, &frame), FRAME_PLAIN);
        udp[6] = udp[7] = 0;
        assert_int_equal(frame_read(start, total, &frame), v4 ? FRAME_PLAIN : FRAME_DAMAGED);
    }
}

static void test_packets_that_are_not_plain_are_odd(void **state)
{
    (void) state;
    static const struct {
        size_t at;
        unsigned char value;
    } changes[] = {
        {12, 0x81}, /* a virtual network: 0x8100 */
        {14, 0x46}, /* options */
        {14, 0x55}, /* another version */
        {20, 0x20}, /* more fragments */
        {21, 0x01}, /* a later fragment */
        {23, 6},    /* TCP */
        {17, 0x20}, /* more than there is */
        {17, 0x1b}, /* less than UDP's header says */
        {39, 0x0a}, /* UDP's length */
    };
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        unsigned char bytes[sizeof(known_v4)];
        struct frame frame;
        memcpy(bytes, known_v4, sizeof(bytes));
        bytes[changes[i].at] = changes[i].value;
        assert_int_equal(frame_read(bytes, sizeof(bytes), &frame), FRAME_ODD);
    }
}

static void test_sums_of_parts_join(void **state)
{
    (void) state;
    static unsigned char bytes[ROOM];
    random_state = test_seed();
    for (unsigned n = 0; n < 10000; n++) {
        const size_t first = below(100);
        const size_t next = below(1000);
        fill(bytes, first + next);
        assert_int_equal(frame_sum_join(frame_sum(bytes, first), first, frame_sum(bytes + first, next)),
                         frame_sum(bytes, first + next));
        assert_int_equal(htons(frame_sum(bytes, first + next)), plain_sum(0, bytes, first + next));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_known_frame_is_read_and_written_as_it_is),
        cmocka_unit_test(test_random_frames_have_right_checksums_and_read_back),
        cmocka_unit_test(test_one_changed_bit_is_damage_or_another_kind_of_packet),
        cmocka_unit_test(test_a_checksum_may_be_left_to_the_card_or_left_out_with_ipv4),
        cmocka_unit_test(test_packets_that_are_not_plain_are_odd),
        cmocka_unit_test(test_sums_of_parts_join),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_frame", tests, NULL, NULL);
}
