/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers weir and its peers (peers/peer.h) with Google Benchmark, as GROUP/PEER:
 *   hot            one key, far from its limit
 *   denied         one key, at its limit
 *   many_N         N keys at random, all present and far from their limits; many_N_zipf: some of them more often
 *   burst/N/32     many_N, for those that ask so many keys at once; they are in no other group
 * Peers without keys are in the first two only. Those that are thread-safe run on 1, 2, ... threads. Beside the time of
 * a check stands the share that was admitted and, for many keys at random, the memory of a key: what the process grew
 * by.
 */
#include "peer_groups.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "opened_peer.h"
#include "peers/peer.h"
#include "subjects.h"

namespace
{

constexpr uint64_t kSecond = 1000000000;
constexpr peer_limit kWide = {500000000, kSecond, 500000000}; /* an interval of 2 ns, which all of them can keep */
constexpr size_t kCountable = 100000;                         /* keys from which the memory of each can be told */
constexpr peer_limit kNone = {1, 31622400 * kSecond, 1};

struct Group {
    std::string name;
    peer_limit limit;
    size_t key_count;
    peer_spread spread;
    bool bursts;
};

/* Of the peer that is measured now. */
uint32_t *sequence = nullptr;
size_t sequence_mask = 0;
double bytes_per_key = 0;

const char *fill(const peer *subject, const Group *group, double before)
{
    PeerThread thread(subject);
    const char *problem = peer_visit(thread, 0, group->key_count);
    if (problem != nullptr) {
        return problem;
    }
    bytes_per_key = (resident_size() - before) / static_cast<double>(group->key_count);
    std::free(sequence);
    sequence = peer_draw(group->spread, group->key_count, &sequence_mask);
    return sequence != nullptr ? nullptr : "no memory for the sequence of keys";
}

void measure(benchmark::State &state, const peer *subject, const Group *group)
{
    const char *problem = opened_for(subject, group, group->limit, group->key_count,
                                     [=](double before) { return fill(subject, group, before); });
    if (problem != nullptr) {
        state.SkipWithError(problem);
        return;
    }
    const size_t length = sequence_mask + 1;
    peer_draws draws = {sequence, sequence_mask,
                        length / static_cast<size_t>(state.threads()) * static_cast<size_t>(state.thread_index())};
    uint64_t allowed = 0;
    {
        PeerThread thread(subject);
        for (auto _ : state) {
            allowed += thread.run(&draws, subject->batch);
        }
    }
    peer_report(state, subject, allowed);
    if (group->key_count >= kCountable && group->spread == PEER_UNIFORM) {
        state.counters["bytes_per_key"] = benchmark::Counter(bytes_per_key, benchmark::Counter::kAvgThreads);
    }
}

void register_one(const std::string &name, const peer *subject, const Group *group)
{
    auto *one = benchmark::RegisterBenchmark(name.c_str(), measure, subject, group)->UseRealTime();
    one->ThreadRange(1, subject->threads ? most_threads() : 1);
}

bool belongs(const peer *subject, const Group *group)
{
    if (subject->bursts != group->bursts) {
        return false;
    }
    return group->key_count == 1 ||
           (subject->keyed && (subject->most_keys == 0 || group->key_count <= subject->most_keys));
}

} // namespace

int most_threads()
{
    return std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
}

void register_peers(const std::vector<size_t> &key_counts)
{
    static std::vector<Group> groups; /* benchmarks keep pointers to them */
    groups = {{"hot", kWide, 1, PEER_UNIFORM, false}, {"denied", kNone, 1, PEER_UNIFORM, false}};
    for (const size_t key_count : key_counts) {
        const std::string name = "many_" + std::to_string(key_count);
        groups.push_back({name, kWide, key_count, PEER_UNIFORM, false});
        groups.push_back({name + "_zipf", kWide, key_count, PEER_ZIPF, false});
    }
    for (const size_t key_count : {size_t{1000}, static_cast<size_t>(bench_key_count())}) {
        const std::string name = "burst/" + std::to_string(key_count) + "/" + std::to_string(PEER_BURST);
        groups.push_back({name, kWide, key_count, PEER_UNIFORM, true});
    }
    for (size_t i = 0; i < peer_count; i++) {
        const peer *subject = peer_list[i];
        if (subject->absent != nullptr) {
            std::fprintf(stderr, "skipped: %s: %s\n", subject->name, subject->absent);
        }
    }
    for (const Group &group : groups) {
        for (size_t i = 0; i < peer_count; i++) {
            if (peer_list[i]->absent == nullptr && belongs(peer_list[i], &group)) {
                register_one(group.name + "/" + peer_list[i]->name, peer_list[i], &group);
            }
        }
    }
}
