/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A timer that stops one thread for a moment, again and again, so that other threads meet the thread in the middle of a
 * call.
 */
#ifndef WEIR_TESTS_STOPS_H
#define WEIR_TESTS_STOPS_H

#include <time.h>

/* Makes SIGUSR1 stop the thread that gets the signal. Before the threads start. */
void stops_prepare(void);
/* Stops the calling thread every so many microseconds, until the timer is deleted. */
timer_t stops_start(long every_us);
void stops_end(timer_t timer);

#endif
