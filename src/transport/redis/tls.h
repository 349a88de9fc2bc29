/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS over a connected, non-blocking socket. Adapter to hiredis_ssl (hiredis 1.0 and later) and to OpenSSL's contexts.
 * In a build without these, tls_context_open says what is missing, and no other function is called.
 */
#ifndef WEIR_TRANSPORT_REDIS_TLS_H
#define WEIR_TRANSPORT_REDIS_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "transport/redis/url.h"

struct tls_context; /* the CAs and the own certificate, for all connections of a transport */
struct tls;         /* of one connection */

/* 0; -ENOTSUP: this build has no TLS; -EINVAL: a file cannot be used. An error comes with a sentence. */
int tls_context_open(const struct redis_url *url, struct tls_context **out, weir_error *error);
void tls_context_close(struct tls_context *context); /* NULL: nothing */

/* Begins the handshake, which later calls carry on. The certificate must be for `name`, a host name or an address. 0 or
 * -ENOMEM. If the handshake fails at once, the first call that reads or writes returns the error. */
int tls_open(struct tls_context *context, int fd, const char *name, struct tls **out);
void tls_close(struct tls *tls); /* NULL: nothing. The descriptor stays open */

/* Bytes read; 0: nothing now; negative: the connection is lost. */
ssize_t tls_read(struct tls *tls, char *buffer, size_t size);

/* Bytes accepted, perhaps not sent yet; 0: none now; negative: the connection is lost. */
ssize_t tls_write(struct tls *tls, const char *bytes, size_t size);

/* Sends the accepted bytes. 0, or why the connection is lost. */
int tls_flush(struct tls *tls);

/* True if accepted bytes are not sent yet. */
bool tls_unsent(const struct tls *tls);

/* Why the connection was lost, as far as TLS knows; else NULL. */
const char *tls_problem(const struct tls *tls);

#endif
