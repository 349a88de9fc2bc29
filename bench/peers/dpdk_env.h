/* SPDX-License-Identifier: Apache-2.0 */
/* DPDK's environment, and a heap of its allocator on memory such as the other peers have. Names: dpdk_. */
#ifndef WEIR_BENCH_DPDK_ENV_H
#define WEIR_BENCH_DPDK_ENV_H

#include <stdbool.h>
#include <stddef.h>

/* Sets the environment up at first use, without huge pages of its own and without devices. */
bool dpdk_ready(void);

/* A heap of so many bytes, one at a time. Its socket id, for those who allocate of it; -1: there is none. */
int dpdk_heap_open(size_t size);
/* After everything in it was freed. Its memory goes back to the kernel. */
void dpdk_heap_close(void);

#endif
