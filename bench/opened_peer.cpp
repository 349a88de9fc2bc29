/* SPDX-License-Identifier: Apache-2.0 */
/* See opened_peer.h. */
#include "opened_peer.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>

namespace
{

std::mutex lock;
const peer *opened = nullptr;
const void *opened_group = nullptr;
std::map<const peer *, const char *> failed; /* why it does not run here */

void close_it()
{
    if (opened != nullptr) {
        opened->close();
        opened = nullptr;
    }
}

const char *open_it(const peer *subject, const peer_limit &limit, size_t key_count,
                    const std::function<const char *(double)> &fill)
{
    (void) malloc_trim(0); /* so that what others gave back is not taken for its own */
    const double before = resident_size();
    const char *problem = subject->open(&limit, key_count);
    if (problem != nullptr) {
        return problem;
    }
    opened = subject;
    problem = fill(before);
    if (problem != nullptr) {
        close_it();
    }
    return problem;
}

} // namespace

const char *opened_for(const peer *subject, const void *group, const peer_limit &limit, size_t key_count,
                       const std::function<const char *(double)> &fill)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto known = failed.find(subject);
    if (known != failed.end()) {
        return known->second;
    }
    if (opened == subject && opened_group == group) {
        return nullptr;
    }
    close_it();
    const char *problem = open_it(subject, limit, key_count, fill);
    opened_group = group;
    if (problem != nullptr) {
        failed[subject] = problem;
        std::fprintf(stderr, "skipped: %s: %s\n", subject->name, problem);
    }
    return problem;
}

void opened_close()
{
    const std::lock_guard<std::mutex> guard(lock);
    close_it();
}

double resident_size()
{
    uint64_t total = 0;
    uint64_t resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/* The numbers are not on the heap, which would keep what they took and count as the peer's. */
const char *peer_visit(PeerThread &thread, uint32_t first, size_t count)
{
    size_t length = 1;
    while (length < count) {
        length *= 2;
    }
    auto *numbers = static_cast<uint32_t *>(peer_allocate(length * sizeof(uint32_t)));
    if (numbers == nullptr) {
        return "no memory for the numbers of keys";
    }
    std::iota(numbers, numbers + length, first);
    peer_draws draws = {numbers, length - 1, 0};
    (void) thread.run(&draws, count);
    peer_free(numbers, length * sizeof(uint32_t));
    return nullptr;
}

void peer_report(benchmark::State &state, const peer *subject, uint64_t allowed)
{
    const double checks = static_cast<double>(state.iterations()) * static_cast<double>(subject->batch);
    state.SetItemsProcessed(static_cast<int64_t>(checks));
    state.counters["ns"] =
        benchmark::Counter(checks / 1e9, benchmark::Counter::kAvgThreadsRate | benchmark::Counter::kInvert);
    state.counters["admitted"] =
        benchmark::Counter(static_cast<double>(allowed) / checks, benchmark::Counter::kAvgThreads);
    state.counters["keyed"] = benchmark::Counter(subject->keyed ? 1 : 0, benchmark::Counter::kAvgThreads);
    state.counters["sketch"] = benchmark::Counter(subject->sketch ? 1 : 0, benchmark::Counter::kAvgThreads);
}
