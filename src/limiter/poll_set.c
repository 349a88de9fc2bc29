/* SPDX-License-Identifier: Apache-2.0 */
/* See poll_set.h. */
#include "limiter/poll_set.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/numbers.h"

/* How often everything is looked at while the set does not hold all sockets. */
#define BLIND_LOOK_NS (10 * NS_PER_MS)

/* What the set tells of: sockets are all alike. */
enum { OF_SOCKET, OF_TIMER };

void poll_set_init(struct poll_set *set)
{
    *set = (struct poll_set){.epoll_fd = -1, .timer_fd = -1};
}

void poll_set_close(struct poll_set *set)
{
    if (set->timer_fd >= 0) {
        (void) close(set->timer_fd);
    }
    if (set->epoll_fd >= 0) {
        (void) close(set->epoll_fd);
    }
    poll_set_init(set);
}

/* By the monotonic clock, whose 0 would stop the timer; a time that is over makes it readable at once. */
static void set_timer(struct poll_set *set, uint64_t until_ns)
{
    const uint64_t at_ns = max_u64(until_ns, 1);
    if (set->timer_fd < 0 || at_ns == set->armed_ns) {
        return;
    }
    const struct itimerspec at = {
        .it_value = {.tv_sec = (time_t) (at_ns / NS_PER_S), .tv_nsec = (long) (at_ns % NS_PER_S)}};
    (void) timerfd_settime(set->timer_fd, TFD_TIMER_ABSTIME, &at, NULL); /* fails for no such time */
    set->armed_ns = at_ns;
}

static int add_timer(struct poll_set *set)
{
    set->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = OF_TIMER};
    if (set->timer_fd < 0 || epoll_ctl(set->epoll_fd, EPOLL_CTL_ADD, set->timer_fd, &event) != 0) {
        return -errno;
    }
    set_timer(set, 1);
    return 0;
}

int poll_set_open(struct poll_set *set, bool timer)
{
    if (set->epoll_fd >= 0) {
        return 0;
    }
    set->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int result = set->epoll_fd < 0 ? -errno : 0;
    if (result == 0 && timer) {
        result = add_timer(set);
    }
    if (result != 0) {
        poll_set_close(set);
        return result;
    }
    set->blind = true;
    return 0;
}

bool poll_set_take(struct poll_set *set)
{
    if (set->epoll_fd < 0) {
        return true;
    }
    struct epoll_event events[TRANSPORT_MAX_POLLFDS + 1];
    const int count = epoll_wait(set->epoll_fd, events, TRANSPORT_MAX_POLLFDS + 1, 0);
    bool ready = set->blind || count < 0; /* after an error, everything is looked at */
    for (int i = 0; i < count; i++) {
        if (events[i].data.u32 == OF_TIMER) {
            set->armed_ns = 0; /* readable until it is set again */
        } else {
            ready = true;
        }
    }
    return ready;
}

/* Arms a socket, whether or not it is in the set: one that was closed has left it. */
static bool arm(const struct poll_set *set, const struct pollfd *fd)
{
    const uint32_t reads = (fd->events & POLLIN) != 0 ? EPOLLIN : 0;
    const uint32_t writes = (fd->events & POLLOUT) != 0 ? EPOLLOUT : 0;
    struct epoll_event event = {.events = reads | writes | EPOLLONESHOT, .data.u32 = OF_SOCKET};
    return epoll_ctl(set->epoll_fd, EPOLL_CTL_MOD, fd->fd, &event) == 0 ||
           (errno == ENOENT && epoll_ctl(set->epoll_fd, EPOLL_CTL_ADD, fd->fd, &event) == 0);
}

uint64_t poll_set_update(struct poll_set *set, const struct pollfd *fds, size_t count, bool changed, uint64_t now_ns,
                         uint64_t until_ns)
{
    if (set->epoll_fd < 0) {
        return until_ns;
    }
    const bool all = changed || set->blind;
    set->blind = false;
    for (size_t i = 0; i < count; i++) {
        const struct pollfd *was = &set->watched[i];
        if (all || i >= set->watched_count || was->fd != fds[i].fd || was->events != fds[i].events) {
            set->blind = !arm(set, &fds[i]) || set->blind;
        }
        set->watched[i] = fds[i];
    }
    set->watched_count = count;
    const uint64_t next_ns = set->blind ? min_u64(until_ns, now_ns + BLIND_LOOK_NS) : until_ns;
    set_timer(set, next_ns);
    return next_ns;
}
