/* SPDX-License-Identifier: Apache-2.0 */
/* See problem.h. */
#include "transport/redis/problem.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/plain.h"

void problem_set(struct redis_transport *t, const struct server_conn *server, const char *format, ...)
{
    const uint8_t index = server != NULL ? server->index : SERVER_NONE;
    if (t->problem[0] != '\0' && index != t->problem_index) {
        return;
    }
    t->problem_index = index;
    (void) snprintf(t->problem_server, sizeof(t->problem_server), "%s", server != NULL ? server->name : "redis");
    char text[sizeof(t->problem)];
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void) plain_line(t->problem, sizeof(t->problem), text); /* the text may hold bytes that a server has sent */
}
