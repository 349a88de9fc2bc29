/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often does an idle process with weir open wake up?
 *
 *     weir-idle REPETITIONS SECONDS [REDIS_URL]
 */
#include <stdio.h>
#include <stdlib.h>

#include <weir/weir.h>

#include "tools.h"

/* Times the kernel has put the background thread back on a processor after it had waited. */
static uint64_t wakeups(void)
{
    return tools_background_number("status", "voluntary_ctxt_switches:");
}

int main(int argc, char **argv)
{
    const unsigned long repetitions = argc > 1 ? strtoul(argv[1], NULL, 10) : 7;
    const double seconds = argc > 2 ? strtod(argv[2], NULL) : 2;
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = argc > 3 ? argv[3] : NULL;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        (void) fprintf(stderr, "weir-idle: %s\n", error.message);
        return 1;
    }
    tools_sleep_until(tools_now_ns() + 1000 * NS_PER_MS); /* it falls asleep */
    for (unsigned long i = 0; i < repetitions; i++) {
        const uint64_t before = wakeups();
        const uint64_t begun_ns = tools_now_ns();
        tools_sleep_until(begun_ns + (uint64_t) (seconds * 1e9));
        const double slept = (double) (tools_now_ns() - begun_ns) / 1e9;
        tools_figure((double) (wakeups() - before) / slept, "wakeups/s",
                     options.redis_url != NULL ? "idle/redis" : "idle/alone");
    }
    weir_close(w);
    return 0;
}
