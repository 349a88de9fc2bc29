/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the C functions of subjects.c with Google Benchmark, and weir's peers. One iteration is kBatch checks;
 * times are per check. --keys=N adds the peers' groups of N keys.
 */
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "peer_groups.h"
#include "subjects.h"

namespace
{

constexpr uint64_t kBatch = 1000;

void report(benchmark::State &state)
{
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch));
    state.counters["ns"] = benchmark::Counter(static_cast<double>(state.iterations()) * kBatch / 1e9,
                                              benchmark::Counter::kAvgThreadsRate | benchmark::Counter::kInvert);
}

template <uint64_t (*Subject)(void *, uint64_t)> void with_weir(benchmark::State &state)
{
    void *thread = bench_weir_attach();
    for (auto _ : state) {
        benchmark::DoNotOptimize(Subject(thread, kBatch));
    }
    report(state);
    bench_weir_detach(thread);
}

void hot_while_redis_hangs(benchmark::State &state)
{
    void *thread = bench_hung_attach();
    for (auto _ : state) {
        benchmark::DoNotOptimize(bench_hot_hung(thread, kBatch));
    }
    report(state);
    bench_weir_detach(thread);
}

void many_keys(benchmark::State &state)
{
    void *thread = bench_weir_attach();
    uint64_t rng = 42;
    for (auto _ : state) {
        benchmark::DoNotOptimize(bench_many_keys(thread, kBatch, static_cast<uint64_t>(state.range(0)), &rng));
    }
    report(state);
    bench_weir_detach(thread);
}

void bursts(benchmark::State &state)
{
    void *thread = bench_weir_attach();
    uint64_t rng = 42;
    for (auto _ : state) {
        benchmark::DoNotOptimize(bench_burst(thread, kBatch, static_cast<uint64_t>(state.range(0)),
                                             static_cast<size_t>(state.range(1)), &rng));
    }
    report(state);
    bench_weir_detach(thread);
}

} // namespace

BENCHMARK(with_weir<bench_hot>)->Name("weir_hot")->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(hot_while_redis_hangs)->Name("weir_hot_redis_hangs")->Threads(1)->UseRealTime();
BENCHMARK(with_weir<bench_hot_hashed>)->Name("weir_hot_hashed")->Threads(1)->UseRealTime();
BENCHMARK(with_weir<bench_denied>)->Name("weir_denied")->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(with_weir<bench_four_limits>)->Name("weir_four_limits")->Threads(1)->UseRealTime();
BENCHMARK(with_weir<bench_log>)->Name("weir_log")->Threads(1)->UseRealTime();
BENCHMARK(with_weir<bench_all>)->Name("weir_all_two_keys")->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(with_weir<bench_queue>)->Name("weir_reserve")->Threads(1)->UseRealTime();
BENCHMARK(with_weir<bench_used>)->Name("weir_charge_and_refund")->Threads(1)->Threads(2)->UseRealTime();
BENCHMARK(many_keys)->Name("weir_many_keys")->Arg(1000)->Arg(100000)->Arg(1000000)->UseRealTime();
BENCHMARK(bursts)->Name("weir_burst")->ArgsProduct({{1000, 1000000}, {1, 8, 32, 128}})->UseRealTime();

int main(int argc, char **argv)
{
    std::vector<size_t> key_counts = {1000, 1000000};
    int kept = 1;
    for (int i = 1; i < argc; i++) {
        if (std::strncmp(argv[i], "--keys=", 7) == 0) {
            key_counts.push_back(std::strtoull(argv[i] + 7, nullptr, 10));
        } else {
            argv[kept++] = argv[i];
        }
    }
    argc = kept;
    if (key_counts.back() == 0 || key_counts.back() > 100000000) {
        std::fprintf(stderr, "weir-bench: --keys takes 1 to 100000000\n");
        return 2;
    }
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
        return 1;
    }
    bench_weir_open(1000000);
    register_peers(key_counts);
    benchmark::RunSpecifiedBenchmarks();
    close_peer();
    bench_weir_close();
    return 0;
}
