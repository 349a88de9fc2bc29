/* SPDX-License-Identifier: Apache-2.0 */
/* The backend of demonstrations and tests. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "burst.h"
#include "offload.h"
#include "outbox.h"
#include "traffic.h"

int echo_main(const struct address *at, unsigned seconds, bool offload)
{
    static struct burst burst;
    static struct outbox box;
    static struct datagram datagrams[BURST_COUNT];
    struct pollfd fd = {.fd = address_bind_udp(at), .events = POLLIN};
    if (fd.fd < 0) {
        (void) fprintf(stderr, "weir-traffic: --echo: %s\n", strerror(errno));
        return 1;
    }
    if (offload) {
        (void) offload_receive(fd.fd);
    }
    burst_ready(&burst, 0, BURST_COUNT, true);
    outbox_open(&box, fd.fd, at->u.any.sa_family, offload && offload_can_send(fd.fd));
    const uint64_t until_ns = seconds != 0 ? traffic_now_ns() + seconds * UINT64_C(1000000000) : UINT64_MAX;
    while (traffic_now_ns() < until_ns) {
        (void) poll(&fd, 1, 200);
        const size_t received = burst_receive(&burst, fd.fd, 0, NULL);
        struct burst_cursor cursor = {.message = 0};
        size_t count;
        while ((count = burst_split(&burst, received, &cursor, datagrams)) != 0) {
            for (size_t i = 0; i < count; i++) {
                outbox_add(&box, &datagrams[i], &burst.from[datagrams[i].message], &in6addr_any);
            }
        }
        outbox_flush(&box);
        burst_ready(&burst, 0, received, true);
    }
    return 0;
}
