/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of packets: drawn patterns and packets, against the definition byte by byte; files of kinds and their errors.
 *
 * Guards: docs/examples/presets/quic.kinds.yaml, apps/gateway/kinds/packet_kind.c, apps/gateway/kinds/kind_file.c,
 * apps/gateway/kinds/kind_store.c, apps/gateway/policy_kind.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../apps/gateway/kinds/kind_file.h"
#include "../apps/gateway/kinds/kind_store.h"
#include "../apps/gateway/policy_kind.h"
#include "support/support.h"

#define ROUNDS  3000
#define PACKETS 40

static uint64_t random_state;

static unsigned draw(unsigned below)
{
    return (unsigned) random_below(&random_state, below);
}

/* A kind as its text has it: digits of hexadecimal, '.' for any. */
struct drawn {
    char text[2 * PACKET_KIND_PATTERN + 1];
    size_t least, most;
};

static bool is_of(const struct drawn *kind, const unsigned char *data, size_t size)
{
    for (size_t i = 0; kind->text[i] != '\0'; i++) {
        char digit[2] = {kind->text[i], '\0'};
        if (i / 2 >= size || (kind->text[i] != '.' &&
                              strtoul(digit, NULL, 16) != ((unsigned) data[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15U))) {
            return false;
        }
    }
    return size >= kind->least && size <= kind->most;
}

static void draw_kind(struct drawn *drawn, struct packet_kind *kind)
{
    unsigned char value[PACKET_KIND_PATTERN];
    unsigned char mask[PACKET_KIND_PATTERN];
    const size_t count = 1 + draw(draw(4) == 0 ? PACKET_KIND_PATTERN : 4);
    for (size_t i = 0; i < 2 * count; i++) {
        drawn->text[i] = draw(3) == 0 ? '.' : "01fF"[draw(4)]; /* few values: that some packets match */
    }
    drawn->text[2 * count] = '\0';
    drawn->least = draw(2) == 0 ? 0 : draw(40);
    drawn->most = draw(2) == 0 ? PACKET_KIND_SIZE_MAX : drawn->least + draw(40);
    memset(kind, 0, sizeof(*kind));
    assert_int_equal(packet_kind_pattern(drawn->text, value, mask), count);
    packet_kind_set(kind, value, mask, count);
    kind->least_size = drawn->least > count ? drawn->least : count;
    kind->most_size = drawn->most;
}

static void test_drawn_packets_are_of_the_first_kind_that_they_match(void **state)
{
    (void) state;
    random_state = test_seed();
    static const unsigned values[] = {0x00, 0x11, 0xff, 0xf0, 0x0f, 0x10, 0x01, 0x1f};
    size_t matched = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        struct packet_kinds kinds = {.count = 1 + draw(PACKET_KINDS_MAX)};
        struct drawn drawn[PACKET_KINDS_MAX];
        for (size_t i = 0; i < kinds.count; i++) {
            draw_kind(&drawn[i], &kinds.all[i]);
        }
        for (size_t p = 0; p < PACKETS; p++) {
            const size_t size = draw(3) == 0 ? draw(6) : draw(80);
            unsigned char *data = malloc(size + (size == 0)); /* what is read behind it is found by a sanitizer */
            unsigned expected = 0;
            for (size_t i = 0; i < size; i++) {
                data[i] = (unsigned char) (draw(8) == 0 ? draw(256) : values[draw(8)]);
            }
            while (expected < kinds.count && !is_of(&drawn[expected], data, size)) {
                expected++;
            }
            expected = expected == kinds.count ? 0 : expected + 1;
            assert_int_equal(packet_kinds_match(&kinds, data, size), expected);
            matched += expected != 0;
            free(data);
        }
    }
    assert_true(matched > ROUNDS && matched < (size_t) ROUNDS * PACKETS);
}

static void test_patterns_that_are_none(void **state)
{
    (void) state;
    unsigned char value[PACKET_KIND_PATTERN];
    unsigned char mask[PACKET_KIND_PATTERN];
    static const char *const bad[] = {"",
                                      " ",
                                      "f",
                                      "fff",
                                      "f f",
                                      "0x54",
                                      "gg",
                                      "ff,54",
                                      "..." /* one and a half */,
                                      "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(packet_kind_pattern(bad[i], value, mask), 0);
    }
    assert_int_equal(packet_kind_pattern(" Ff  c. .1", value, mask), 3);
    assert_true(value[0] == 0xff && value[1] == 0xc0 && value[2] == 1 && mask[1] == 0xf0 && mask[2] == 0x0f);
}

/* Reads a text as a file of kinds. */
static bool read_text(const char *text, struct packet_kinds *kinds, weir_error *error)
{
    char path[] = "/tmp/weir-kinds-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text));
    assert_int_equal(close(fd), 0);
    const bool good = kind_file_read(path, kinds, error);
    assert_int_equal(unlink(path), 0);
    return good;
}

static void test_a_file_has_kinds_in_order(void **state)
{
    (void) state;
    struct packet_kinds kinds;
    weir_error error;
    assert_true(
        read_text("kinds:\n  - {name: a, match: ff ff ff ff 54, cost: 20}\n  - name: quic-initial\n    match: c0\n"
                  "    mask: 'f0'\n    minimum_length: 1200\n  - {name: long, minimum_length: 1000, cost: 0}\n",
                  &kinds, &error));
    assert_int_equal(kinds.count, 3);
    assert_int_equal(packet_kinds_find(&kinds, "quic-initial"), 2);
    assert_int_equal(packet_kinds_find(&kinds, ""), 0);
    unsigned char packet[1300] = {0xff, 0xff, 0xff, 0xff, 0x54};
    assert_int_equal(packet_kinds_match(&kinds, packet, 5), 1);
    assert_int_equal(packet_kinds_match(&kinds, packet, 4), 0);
    packet[0] = 0xcf;
    assert_int_equal(packet_kinds_match(&kinds, packet, 1200), 2);
    assert_int_equal(packet_kinds_match(&kinds, packet, 1199), 3);
    assert_int_equal(packet_kinds_match(&kinds, packet, 999), 0);
    assert_true(kinds.all[0].cost == 20 && kinds.all[1].cost == 1 && kinds.all[2].cost == 0);
    assert_true(kind_file_read(NULL, &kinds, &error) && kinds.count == 0);
}

static void test_the_most_and_the_least_of_each_number_are_taken(void **state)
{
    (void) state;
    static const struct {
        const char *fields;
        bool good;
    } rows[] = {
        {"match: ff, cost: 1000000", true},
        {"match: ff, cost: 1000001", false},
        {"match: ff, cost: 0", true},
        {"match: ff, cost: 00", false},
        {"match: ff, cost: 01", false},
        {"match: ff, cost: '1 '", false},
        {"match: ff, cost: 1000000000", false},
        {"minimum_length: 65507", true},
        {"minimum_length: 65508", false},
        {"maximum_length: 65507", true},
        {"maximum_length: 65508", false},
        {"maximum_length: 0", true},
        {"minimum_length: 7, maximum_length: 7", true},
        {"minimum_length: 8, maximum_length: 7", false},
        {"match: ffff, maximum_length: 2", true},
        {"match: ffff, maximum_length: 1", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[256];
        struct packet_kinds kinds;
        weir_error error;
        /* A name of 31 bytes, which is the longest. */
        (void) snprintf(text, sizeof(text), "kinds: [{name: a123456789b123456789c123456789d, %s}]\n", rows[i].fields);
        if (read_text(text, &kinds, &error) != rows[i].good) {
            fail_msg("%s", rows[i].fields);
        }
        assert_int_equal(kinds.count, rows[i].good ? 1 : 0);
    }
    struct packet_kinds kinds;
    weir_error error;
    assert_false(read_text("kinds: [{name: a123456789b123456789c123456789de, match: ff}]\n", &kinds, &error));
    assert_non_null(strstr(error.message, "give 1 to 31 letters"));
}

static void test_an_error_names_the_place_the_field_and_what_to_do(void **state)
{
    (void) state;
    static const struct {
        const char *text, *place, *words;
    } files[] = {
        {"", ":1:1:", "begin it with \"kinds:\""},
        {"kind:\n  - {name: a, match: ff}\n", ":1:1:", "did you mean \"kinds\""},
        {"kinds: []\n", ":1:1:", "no list of kinds"},
        {"kinds:\n  - {name: a, match: ff}\npolicies: []\n", ":3:1:", "there is no field \"policies\""},
        {"kinds:\n  - {name: a, mach: ff}\n", ":2:15:", "did you mean \"match\""},
        {"kinds:\n  - {name: a, match: ff, min_length: 3}\n", ":2:26:", "did you mean \"minimum_length\""},
        {"kinds:\n  - {name: a, match: ff, match: fe}\n", ":2:26:", "match twice"},
        {"kinds:\n  - {match: ff}\n", ":2:5:", "no name"},
        {"kinds:\n  - {name: a.b, match: ff}\n", ":2:12:", "letters, digits"},
        {"kinds:\n  - {name: a, match: ff}\n  - {name: a, match: fe}\n", ":3:12:", "two kinds"},
        {"kinds:\n  - {name: a, match: fff}\n", ":2:22:", "1 to 32 bytes"},
        {"kinds:\n  - {name: a, match: [ff]}\n", ":2:22:", "no single value"},
        {"kinds:\n  - {name: a, mask: ff}\n", ":2:15:", "a mask and no match"},
        {"kinds:\n  - {name: a, match: ffff, mask: ff}\n", ":2:34:", "as many bytes"},
        {"kinds:\n  - {name: a, match: ff, mask: f0}\n", ":2:22:", "matches nothing"},
        {"kinds:\n  - {name: a, cost: 5}\n", ":2:5:", "every packet"},
        {"kinds:\n  - {name: a, match: ff, cost: -1}\n", ":2:32:", "0 to 1000000"},
        {"kinds:\n  - {name: a, match: ff, cost: 1000001}\n", ":2:32:", "0 to 1000000"},
        {"kinds:\n  - {name: a, match: ffff, maximum_length: 1}\n", ":2:44:", "less than 2"},
        {"kinds:\n  - {name: a, maximum_length: 70000}\n", ":2:31:", "0 to 65507"},
        {"kinds:\n  - a\n", ":2:5:", "no mapping"},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct packet_kinds kinds;
        weir_error error = {.message = ""};
        if (read_text(files[i].text, &kinds, &error) || strstr(error.message, files[i].place) == NULL ||
            strstr(error.message, files[i].words) == NULL) {
            fail_msg("%s: %s", files[i].text, error.message);
        }
    }
}

static void test_there_are_16_kinds_at_most(void **state)
{
    (void) state;
    char text[4096] = "kinds:\n";
    struct packet_kinds kinds;
    weir_error error;
    for (size_t i = 0; i < PACKET_KINDS_MAX + 1; i++) {
        const size_t length = strlen(text);
        (void) snprintf(text + length, sizeof(text) - length, "  - {name: k%zu, match: '%02zx'}\n", i, i);
        assert_int_equal(read_text(text, &kinds, &error), i < PACKET_KINDS_MAX);
    }
    assert_non_null(strstr(error.message, "16 or fewer"));
}

static void test_policies_are_named_for_kinds(void **state)
{
    (void) state;
    struct policy_kind kind;
    assert_true(policy_kind_read("source.a2s_info", &kind));
    assert_true(kind.scope == SCOPE_SOURCE && !kind.of_bytes);
    assert_string_equal(kind.packet_kind, "a2s_info");
    assert_true(policy_kind_read("network6_32_bytes.x/pro", &kind));
    assert_true(kind.scope == SCOPE_NETWORK_V6 && kind.prefix == 32 && kind.of_bytes);
    assert_string_equal(kind.packet_kind, "x");
    assert_true(policy_kind_read("overall", &kind) && kind.packet_kind[0] == '\0');
    assert_false(policy_kind_read("source.", &kind));
    assert_false(policy_kind_read("source./pro", &kind));
    assert_false(policy_kind_read("source.a.b", &kind));
    assert_false(policy_kind_read("source.a123456789b123456789c123456789de", &kind));
}

static void test_a_copy_is_of_the_kinds_in_force(void **state)
{
    (void) state;
    static struct kind_store store;
    struct packet_kinds copy;
    const struct packet_kinds kinds = {.count = 2, .all = {{.name = "a"}, {.name = "b"}}};
    kind_store_open(&store);
    assert_false(kind_store_moved(&store, 0));
    kind_store_set(&store, &kinds);
    assert_true(kind_store_moved(&store, 0));
    const uint32_t generation = kind_store_copy(&store, &copy);
    assert_false(kind_store_moved(&store, generation));
    assert_int_equal(packet_kinds_find(&copy, "b"), 2);
}

/* The type of a packet with a long header, as the table of each version has it: RFC 9000 17.2, RFC 9369 3.2. */
enum quic_type { QUIC_INITIAL, QUIC_ZERO_RTT, QUIC_HANDSHAKE, QUIC_RETRY };

static const enum quic_type quic_1[4] = {QUIC_INITIAL, QUIC_ZERO_RTT, QUIC_HANDSHAKE, QUIC_RETRY};
static const enum quic_type quic_2[4] = {QUIC_RETRY, QUIC_INITIAL, QUIC_ZERO_RTT, QUIC_HANDSHAKE};

/* The name of the kind that a datagram is to have; "": it is of connections that are there. */
static const char *quic_kind(const unsigned char *data, size_t size)
{
    const uint32_t version =
        size < 5 ? 0 : (uint32_t) data[1] << 24 | (uint32_t) data[2] << 16 | (uint32_t) data[3] << 8 | data[4];
    if (size == 0 || (data[0] & 0x80) == 0) {
        return "";
    }
    if (version == 1 || version == 0x6b3343cf) {
        const enum quic_type type = (version == 1 ? quic_1 : quic_2)[data[0] >> 4 & 3];
        if (type == QUIC_ZERO_RTT) {
            return version == 1 ? "zero_rtt" : "zero_rtt_v2";
        }
        if (type == QUIC_HANDSHAKE) {
            return version == 1 ? "handshake" : "handshake_v2";
        }
    }
    return size >= 1200 ? "initial" : "short_initial";
}

static void test_the_preset_of_quic_tells_packets_apart_by_the_tables_of_the_versions(void **state)
{
    (void) state;
    static const uint32_t known[] = {1,          0x6b3343cf, 0,          2,          0xff00001d, 0x6b3343ce,
                                     0x1a2a3a4a, 0x51303530, 0x01000000, 0xffffffff, 0x6b330001};
    struct packet_kinds kinds;
    weir_error error;
    size_t seen[PACKET_KINDS_MAX + 1] = {0};
    random_state = test_seed();
    if (!kind_file_read(QUIC_KINDS, &kinds, &error)) {
        fail_msg("%s", error.message);
    }
    for (size_t n = 0; n < test_draws(200000); n++) {
        unsigned char data[1500];
        const size_t size = draw(8) == 0 ? draw(8) : draw(2) == 0 ? 1196 + draw(8) : draw(sizeof(data));
        const uint32_t version =
            draw(4) == 0 ? (uint32_t) random_next(&random_state) : known[draw(sizeof(known) / sizeof(known[0]))];
        for (size_t i = 0; i < sizeof(data); i++) {
            data[i] = (unsigned char) draw(256);
        }
        for (size_t i = 0; i < 4; i++) {
            data[1 + i] = (unsigned char) (version >> (24 - 8 * i));
        }
        const unsigned kind = packet_kinds_match(&kinds, data, size);
        assert_string_equal(kind != 0 ? kinds.all[kind - 1].name : "", quic_kind(data, size));
        seen[kind]++;
    }
    for (size_t i = 0; i <= kinds.count; i++) {
        assert_in_range(seen[i], 1, SIZE_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_preset_of_quic_tells_packets_apart_by_the_tables_of_the_versions),
        cmocka_unit_test(test_drawn_packets_are_of_the_first_kind_that_they_match),
        cmocka_unit_test(test_patterns_that_are_none),
        cmocka_unit_test(test_a_file_has_kinds_in_order),
        cmocka_unit_test(test_the_most_and_the_least_of_each_number_are_taken),
        cmocka_unit_test(test_an_error_names_the_place_the_field_and_what_to_do),
        cmocka_unit_test(test_there_are_16_kinds_at_most),
        cmocka_unit_test(test_policies_are_named_for_kinds),
        cmocka_unit_test(test_a_copy_is_of_the_kinds_in_force),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
