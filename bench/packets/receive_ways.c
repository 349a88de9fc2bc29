/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processor time of a UDP proxy for a packet, by the way in which it receives:
 * weir-receive-ways [ROUNDS [MILLISECONDS]]
 *
 *   epoll     epoll_wait, and recvmmsg from each socket that has something: what weir-gateway does
 *   io_uring  a multishot receive for each socket, and one group of buffers
 *   recvmsg   waits in recvmsg: the least, and only where a thread has one socket
 *
 * Each sends by sendmmsg. The load `forward` keeps 100 packets of 20 clients under way, each of which has a socket of
 * its own to a backend. The load `drop` sends a packet each 50 microseconds. The proxy has the last processor, all
 * others have the first one. The ways take turns. Its figures are in docs/decisions/031-io-uring.md.
 */
#include <arpa/inet.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "packets.h"

#define CLIENTS       20
#define WINDOW        100
#define DROP_EVERY_NS 50000
#define BATCH         64
#define BUFFERS       256 /* a power of two */
#define BUFFER_SIZE   2048
#define PAYLOAD       48
#define CONTROL_SIZE  64
#define ROUNDS_MOST   99
#define WAIT_MS       50
#define DESCRIPTORS   1024

enum way { WAY_EPOLL, WAY_URING, WAY_RECVMSG, WAYS };

static const char *const names[WAYS] = {"epoll", "io_uring", "recvmsg"};

/* Messages on their way in or out. */
struct batch {
    struct mmsghdr messages[BATCH];
    struct iovec pieces[BATCH];
    struct sockaddr_in addresses[BATCH];
    _Alignas(struct cmsghdr) unsigned char controls[BATCH][CONTROL_SIZE];
    unsigned char bytes[BATCH][BUFFER_SIZE];
};

static struct {
    bool forwards;
    int listener, epoll_fd, backend_fd;
    uint16_t port, backend_port;
    uint64_t received, replied, end_ns;
    int sessions[UINT16_MAX + 1];           /* by the client's port; 0: none */
    struct sockaddr_in owners[DESCRIPTORS]; /* of each session's descriptor */
    struct batch in, out;
    struct io_uring ring;
    struct io_uring_buf_ring *group;
    unsigned char *buffers;
    uint16_t taken[BATCH]; /* buffers of `out` */
} proxy;

static struct msghdr of_listener = {.msg_namelen = sizeof(struct sockaddr_in), .msg_controllen = CONTROL_SIZE};
static struct msghdr of_session = {.msg_controllen = CONTROL_SIZE};

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void take_processor(bool last)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(last ? (unsigned) sysconf(_SC_NPROCESSORS_ONLN) - 1 : 0U, &set);
    (void) sched_setaffinity(0, sizeof(set), &set);
}

/* A socket at a port of its own, or connected to one. */
static int open_socket(uint16_t to, int flags, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(to)};
    socklen_t size = sizeof(at);
    const int fd = socket(AF_INET, SOCK_DGRAM | flags, 0);
    const struct sockaddr *address = (const struct sockaddr *) (const void *) &at;
    if (fd < 0 || fd >= DESCRIPTORS || (to != 0 ? connect(fd, address, size) : bind(fd, address, size)) != 0) {
        fail("a socket");
    }
    if (port != NULL) {
        (void) getsockname(fd, (struct sockaddr *) (void *) &at, &size);
        *port = ntohs(at.sin_port);
    }
    return fd;
}

static void batch_ready(struct batch *batch, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        batch->pieces[i] = (struct iovec){batch->bytes[i], BUFFER_SIZE};
        batch->messages[i].msg_hdr = (struct msghdr){.msg_name = &batch->addresses[i],
                                                     .msg_namelen = sizeof(batch->addresses[i]),
                                                     .msg_iov = &batch->pieces[i],
                                                     .msg_iovlen = 1,
                                                     .msg_control = batch->controls[i],
                                                     .msg_controllen = CONTROL_SIZE};
    }
}

static void send_all(int fd, struct batch *batch, unsigned count)
{
    for (unsigned done = 0; done < count;) {
        const int sent = sendmmsg(fd, batch->messages + done, count - done, MSG_NOSIGNAL);
        if (sent <= 0) {
            break;
        }
        done += (unsigned) sent;
    }
}

/* Makes message i of `out` a reply of these bytes. */
static void put(size_t i, void *bytes, size_t size, struct sockaddr_in *to)
{
    proxy.out.pieces[i] = (struct iovec){bytes, size};
    proxy.out.messages[i].msg_hdr =
        (struct msghdr){.msg_name = to, .msg_namelen = sizeof(*to), .msg_iov = &proxy.out.pieces[i], .msg_iovlen = 1};
}

/* Begins a session's receive, or a listener's. */
static void arm(int fd)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&proxy.ring);
    io_uring_prep_recvmsg_multishot(sqe, fd, fd == proxy.listener ? &of_listener : &of_session, 0);
    sqe->flags |= IOSQE_BUFFER_SELECT;
    io_uring_sqe_set_data64(sqe, (__u64) fd);
}

/* Takes a packet of a client. */
static void take_request(enum way way, const struct sockaddr_in *from, void *bytes, size_t size)
{
    proxy.received++;
    if (!proxy.forwards) {
        return;
    }
    int *session = &proxy.sessions[ntohs(from->sin_port)];
    if (*session == 0) {
        *session = open_socket(proxy.backend_port, SOCK_NONBLOCK, NULL);
        proxy.owners[*session] = *from;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = *session};
        if (way == WAY_URING) {
            arm(*session);
        } else if (epoll_ctl(proxy.epoll_fd, EPOLL_CTL_ADD, *session, &event) != 0) {
            fail("epoll");
        }
    }
    struct iovec piece = {bytes, size};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1}};
    (void) sendmmsg(*session, &message, 1, MSG_NOSIGNAL);
}

static void turn_epoll(void)
{
    struct epoll_event events[BATCH];
    bool has_requests = false;
    unsigned replies = 0;
    const int count = epoll_wait(proxy.epoll_fd, events, BATCH, WAIT_MS);
    for (int e = 0; e < count; e++) {
        const int fd = events[e].data.fd;
        has_requests = has_requests || fd == proxy.listener;
        const int got = fd == proxy.listener || replies == BATCH
                            ? 0
                            : recvmmsg(fd, proxy.in.messages + replies, BATCH - replies, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++, replies++) {
            put(replies, proxy.in.bytes[replies], proxy.in.messages[replies].msg_len, &proxy.owners[fd]);
        }
    }
    send_all(proxy.listener, &proxy.out, replies);
    proxy.replied += replies;
    batch_ready(&proxy.in, 0, replies);
    const int got = has_requests ? recvmmsg(proxy.listener, proxy.in.messages, BATCH, MSG_DONTWAIT, NULL) : 0;
    for (int i = 0; i < got; i++) {
        take_request(WAY_EPOLL, &proxy.in.addresses[i], proxy.in.bytes[i], proxy.in.messages[i].msg_len);
    }
    batch_ready(&proxy.in, 0, got > 0 ? (size_t) got : 0);
}

static void turn_recvmsg(void)
{
    const ssize_t got = recvmsg(proxy.listener, &proxy.in.messages[0].msg_hdr, 0);
    if (got >= 0) {
        take_request(WAY_RECVMSG, &proxy.in.addresses[0], proxy.in.bytes[0], (size_t) got);
        batch_ready(&proxy.in, 0, 1);
    }
}

static void give(uint16_t buffer)
{
    io_uring_buf_ring_add(proxy.group, proxy.buffers + (size_t) buffer * BUFFER_SIZE, BUFFER_SIZE, buffer, BUFFERS - 1,
                          0);
    io_uring_buf_ring_advance(proxy.group, 1);
}

static unsigned flush_replies(unsigned replies)
{
    send_all(proxy.listener, &proxy.out, replies);
    for (unsigned i = 0; i < replies; i++) {
        give(proxy.taken[i]);
    }
    proxy.replied += replies;
    return 0;
}

/* Takes a completion: a reply waits to be sent, a request is sent at once. Returns how many replies wait. */
static unsigned take_completion(const struct io_uring_cqe *cqe, unsigned replies)
{
    const int fd = (int) io_uring_cqe_get_data64(cqe);
    const uint16_t buffer = (uint16_t) (cqe->flags >> IORING_CQE_BUFFER_SHIFT);
    struct msghdr *shape = fd == proxy.listener ? &of_listener : &of_session;
    if ((cqe->flags & IORING_CQE_F_MORE) == 0) {
        arm(fd);
    }
    if (cqe->res < 0 || (cqe->flags & IORING_CQE_F_BUFFER) == 0) {
        return replies;
    }
    struct io_uring_recvmsg_out *out =
        io_uring_recvmsg_validate(proxy.buffers + (size_t) buffer * BUFFER_SIZE, cqe->res, shape);
    void *bytes = io_uring_recvmsg_payload(out, shape);
    const size_t size = io_uring_recvmsg_payload_length(out, cqe->res, shape);
    if (fd != proxy.listener) {
        put(replies, bytes, size, &proxy.owners[fd]);
        proxy.taken[replies] = buffer;
        return replies + 1 == BATCH ? flush_replies(BATCH) : replies + 1;
    }
    take_request(WAY_URING, io_uring_recvmsg_name(out), bytes, size);
    give(buffer);
    return replies;
}

static void turn_uring(void)
{
    struct __kernel_timespec limit = {.tv_nsec = WAIT_MS * 1000000LL};
    struct io_uring_cqe *cqe;
    unsigned head;
    unsigned count = 0;
    unsigned replies = 0;
    (void) io_uring_submit_and_wait_timeout(&proxy.ring, &cqe, 1, &limit, NULL);
    io_uring_for_each_cqe(&proxy.ring, head, cqe)
    {
        replies = take_completion(cqe, replies);
        count++;
    }
    io_uring_cq_advance(&proxy.ring, count);
    (void) flush_replies(replies);
}

static void open_way(enum way way)
{
    struct timeval limit = {.tv_usec = WAIT_MS * 1000L};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = proxy.listener};
    struct io_uring_buf_reg group = {.ring_entries = BUFFERS};
    struct io_uring_params params = {.flags =
                                         IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE,
                                     .cq_entries = 4 * BUFFERS};
    batch_ready(&proxy.in, 0, BATCH);
    proxy.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (way == WAY_RECVMSG) {
        (void) setsockopt(proxy.listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        return;
    }
    if (way == WAY_EPOLL) {
        (void) epoll_ctl(proxy.epoll_fd, EPOLL_CTL_ADD, proxy.listener, &event);
        return;
    }
    proxy.group =
        mmap(NULL, BUFFERS * sizeof(struct io_uring_buf), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    proxy.buffers = calloc(BUFFERS, BUFFER_SIZE);
    group.ring_addr = (uintptr_t) proxy.group;
    if (proxy.group == MAP_FAILED || proxy.buffers == NULL ||
        io_uring_queue_init_params(BUFFERS, &proxy.ring, &params) != 0 ||
        io_uring_register_buf_ring(&proxy.ring, &group, 0) != 0) {
        fail("io_uring (Linux 6.1)");
    }
    (void) io_uring_register_ring_fd(&proxy.ring);
    io_uring_buf_ring_init(proxy.group);
    for (uint16_t i = 0; i < BUFFERS; i++) {
        give(i);
    }
    arm(proxy.listener);
}

/* The proxy's life, in a process of its own. Writes its processor time for each packet, in ns. */
static void run_proxy(enum way way, int result)
{
    static void (*const turns[WAYS])(void) = {turn_epoll, turn_uring, turn_recvmsg};
    struct timespec used;
    take_processor(true);
    open_way(way);
    while (packets_now_ns() < proxy.end_ns) {
        turns[way]();
    }
    (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    const uint64_t count = proxy.forwards ? proxy.replied : proxy.received;
    const double ns = (double) used.tv_sec * 1e9 + (double) used.tv_nsec;
    const double each = count != 0 ? ns / (double) count : 0;
    _exit(write(result, &each, sizeof(each)) == sizeof(each) && count != 0 ? 0 : 1);
}

static void run_backend(void)
{
    static struct batch batch;
    take_processor(false);
    batch_ready(&batch, 0, BATCH);
    for (;;) {
        const int got = recvmmsg(proxy.backend_fd, batch.messages, BATCH, MSG_WAITFORONE, NULL);
        for (int i = 0; i < got; i++) {
            batch.pieces[i].iov_len = batch.messages[i].msg_len;
            batch.messages[i].msg_hdr.msg_controllen = 0;
        }
        send_all(proxy.backend_fd, &batch, got > 0 ? (unsigned) got : 0);
        batch_ready(&batch, 0, BATCH);
    }
}

static void run_clients(void)
{
    static const char payload[PAYLOAD];
    struct pollfd clients[CLIENTS];
    char reply[BUFFER_SIZE];
    uint64_t under_way = 0;
    size_t turn = 0;
    take_processor(false);
    (void) prctl(PR_SET_TIMERSLACK, 1UL);
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i] = (struct pollfd){.fd = open_socket(proxy.port, SOCK_NONBLOCK, NULL), .events = POLLIN};
    }
    for (uint64_t at = packets_now_ns(); !proxy.forwards; at += DROP_EVERY_NS) {
        packets_sleep_until(at);
        (void) send(clients[turn++ % CLIENTS].fd, payload, PAYLOAD, 0);
    }
    for (;;) {
        for (; under_way < WINDOW; under_way++) {
            (void) send(clients[turn++ % CLIENTS].fd, payload, PAYLOAD, 0);
        }
        if (poll(clients, CLIENTS, WAIT_MS) == 0) {
            under_way = 0; /* they are lost */
        }
        for (size_t i = 0; i < CLIENTS; i++) {
            while ((clients[i].revents & POLLIN) != 0 && recv(clients[i].fd, reply, sizeof(reply), 0) >= 0) {
                under_way -= under_way != 0;
            }
        }
    }
}

static pid_t start(void (*run)(void))
{
    const pid_t pid = fork();
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        run();
    }
    return pid;
}

/* Processor time for a packet, in ns. */
static double measure(enum way way, bool forwards, uint64_t ms)
{
    int result[2];
    double each = 0;
    proxy.forwards = forwards;
    proxy.listener = open_socket(0, way == WAY_RECVMSG ? 0 : SOCK_NONBLOCK, &proxy.port);
    proxy.backend_fd = open_socket(0, 0, &proxy.backend_port);
    proxy.end_ns = packets_now_ns() + ms * 1000000;
    const pid_t others[] = {start(run_backend), start(run_clients)};
    if (pipe(result) != 0) {
        fail("a pipe");
    }
    const pid_t pid = fork();
    if (pid == 0) {
        run_proxy(way, result[1]);
    }
    int status = 1;
    const bool is_good =
        waitpid(pid, &status, 0) == pid && status == 0 && read(result[0], &each, sizeof(each)) == sizeof(each);
    for (size_t i = 0; i < 2; i++) {
        (void) kill(others[i], SIGKILL);
        (void) waitpid(others[i], NULL, 0);
    }
    (void) close(result[0]);
    (void) close(result[1]);
    (void) close(proxy.listener);
    (void) close(proxy.backend_fd);
    if (!is_good) {
        (void) fprintf(stderr, "weir-receive-ways: %s took no packet\n", names[way]);
        exit(1);
    }
    return each;
}

static int compare(const void *a, const void *b)
{
    const double one = *(const double *) a;
    const double other = *(const double *) b;
    return (one > other) - (one < other);
}

static void show_load(bool forwards, uint64_t rounds, uint64_t ms)
{
    const int ways = forwards ? WAY_RECVMSG : WAYS;
    double us[WAYS][ROUNDS_MOST];
    double ratios[WAYS][ROUNDS_MOST];
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < ways; i++) {
            const int way = round % 2 == 0 ? i : ways - 1 - i;
            us[way][round] = measure((enum way) way, forwards, ms) / 1e3;
        }
        for (int way = 0; way < ways; way++) {
            ratios[way][round] = us[way][round] / us[WAY_EPOLL][round];
        }
    }
    for (int way = 0; way < ways; way++) {
        qsort(us[way], rounds, sizeof(double), compare);
        qsort(ratios[way], rounds, sizeof(double), compare);
        (void) printf("| %s | %s | %.2f (%.2f to %.2f) | %.2f (%.2f to %.2f) |\n", forwards ? "forward" : "drop",
                      names[way], us[way][rounds / 2], us[way][0], us[way][rounds - 1], ratios[way][rounds / 2],
                      ratios[way][0], ratios[way][rounds - 1]);
    }
}

int main(int argc, char **argv)
{
    uint64_t rounds = 15;
    uint64_t ms = 500;
    if (argc > 3 || (argc > 1 && !packets_read_number(argv[1], &rounds)) ||
        (argc > 2 && !packets_read_number(argv[2], &ms)) || rounds < 1 || rounds > ROUNDS_MOST || ms < 1) {
        (void) fprintf(stderr, "weir-receive-ways [ROUNDS [MILLISECONDS]]: 1 to %d rounds\n", ROUNDS_MOST);
        return 2;
    }
    (void) printf(
        "Medians of %u rounds, least and most.\n\n| load | way | us of processor time | to epoll, round by round |\n"
        "| --- | --- | --- | --- |\n",
        (unsigned) rounds);
    show_load(true, rounds, ms);
    show_load(false, rounds, ms);
    return 0;
}
