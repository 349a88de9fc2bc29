/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leaves a socket by an outbox, beside a kernel that takes some messages, and refuses others.
 *
 * Guards: apps/gateway/outbox.c, apps/gateway/local.c, apps/gateway/offload.c, apps/gateway/refusal.h
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>

#include "../apps/gateway/local.h"
#include "../apps/gateway/offload.h"
#include "../apps/gateway/outbox.h"
#include "support/draw.h"
#include "support/support.h"

#define FD        77
#define SENT_MOST 4096

/* A datagram as it left. */
struct sent {
    struct address to;     /* length 0: to where the socket is connected */
    struct in6_addr local; /* all zero: not told */
    size_t size;
    uint64_t sum;
    bool in_segments;
};

/* The kernel's end. */
static struct {
    int errors[8]; /* of the next calls; 0: it takes what it is given */
    size_t error_count, calls;
    size_t segment_most; /* larger datagrams are not taken in segments; 0: none are */
    int segment_error;
    int at_once; /* messages it takes in one call */
    size_t count;
    struct sent all[SENT_MOST];
} kernel;

static uint64_t sum_of(uint64_t sum, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

/* The segments that a message asks for; 0: it is one datagram. */
static size_t segment_of(struct msghdr *message)
{
    uint16_t segment = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_SEGMENT) {
            memcpy(&segment, CMSG_DATA(c), sizeof(segment));
        }
    }
    return segment;
}

/* Takes a message apart, as the kernel does. */
static void take(struct msghdr *message)
{
    static unsigned char bytes[1 << 17];
    const size_t segment = segment_of(message);
    struct sent sent = {.local = local_of(message), .in_segments = segment != 0};
    size_t size = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        memcpy(bytes + size, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len);
        size += message->msg_iov[i].iov_len;
    }
    assert_true(size <= SEGMENTED_SIZE_MAX);
    if (message->msg_name != NULL) {
        memcpy(&sent.to.u, message->msg_name, message->msg_namelen);
        sent.to.length = message->msg_namelen;
    }
    for (size_t at = 0; at < size || at == 0; at += sent.size) {
        sent.size = sent.in_segments && size - at > segment ? segment : size - at;
        sent.sum = sum_of(0, bytes + at, sent.size);
        assert_true(kernel.count < SENT_MOST);
        kernel.all[kernel.count++] = sent;
        if (sent.size == 0) {
            break;
        }
    }
}

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags);

int __wrap_sendmmsg(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    int taken = 0;
    assert_int_equal(fd, FD);
    assert_int_equal(flags, MSG_NOSIGNAL);
    assert_true(count != 0);
    errno = kernel.calls < kernel.error_count ? kernel.errors[kernel.calls] : 0;
    kernel.calls++;
    while (errno == 0 && taken < (int) count && taken < kernel.at_once) {
        if (segment_of(&messages[taken].msg_hdr) > kernel.segment_most) {
            errno = taken == 0 ? kernel.segment_error : 0;
            break;
        }
        take(&messages[taken++].msg_hdr);
    }
    return errno != 0 ? -1 : taken;
}

static void reset_kernel(void)
{
    memset(&kernel, 0, sizeof(kernel));
    kernel.segment_most = SIZE_MAX;
    kernel.at_once = 1000;
}

static struct address address_of(const char *text)
{
    struct address address;
    memset(&address, 0, sizeof(address));
    const bool v6 = strchr(text, ':') != NULL;
    address.length = v6 ? sizeof(address.u.v6) : sizeof(address.u.v4);
    address.u.any.sa_family = v6 ? AF_INET6 : AF_INET;
    assert_int_equal(inet_pton(v6 ? AF_INET6 : AF_INET, text,
                               v6 ? (void *) &address.u.v6.sin6_addr : (void *) &address.u.v4.sin_addr),
                     1);
    if (v6) {
        address.u.v6.sin6_port = htons(700);
    } else {
        address.u.v4.sin_port = htons(700);
    }
    return address;
}

static struct in6_addr local_text(const char *text)
{
    struct in6_addr local;
    assert_int_equal(inet_pton(AF_INET6, text, &local), 1);
    return local;
}

/* Where datagrams go, and in which form. */
struct scene {
    const struct address *to[3];
    struct in6_addr local[3];
    size_t prefix_size;
    bool segments;
};

static void check_sent(const struct sent *sent, const struct sent *wanted)
{
    assert_int_equal(sent->size, wanted->size);
    assert_true(sent->sum == wanted->sum);
    assert_int_equal(sent->to.length, wanted->to.length);
    assert_memory_equal(&sent->to.u, &wanted->to.u, wanted->to.length);
    assert_memory_equal(&sent->local, &wanted->local, sizeof(wanted->local));
}

/* Puts random datagrams in, flushes now and then, and holds what left against what was put in. */
static void play(uint64_t *rng, const struct scene *scene, int family)
{
    static unsigned char bytes[1 << 20], prefix[64] = "prefix";
    static struct sent wanted[SENT_MOST];
    static const size_t sizes[] = {0, 1, 100, 100, 100, 100, 99, 101, 1400, 1400, 1400, 9000, 30000};
    struct outbox box;
    size_t count = 0, at = 0, way = 0, segmented = 0;
    uint64_t sent_bytes = 0;
    outbox_open(&box, FD, family, scene->segments);
    box.prefix = prefix;
    box.prefix_size = scene->prefix_size;
    size_t size = draw_one_of(rng, sizes);
    while (count < 400) {
        size = random_below(rng, 4) != 0 ? size : draw_one_of(rng, sizes);
        way = random_below(rng, 8) != 0 ? way : random_below(rng, 3);
        if (at + size > sizeof(bytes) || draw_once_in(rng, 40)) {
            outbox_flush(&box);
            at = 0;
        }
        at += draw_once_in(rng, 5) ? 1 : 0; /* else it follows the one before, as those that came merged do */
        at = at + size > sizeof(bytes) ? 0 : at;
        for (size_t i = 0; i < size && i < 64; i++) {
            bytes[at + i] = (unsigned char) random_next(rng);
        }
        const struct datagram datagram = {.data = bytes + at, .size = size};
        outbox_add(&box, &datagram, scene->to[way], &scene->local[way]);
        wanted[count] = (struct sent){.size = size + scene->prefix_size,
                                      .sum = sum_of(sum_of(0, prefix, scene->prefix_size), bytes + at, size)};
        if (scene->to[way] != NULL) {
            wanted[count].to = *scene->to[way];
            wanted[count].local = scene->local[way];
        }
        sent_bytes += wanted[count++].size;
        at += size;
        assert_int_equal(box.added, count);
    }
    outbox_flush(&box);
    assert_int_equal(kernel.count, count);
    for (size_t i = 0; i < count; i++) {
        check_sent(&kernel.all[i], &wanted[i]);
        segmented += kernel.all[i].in_segments;
    }
    assert_int_equal(box.sent, count);
    assert_int_equal(box.sent_bytes, sent_bytes);
    assert_int_equal(box.segmented, segmented);
    assert_int_equal(box.refused, 0);
    assert_int_equal(segmented != 0, scene->segments && kernel.segment_most != 0);
}

static void test_what_is_put_in_leaves_in_order_and_whole(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    const struct address v4 = address_of("192.0.2.1"), other4 = address_of("192.0.2.2");
    const struct address v6 = address_of("2001:db8::1"), other6 = address_of("2001:db8::2");
    const struct in6_addr none = in6addr_any, local4 = local_text("::ffff:198.51.100.7"),
                          local6 = local_text("fd00::7");
    const struct {
        int family;
        struct scene scene;
    } scenes[] = {
        {AF_INET, {{NULL, NULL, NULL}, {none, none, none}, 0, true}},
        {AF_INET, {{&v4, &other4, &v4}, {none, none, local4}, 0, true}},
        {AF_INET, {{&v4, &other4, &v4}, {local4, local4, none}, 0, false}},
        {AF_INET6, {{&v6, &other6, &v6}, {none, local6, local6}, 0, true}},
        {AF_INET6, {{NULL, NULL, NULL}, {none, none, none}, 28, true}},
        {AF_INET, {{NULL, NULL, NULL}, {none, none, none}, 28, false}},
        {AF_INET, {{NULL, &v4, &other4}, {none, none, local4}, 0, true}},
    };
    for (unsigned round = 0; round < test_draws(120); round++) {
        const size_t which = round % (sizeof(scenes) / sizeof(scenes[0]));
        reset_kernel();
        kernel.at_once = draw_once_in(&rng, 2) ? 1000 : (int) random_below(&rng, 5) + 1;
        if (draw_once_in(&rng, 3)) { /* a path with a smaller MTU, or a kernel that has no segments after all */
            kernel.segment_most = draw_once_in(&rng, 2) ? 1300 : 0;
            kernel.segment_error = kernel.segment_most != 0 ? EMSGSIZE : EIO;
        }
        play(&rng, &scenes[which].scene, scenes[which].family);
    }
}

static void add_some(struct outbox *box, size_t count, size_t size)
{
    static unsigned char bytes[8][3000];
    for (size_t i = 0; i < count; i++) {
        const struct datagram datagram = {.data = bytes[i], .size = size};
        outbox_add(box, &datagram, NULL, NULL);
    }
}

static void test_segments_hold_what_every_kernel_takes(void **state)
{
    (void) state;
    static unsigned char bytes[1 << 17];
    static const struct {
        size_t size, count, messages;
    } rows[] = {{1, 60, 1},    {1, 64, 1},    {1, 65, 2},    {1, 128, 2}, {1023, 64, 1}, {1024, 63, 1},
                {1024, 64, 2}, {32753, 2, 1}, {32754, 2, 2}, {0, 5, 5},   {65507, 2, 2}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct outbox box;
        reset_kernel();
        outbox_open(&box, FD, AF_INET, true);
        for (size_t n = 0; n < rows[i].count; n++) { /* each behind the one before: they make one piece */
            const struct datagram datagram = {.data = bytes + (n * rows[i].size) % sizeof(bytes), .size = rows[i].size};
            outbox_add(&box, &datagram, NULL, NULL);
        }
        assert_int_equal(box.count, rows[i].messages);
        outbox_flush(&box);
        assert_int_equal(box.sent, rows[i].count);
        assert_int_equal(box.count, 0);
    }
}

static void test_each_error_is_a_refusal_or_passes_by(void **state)
{
    (void) state;
    /* Of one datagram, or four of a size: the errors of the calls, and what is counted then. */
    static const struct {
        size_t datagrams, size;
        int errors[4];
        size_t refused;
        int refusal;
        size_t sent, calls, segment_max;
    } rows[] = {
        {1, 10, {EINTR, EINTR}, 0, 0, 1, 3, SEGMENTED_SIZE_MAX},
        {1, 10, {EAGAIN}, 0, 0, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {ENOBUFS}, 0, 0, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {ECONNREFUSED}, 1, ECONNREFUSED, 1, 2, SEGMENTED_SIZE_MAX},
        {1, 10, {ECONNREFUSED, ECONNREFUSED}, 2, ECONNREFUSED, 0, 2, SEGMENTED_SIZE_MAX},
        {1, 10, {EHOSTUNREACH}, 1, EHOSTUNREACH, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {ENETUNREACH}, 1, ENETUNREACH, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EHOSTDOWN}, 1, EHOSTDOWN, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {ENETDOWN}, 1, ENETDOWN, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EPROTO}, 1, EPROTO, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {ENOPROTOOPT}, 1, ENOPROTOOPT, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EACCES}, 1, EACCES, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EPERM}, 1, EPERM, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EINVAL}, 0, 0, 0, 1, SEGMENTED_SIZE_MAX},
        {1, 10, {EMSGSIZE}, 0, 0, 0, 1, SEGMENTED_SIZE_MAX},
        /* Segments that are refused for what they are: they leave one by one. */
        {4, 1000, {EMSGSIZE}, 0, 0, 4, 2, 999},
        {4, 1233, {EINVAL}, 0, 0, 4, 2, 1232},
        {4, 1232, {EINVAL}, 0, 0, 4, 2, 0},
        {4, 1400, {EIO}, 0, 0, 4, 2, 0},
        {4, 1400, {ENOPROTOOPT}, 0, 0, 4, 2, 0},
        {4, 1400, {EOPNOTSUPP}, 0, 0, 4, 2, 0},
        /* And if they do not leave so either, nothing is learnt of segments. */
        {4, 1000, {EMSGSIZE, EAGAIN}, 0, 0, 0, 2, SEGMENTED_SIZE_MAX},
        {4, 1000, {EIO, EPERM}, 1, EPERM, 3, 3, 0},
        /* Those that are refused for where they go are not tried apart. */
        {4, 1000, {EHOSTUNREACH}, 1, EHOSTUNREACH, 0, 1, SEGMENTED_SIZE_MAX},
        {4, 1000, {ECONNREFUSED, EMSGSIZE}, 1, ECONNREFUSED, 4, 3, 999},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct outbox box;
        reset_kernel();
        outbox_open(&box, FD, AF_INET, true);
        memcpy(kernel.errors, rows[i].errors, sizeof(rows[i].errors));
        kernel.error_count = 4;
        add_some(&box, rows[i].datagrams, rows[i].size);
        assert_int_equal(box.count, 1);
        outbox_flush(&box);
        assert_int_equal(box.refused, rows[i].refused);
        assert_int_equal(box.refusal, rows[i].refusal);
        assert_int_equal(box.sent, rows[i].sent);
        assert_int_equal(box.sent_bytes, rows[i].sent * rows[i].size);
        assert_int_equal(kernel.calls, rows[i].calls);
        assert_int_equal(box.segment_max, rows[i].segment_max);
        assert_int_equal(box.segments, rows[i].segment_max != 0);
        outbox_forget_sizes(&box); /* where segments work, all sizes are tried again */
        assert_int_equal(box.segment_max, rows[i].segment_max != 0 ? SEGMENTED_SIZE_MAX : 0);
    }
}

static void test_what_one_client_cannot_have_is_skipped_and_the_others_get_theirs(void **state)
{
    (void) state;
    static unsigned char bytes[8][1400];
    const struct address to[] = {address_of("192.0.2.1"), address_of("192.0.2.2"), address_of("192.0.2.3")};
    struct outbox box;
    reset_kernel();
    outbox_open(&box, FD, AF_INET, false);
    for (size_t i = 0; i < 3; i++) {
        const struct datagram datagram = {.data = bytes[i], .size = i + 1};
        outbox_add(&box, &datagram, &to[i], &in6addr_any);
    }
    /* The first is taken; the second is refused; then the third is. */
    kernel.at_once = 1;
    kernel.errors[1] = EPERM;
    kernel.error_count = 2;
    outbox_flush(&box);
    assert_int_equal(kernel.count, 2);
    assert_int_equal(kernel.all[0].size, 1);
    assert_int_equal(kernel.all[1].size, 3);
    assert_int_equal(box.sent, 2);
    assert_int_equal(box.refused, 1);
    outbox_flush(&box); /* nothing is left */
    assert_int_equal(kernel.calls, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_put_in_leaves_in_order_and_whole),
        cmocka_unit_test(test_segments_hold_what_every_kernel_takes),
        cmocka_unit_test(test_each_error_is_a_refusal_or_passes_by),
        cmocka_unit_test(test_what_one_client_cannot_have_is_skipped_and_the_others_get_theirs),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_outbox", tests, NULL, NULL);
}
