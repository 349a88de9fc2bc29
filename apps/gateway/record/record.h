/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sample of the packets that are denied, in a file in pcapng that weir simulate, tcpdump and Wireshark read.
 *
 * A worker samples (sampler.h) and puts packets into a queue of its own (ring.h). One thread writes them
 * (capture_file.h). The worker waits for nothing: where the queue is full the packet is lost, and the next one stands
 * for it, too.
 */
#ifndef WEIR_GATEWAY_RECORD_RECORD_H
#define WEIR_GATEWAY_RECORD_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../address.h"
#include "../policies.h"

struct record;
struct record_view;

struct record_options {
    const char *path; /* NULL: nothing is recorded */
    unsigned rate;    /* packets a second, of all threads, 1 or more */
    unsigned snap;    /* bytes of the payload, 0 or more */
    unsigned size_mb; /* of a file */
};

/* Opens the file and starts the thread. `policies` outlives it. NULL after a line in the log. */
struct record *record_start(const struct record_options *options, unsigned workers, const struct policies *policies);
void record_stop(struct record *record); /* writes what was denied so far; NULL is allowed */

/* What worker `index` records with. NULL: nothing is recorded. */
struct record_view *record_view(struct record *record, unsigned index);

/*
 * A packet was denied by the policy of that index. `now`: seconds of a clock that only goes on. Threads: the view's
 * worker.
 */
void record_denied(struct record_view *view, const struct address *from, const struct address *to,
                   const unsigned char *data, size_t size, size_t policy, uint32_t now);

/* Has the thread look whether the file was moved, and begin a new one then. Any thread; NULL is allowed. */
void record_reopen(struct record *record);

/* What a page says of it. */
struct record_status {
    const char *path;
    bool fails;             /* the file cannot be written */
    uint64_t packets, lost; /* written; sampled and lost since the queue was full or the file could not be written */
};

/* False: nothing is recorded. `record` may be NULL. */
bool record_get_status(struct record *record, struct record_status *out);

#endif
