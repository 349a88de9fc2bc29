/* SPDX-License-Identifier: Apache-2.0 */
/* The replies to a round's script calls. */
#ifndef WEIR_TRANSPORT_REDIS_ANSWER_H
#define WEIR_TRANSPORT_REDIS_ANSWER_H

#include "transport/redis/redis_state.h"

/* Reads the reply to a batch: fills in the round and its reports, or, for an error, sends the batch again or gives it
 * up. */
void answer_batch(struct redis_transport *t, struct server_conn *server, uint32_t number, const redisReply *reply,
                  uint64_t now_ns);

#endif
