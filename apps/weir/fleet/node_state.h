/* SPDX-License-Identifier: Apache-2.0 */
/* The words for the states of nodes. */
#ifndef WEIR_NODE_STATE_H
#define WEIR_NODE_STATE_H

#include <weir/inspect.h>

static inline const char *node_state_name(weir_node_state state)
{
    return state == WEIR_NODE_LIVE ? "live" : state == WEIR_NODE_SUSPECT ? "suspect" : "failed";
}

#endif
