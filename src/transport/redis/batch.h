/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of a round: script calls, each for one server. */
#ifndef WEIR_TRANSPORT_REDIS_BATCH_H
#define WEIR_TRANSPORT_REDIS_BATCH_H

#include "transport/redis/redis_state.h"

/* Names what the fleet shares beside its records. */
void batch_open(struct redis_transport *t, const char *prefix);
void batch_close(struct redis_transport *t);

/* Makes the batches of t->round. 0 or -ENOMEM. */
int batch_make(struct redis_transport *t, uint64_t now_ns);

/* Makes the batches, and sends those whose server is ready. 0 or -ENOMEM. */
int batch_queue(struct redis_transport *t, uint64_t now_ns);

/* Sends the batches whose server has become ready. A batch whose server has failed is lost. */
void batch_send_waiting(struct redis_transport *t, uint64_t now_ns);

/* Takes the reply to a batch. A good answer fills in the round and its reports. After an error the batch is sent again,
 * to another server, or given up. */
void batch_answer(struct redis_transport *t, struct server_conn *server, uint32_t number, const redisReply *reply,
                  uint64_t now_ns);

/* Gives a batch up: its reports are answered with -EAGAIN. */
void batch_lost(struct redis_transport *t, uint32_t number);

/* Ends a round whose batches are all answered or lost. True: it was good, and its answers are whole. */
bool batch_finish(struct redis_transport *t);

/* The round's time is over: drops every server that owes an answer, and gives the open batches up. */
void batch_expire(struct redis_transport *t, uint64_t now_ns);

#endif
