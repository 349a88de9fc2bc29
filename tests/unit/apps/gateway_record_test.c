/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sample of denied packets: which ones are taken, the queue that they wait in, and the blocks they become.
 *
 * Guards: apps/gateway/record/pcapng.c, apps/gateway/record/ring.c, apps/gateway/record/sampler.c,
 * apps/gateway/record/capture_file.c
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../apps/gateway/record/capture_file.h"
#include "../apps/gateway/record/pcapng.h"
#include "../apps/gateway/record/ring.h"
#include "../apps/gateway/record/sampler.h"
#include "support/support.h"

static uint32_t word_at(const unsigned char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return word;
}

static struct address address_of(const char *text, uint16_t port)
{
    struct address address = {.length = 0};
    if (inet_pton(AF_INET, text, &address.u.v4.sin_addr) == 1) {
        address.u.v4.sin_family = AF_INET;
        address.u.v4.sin_port = htons(port);
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &address.u.v6.sin6_addr), 1);
        address.u.v6.sin6_family = AF_INET6;
        address.u.v6.sin6_port = htons(port);
    }
    return address;
}

/* The sum of 16-bit words, as RFC 1071 has it; 0xffff of what has a right checksum. */
static uint32_t sum_of(const unsigned char *bytes, size_t size, uint32_t sum)
{
    for (size_t i = 0; i < size; i++) {
        sum += i % 2 == 0 ? (uint32_t) bytes[i] << 8 : bytes[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static void test_a_file_begins_with_a_section_and_an_interface_of_raw_ip(void **state)
{
    (void) state;
    unsigned char bytes[PCAPNG_BEGIN_SIZE];
    const size_t size = pcapng_begin("a program with a name that is longer than any name", bytes);
    assert_true(size <= sizeof(bytes));
    assert_memory_equal(bytes, PCAPNG_MARK, 4);
    const uint32_t section = word_at(bytes + 4);
    assert_int_equal(word_at(bytes + section - 4), section);
    assert_int_equal(word_at(bytes + section), 1);
    assert_int_equal(bytes[section + 8] | bytes[section + 9] << 8, 101);
    assert_int_equal(section + word_at(bytes + section + 4), size);
    assert_int_equal(word_at(bytes + size - 4), size - section);
}

static void check_packet(const char *from, const char *to, size_t size, size_t captured)
{
    const bool v4 = strchr(from, '.') != NULL;
    unsigned char *payload = malloc(captured + 1);
    unsigned char *block = malloc(PCAPNG_PACKET_SIZE + captured);
    char comment[128];
    memset(comment, 'c', sizeof(comment) - 1);
    comment[sizeof(comment) - 1] = '\0';
    for (size_t i = 0; i < captured; i++) {
        payload[i] = (unsigned char) (i * 7 + size);
    }
    const struct address source = address_of(from, 4242);
    const struct address target = address_of(to, 7000);
    const struct pcapng_packet packet = {.time_ns = UINT64_C(0x123456789abcdef0),
                                         .from = &source,
                                         .to = &target,
                                         .data = payload,
                                         .captured = captured,
                                         .size = size,
                                         .lost = 41,
                                         .comment = comment};
    const size_t length = pcapng_packet(&packet, block);
    const size_t headers = v4 ? 28 : 48;
    const unsigned char *ip = block + 28;
    const unsigned char *udp = ip + headers - 8;
    assert_true(length <= PCAPNG_PACKET_SIZE + captured && length % 4 == 0);
    assert_int_equal(word_at(block), 6);
    assert_int_equal(word_at(block + 4), length);
    assert_int_equal(word_at(block + length - 4), length);
    assert_int_equal(word_at(block + 12), 0x12345678);
    assert_int_equal(word_at(block + 16), 0x9abcdef0);
    assert_int_equal(word_at(block + 20), headers + captured);
    assert_int_equal(word_at(block + 24), headers + size);
    assert_int_equal(udp[0] << 8 | udp[1], 4242);
    assert_int_equal(udp[2] << 8 | udp[3], 7000);
    assert_int_equal(udp[4] << 8 | udp[5], 8 + size);
    assert_memory_equal(udp + 8, payload, captured);
    if (v4) {
        assert_int_equal(ip[0], 0x45);
        assert_int_equal(ip[2] << 8 | ip[3], 28 + size);
        assert_int_equal(sum_of(ip, 20, 0), 0xffff);
        assert_int_equal(udp[6] | udp[7], 0);
    } else {
        assert_int_equal(ip[0], 0x60);
        assert_int_equal(ip[4] << 8 | ip[5], 8 + size);
        const uint32_t sum = sum_of(ip + 8, 32, (uint32_t) (17 + 8 + size));
        assert_true(captured < size || sum_of(udp, 8 + size, sum) == 0xffff);
    }
    /* The options: 127 bytes of comment, the direction, and how many were lost. */
    const unsigned char *options = ip + (headers + captured + 3) / 4 * 4;
    assert_int_equal(word_at(options), 1 | 127 << 16);
    assert_memory_equal(options + 4, comment, 127);
    assert_int_equal(word_at(options + 132), 2 | 4 << 16);
    assert_int_equal(word_at(options + 140), 4 | 8 << 16);
    assert_int_equal(word_at(options + 144), 41);
    assert_int_equal(options + 156 - block, length - 4);
    free(block);
    free(payload);
}

static void test_packets_have_headers_with_right_lengths_and_checksums(void **state)
{
    (void) state;
    static const size_t sizes[] = {0, 1, 2, 3, 4, 25, 1200, 1201, 65507};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t cut = 0; cut < 3; cut++) {
            const size_t captured = cut == 0 ? sizes[i] : cut == 1 ? sizes[i] / 2 : 0;
            check_packet("198.51.100.7", "203.0.113.1", sizes[i], captured);
            check_packet("2001:db8::7", "2001:db8::1", sizes[i], captured);
        }
    }
    check_packet("::ffff:198.51.100.7", "::ffff:203.0.113.1", 10, 10); /* IPv4 on a socket of IPv6 */
}

/* Offers `count` packets, `apart_ns` from one to the next. Returns how many were taken; adds what they stand for. */
static uint64_t offer(struct sampler *s, uint64_t count, uint64_t apart_ns, uint64_t *now_ns, uint64_t *stand_for)
{
    uint64_t taken = 0;
    for (uint64_t i = 0; i < count; i++, *now_ns += apart_ns) {
        if (!sampler_skips(s) && sampler_take(s, *now_ns)) {
            taken++;
            *stand_for += sampler_weight(s);
        }
    }
    return taken;
}

static void test_no_more_than_the_rate_is_taken_and_of_a_flood_most_of_it(void **state)
{
    (void) state;
    static const uint64_t rates[] = {1, 7, 100, 1000, 50000};
    static const uint64_t floods[] = {200, 3000, 100000, 3000000}; /* packets a second */
    for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
        for (size_t f = 0; f < sizeof(floods) / sizeof(floods[0]); f++) {
            struct sampler s;
            uint64_t now_ns = 5 * SECOND;
            uint64_t stand_for = 0;
            sampler_open(&s, SECOND / rates[r], 99 + r * 7 + f);
            const uint64_t taken = offer(&s, 20 * floods[f], SECOND / floods[f], &now_ns, &stand_for);
            const uint64_t most = rates[r] < floods[f] ? rates[r] : floods[f];
            assert_true(taken <= 21 * most + 4); /* what a second allows, or four packets, was saved */
            assert_true(taken >= 12 * most);
            assert_int_equal(stand_for + s.stands_for, 20 * floods[f]); /* none is forgotten */
        }
    }
}

static void test_of_two_sources_each_is_taken_by_its_share(void **state)
{
    (void) state;
    struct sampler s;
    uint64_t now_ns = SECOND;
    uint64_t taken[2] = {0, 0};
    sampler_open(&s, SECOND / 1000, 4711);
    for (uint64_t i = 0; i < 5000000; i++) {
        now_ns +=
            i % 64 == 0 ? 64000 : 0; /* a million a second, in bursts; the first one of each is another source's */
        if (!sampler_skips(&s) && sampler_take(&s, now_ns)) {
            taken[i % 64 == 0]++;
            (void) sampler_weight(&s);
        }
    }
    const uint64_t all = taken[0] + taken[1];
    assert_true(all > 3000 && taken[1] > all / 128 && taken[1] < all / 32);
}

static void test_after_a_flood_few_packets_are_taken_at_once(void **state)
{
    (void) state;
    struct sampler s;
    uint64_t now_ns = SECOND;
    uint64_t stand_for = 0;
    sampler_open(&s, SECOND / 10, 1);
    (void) offer(&s, 5000000, 1000, &now_ns, &stand_for);
    now_ns += 3 * SECOND;
    sampler_rest(&s);
    assert_int_equal(offer(&s, 5, 1000, &now_ns, &stand_for), 5);
}

#define PASSED 200000

static void *push_all(void *arg)
{
    struct ring *ring = arg;
    for (uint64_t i = 0; i < PASSED;) {
        struct ring_packet *packet = ring_next(ring);
        if (packet != NULL) {
            packet->time_ns = i;
            memset(packet->data, (int) (i & 0xff), 100);
            ring_push(ring);
            i++;
        }
    }
    return NULL;
}

static void test_a_queue_passes_packets_whole_and_in_order_and_refuses_what_has_no_room(void **state)
{
    (void) state;
    static struct ring ring;
    pthread_t thread;
    assert_int_equal(ring_open(&ring, 65507), 0);
    for (size_t i = 0; i < ring.count; i++) {
        assert_non_null(ring_next(&ring));
        ring_push(&ring);
    }
    assert_null(ring_next(&ring));
    ring_drop(&ring);
    assert_non_null(ring_next(&ring));
    ring_close(&ring);
    memset(&ring, 0, sizeof(ring));
    assert_int_equal(ring_open(&ring, 100), 0);
    assert_null(ring_first(&ring));
    assert_int_equal(pthread_create(&thread, NULL, push_all, &ring), 0);
    for (uint64_t i = 0; i < PASSED;) {
        const struct ring_packet *packet = ring_first(&ring);
        if (packet != NULL) {
            assert_int_equal(packet->time_ns, i);
            assert_true(packet->data[0] == (i & 0xff) && packet->data[99] == (i & 0xff));
            ring_drop(&ring);
            i++;
        }
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    ring_close(&ring);
}

static void test_a_file_is_moved_aside_when_full_and_only_captures_are(void **state)
{
    (void) state;
    char folder[] = "/tmp/weir-record-XXXXXX";
    char path[64];
    char older[72];
    char link[72];
    char problem[CAPTURE_PROBLEM_SIZE];
    static unsigned char block[1000];
    struct capture_file file;
    struct stat status;
    assert_non_null(mkdtemp(folder));
    (void) snprintf(path, sizeof(path), "%s/a", folder);
    (void) snprintf(older, sizeof(older), "%s.1", path);
    (void) snprintf(link, sizeof(link), "%s.link", path);
    assert_true(capture_file_open(&file, path, 2500, problem));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
    for (size_t i = 0; i < 5; i++) {
        assert_true(capture_file_write(&file, block, sizeof(block), problem));
        assert_int_equal(stat(path, &status), 0);
        assert_true(status.st_size <= 2500 && (uint64_t) status.st_size == file.size);
    }
    assert_int_equal(stat(older, &status), 0);
    assert_true(status.st_size > 2000 && status.st_size <= 2500);
    /* Moved by somebody else: a new file begins, and the moved one stays. */
    assert_int_equal(rename(path, older), 0);
    assert_true(capture_file_reopen(&file, problem));
    assert_true(file.size < 200 && stat(path, &status) == 0 && (uint64_t) status.st_size == file.size);
    assert_true(capture_file_reopen(&file, problem)); /* not moved: the same one goes on */
    capture_file_close(&file);
    /* Another kind of file, and a link, stay what they are. */
    FILE *other = fopen(path, "w");
    assert_non_null(other);
    (void) fputs("keep me", other);
    (void) fclose(other);
    assert_false(capture_file_open(&file, path, 2500, problem));
    assert_non_null(strstr(problem, "no pcapng file"));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_size, 7);
    assert_int_equal(symlink(path, link), 0);
    assert_false(capture_file_open(&file, link, 2500, problem));
    assert_non_null(strstr(problem, "symbolic link"));
    assert_int_equal(unlink(link) | unlink(path) | unlink(older) | rmdir(folder), 0);
}

static void test_a_program_whose_input_is_closed_opens_its_file_as_well(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-record-XXXXXX";
    char problem[CAPTURE_PROBLEM_SIZE];
    struct capture_file file;
    const int made = mkstemp(path);
    const int input = dup(STDIN_FILENO);
    assert_true(made > 0 && close(made) == 0);
    (void) close(STDIN_FILENO); /* from now on files may get the descriptor 0 */
    assert_true(capture_file_open(&file, path, 2500, problem));
    assert_int_equal(file.fd, STDIN_FILENO);
    assert_true(capture_file_reopen(&file, problem));
    assert_int_equal(file.fd, STDIN_FILENO);
    capture_file_close(&file);
    assert_int_equal(file.fd, -1);
    if (input >= 0) {
        assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
        assert_int_equal(close(input), 0);
    }
    assert_int_equal(unlink(path), 0);
}

static void test_a_disk_without_room_is_a_problem_and_no_end(void **state)
{
    (void) state;
    char problem[CAPTURE_PROBLEM_SIZE];
    struct capture_file file;
    assert_false(capture_file_open(&file, "/dev/full", 2500, problem));
    assert_false(capture_file_open(&file, "/tmp/weir-no-such-folder/a", 2500, problem));
    assert_non_null(strstr(problem, "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_begins_with_a_section_and_an_interface_of_raw_ip),
        cmocka_unit_test(test_packets_have_headers_with_right_lengths_and_checksums),
        cmocka_unit_test(test_no_more_than_the_rate_is_taken_and_of_a_flood_most_of_it),
        cmocka_unit_test(test_of_two_sources_each_is_taken_by_its_share),
        cmocka_unit_test(test_after_a_flood_few_packets_are_taken_at_once),
        cmocka_unit_test(test_a_queue_passes_packets_whole_and_in_order_and_refuses_what_has_no_room),
        cmocka_unit_test(test_a_file_is_moved_aside_when_full_and_only_captures_are),
        cmocka_unit_test(test_a_program_whose_input_is_closed_opens_its_file_as_well),
        cmocka_unit_test(test_a_disk_without_room_is_a_problem_and_no_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
