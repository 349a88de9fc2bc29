/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background work of the weir in a worker, and the lines that the weir logs there.
 *
 * The library would start its own thread in the process that opens a weir, which is the master. The master forks
 * workers, and a fork copies locks as other threads hold them: those of the resolver and of OpenSSL stay locked in the
 * worker for ever. So the weir is opened without a thread, and the master has none.
 *
 * Without Redis a worker does the work by a timer of nginx, some microseconds each time. A thread would make each
 * request dearer, by some 4% of a request that costs 6 us: the system calls of a process with two threads cost more.
 * With Redis the work may wait for the lookup of a host name, so it has a thread.
 */
#ifndef WEIR_NGINX_POLLER_H
#define WEIR_NGINX_POLLER_H

#include <pthread.h>

#include "nginx_weir.h"
/* After the two of nginx's core. */
#include <ngx_event.h>

#include "weir/weir.h"

/* `running` is of the process that has started it: a child begins with a poller of its own. */
struct poller {
    weir *w;
    bool running;
    bool threaded;
    ngx_event_t timer;
    pthread_t thread;
    int wake_fd; /* readable: the thread ends */
};

/* In a worker. 0 or an errno value. */
int poller_start(struct poller *poller, weir *w, bool threaded, ngx_log_t *log);

/* Does nothing where none runs. Waits for what the thread is doing. */
void poller_stop(struct poller *poller);

#endif
