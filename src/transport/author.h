/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of an author in Redis: of what one node counts of a key in one stay of the key in its table. Names: author_.
 *
 * A record has a field for each author, so an author has six bytes: three of the node, three of the stay. No two stays
 * of a key at one node have the same bytes within 15 million stays. Two authors of different nodes have with a
 * probability of 2^-47; then the larger of the two counts. Of a fleet of 600 nodes that is one record in a billion. The
 * bytes are digits to the base 250, from 5 up, so a name is a text: it has no zero, and of ASCII's signs no ':'.
 */
#ifndef WEIR_TRANSPORT_AUTHOR_H
#define WEIR_TRANSPORT_AUTHOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AUTHOR_NODE   3 /* bytes of the node, which are the first */
#define AUTHOR_LENGTH 6
#define AUTHOR_BASE   250
#define AUTHOR_DIGITS (AUTHOR_BASE * AUTHOR_BASE * AUTHOR_BASE)

static inline void author_digits(char *out, uint64_t number)
{
    for (int i = 0; i < AUTHOR_NODE; i++) {
        const unsigned char digit = (unsigned char) (number % AUTHOR_BASE + 5);
        out[i] = (char) (digit < ':' ? digit : digit + 1);
        number /= AUTHOR_BASE;
    }
}

/* Writes the author's name, terminated. `node`: a node's id, 12 hexadecimal digits. */
static inline void author_write(char out[AUTHOR_LENGTH + 1], const char *node, uint64_t incarnation)
{
    const uint64_t id = strtoull(node, NULL, 16);
    author_digits(out, id >> 24);
    author_digits(out + AUTHOR_NODE, id + incarnation);
    out[AUTHOR_LENGTH] = '\0';
}

/* Whether a text has the form of an author's name. */
static inline bool author_is_name(const char *text)
{
    return strlen(text) == AUTHOR_LENGTH && strpbrk(text, ":\1\2\3\4") == NULL;
}

/* Of the node of an author: its id's first six digits, as a number. */
static inline uint32_t author_node(const char *author)
{
    uint32_t node = 0;
    for (int i = AUTHOR_NODE; i-- > 0;) {
        const unsigned char digit = (unsigned char) author[i];
        node = node * AUTHOR_BASE + digit - (digit < ':' ? 5 : 6);
    }
    return node;
}

/* Whether an author is one of this node. Two nodes of a fleet of 600 are alike in one fleet of a hundred. */
static inline bool author_is_of(const char *author, const char *node)
{
    char own[AUTHOR_LENGTH + 1];
    author_write(own, node, 0);
    return strncmp(author, own, AUTHOR_NODE) == 0;
}

#endif
