/* SPDX-License-Identifier: Apache-2.0 */
/* See packet_kind.h. */
#include "packet_kind.h"

unsigned packet_kinds_find(const struct packet_kinds *kinds, const char *name)
{
    for (size_t i = 0; i < kinds->count; i++) {
        if (strcmp(kinds->all[i].name, name) == 0) {
            return (unsigned) i + 1;
        }
    }
    return 0;
}

/* Takes a digit, or '.'. -1: it is neither. */
static int take_digit(char c, unsigned *value, unsigned *mask)
{
    static const char digits[] = "0123456789abcdef";
    const char lower = c >= 'A' && c <= 'F' ? (char) (c - 'A' + 'a') : c;
    const char *at = lower != '\0' ? strchr(digits, lower) : NULL;
    *value = *value << 4 | (at != NULL ? (unsigned) (at - digits) : 0);
    *mask = *mask << 4 | (at != NULL ? 0xfU : 0);
    return at != NULL || c == '.' ? 0 : -1;
}

size_t packet_kind_pattern(const char *text, unsigned char value[PACKET_KIND_PATTERN],
                           unsigned char mask[PACKET_KIND_PATTERN])
{
    size_t count = 0;
    for (const char *at = text; *at != '\0';) {
        unsigned bits = 0;
        unsigned masked = 0;
        if (*at == ' ') {
            at++;
            continue;
        }
        if (count == PACKET_KIND_PATTERN || take_digit(at[0], &bits, &masked) != 0 ||
            take_digit(at[1], &bits, &masked) != 0) {
            return 0;
        }
        value[count] = (unsigned char) bits;
        mask[count++] = (unsigned char) masked;
        at += 2;
    }
    return count;
}

void packet_kind_set(struct packet_kind *kind, const unsigned char *value, const unsigned char *mask, size_t count)
{
    unsigned char bytes[2][PACKET_KIND_PATTERN] = {{0}};
    for (size_t i = 0; i < count; i++) {
        bytes[0][i] = value[i] & mask[i];
        bytes[1][i] = mask[i];
    }
    memcpy(kind->value, bytes[0], sizeof(kind->value));
    memcpy(kind->mask, bytes[1], sizeof(kind->mask));
}
