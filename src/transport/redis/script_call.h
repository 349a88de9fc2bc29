/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a batch's script call: EVALSHA or EVAL, the keys, and the arguments that the script reads. */
#ifndef WEIR_TRANSPORT_REDIS_SCRIPT_CALL_H
#define WEIR_TRANSPORT_REDIS_SCRIPT_CALL_H

#include "transport/redis/redis_state.h"

/* Makes room for the words of the largest call. The room is kept. 0 or -ENOMEM. */
int script_call_make_room(struct redis_transport *t);

/* The words of a batch of t->round. Valid until the next call. */
struct command script_call_words(struct redis_transport *t, const struct batch *batch);

#endif
