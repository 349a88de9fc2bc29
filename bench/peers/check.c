/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does every peer limit? weir-peers-check [--all]: a burst passes and the rest is denied, for each key by itself, and
 * over two threads where it may run on two. Without --all those that start a server are left out. Prints TAP.
 */
#include <pthread.h>
#include <stdio.h>

#include "peers/peer.h"

enum { BURST = 100, ASKED = 150, KEYS = 16 };

/* So slow that nothing comes back meanwhile. */
static const struct peer_limit limit = {.units = BURST, .period_ns = UINT64_C(3600000000000), .burst = BURST};
static const uint32_t numbers[KEYS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

struct task {
    const struct peer *peer;
    uint32_t key;
    uint64_t allowed;
};

static void *ask(void *arg)
{
    struct task *task = arg;
    struct peer_draws draws = {.numbers = &numbers[task->key]};
    void *thread = task->peer->attach != NULL ? task->peer->attach() : NULL;
    task->allowed = task->peer->run(thread, &draws, ASKED);
    if (task->peer->detach != NULL) {
        task->peer->detach(thread);
    }
    return NULL;
}

static bool passes_a_burst(const struct peer *peer, uint32_t key)
{
    struct task task = {.peer = peer, .key = key};
    (void) ask(&task);
    if (task.allowed != BURST) {
        printf("# %s: key %u: %llu of %d passed\n", peer->name, (unsigned) key, (unsigned long long) task.allowed,
               ASKED);
    }
    return task.allowed == BURST;
}

static bool passes_a_burst_to_two(const struct peer *peer, uint32_t key)
{
    struct task tasks[2] = {{.peer = peer, .key = key}, {.peer = peer, .key = key}};
    pthread_t other;
    if (pthread_create(&other, NULL, ask, &tasks[1]) != 0) {
        return false;
    }
    (void) ask(&tasks[0]);
    (void) pthread_join(other, NULL);
    /* weir: one unit per preempted thread, charged later */
    const uint64_t allowed = tasks[0].allowed + tasks[1].allowed;
    if (allowed < BURST || allowed > BURST + 2) {
        printf("# %s: %llu passed, to two threads\n", peer->name, (unsigned long long) allowed);
        return false;
    }
    return true;
}

/* Opens, asks and closes; a peer without keys gets a new state in between. */
static bool limits(const struct peer *peer, const char **problem)
{
    *problem = peer->open(&limit, KEYS);
    if (*problem != NULL) {
        return true;
    }
    bool good = passes_a_burst(peer, 1);
    good = (!peer->keyed || passes_a_burst(peer, 2)) && good;
    peer->close();
    if (peer->threads) {
        *problem = peer->open(&limit, KEYS);
        if (*problem != NULL) {
            return false;
        }
        good = passes_a_burst_to_two(peer, 3) && good;
        peer->close();
    }
    return good;
}

int main(int argc, char **argv)
{
    const bool all = argc > 1 && strcmp(argv[1], "--all") == 0;
    bool good = true;
    printf("1..%zu\n", peer_count);
    for (size_t i = 0; i < peer_count; i++) {
        const struct peer *peer = peer_list[i];
        const char *problem = peer->absent;
        if (problem == NULL && !all && peer->server) {
            problem = "asked for by --all";
        }
        const bool limited = problem != NULL || limits(peer, &problem);
        printf("%s %zu - %s%s%s\n", limited ? "ok" : "not ok", i + 1, peer->name, problem != NULL ? " # SKIP " : "",
               problem != NULL ? problem : "");
        good = good && limited;
    }
    return good ? 0 : 1;
}
