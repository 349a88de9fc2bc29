/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the scripts of the transport over Redis in this process, by Lua 5.1, which Redis has. The commands that they
 * call, and the data, are in commands.lua.
 *
 * Not thread-safe: the fleet's lock guards a host.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_SCRIPT_HOST_H
#define WEIR_TRANSPORT_LOOPBACK_SCRIPT_HOST_H

#include "transport/loopback/loopback.h"
#include "transport/redis/redis_state.h"

struct script_host;

/* NULL: out of memory. */
struct script_host *script_host_open(void);
void script_host_close(struct script_host *host);

/*
 * The reply to a script call, as Redis would give it, at this time of the host's clock. The caller frees it with
 * freeReplyObject. NULL: out of memory.
 */
redisReply *script_host_call(struct script_host *host, enum script script, const struct command *command,
                             uint64_t now_ns);

/* One command, whose reply nobody needs. */
void script_host_command(struct script_host *host, const char *const *words, size_t count);

/* A copy of the data, by which it can be put back. */
int script_host_snapshot(struct script_host *host);
void script_host_restore(struct script_host *host, int snapshot);
void script_host_forget_snapshot(struct script_host *host, int snapshot);

/* Loses the data whose names contain `part`, but the overrides. */
void script_host_clear(struct script_host *host, const char *part);

/* Over the records whose names contain `part`: how many there are, and the sum of what they count, less refunds. */
struct script_host_total {
    uint64_t records, units;
};
struct script_host_total script_host_total(struct script_host *host, const char *part, uint64_t now_ns);
void script_host_each(struct script_host *host, uint64_t now_ns, loopback_record_fn call, void *arg);

#endif
