/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_kind.h. */
#include "policy_kind.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "network.h"

#define V4_BITS 32
#define V6_BITS 128

const char *const policy_kind_names[POLICY_KIND_COUNT] = {"source", "source_bytes", "overall", "overall_bytes"};

/* Steps over `word`. False: it is not there. */
static bool skip(const char **at, const char *word)
{
    const size_t length = strlen(word);
    const bool there = strncmp(*at, word, length) == 0;
    *at += there ? length : 0;
    return there;
}

/* The bits of a network, without leading zeros. 0: there is no such number. */
static unsigned read_bits(const char **at)
{
    char *end = NULL;
    if (**at < '1' || **at > '9') {
        return 0;
    }
    const unsigned long bits = strtoul(*at, &end, 10);
    *at = end;
    return bits <= V6_BITS ? (unsigned) bits : 0;
}

/* What follows "network". */
static bool read_network(const char **at, struct policy_kind *out)
{
    const bool v6 = strncmp(*at, "6_", 2) == 0 && (*at)[2] != 'b'; /* network6_bytes is of 6 bits */
    *at += v6 ? 2 : 0;
    out->prefix = read_bits(at);
    out->scope = v6 || out->prefix > V4_BITS ? SCOPE_NETWORK_V6 : SCOPE_NETWORK_V4;
    return out->prefix != 0 && (!v6 || out->prefix <= V4_BITS);
}

/* What follows the name of a limit: the kind of its packets, or nothing. */
static bool read_packet_kind(const char **at, struct policy_kind *out)
{
    if (!skip(at, ".")) {
        return true;
    }
    const size_t length = strcspn(*at, "/");
    if (length == 0 || length >= sizeof(out->packet_kind) || memchr(*at, '.', length) != NULL) {
        return false;
    }
    memcpy(out->packet_kind, *at, length);
    *at += length;
    return true;
}

bool policy_kind_read(const char *name, struct policy_kind *out)
{
    const char *at = name;
    *out = (struct policy_kind){.scope = SCOPE_SOURCE};
    if (skip(&at, "network")) {
        if (!read_network(&at, out)) {
            return false;
        }
    } else if (skip(&at, "overall")) {
        out->scope = SCOPE_OVERALL;
    } else if (!skip(&at, "source")) {
        return false;
    }
    out->of_bytes = skip(&at, "_bytes");
    return read_packet_kind(&at, out) && (*at == '\0' || *at == '/');
}

bool policy_kind_concerns(const struct policy_kind *kind, bool v4)
{
    return kind->scope == SCOPE_SOURCE || kind->scope == SCOPE_OVERALL || (kind->scope == SCOPE_NETWORK_V4) == v4;
}

/* The key of all packets has no bytes, and so its text has no letters. */
static size_t write_overall(char *out, size_t size, const void *key, size_t length)
{
    (void) out;
    (void) size;
    (void) key;
    (void) length;
    return 0;
}

static size_t read_overall(void *out, size_t size, const char *text)
{
    (void) out;
    (void) size;
    return *text == '\0' ? 0 : SIZE_MAX;
}

static const weir_key_form overall_form = {write_overall, read_overall,
                                           "\"\" (\"overall:\"), the one key of all packets"};

const weir_key_form *policy_kind_form(const struct policy_kind *kind)
{
    switch (kind->scope) {
    case SCOPE_SOURCE:
        return weir_address_form(SOURCE_PREFIX);
    case SCOPE_NETWORK_V4:
    case SCOPE_NETWORK_V6:
        return weir_network_form(kind->scope == SCOPE_NETWORK_V4 ? 4 : 6, kind->prefix);
    case SCOPE_OVERALL:
    default:
        return &overall_form;
    }
}
