/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of sd_notify(3). It is written out here, as the manual page of its authors advises: it is stable, and
 * the library that has it brings much else into a process that reads packets of strangers.
 */
#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "log.h"

/* Whether the variable is for this process, and not for one that this one was started by. */
static uint64_t read_watchdog(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    const char *text = getenv("WATCHDOG_USEC");
    if (text == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long) getpid())) {
        return 0;
    }
    char *end = NULL;
    errno = 0;
    const uintmax_t us = strtoumax(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-') {
        log_line(WEIR_LOG_WARNING, "WATCHDOG_USEC is no number of microseconds: there is no watchdog");
        return 0;
    }
    return us;
}

void notify_open(struct notify *notify)
{
    *notify = (struct notify){.fd = -1};
    const char *path = getenv("NOTIFY_SOCKET");
    if (path == NULL || path[0] == '\0') {
        return;
    }
    const size_t length = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || length >= sizeof(notify->to.sun_path)) {
        log_line(WEIR_LOG_WARNING, "NOTIFY_SOCKET is no path of a socket: nothing is told to who started this");
        return;
    }
    notify->to.sun_family = AF_UNIX;
    memcpy(notify->to.sun_path, path, length);
    if (path[0] == '@') {
        notify->to.sun_path[0] = '\0'; /* a name that is no file's */
    }
    notify->length = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + length);
    notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (notify->fd < 0) {
        log_line(WEIR_LOG_WARNING, "NOTIFY_SOCKET: %s", strerror(errno));
        return;
    }
    notify->watchdog_us = read_watchdog();
}

void notify_close(struct notify *notify)
{
    if (notify->fd >= 0) {
        (void) close(notify->fd);
        notify->fd = -1;
    }
}

void notify_say(const struct notify *notify, const char *format, ...)
{
    if (notify->fd < 0) {
        return;
    }
    char text[1024]; /* the lists of listeners and backends, and what follows them */
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const size_t size = length < 0 ? 0 : (size_t) length < sizeof(text) ? (size_t) length : sizeof(text) - 1;
    if (sendto(notify->fd, text, size, MSG_NOSIGNAL, (const struct sockaddr *) &notify->to, notify->length) < 0) {
        log_line(WEIR_LOG_WARNING, "NOTIFY_SOCKET: %s", strerror(errno));
    }
}

void notify_reloading(const struct notify *notify)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    notify_say(notify, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
               (uint64_t) now.tv_sec * UINT64_C(1000000) + (uint64_t) now.tv_nsec / 1000);
}
