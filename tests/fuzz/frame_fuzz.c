/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of Ethernet. What is read of one, written into a frame of its own, reads as the same; and sums that are made
 * byte by byte say which frames are damaged, of those that came and of those with one bit changed.
 */
#include <arpa/inet.h>

#include "../../apps/gateway/xsk/frame.h"
#include "fuzz.h"

/* The sum of 16 bits as one reads RFC 1071, on top of another sum. */
static uint32_t sum_of(uint32_t sum, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        sum += i % 2 == 0 ? (uint32_t) bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/* Whether the checksums of a frame with one UDP packet are right, or are left to the card. */
static bool is_whole(const unsigned char *bytes, const struct frame *frame)
{
    const bool v4 = frame->ends.family == 4;
    const unsigned char *ip = bytes + 14;
    const unsigned char *udp = frame->payload - 8;
    const unsigned char rest[] = {0, 17, udp[4], udp[5]};
    const size_t size = v4 ? 4 : 16;
    const uint32_t pseudo = sum_of(sum_of(sum_of(0, frame->ends.from, size), frame->ends.to, size), rest, 4);
    const uint32_t check = (uint32_t) udp[6] << 8 | udp[7];
    const bool is_summed = sum_of(pseudo, udp, 8 + frame->size) == 0xffff;
    if (v4 && sum_of(0, ip, 20) != 0xffff) {
        return false;
    }
    return check == 0 ? v4 : is_summed || check == pseudo;
}

/* A frame of the same ends and payload is read as what it was made of. */
static void check_written(const struct frame *frame)
{
    struct frame_head head;
    struct frame again;
    frame_head_make(&head, &frame->ends, frame->from_mac);
    CHECK(head.size == (frame->ends.family == 4 ? 42 : 62) && head.size <= FRAME_HEADERS_MAX);
    unsigned char *room = malloc(head.size + frame->size);
    CHECK(room != NULL);
    memcpy(room + head.size, frame->payload, frame->size);
    CHECK(frame_put(&head, frame->to_mac, room + head.size, frame->size, frame->sum, 7) == room);
    CHECK(frame_read(room, head.size + frame->size, &again) == FRAME_PLAIN);
    CHECK(memcmp(&again.ends, &frame->ends, sizeof(again.ends)) == 0 && again.size == frame->size);
    CHECK(memcmp(again.from_mac, frame->from_mac, FRAME_MAC_SIZE) == 0);
    CHECK(memcmp(again.to_mac, frame->to_mac, FRAME_MAC_SIZE) == 0);
    CHECK(again.payload == room + head.size && memcmp(again.payload, frame->payload, again.size) == 0);
    CHECK(is_whole(room, &again));
    if (again.size != 0) {
        again.payload[again.size / 2] ^= 0x10;
        CHECK((frame_read(room, head.size + frame->size, &again) == FRAME_PLAIN) == is_whole(room, &again));
    }
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct frame frame;
    unsigned char *bytes = (unsigned char *) input_part(&in, NULL, &size);
    const enum frame_state state = frame_read(bytes, size, &frame);
    if (state != FRAME_ODD) {
        CHECK(frame.ends.family == 4 || frame.ends.family == 6);
        CHECK(frame.payload >= bytes + 42 && frame.payload + frame.size <= bytes + size);
        CHECK(frame.sum == frame_sum(frame.payload, frame.size));
        const size_t half = frame.size / 2;
        const uint16_t joined =
            frame_sum_join(frame_sum(frame.payload, half), half, frame_sum(frame.payload + half, frame.size - half));
        CHECK(joined % 0xffff == frame.sum % 0xffff);
        CHECK((state == FRAME_PLAIN) == is_whole(bytes, &frame));
        check_written(&frame);
    }
    input_free((char *) bytes);
    return 0;
}
