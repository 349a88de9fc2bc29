/* SPDX-License-Identifier: Apache-2.0 */
/* A sentence that is put together, and numbers and durations in plain English. */
#ifndef WEIR_QUANTITY_H
#define WEIR_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

/* What has no room is cut off; four limits and every setting of a policy have room. */
struct sentence {
    char text[2048];
    size_t length;
};

void sentence_add(struct sentence *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "1,000,000" */
void quantity_number(struct sentence *s, uint64_t number);

/*
 * The exact duration: in the largest unit of which there are whole ones, fewer than 100 ("90 seconds"), else in several
 * units ("1 hour 40 minutes 1 second").
 */
void quantity_duration(struct sentence *s, uint64_t ns);

/* "a second", "an hour", "every 10 seconds" */
void quantity_rate(struct sentence *s, uint64_t period_ns);

/* `one` before one unit alone ("any minute"), else `more` before a duration ("any 10 seconds"). */
void quantity_each(struct sentence *s, const char *one, const char *more, uint64_t ns);

/*
 * A duration that need not be whole, behind `before`: to three digits, and with "about" where these digits are not all
 * ("about every 333 milliseconds"). With a `before` other than "", one unit goes without its number ("every second").
 */
void quantity_about(struct sentence *s, const char *before, double ns);

#endif
