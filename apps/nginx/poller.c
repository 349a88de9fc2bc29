/* SPDX-License-Identifier: Apache-2.0 */
/* See poller.h. */
#include "poller.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "messages.h"

/* How often nginx's thread looks for lines that the other thread has left. */
#define LOOK_MS 250

static ngx_connection_t no_connection = {.fd = (ngx_socket_t) -1}; /* nginx's debug log asks a timer for one */

/* In nginx's thread. */
static void poller_look(ngx_event_t *timer)
{
    const struct poller *poller = ngx_queue_data(timer, struct poller, timer);
    const int wait_ms = poller->threaded ? LOOK_MS : weir_poll(poller->w);
    messages_flush();
    ngx_add_timer(timer, (ngx_msec_t) ngx_max(wait_ms, 1));
}

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

static int start_thread(struct poller *poller)
{
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
    return 0;
}

int poller_start(struct poller *poller, weir *w, bool threaded, ngx_log_t *log)
{
    poller->w = w;
    poller->threaded = threaded;
    const int result = threaded ? start_thread(poller) : 0;
    if (result != 0) {
        return result;
    }
    /* No reason to keep a worker that is to end. */
    poller->timer = (ngx_event_t){.handler = poller_look, .data = &no_connection, .log = log, .cancelable = 1};
    ngx_add_timer(&poller->timer, 1);
    poller->running = true;
    return 0;
}

void poller_stop(struct poller *poller)
{
    if (!poller->running) {
        return;
    }
    if (poller->threaded) {
        const uint64_t one = 1;
        (void) !write(poller->wake_fd, &one, sizeof(one));
        (void) pthread_join(poller->thread, NULL);
        (void) close(poller->wake_fd);
    }
    if (poller->timer.timer_set) {
        ngx_del_timer(&poller->timer);
    }
    poller->running = false;
}
