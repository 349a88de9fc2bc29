/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background work of the weir, in a thread of each worker.
 *
 * The library would start its own thread in the process that opens a weir, which is the master. The master forks
 * workers, and a fork copies locks as other threads hold them: those of the resolver and of OpenSSL stay locked in the
 * worker for ever. So the weir is opened without a thread, the master has none, and each worker starts this one.
 */
#ifndef WEIR_NGINX_POLLER_H
#define WEIR_NGINX_POLLER_H

#include <pthread.h>
#include <stdbool.h>

#include "weir/weir.h"

/* `running` is of the process that has started it: a child begins with a poller of its own. */
struct poller {
    pthread_t thread;
    weir *w;
    int wake_fd; /* readable: the thread ends */
    bool running;
};

/* 0 or an errno value. */
int poller_start(struct poller *poller, weir *w);

/* Does nothing where no thread runs. Waits for what the thread is doing. */
void poller_stop(struct poller *poller);

#endif
