/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands before a line of a log, because something carried it: syslog, journald, containers.
 *
 *     <134>Nov 25 10:00:00 web1 nginx[14]:       syslog of RFC 3164; with its priority, host and number or without
 *     <134>1 2026-11-25T10:00:00Z web1 nginx 14 - -       syslog of RFC 5424
 *     2026-11-25T10:00:00+01:00 web1 nginx[14]:  journald, rsyslog; also with a blank in the time, and 1764064800.123
 *     2026-11-25T10:00:00.123456789Z stdout F    Kubernetes (CRI); without the two words docker logs --timestamps
 *     web-1  |                                   docker compose, with colours or without
 *     [pod/web-1/nginx]                          kubectl logs --prefix
 *
 * One may stand behind another.
 */
#ifndef WEIR_TRACE_PREFIX_H
#define WEIR_TRACE_PREFIX_H

#include <stdbool.h>

/* Whether something may stand before the line: not where it begins as an address of IPv4 does. Costs next to nothing.
 */
static inline bool prefix_may_be(const char *line, const char *end)
{
    return end - line < 4 || !((line[1] == '.' || line[2] == '.' || line[3] == '.') && *line >= '1' && *line <= '9');
}

/* Where the line itself begins. */
const char *prefix_skip(const char *line, const char *end);

#endif
