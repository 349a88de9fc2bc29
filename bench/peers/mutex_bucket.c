/* SPDX-License-Identifier: Apache-2.0 */
/* One mutex around one token bucket; the clock is read under it, so that time does not step back. */
#include <pthread.h>

#include "peers/bucket.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct bucket_rule rule;
static struct bucket bucket;

static const char *open_bucket(const struct peer_limit *limit, size_t key_count)
{
    (void) key_count;
    rule = bucket_rule_of(limit);
    bucket = (struct bucket){0};
    return NULL;
}

static void close_bucket(void)
{
}

static uint64_t run_bucket(void *thread, struct peer_draws *draws, uint64_t count)
{
    (void) thread;
    (void) draws;
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < count; i++) {
        (void) pthread_mutex_lock(&lock);
        allowed += bucket_take(&bucket, &rule, peer_now_ns());
        (void) pthread_mutex_unlock(&lock);
    }
    return allowed;
}

const struct peer peer_mutex_bucket = {.name = "mutex_bucket",
                                       .threads = true,
                                       .batch = 1000,
                                       .open = open_bucket,
                                       .close = close_bucket,
                                       .run = run_bucket};
