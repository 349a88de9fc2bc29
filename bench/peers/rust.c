/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limiters of the Rust world, through the crate in rust/:
 *   governor         GCRA on one atomic word, its own clock (quanta, which reads the processor's time stamp counter)
 *   governor_keyed   the same in dashmap, a sharded hash table behind locks, with its default hash
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
