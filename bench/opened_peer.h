/* SPDX-License-Identifier: Apache-2.0 */
/* The one peer (peers/peer.h) that is open, brought to where its measurement begins. Names: opened_, peer_. */
#ifndef WEIR_BENCH_OPENED_PEER_H
#define WEIR_BENCH_OPENED_PEER_H

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "peers/peer.h"

/*
 * Opens the peer for a group, unless it is open for that group already, and lets `fill` bring it to where measuring
 * begins. `fill` is given what was resident before, in bytes. Returns NULL, or why the peer does not run here, which is
 * said on stderr once. Benchmarks run one after the other; the threads of one come here before any begins.
 */
const char *opened_for(const peer *subject, const void *group, const peer_limit &limit, size_t key_count,
                       const std::function<const char *(double)> &fill);

/* Closes the peer that is open, if one is. */
void opened_close();

/* Bytes of the process that are present. */
double resident_size();

/* A thread of a peer, attached as long as this is there. */
class PeerThread
{
  public:
    explicit PeerThread(const peer *whose)
        : subject(whose), handle(whose->attach != nullptr ? whose->attach() : nullptr)
    {
    }
    PeerThread(const PeerThread &) = delete;
    PeerThread &operator=(const PeerThread &) = delete;
    ~PeerThread()
    {
        if (subject->detach != nullptr) {
            subject->detach(handle);
        }
    }

    uint64_t run(peer_draws *draws, uint64_t count)
    {
        return subject->run(handle, draws, count);
    }

  private:
    const peer *subject;
    void *handle;
};

/* Checks the keys of so many numbers from `first` on, once each. NULL, or why not. */
const char *peer_visit(PeerThread &thread, uint32_t first, size_t count);

/* Says how long a check took and which part of them was admitted. */
void peer_report(benchmark::State &state, const peer *subject, uint64_t allowed);

#endif
