/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel does for many datagrams at once: it hands over those that arrived in a row from one sender as one
 * message (UDP_GRO, Linux 5.0), and takes those that leave in a row for one receiver as one (UDP_SEGMENT, Linux 4.18).
 * The datagrams of a message are of one size, but for the last, which may be shorter. Each saves a way through the
 * kernel's network stack, which costs a gateway more than anything it does itself.
 */
#ifndef WEIR_GATEWAY_OFFLOAD_H
#define WEIR_GATEWAY_OFFLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "burst.h"

/* Limits of a message that is sent: those of every kernel that has segments, and those of IPv4. */
#define SEGMENTS_MAX       64
#define SEGMENTED_SIZE_MAX 65507

/* Asks for what arrives to be merged. False: the kernel cannot, and nothing changes. */
bool offload_receive(int fd);

/* Asks for each datagram alone, as a new socket gets them. */
void offload_receive_alone(int fd);

/* Whether messages may leave in segments. A kernel that knows none would send them as one datagram, without a word. */
bool offload_can_send(int fd);

/* How large the datagrams of a received message of `size` bytes are: `size` where it is one. */
size_t offload_segment_of(struct msghdr *message, size_t size);

/* Makes a message leave in datagrams of `size` bytes. What its control holds stays. */
void offload_segment_set(struct msghdr *message, struct packet_control *control, size_t size);

#endif
