/* SPDX-License-Identifier: Apache-2.0 */
/* How often does an idle process with weir open wake up? weir-idle [REDIS_URL]: prints wakeups per second. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weir/weir.h>

#define SECONDS 5

/* Times the kernel has put the process's other thread back on a processor. */
static unsigned long wakeups(void)
{
    char command[64];
    unsigned long total = 0;
    (void) snprintf(command, sizeof(command), "cat /proc/%d/task/*/status", (int) getpid());
    FILE *status = popen(command, "r");
    char line[256];
    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        unsigned long n;
        if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1) {
            total += n;
        }
    }
    if (status != NULL) {
        (void) pclose(status);
    }
    return total;
}

int main(int argc, char **argv)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = argc > 1 ? argv[1] : NULL;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0) {
        (void) fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    (void) sleep(1);
    const unsigned long before = wakeups();
    (void) sleep(SECONDS);
    const unsigned long after = wakeups();
    (void) printf("%.1f\n", (double) (after - before) / SECONDS);
    weir_close(w);
    return 0;
}
