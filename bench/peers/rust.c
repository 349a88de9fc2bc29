/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limiters of the Rust world, through the crate in rust/:
 *   governor         GCRA on one atomic word, its own clock (quanta, which reads the processor's time stamp counter)
 *   governor_upkeep  governor by a clock that a thread keeps up once a millisecond
 *   governor_keyed   governor's words in dashmap, a sharded hash table behind locks, with its default hash and clock
 *   governor_ahash, governor_fold
 *                    governor_keyed by the clock of governor_upkeep, with the keyed hashes ahash and foldhash
 *   pingora_rate     pingora-limits: a count-min sketch of the current and the last interval. It keeps no keys: many
 *                    of them count for one another, and its figures do not depend on how many there are
 * and, where it was built with it, Limitador, which finds a limit's key by an expression over a request's values:
 *   limitador_memory  a fixed window per key in a concurrent cache (moka)
 *   limitador_cached  the same before a private Redis, which it tells in the background of what was used
 */
#include "peers/peer.h"

#ifdef PEER_LIMITADOR
#include <stdio.h>

#include "peers/redis_server.h"
#endif

static void *limiter; /* of the peer that is open */

static const char *opened(void *made)
{
    limiter = made;
    return made != NULL ? NULL : "it does not take the limit";
}

/* The crate's limiter ID as a peer; the fields that are left are given as they stand in struct peer. */
#define RUST_PEER(id, ...)                                                                                             \
    void *peer_rust_##id##_new(const struct peer_limit *limit);                                                        \
    uint64_t peer_rust_##id##_run(void *object, struct peer_draws *draws, uint64_t count);                             \
    void peer_rust_##id##_free(void *object);                                                                          \
                                                                                                                       \
    static const char *open_##id(const struct peer_limit *limit, size_t key_count)                                     \
    {                                                                                                                  \
        (void) key_count;                                                                                              \
        return opened(peer_rust_##id##_new(limit));                                                                    \
    }                                                                                                                  \
                                                                                                                       \
    static void close_##id(void)                                                                                       \
    {                                                                                                                  \
        peer_rust_##id##_free(limiter);                                                                                \
    }                                                                                                                  \
                                                                                                                       \
    static uint64_t run_##id(void *thread, struct peer_draws *draws, uint64_t count)                                   \
    {                                                                                                                  \
        (void) thread;                                                                                                 \
        return peer_rust_##id##_run(limiter, draws, count);                                                            \
    }                                                                                                                  \
                                                                                                                       \
    const struct peer peer_##id = {                                                                                    \
        .threads = true, .batch = 1000, .open = open_##id, .close = close_##id, .run = run_##id, __VA_ARGS__}

RUST_PEER(governor, .name = "governor");
RUST_PEER(governor_upkeep, .name = "governor_upkeep");
RUST_PEER(governor_keyed, .name = "governor_keyed", .keyed = true);
RUST_PEER(governor_ahash, .name = "governor_ahash", .keyed = true);
RUST_PEER(governor_fold, .name = "governor_fold", .keyed = true, .floods = true);
RUST_PEER(pingora, .name = "pingora_rate", .keyed = true, .sketch = true, .floods = true);

#ifdef PEER_LIMITADOR
void *peer_rust_limitador_new(const struct peer_limit *limit, size_t key_count);
uint64_t peer_rust_limitador_run(void *limiter, struct peer_draws *draws, uint64_t count);
void peer_rust_limitador_free(void *limiter);
void *peer_rust_limitador_cached_new(const struct peer_limit *limit, size_t key_count, const char *url);
uint64_t peer_rust_limitador_cached_run(void *limiter, struct peer_draws *draws, uint64_t count);
void peer_rust_limitador_cached_free(void *limiter);

static const char *open_limitador(const struct peer_limit *limit, size_t key_count)
{
    return opened(peer_rust_limitador_new(limit, key_count));
}

static void close_limitador(void)
{
    peer_rust_limitador_free(limiter);
}

static uint64_t run_limitador(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    return peer_rust_limitador_run(limiter, draws, count);
}

static const char *open_limitador_cached(const struct peer_limit *limit, size_t key_count)
{
    char url[128];
    const char *problem = redis_server_start();
    if (problem != NULL) {
        return problem;
    }
    (void) snprintf(url, sizeof(url), "redis+unix://%s", redis_server_socket());
    problem = opened(peer_rust_limitador_cached_new(limit, key_count, url));
    if (problem != NULL) {
        redis_server_stop();
    }
    return problem;
}

static void close_limitador_cached(void)
{
    peer_rust_limitador_cached_free(limiter);
    redis_server_stop();
}

static uint64_t run_limitador_cached(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    return peer_rust_limitador_cached_run(limiter, draws, count);
}

const struct peer peer_limitador = {.name = "limitador_memory",
                                    .keyed = true,
                                    .threads = true,
                                    .batch = 100,
                                    .open = open_limitador,
                                    .close = close_limitador,
                                    .run = run_limitador};
const struct peer peer_limitador_cached = {.name = "limitador_cached",
                                           .keyed = true,
                                           .threads = true,
                                           .server = true,
                                           .most_keys = 100000,
                                           .batch = 100,
                                           .open = open_limitador_cached,
                                           .close = close_limitador_cached,
                                           .run = run_limitador_cached};
#endif
