/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limiters of the Rust world, through the crate in rust/:
 *   governor         GCRA on one atomic word, its own clock (quanta, which reads the processor's time stamp counter)
 *   governor_keyed   the same in dashmap, a sharded hash table behind locks, with its default hash
 *   pingora_rate     pingora-limits: a count-min sketch of the current and the last interval. It keeps no keys: many
 *                    of them count for one another, and its figures do not depend on how many there are
 */
#include "peers/peer.h"

void *peer_rust_governor_new(const struct peer_limit *limit);
uint64_t peer_rust_governor_run(void *limiter, struct peer_draws *draws, uint64_t count);
void peer_rust_governor_free(void *limiter);
void *peer_rust_governor_keyed_new(const struct peer_limit *limit);
uint64_t peer_rust_governor_keyed_run(void *limiter, struct peer_draws *draws, uint64_t count);
void peer_rust_governor_keyed_free(void *limiter);
void *peer_rust_pingora_new(const struct peer_limit *limit);
uint64_t peer_rust_pingora_run(void *limiter, struct peer_draws *draws, uint64_t count);
void peer_rust_pingora_free(void *limiter);

static void *limiter; /* of the peer that is open */

static const char *opened(void *made)
{
    limiter = made;
    return made != NULL ? NULL : "it does not take the limit";
}

static const char *open_governor(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    return opened(peer_rust_governor_new(limit));
}

static const char *open_governor_keyed(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    return opened(peer_rust_governor_keyed_new(limit));
}

static const char *open_pingora(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    return opened(peer_rust_pingora_new(limit));
}

static void close_governor(void)
{
    peer_rust_governor_free(limiter);
}

static void close_governor_keyed(void)
{
    peer_rust_governor_keyed_free(limiter);
}

static void close_pingora(void)
{
    peer_rust_pingora_free(limiter);
}

static uint64_t run_governor(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    return peer_rust_governor_run(limiter, draws, count);
}

static uint64_t run_governor_keyed(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    return peer_rust_governor_keyed_run(limiter, draws, count);
}

static uint64_t run_pingora(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    return peer_rust_pingora_run(limiter, draws, count);
}

const struct peer peer_governor = {.name = "governor",
                                   .threads = true,
                                   .batch = 1000,
                                   .open = open_governor,
                                   .close = close_governor,
                                   .run = run_governor};
const struct peer peer_governor_keyed = {.name = "governor_keyed",
                                         .keyed = true,
                                         .threads = true,
                                         .batch = 1000,
                                         .open = open_governor_keyed,
                                         .close = close_governor_keyed,
                                         .run = run_governor_keyed};
const struct peer peer_pingora = {.name = "pingora_rate",
                                  .keyed = true,
                                  .threads = true,
                                  .batch = 1000,
                                  .open = open_pingora,
                                  .close = close_pingora,
                                  .run = run_pingora};
