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
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

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

struct Sequence {
    uint32_t *numbers;
    size_t mask;
};

/* What is measured now. Benchmarks run one after the other, and the threads of one come here before any begins. */
struct Measured {
    const peer *subject = nullptr;
    const Group *group = nullptr;
    Sequence sequence = {nullptr, 0};
    double bytes_per_key = 0;
};

std::mutex lock;
Measured measured;
std::map<const peer *, const char *> failed; /* why it does not run here */

double resident_size()
{
    uint64_t total = 0;
    uint64_t resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

void close_measured()
{
    if (measured.subject != nullptr) {
        measured.subject->close();
        std::free(measured.sequence.numbers);
        measured = Measured();
    }
}

/* Every key once, so that all of them are there. The numbers are not on the heap, which would keep what they took. */
const char *visit_all(const peer *subject, size_t key_count)
{
    size_t length = 1;
    while (length < key_count) {
        length *= 2;
    }
    auto *numbers = static_cast<uint32_t *>(peer_allocate(length * sizeof(uint32_t)));
    if (numbers == nullptr) {
        return "no memory for the numbers of keys";
    }
    std::iota(numbers, numbers + length, 0);
    peer_draws draws = {numbers, length - 1, 0};
    void *thread = subject->attach != nullptr ? subject->attach() : nullptr;
    (void) subject->run(thread, &draws, key_count);
    if (subject->detach != nullptr) {
        subject->detach(thread);
    }
    peer_free(numbers, length * sizeof(uint32_t));
    return nullptr;
}

const char *open_for(const peer *subject, const Group *group)
{
    (void) malloc_trim(0); /* so that what others gave back is not taken for its own */
    const double before = resident_size();
    const char *problem = subject->open(&group->limit, group->key_count);
    if (problem != nullptr) {
        return problem;
    }
    measured.subject = subject;
    measured.group = group;
    problem = visit_all(subject, group->key_count);
    if (problem != nullptr) {
        close_measured();
        return problem;
    }
    measured.bytes_per_key = (resident_size() - before) / static_cast<double>(group->key_count);
    measured.sequence.numbers = peer_draw(group->spread, group->key_count, &measured.sequence.mask);
    if (measured.sequence.numbers == nullptr) {
        close_measured();
        return "no memory for the sequence of keys";
    }
    return nullptr;
}

/* Opens the peer, unless it is already. NULL, or why it cannot be. */
const char *prepare(const peer *subject, const Group *group)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto known = failed.find(subject);
    if (known != failed.end()) {
        return known->second;
    }
    if (measured.subject == subject && measured.group == group) {
        return nullptr;
    }
    close_measured();
    const char *problem = open_for(subject, group);
    if (problem != nullptr) {
        failed[subject] = problem;
        std::fprintf(stderr, "skipped: %s: %s\n", subject->name, problem);
    }
    return problem;
}

void measure(benchmark::State &state, const peer *subject, const Group *group)
{
    const char *problem = prepare(subject, group);
    if (problem != nullptr) {
        state.SkipWithError(problem);
        return;
    }
    const size_t length = measured.sequence.mask + 1;
    peer_draws draws = {measured.sequence.numbers, measured.sequence.mask,
                        length / static_cast<size_t>(state.threads()) * static_cast<size_t>(state.thread_index())};
    void *thread = subject->attach != nullptr ? subject->attach() : nullptr;
    uint64_t allowed = 0;
    for (auto _ : state) {
        allowed += subject->run(thread, &draws, subject->batch);
    }
    if (subject->detach != nullptr) {
        subject->detach(thread);
    }
    const double checks = static_cast<double>(state.iterations()) * static_cast<double>(subject->batch);
    state.SetItemsProcessed(static_cast<int64_t>(checks));
    state.counters["ns"] =
        benchmark::Counter(checks / 1e9, benchmark::Counter::kAvgThreadsRate | benchmark::Counter::kInvert);
    state.counters["admitted"] =
        benchmark::Counter(static_cast<double>(allowed) / checks, benchmark::Counter::kAvgThreads);
    state.counters["keyed"] = benchmark::Counter(subject->keyed ? 1 : 0, benchmark::Counter::kAvgThreads);
    if (group->key_count >= kCountable && group->spread == PEER_UNIFORM) {
        state.counters["bytes_per_key"] = benchmark::Counter(measured.bytes_per_key, benchmark::Counter::kAvgThreads);
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

void close_peer()
{
    const std::lock_guard<std::mutex> guard(lock);
    close_measured();
}
