/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence for the log that says what is wrong with the transport. */
#ifndef WEIR_TRANSPORT_REDIS_PROBLEM_H
#define WEIR_TRANSPORT_REDIS_PROBLEM_H

#include "transport/redis/redis_state.h"

/*
 * Notes a problem of a server; NULL: of no single server. It stays until a good round, or until that server has another
 * problem. So the log does not alternate between two servers.
 */
void problem_set(struct redis_transport *t, const struct server_conn *server, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
