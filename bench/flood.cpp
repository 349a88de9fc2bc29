/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers weir and those of its peers that take new keys without an end, as flood/GROUP/PEER:
 *   new     each key is new
 *   mixed   nine keys in ten are new, the tenth is that of a known source, by Zipf's law
 * Each peer has room for kRoom keys. First come the known sources, once each, and then the offenders, until each of
 * them has asked for half as much again as its limit. Then comes a flood of kFlood checks, four times what there is
 * room for, and each offender asks once more. Beside the time of a check stand the share of the offenders that were
 * refused then (offenders_refused: 1 where the peer still knows all of them) and what the process grew by meanwhile,
 * MiB (grown_mib). The time is that of a check after that flood, while the flood goes on.
 *
 * Nothing comes back to an offender meanwhile: a unit takes an hour. For governor it follows that no key is as good as
 * new within the time of the benchmark, so retain_recent(), which its users call now and then, would find nothing to
 * drop.
 */
#include "flood.h"

#include <benchmark/benchmark.h>

#include <atomic>
#include <string>

#include "opened_peer.h"
#include "peers/peer.h"

namespace
{

constexpr uint32_t kRoom = 1000000;
constexpr uint32_t kKnown = 100000;
constexpr uint32_t kOffenders = 1024; /* a power of two, as a sequence of keys is */
constexpr uint64_t kFlood = 4 * uint64_t{kRoom};
constexpr peer_limit kLimit = {100, UINT64_C(360000000000000), 100}; /* a unit an hour */
constexpr uint64_t kAsked = 150;                                     /* by each offender before the flood */
constexpr size_t kBatchMost = 1024;

struct Flood {
    const char *name;
    bool mixed;
};
constexpr Flood kFloods[] = {{"new", false}, {"mixed", true}};

std::atomic<uint32_t> next_new; /* number of a key that nobody had */
uint32_t *known = nullptr;      /* sources by Zipf's law */
size_t known_mask = 0;
double offenders_refused = 0;
double grown_mib = 0;

/* The keys of one thread, made a batch at a time. */
class Stream
{
  public:
    Stream(const Flood *flood, int number) : mixed(flood->mixed), random(42 + static_cast<uint64_t>(number))
    {
        at = static_cast<size_t>(number) * (known_mask / 2);
    }

    peer_draws batch(uint64_t count)
    {
        const uint32_t first = next_new.fetch_add(static_cast<uint32_t>(count), std::memory_order_relaxed);
        for (uint32_t i = 0; i < count; i++) {
            numbers[i] = mixed && is_known() ? known[at++ & known_mask] : first + i;
        }
        return {numbers, kBatchMost - 1, 0};
    }

  private:
    bool is_known()
    {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (random >> 32) < (UINT64_C(1) << 32) / 10;
    }

    bool mixed;
    uint64_t random;
    size_t at;
    uint32_t numbers[kBatchMost];
};

/* Of so many checks of each offender in turn, the part that is refused. */
double refused(PeerThread &thread, uint64_t times)
{
    uint32_t numbers[kOffenders];
    for (uint32_t i = 0; i < kOffenders; i++) {
        numbers[i] = kKnown + i;
    }
    peer_draws draws = {numbers, kOffenders - 1, 0};
    const uint64_t count = times * kOffenders;
    return 1 - static_cast<double>(thread.run(&draws, count)) / static_cast<double>(count);
}

const char *fill(const peer *subject, const Flood *flood)
{
    if (subject->batch > kBatchMost) {
        return "its batch is larger than a batch of the flood";
    }
    if (known == nullptr) {
        known = peer_draw(PEER_ZIPF, kKnown, &known_mask);
        if (known == nullptr) {
            return "no memory for the sequence of keys";
        }
    }
    next_new.store(kKnown + kOffenders, std::memory_order_relaxed);
    PeerThread thread(subject);
    const char *problem = peer_visit(thread, 0, kKnown);
    if (problem != nullptr) {
        return problem;
    }
    (void) refused(thread, kAsked);
    if (refused(thread, 1) < 1) {
        return "it does not refuse those who are over their limit";
    }
    const double before = resident_size();
    Stream stream(flood, 0);
    for (uint64_t sent = 0; sent < kFlood; sent += subject->batch) {
        peer_draws draws = stream.batch(subject->batch);
        (void) thread.run(&draws, subject->batch);
    }
    grown_mib = (resident_size() - before) / (1 << 20);
    offenders_refused = refused(thread, 1);
    return nullptr;
}

void measure(benchmark::State &state, const peer *subject, const Flood *flood)
{
    const char *problem = opened_for(subject, flood, kLimit, kRoom, [=](double) { return fill(subject, flood); });
    if (problem != nullptr) {
        state.SkipWithError(problem);
        return;
    }
    uint64_t allowed = 0;
    {
        Stream stream(flood, state.thread_index());
        PeerThread thread(subject);
        for (auto _ : state) {
            peer_draws draws = stream.batch(subject->batch);
            allowed += thread.run(&draws, subject->batch);
        }
    }
    peer_report(state, subject, allowed);
    state.counters["offenders_refused"] = benchmark::Counter(offenders_refused, benchmark::Counter::kAvgThreads);
    state.counters["grown_mib"] = benchmark::Counter(grown_mib, benchmark::Counter::kAvgThreads);
}

} // namespace

void register_floods(int threads)
{
    for (const Flood &flood : kFloods) {
        for (size_t i = 0; i < peer_count; i++) {
            const peer *subject = peer_list[i];
            if (subject->absent == nullptr && subject->floods) {
                const std::string name = std::string("flood/") + flood.name + "/" + subject->name;
                benchmark::RegisterBenchmark(name.c_str(), measure, subject, &flood)
                    ->UseRealTime()
                    ->ThreadRange(1, subject->threads ? threads : 1);
            }
        }
    }
}
