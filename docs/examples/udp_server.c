/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of packets: one recvmmsg takes what has come, weir_check_burst decides on all of it at once, and sendmmsg
 * answers those that may pass; nothing is sent for the others. Each source address may send 200 packets a second and 50
 * at once. Two clients of the program's own send to it over loopback, one of them too much.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* recvmmsg */
#endif
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <weir/weir.h>

enum { BURST = 64, PACKET = 1500, TURNS = 10 };

static struct mmsghdr messages[BURST];
static struct iovec pieces[BURST];
static struct sockaddr_in sources[BURST];
static uint8_t addresses[BURST][16]; /* the keys point to them */
static char packets[BURST][PACKET];

/* Serves what has come: returns how many packets that were, and adds to *served. */
static int serve(int fd, const weir *w, weir_thread *thread, weir_policy_id policy, unsigned *served)
{
    for (int i = 0; i < BURST; i++) {
        pieces[i].iov_base = packets[i];
        pieces[i].iov_len = PACKET;
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
        messages[i].msg_hdr.msg_name = &sources[i];
        messages[i].msg_hdr.msg_namelen = sizeof sources[i];
    }
    const int count = recvmmsg(fd, messages, BURST, MSG_DONTWAIT, NULL);
    weir_key keys[BURST];
    for (int i = 0; i < count; i++) {
        const size_t size = weir_address_key((const struct sockaddr *) &sources[i], 64, addresses[i]);
        keys[i] = weir_make_key(w, policy, addresses[i], size);
    }
    uint64_t allowed = 0; /* one bit for each: BURST is 64 */
    if (count <= 0 || weir_check_burst(thread, keys, NULL, (size_t) count, &allowed) == 0) {
        return count;
    }
    unsigned passed = 0; /* those that may go to the front: sources and pieces stay where they are */
    for (int i = 0; i < count; i++) {
        if ((allowed >> i & 1) != 0) {
            pieces[i].iov_len = messages[i].msg_len;
            messages[passed++].msg_hdr = messages[i].msg_hdr;
        }
    }
    const int sent = sendmmsg(fd, messages, passed, MSG_DONTWAIT);
    *served += sent > 0 ? (unsigned) sent : 0;
    return count;
}

/* A socket at an address of this host's; `to`: connected. -1: none. */
static int open_at(const char *address, const struct sockaddr_in *to)
{
    struct sockaddr_in at;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    (void) inet_pton(AF_INET, address, &at.sin_addr);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *) &at, sizeof at) != 0) {
        return -1;
    }
    return to == NULL || connect(fd, (const struct sockaddr *) to, sizeof *to) == 0 ? fd : -1;
}

static unsigned count_answers(int fd)
{
    char packet[PACKET];
    unsigned count = 0;
    while (recv(fd, packet, sizeof packet, MSG_DONTWAIT) > 0) {
        count++;
    }
    return count;
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT; /* options.redis_url = "redis://10.0.0.5" shares the limit */
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 200;
    limit.period_ns = 1000000000;
    limit.burst = 50;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "source";
    policy.limits = &limit;
    policy.limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "source", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    const int server = open_at("127.0.0.1", NULL);
    if (server < 0 || getsockname(server, (struct sockaddr *) &here, &size) != 0) {
        return perror("server"), 1;
    }
    const int polite = open_at("127.0.0.2", &here), greedy = open_at("127.0.0.3", &here);
    if (polite < 0 || greedy < 0) {
        return perror("client"), 1;
    }
    weir_thread *thread = weir_attach(w); /* a server has one socket (SO_REUSEPORT) and one handle for each thread */
    const weir_policy_id source = weir_find_policy(w, "source");
    unsigned served = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        for (int i = 0; i < 40; i++) {
            (void) send(i == 0 ? polite : greedy, "packet", 6, 0);
        }
        while (serve(server, w, thread, source, &served) > 0) { /* a server waits in poll where nothing has come */
        }
    }
    printf("polite: %d sent, %u answered\n", TURNS, count_answers(polite));
    printf("greedy: %d sent, %u answered; %u served in all\n", TURNS * 39, count_answers(greedy), served);
    weir_detach(thread);
    weir_close(w);
}
