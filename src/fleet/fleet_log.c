/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_log.h. */
#include "fleet/fleet_log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/plain.h"
#include "fleet/state.h"

/* A line of the log, as it is formatted. */
#define LINE_SIZE 700

void fleet_log(const struct fleet *fleet, weir_log_level level, const char *format, ...)
{
    if (fleet->log == NULL) {
        return;
    }
    char text[LINE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* Here, so that no caller can forget it: a line may quote what stands in Redis. */
    char line[LINE_SIZE + LINE_SIZE / 2];
    (void) plain_line(line, sizeof(line), text);
    fleet->log(fleet->log_arg, level, line);
}
