/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of kinds, and packets. A file is refused with its place, or its kinds are within their bounds; and a packet is
 * of the kind that a comparison byte by byte finds.
 *
 * An input is a file, up to a line of "...", and packets, up to a line end each.
 */
#include "../../apps/gateway/kinds/kind_file.h"
#include "fuzz.h"

static bool is_of_kind(const struct packet_kind *kind, const unsigned char *data, size_t size)
{
    bool same = size >= kind->least_size && size <= kind->most_size;
    for (size_t i = 0; i < PACKET_KIND_PATTERN; i++) {
        const unsigned char value = ((const unsigned char *) kind->value)[i];
        const unsigned char mask = ((const unsigned char *) kind->mask)[i];
        CHECK((value & (unsigned char) ~mask) == 0);
        CHECK(mask == 0 || i < kind->least_size);
        same = same && ((i < size ? data[i] : 0) & mask) == value;
    }
    return same;
}

static void check_kinds(const struct packet_kinds *kinds)
{
    CHECK(kinds->count >= 1 && kinds->count <= PACKET_KINDS_MAX);
    for (size_t i = 0; i < kinds->count; i++) {
        const struct packet_kind *kind = &kinds->all[i];
        check_sentence(kind->name, sizeof(kind->name));
        CHECK(packet_kinds_find(kinds, kind->name) == i + 1);
        CHECK(kind->cost <= PACKET_KIND_COST_MAX && kind->least_size <= kind->most_size);
    }
}

static void check_packet(const struct packet_kinds *kinds, const unsigned char *data, size_t size)
{
    unsigned wanted = 0;
    for (size_t i = 0; i < kinds->count && wanted == 0; i++) {
        wanted = is_of_kind(&kinds->all[i], data, size) ? (unsigned) i + 1 : 0;
    }
    CHECK(packet_kinds_match(kinds, data, size) == wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    struct packet_kinds kinds;
    weir_error error = {.code = 0};
    char *text = input_part(&in, "\n...\n", &size);
    const char *path = input_file(text, size);
    input_free(text);
    if (!kind_file_read(path, &kinds, &error)) {
        check_sentence(error.message, sizeof(error.message));
        CHECK(error.code < 0 && strncmp(error.message, path, strlen(path)) == 0);
        return 0;
    }
    check_kinds(&kinds);
    while (in.at < in.end) {
        char *packet = input_part(&in, "\n", &size);
        check_packet(&kinds, (const unsigned char *) packet, size);
        input_free(packet);
    }
    return 0;
}
