/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to a backend that are no client's: packets from a socket of their own. Any answer is one.
 *
 * Threads: one at a time.
 */
#ifndef WEIR_GATEWAY_BACKENDS_PROBE_H
#define WEIR_GATEWAY_BACKENDS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../address.h"

#define PROBE_SIZE_MAX 1024

/* What a probe says. */
struct probe_payload {
    unsigned char bytes[PROBE_SIZE_MAX];
    size_t size;
};

/* Takes hex digits behind 0x, or a text as it is. False: `problem` says what is wrong. */
bool probe_parse(const char *text, struct probe_payload *out, char *problem, size_t size);

/*
 * Puts the PROXY protocol's header of a connection that stands for no client (LOCAL) before the payload, for backends
 * that expect a header.
 */
void probe_introduce(struct probe_payload *payload);

/* What a socket has to tell. */
enum probe_news { PROBE_NOTHING, PROBE_ANSWERED, PROBE_REFUSED };

/* A socket to a backend, or -1: errno says why not. */
int probe_open(const struct address *backend);

/* Sends a probe. The news are those that were there before, or of the sending. *error: by what it was refused. */
enum probe_news probe_send(int fd, const struct probe_payload *payload, int *error);

/* Reads all that has come. Answers go before refusals. */
enum probe_news probe_read(int fd, int *error);

#endif
