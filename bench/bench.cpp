/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the C functions of subjects.c with Google Benchmark, and weir's peers. One iteration is kBatch checks; the
 * counter "ns" is the time of one check, on each thread. Names are GROUP/SUBJECT; groups are
 *   floor     the least a check can be, and weir beside it: key at hand; key of 16, of 64 bytes to be hashed
 *   call      the public calls, on a hot key or two
 *   limits    a hot key under 1 to 4 limits
 *   burst     weir_check_burst: KEYS/SIZE
 *   prefetch  weir_prefetch of a key, some checks before its own: KEYS/AHEAD
 *   prefixes  weir_check_all of an address and four of its prefixes, and weir_check_all_burst
 *   threads   1, 2, ... threads, as many as there are processors: one key for all, one each, one that is denied, many
 * and those of peer_groups.cpp and of flood.cpp. bench/report.py runs them all; docs/performance.md says how to read
 * them.
 *
 * --keys=N makes the peers' groups of many keys those of N keys; it can be given several times.
 */
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "flood.h"
#include "opened_peer.h"
#include "peer_groups.h"
#include "prefixes.h"
#include "subjects.h"

namespace
{

constexpr uint64_t kBatch = 1024; /* a multiple of every size of burst */

void report(benchmark::State &state)
{
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch));
    state.counters["ns"] = benchmark::Counter(static_cast<double>(state.iterations()) * kBatch / 1e9,
                                              benchmark::Counter::kAvgThreadsRate | benchmark::Counter::kInvert);
}

/* Measures `subject`, which is given the thread's handle. */
template <typename Subject> void measure(benchmark::State &state, Subject subject)
{
    void *thread = bench_attach();
    for (auto _ : state) {
        benchmark::DoNotOptimize(subject(thread));
    }
    report(state);
    bench_detach(thread);
}

template <uint64_t (*Subject)(void *, uint64_t)> void plain(benchmark::State &state)
{
    measure(state, [](void *thread) { return Subject(thread, kBatch); });
}

/* With the benchmark's argument. */
template <uint64_t (*Subject)(void *, uint64_t, size_t)> void counted(benchmark::State &state)
{
    const auto number = static_cast<size_t>(state.range(0));
    measure(state, [number](void *thread) { return Subject(thread, kBatch, number); });
}

void own_key(benchmark::State &state)
{
    const auto number = static_cast<uint64_t>(state.thread_index());
    measure(state, [number](void *thread) { return bench_own(thread, kBatch, number); });
}

void many_keys(benchmark::State &state)
{
    bench_fill();
    uint64_t rng = 42 + static_cast<uint64_t>(state.thread_index());
    measure(state, [&rng](void *thread) { return bench_many(thread, kBatch, bench_key_count(), &rng); });
}

void bursts(benchmark::State &state)
{
    const auto keys = static_cast<uint64_t>(state.range(0));
    const auto size = static_cast<size_t>(state.range(1));
    bench_fill();
    uint64_t rng = 42;
    measure(state, [keys, size, &rng](void *thread) { return bench_burst(thread, kBatch, keys, size, &rng); });
}

void prefetched(benchmark::State &state)
{
    const auto keys = static_cast<uint64_t>(state.range(0));
    const auto ahead = static_cast<size_t>(state.range(1));
    bench_fill();
    uint64_t rng = 42;
    measure(state, [keys, ahead, &rng](void *thread) { return bench_prefetched(thread, kBatch, keys, ahead, &rng); });
}

/* Measures requests of several keys. The time is that of a request. */
template <typename Subject> void requests(benchmark::State &state, Subject subject)
{
    void *thread = prefixes_attach();
    for (auto _ : state) {
        benchmark::DoNotOptimize(subject(thread));
    }
    report(state);
    prefixes_detach(thread);
}

template <uint64_t (*Subject)(void *, uint64_t)> void one_address(benchmark::State &state)
{
    requests(state, [](void *thread) { return Subject(thread, kBatch); });
}

void flood_of_addresses(benchmark::State &state)
{
    static uint64_t rng = 42; /* goes on, so that no address comes again */
    requests(state, [](void *thread) { return prefixes_flood(thread, kBatch, &rng); });
}

template <uint64_t (*Subject)(void *, uint64_t, uint64_t, uint64_t *)> void many_addresses(benchmark::State &state)
{
    const auto addresses = static_cast<uint64_t>(state.range(0));
    prefixes_fill(addresses);
    uint64_t rng = 42;
    requests(state, [addresses, &rng](void *thread) { return Subject(thread, kBatch, addresses, &rng); });
}

} // namespace

BENCHMARK(plain<bench_floor>)->Name("floor/function")->UseRealTime();
BENCHMARK(plain<bench_hot>)->Name("floor/weir")->UseRealTime();
BENCHMARK(plain<bench_floor_hash_16>)->Name("floor/hash_16")->UseRealTime();
BENCHMARK(plain<bench_hot_hash_16>)->Name("floor/weir_hash_16")->UseRealTime();
BENCHMARK(plain<bench_floor_hash_64>)->Name("floor/hash_64")->UseRealTime();
BENCHMARK(plain<bench_hot_hash_64>)->Name("floor/weir_hash_64")->UseRealTime();

BENCHMARK(plain<bench_hot>)->Name("call/check")->UseRealTime();
BENCHMARK(plain<bench_denied>)->Name("call/check_denied")->UseRealTime();
BENCHMARK(plain<bench_ask>)->Name("call/check_of_cost_0")->UseRealTime();
BENCHMARK(plain<bench_peek>)->Name("call/peek")->UseRealTime();
BENCHMARK(counted<bench_all>)->Name("call/check_all")->DenseRange(1, BENCH_ALL_MAX)->UseRealTime();
BENCHMARK(plain<bench_log>)->Name("call/check_log")->UseRealTime();
BENCHMARK(plain<bench_queue>)->Name("call/reserve")->UseRealTime();
BENCHMARK(plain<bench_reserve>)->Name("call/reserve_granted")->UseRealTime();
BENCHMARK(plain<bench_charge>)->Name("call/charge")->UseRealTime();
BENCHMARK(plain<bench_refund>)->Name("call/check_and_refund")->UseRealTime();
BENCHMARK(plain<bench_used>)->Name("call/charge_and_refund")->UseRealTime();

BENCHMARK(counted<bench_limits>)->Name("limits")->DenseRange(1, BENCH_LIMITS_MAX)->UseRealTime();

BENCHMARK(one_address<prefixes_hot>)->Name("prefixes/hot")->UseRealTime();
BENCHMARK(one_address<prefixes_denied>)->Name("prefixes/denied")->UseRealTime();
BENCHMARK(flood_of_addresses)->Name("prefixes/flood")->UseRealTime();
BENCHMARK(many_addresses<prefixes_many>)->Name("prefixes/many")->Arg(1000)->Arg(BENCH_KEYS)->UseRealTime();
BENCHMARK(many_addresses<prefixes_burst>)->Name("prefixes/burst")->Arg(1000)->Arg(BENCH_KEYS)->UseRealTime();

BENCHMARK(plain<bench_hot>)->Name("threads/same_key")->ThreadRange(1, most_threads())->UseRealTime();
BENCHMARK(own_key)->Name("threads/own_key")->ThreadRange(1, most_threads())->UseRealTime();
BENCHMARK(plain<bench_denied>)->Name("threads/denied")->ThreadRange(1, most_threads())->UseRealTime();
BENCHMARK(many_keys)->Name("threads/many_keys")->ThreadRange(1, most_threads())->UseRealTime();
BENCHMARK(plain<bench_used>)->Name("threads/charge_and_refund")->ThreadRange(1, most_threads())->UseRealTime();

int main(int argc, char **argv)
{
    std::vector<size_t> key_counts;
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (std::strncmp(argv[i], "--keys=", 7) == 0) {
            key_counts.push_back(std::strtoull(argv[i] + 7, nullptr, 10));
        } else {
            argv[kept++] = argv[i];
        }
    }
    argc = kept;
    if (std::any_of(key_counts.begin(), key_counts.end(), [](size_t n) { return n == 0 || n > 100000000; })) {
        std::fprintf(stderr, "weir-bench: --keys takes 1 to 100000000\n");
        return 2;
    }
    if (key_counts.empty()) {
        key_counts = {1000, 10000, 100000, 1000000};
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    bench_use_keys(*std::max_element(key_counts.begin(), key_counts.end()));
    benchmark::RegisterBenchmark("burst", bursts)
        ->ArgsProduct({{1000, static_cast<int64_t>(bench_key_count())}, benchmark::CreateRange(1, BENCH_BURST_MAX, 2)})
        ->UseRealTime();
    benchmark::RegisterBenchmark("prefetch", prefetched)
        ->ArgsProduct({{1000, static_cast<int64_t>(bench_key_count())}, {1, 4, BENCH_AHEAD_MAX}})
        ->UseRealTime();
    register_peers(key_counts);
    register_floods(most_threads());
    benchmark::RunSpecifiedBenchmarks();
    opened_close();
    bench_close();
    prefixes_close();
    return 0;
}
