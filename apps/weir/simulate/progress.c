/* SPDX-License-Identifier: Apache-2.0 */
/* See progress.h. */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH 40
#define EVERY_NS  100000000
#define NS_PER_S  UINT64_C(1000000000)
#define MIB       (1024.0 * 1024.0)

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

void progress_begin(struct progress *p, const struct trace *traces, size_t count, bool wanted)
{
    *p = (struct progress){.traces = traces, .count = count, .shown = wanted && isatty(STDERR_FILENO) != 0};
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = bytes_total(traces[i].bytes);
        p->total += size;
        p->shown = p->shown && size != 0;
    }
}

void progress_show(struct progress *p)
{
    const uint64_t at_ns = p->shown ? now_ns() : 0;
    if (!p->shown || at_ns < p->next_ns) {
        return;
    }
    uint64_t done = 0;
    char bar[BAR_WIDTH + 1];
    for (size_t i = 0; i < p->count; i++) {
        done += bytes_done(p->traces[i].bytes);
    }
    done = done < p->total ? done : p->total; /* a log may grow meanwhile */
    for (int i = 0; i < BAR_WIDTH; i++) {
        bar[i] = (uint64_t) i * p->total < done * BAR_WIDTH ? '#' : '.';
    }
    bar[BAR_WIDTH] = '\0';
    (void) fprintf(stderr, "\r[%s] %3" PRIu64 "%% of %.1f MiB", bar, done * 100 / p->total, (double) p->total / MIB);
    (void) fflush(stderr);
    p->next_ns = at_ns + EVERY_NS;
}

void progress_end(struct progress *p)
{
    if (p->shown) {
        (void) fputs("\r\033[K", stderr);
    }
}
