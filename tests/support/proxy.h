/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A proxy between nodes and a Redis, in a thread of the test. It listens on a TCP port and speaks to a unix socket.
 * What the proxy does to the bytes can be changed at any time, and holds for old connections and for new ones.
 */
#ifndef WEIR_TESTS_PROXY_H
#define WEIR_TESTS_PROXY_H

#include <stddef.h>
#include <stdint.h>

enum proxy_mode {
    PROXY_PASS,
    PROXY_SWALLOW, /* Redis gets everything; some replies are lost, and with them the connection: at once, or hanging */
    PROXY_DUPLICATE, /* what a client sends arrives twice: at once, and once more delay_ms later or less, on a
                        connection of its own whose replies are dropped */
    PROXY_BLACKHOLE, /* connections are made, bytes go nowhere and nothing is closed */
    PROXY_CUT,       /* connections are closed; new ones too, as soon as they are made */
    PROXY_TRICKLE,   /* replies arrive a few bytes at a time */
    PROXY_MANGLE,    /* Redis gets everything; in place of its replies come the bytes of proxy_mangle */
};

struct proxy {
    int port;
    void *inside; /* NULL: not running */
};

/* `target`: path of the socket to speak to. Fails the test where it cannot be started. */
void proxy_start(struct proxy *proxy, const char *target);
void proxy_stop(struct proxy *proxy); /* may be called again, and on a zeroed one */

void proxy_set(const struct proxy *proxy, enum proxy_mode mode);

/* Replies arrive so much later (PROXY_DUPLICATE: second copies, by half of it to all of it). */
void proxy_delay(const struct proxy *proxy, uint32_t delay_ms);

/* PROXY_MANGLE: the bytes a client gets for each piece of Redis's replies. They must stay where they are. */
void proxy_mangle(const struct proxy *proxy, const char *bytes, size_t size);

/* Cuts every connection (copies on their way arrive all the same); new ones go to `target` (NULL: where they went). */
void proxy_retarget(const struct proxy *proxy, const char *target);

/* Bytes that were on their way and got lost or arrived twice so far: whether a mode has done anything. */
uint64_t proxy_harm(const struct proxy *proxy);

void proxy_url(const struct proxy *proxy, char *out, size_t size);

#endif
