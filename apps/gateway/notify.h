/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway tells the program that started it, such as systemd: the protocol of sd_notify(3), which is datagrams
 * of a line for each fact to the socket that NOTIFY_SOCKET names. Where it names none, every call does nothing.
 *
 * Threads: one at a time.
 */
#ifndef WEIR_GATEWAY_NOTIFY_H
#define WEIR_GATEWAY_NOTIFY_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd; /* -1: nobody asks */
    struct sockaddr_un to;
    socklen_t length;
    uint64_t watchdog_us; /* who asks ends this process after such a time without "WATCHDOG=1"; 0: never */
};

/* Reads the environment. What is wrong with it is logged, and nothing is said then. */
void notify_open(struct notify *notify);
void notify_close(struct notify *notify);

/* Sends lines such as "READY=1\nSTATUS=words". Waits for who reads the socket, as that may be behind. */
__attribute__((format(printf, 2, 3))) void notify_say(const struct notify *notify, const char *format, ...);

/* That it reads its policies again; "READY=1" says that it is done. */
void notify_reloading(const struct notify *notify);

#endif
