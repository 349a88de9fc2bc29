/* SPDX-License-Identifier: Apache-2.0 */
/* weir and its peers, in groups in which each is asked the same: see peer_groups.cpp. */
#ifndef WEIR_BENCH_PEER_GROUPS_H
#define WEIR_BENCH_PEER_GROUPS_H

#include <cstddef>
#include <vector>

/* The most threads anything is measured with: as many as there are processors, two at least. */
int most_threads();

/* Registers every group; those of many keys once for each count. Says on stderr which peers are not in this build. */
void register_peers(const std::vector<size_t> &key_counts);

#endif
