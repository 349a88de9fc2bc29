/* SPDX-License-Identifier: Apache-2.0 */
/* What the senders of packets share: time, and arguments. */
#ifndef WEIR_BENCH_PACKETS_H
#define WEIR_BENCH_PACKETS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define SECOND_NS UINT64_C(1000000000)

/* CLOCK_MONOTONIC. */
uint64_t packets_now_ns(void);
void packets_sleep_until(uint64_t at_ns);

/* "10.0.0.1:7000"; writes into the text. */
bool packets_read_target(char *text, struct in_addr *address, uint16_t *port);

/* "10.0.0.1,1000": an address, and how many from there on; writes into the text. */
bool packets_read_range(char *text, struct in_addr *first, uint64_t *count);

/* A whole number below 2^32. */
bool packets_read_number(const char *text, uint64_t *out);

#endif
