/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of packets, told apart by their first bytes and their size. A packet is of the first kind that it matches, or
 * of none. A policy that counts packets charges a kind's cost; a packet of no kind costs 1.
 *
 * Cost: a packet is looked at once, whatever it holds: four masked words for each kind, up to the first that matches.
 */
#ifndef WEIR_GATEWAY_KINDS_PACKET_KIND_H
#define WEIR_GATEWAY_KINDS_PACKET_KIND_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PACKET_KINDS_MAX 16

/* The longest name, and a terminator. */
#define PACKET_KIND_NAME_SIZE 32

/* Bytes of a packet that a pattern may look at. */
#define PACKET_KIND_PATTERN 32
#define PACKET_KIND_WORDS   (PACKET_KIND_PATTERN / 8)

#define PACKET_KIND_COST_MAX 1000000

/* The largest payload of UDP over IPv4. */
#define PACKET_KIND_SIZE_MAX 65507

struct packet_kind {
    uint64_t value[PACKET_KIND_WORDS], mask[PACKET_KIND_WORDS]; /* value == value & mask */
    size_t least_size, most_size;                               /* bytes of payload; least_size covers the pattern */
    uint32_t cost;                                              /* 0: free */
    char name[PACKET_KIND_NAME_SIZE];
};

struct packet_kinds {
    size_t count;
    struct packet_kind all[PACKET_KINDS_MAX];
};

/* The number of a packet's kind, from 1; 0: the packet is of none. */
static inline unsigned packet_kinds_match(const struct packet_kinds *kinds, const unsigned char *data, size_t size)
{
    uint64_t words[PACKET_KIND_WORDS] = {0};
    memcpy(words, data, size < sizeof(words) ? size : sizeof(words));
    for (size_t i = 0; i < kinds->count; i++) {
        const struct packet_kind *kind = &kinds->all[i];
        if ((words[0] & kind->mask[0]) != kind->value[0]) {
            continue; /* of most kinds and packets the first bytes tell */
        }
        uint64_t differ = 0;
        for (size_t w = 1; w < PACKET_KIND_WORDS; w++) {
            differ |= (words[w] & kind->mask[w]) ^ kind->value[w];
        }
        if (differ == 0 && size >= kind->least_size && size <= kind->most_size) {
            return (unsigned) i + 1;
        }
    }
    return 0;
}

/* The number of the kind of that name, from 1; 0: there is none. */
unsigned packet_kinds_find(const struct packet_kinds *kinds, const char *name);

/*
 * Reads a pattern: bytes as two hexadecimal digits each, with a '.' for a digit that may be any, and spaces as one
 * likes: "ff ff ff ff 54", "c.". Returns the number of bytes; 0: the text is no pattern, or too long.
 */
size_t packet_kind_pattern(const char *text, unsigned char value[PACKET_KIND_PATTERN],
                           unsigned char mask[PACKET_KIND_PATTERN]);

/* Has a kind look at the first `count` bytes. */
void packet_kind_set(struct packet_kind *kind, const unsigned char *value, const unsigned char *mask, size_t count);

#endif
