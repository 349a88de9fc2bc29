/* SPDX-License-Identifier: Apache-2.0 */
#include "tools.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t tools_now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000 * NS_PER_MS + (uint64_t) now.tv_nsec;
}

void tools_sleep_until(uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t) (at_ns / (1000 * NS_PER_MS)),
                                .tv_nsec = (long) (at_ns % (1000 * NS_PER_MS))};
    (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* The number behind `before` in the first line that begins with it. */
static bool read_number(const char *task, const char *file, const char *before, uint64_t *number)
{
    char path[320];
    (void) snprintf(path, sizeof(path), "/proc/self/task/%s/%s", task, file);
    FILE *in = fopen(path, "r");
    char line[256];
    bool found = false;
    while (in != NULL && !found && fgets(line, sizeof(line), in) != NULL) {
        found = strncmp(line, before, strlen(before)) == 0;
        if (found) {
            *number = strtoull(line + strlen(before), NULL, 10);
        }
    }
    if (in != NULL) {
        (void) fclose(in);
    }
    return found;
}

uint64_t tools_background_number(const char *file, const char *before)
{
    uint64_t number = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task = tasks != NULL ? readdir(tasks) : NULL; task != NULL; task = readdir(tasks)) {
        uint64_t ignored;
        if (read_number(task->d_name, "comm", "weir\n", &ignored)) {
            (void) read_number(task->d_name, file, before, &number);
        }
    }
    if (tasks != NULL) {
        (void) closedir(tasks);
    }
    return number;
}

void tools_figure(double value, const char *unit, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void) vprintf(format, arguments);
    va_end(arguments);
    (void) printf(" %.6g %s\n", value, unit);
    (void) fflush(stdout);
}
