/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Without hugetlbfs the environment's own memory is a file in memory. The kernel gives files no huge pages where
 * transparent_hugepage/shmem_enabled is "never", and the memory stays with the process. So the environment gets little
 * memory of its own, and tables come from a heap of anonymous memory, which is opened and closed with the peer.
 */
#include "peers/dpdk_env.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include <rte_eal.h>
#include <rte_malloc.h>

#include "peers/peer.h"

#define HEAP      "peer"
#define PAGE_SIZE ((size_t) 4096) /* of the heap's own account; it has nothing to do with the kernel's */

static void *heap_memory;
static size_t heap_size;

/* The environment ties its caller to a processor, which is undone. */
static bool set_up(void)
{
    char core[16];
    char *arguments[] = {"weir-bench",  "--no-huge", "--no-pci",    "--no-shconf", "--no-telemetry",
                         "--iova-mode", "va",        "--log-level", "error",       "--no-hpet",
                         "-m",          "64",        "-l",          core};
    cpu_set_t allowed;
    (void) snprintf(core, sizeof(core), "%d", sched_getcpu());
    (void) pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed);
    const bool good = rte_eal_init(sizeof(arguments) / sizeof(arguments[0]), arguments) >= 0;
    (void) pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed);
    return good;
}

bool dpdk_ready(void)
{
    static enum { NEW, READY, FAILED } state = NEW;
    if (state == NEW) {
        state = set_up() ? READY : FAILED;
    }
    return state == READY;
}

int dpdk_heap_open(size_t size)
{
    heap_size = (size + PAGE_SIZE - 1) / PAGE_SIZE * PAGE_SIZE;
    heap_memory = peer_allocate(heap_size);
    if (heap_memory == NULL) {
        return -1;
    }
    if (rte_malloc_heap_create(HEAP) != 0) {
        goto free_memory;
    }
    if (rte_malloc_heap_memory_add(HEAP, heap_memory, heap_size, NULL, 0, PAGE_SIZE) != 0) {
        goto destroy_heap;
    }
    return rte_malloc_heap_get_socket(HEAP);

destroy_heap:
    (void) rte_malloc_heap_destroy(HEAP);
free_memory:
    peer_free(heap_memory, heap_size);
    return -1;
}

void dpdk_heap_close(void)
{
    if (rte_malloc_heap_memory_remove(HEAP, heap_memory, heap_size) != 0 || rte_malloc_heap_destroy(HEAP) != 0) {
        (void) fprintf(stderr, "dpdk: something was left in its heap\n");
        return;
    }
    peer_free(heap_memory, heap_size);
}
