/* SPDX-License-Identifier: Apache-2.0 */
/* See poller.h. */
#include "poller.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Polls when the weir says so: by its descriptor, or where it has none by the time it gave. */
static void *poller_main(void *arg)
{
    struct poller *poller = arg;
    struct pollfd fds[] = {{.fd = poller->wake_fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
    do {
        const int wait_ms = weir_poll(poller->w);
        if (fds[1].fd < 0) {
            fds[1].fd = weir_poll_fd(poller->w); /* below 0: there are too many descriptors for now */
        }
        (void) poll(fds, 2, fds[1].fd >= 0 ? -1 : wait_ms);
    } while (fds[0].revents == 0);
    return NULL;
}

int poller_start(struct poller *poller, weir *w)
{
    poller->w = w;
    poller->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (poller->wake_fd < 0) {
        return errno;
    }
    /* Signals are for nginx's own thread: this one is born with all blocked. */
    sigset_t all;
    sigset_t before;
    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    const int result = pthread_create(&poller->thread, NULL, poller_main, poller);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (result != 0) {
        (void) close(poller->wake_fd);
        return result;
    }
    (void) pthread_setname_np(poller->thread, "weir");
    poller->running = true;
    return 0;
}

void poller_stop(struct poller *poller)
{
    if (poller->running) {
        const uint64_t one = 1;
        (void) !write(poller->wake_fd, &one, sizeof(one));
        (void) pthread_join(poller->thread, NULL);
        (void) close(poller->wake_fd);
        poller->running = false;
    }
}
