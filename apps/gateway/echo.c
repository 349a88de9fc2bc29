/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of demonstrations and tests. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "traffic.h"

int echo_main(const struct address *at, unsigned seconds)
{
    static char packets[BATCH][2048];
    static struct address from[BATCH];
    struct iovec pieces[BATCH];
    struct mmsghdr messages[BATCH];
    struct pollfd fd = {.fd = address_bind_udp(at), .events = POLLIN};
    if (fd.fd < 0) {
        (void) fprintf(stderr, "weir-traffic: --echo: %s\n", strerror(errno));
        return 1;
    }
    const uint64_t until_ns = seconds != 0 ? traffic_now_ns() + seconds * UINT64_C(1000000000) : UINT64_MAX;
    while (traffic_now_ns() < until_ns) {
        (void) poll(&fd, 1, 200);
        for (int i = 0; i < BATCH; i++) {
            pieces[i] = (struct iovec){packets[i], sizeof(packets[i])};
            messages[i].msg_hdr = (struct msghdr){
                .msg_iov = &pieces[i], .msg_iovlen = 1, .msg_name = &from[i].u, .msg_namelen = sizeof(from[i].u)};
        }
        const int got = recvmmsg(fd.fd, messages, BATCH, MSG_DONTWAIT, NULL);
        for (int i = 0; i < got; i++) {
            pieces[i].iov_len = messages[i].msg_len;
        }
        if (got > 0) {
            (void) sendmmsg(fd.fd, messages, (unsigned) got, 0);
        }
    }
    return 0;
}
