/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of a zone: a rate, in requests a minute, against waits in the queue of its bucket, and against nginx's
 * excess, in thousandths of requests. An excess is a wait divided by the time between two requests.
 */
#ifndef WEIR_NGINX_RATE_H
#define WEIR_NGINX_RATE_H

#include <stdint.h>

/* The period of a zone's bucket: a minute, in nanoseconds. */
#define RATE_PERIOD_NS UINT64_C(60000000000)

/* The library's fastest rate, in requests a minute. */
#define RATE_MOST (UINT64_C(640000000) * 60)

/* The most requests that the queue of a bucket takes. */
uint64_t rate_most_burst(uint64_t rate);

/* The time that so many thousandths of requests take, rounded down. Of more than the largest burst: of that. */
uint64_t rate_wait_ns(uint64_t rate, uint64_t thousandths);

/* The thousandths of requests that a wait takes, to the nearest. */
uint64_t rate_excess(uint64_t rate, uint64_t wait_ns);

/* A wait whose excess is no more than `burst` thousandths; a wait that is longer by a thousandth has a larger excess.
 */
uint64_t rate_longest_wait_ns(uint64_t rate, uint64_t burst);

#endif
