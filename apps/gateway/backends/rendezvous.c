/* SPDX-License-Identifier: Apache-2.0 */
/* See rendezvous.h. */
#include "rendezvous.h"

#include <string.h>

#include "../mix.h"

/* Bits of a logarithm behind the point. With 7 before it and 8 of a weight the products below have 47. */
#define FRACTION_BITS 32

void rendezvous_init(struct rendezvous *rendezvous, const char *secret)
{
    record_hash_init(&rendezvous->hash, secret);
}

/* What is hashed: a word that keeps both kinds apart, an address of IPv6 or mapped into it, and a port. */
struct material {
    char kind[8];
    struct in6_addr address;
    uint16_t port;
    uint16_t unused;
};

static struct material material_of(const char *kind, const struct address *address)
{
    struct material material;
    memset(&material, 0, sizeof(material));
    (void) memcpy(material.kind, kind, strlen(kind));
    material.address = address_mapped(address);
    material.port = address_port(address);
    return material;
}

static struct rendezvous_name name_of(const struct rendezvous *rendezvous, const struct material *material)
{
    struct rendezvous_name name = {{0, 0}};
    unsigned char digest[RECORD_HASH_SIZE];
    record_hash_of(&rendezvous->hash, material, sizeof(*material), digest);
    for (size_t i = 0; i < sizeof(digest); i++) { /* of either byte order */
        name.words[i / 8] = name.words[i / 8] << 8 | digest[i];
    }
    return name;
}

struct rendezvous_name rendezvous_client(const struct rendezvous *rendezvous, const struct address *client)
{
    struct material material = material_of("client", client);
    material.port = 0;
    if (!IN6_IS_ADDR_V4MAPPED(&material.address)) {
        memset(&material.address.s6_addr[8], 0, 8);
    }
    return name_of(rendezvous, &material);
}

struct rendezvous_name rendezvous_backend(const struct rendezvous *rendezvous, const struct address *backend)
{
    const struct material material = material_of("backend", backend);
    return name_of(rendezvous, &material);
}

struct rendezvous_draw rendezvous_draw(const struct rendezvous_name *client, const struct rendezvous_name *backend,
                                       uint32_t weight)
{
    const uint64_t first = mix(client->words[0] ^ backend->words[0], client->words[1] ^ backend->words[1]);
    return (struct rendezvous_draw){mix(first ^ client->words[1], backend->words[0] | 1), weight};
}

/* -log2((hash + 1) / 2^64), with FRACTION_BITS bits behind the point, rounded up: by squaring, a bit at a time. */
static uint64_t minus_log2(uint64_t hash)
{
    if (hash == UINT64_MAX) {
        return 0;
    }
    uint64_t mantissa = hash + 1;
    const unsigned shift = (unsigned) __builtin_clzll(mantissa);
    uint64_t log = 63 - shift;
    mantissa <<= shift; /* 1 to 2, with 63 bits behind the point */
    for (unsigned i = 0; i < FRACTION_BITS; i++) {
        const uint64_t square = (uint64_t) ((wide_uint) mantissa * mantissa >> 64); /* 1 to 4, with 62 bits */
        const bool two = square >> 63 != 0;
        log = log << 1 | two;
        mantissa = two ? square : square << 1;
    }
    return (UINT64_C(64) << FRACTION_BITS) - log;
}

bool rendezvous_beats(const struct rendezvous_draw *a, const struct rendezvous_draw *b)
{
    if (a->weight == b->weight) {
        return a->hash > b->hash; /* what the logarithms say, without them */
    }
    const uint64_t left = minus_log2(a->hash) * b->weight;
    const uint64_t right = minus_log2(b->hash) * a->weight;
    return left != right ? left < right : a->hash > b->hash;
}
