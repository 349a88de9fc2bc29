/* SPDX-License-Identifier: Apache-2.0 */
/* weir and its peers under a flood of keys that were never seen: see flood.cpp. */
#ifndef WEIR_BENCH_FLOOD_H
#define WEIR_BENCH_FLOOD_H

/* Registers the groups, of up to so many threads. */
void register_floods(int threads);

#endif
