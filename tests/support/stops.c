/* SPDX-License-Identifier: Apache-2.0 */
/* See stops.h. */
#include "support/stops.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/support.h"

#define STOP_NS 20000 /* longer than most calls, and far below a tick */

static void stop_for_a_moment(int number)
{
    (void) number;
    const struct timespec moment = {.tv_nsec = STOP_NS};
    (void) nanosleep(&moment, NULL);
}

void stops_prepare(void)
{
    const struct sigaction action = {.sa_handler = stop_for_a_moment, .sa_flags = SA_RESTART};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

timer_t stops_start(long every_us)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = (pid_t) syscall(SYS_gettid);
    const struct timespec every = {.tv_nsec = every_us * 1000};
    const struct itimerspec often = {.it_interval = every, .it_value = every};
    timer_t timer;
    assert_int_equal(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    assert_int_equal(timer_settime(timer, 0, &often, NULL), 0);
    return timer;
}

void stops_end(timer_t timer)
{
    (void) timer_delete(timer);
}
