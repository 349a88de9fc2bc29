/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of the library in nginx's error log. */
#ifndef WEIR_NGINX_MESSAGES_H
#define WEIR_NGINX_MESSAGES_H

#include "nginx_weir.h"
#include "weir/weir.h"

/*
 * The log function of the library, which calls it in a thread of its own. nginx's logs are for nginx's one thread,
 * those of syslog and memory at least. So the line waits until that thread looks, at most a quarter of a second.
 */
void messages_write(void *arg, weir_log_level level, const char *message);

/* Writes the lines that wait. */
void messages_flush(void);

#endif
