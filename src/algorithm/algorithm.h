/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What distinguishes the algorithms: one table, a row for each. A row that is missing is a compiler error in every
 * switch below. Code that depends on the algorithm asks these functions, and never compares with an enumerator.
 */
#ifndef WEIR_ALGORITHM_ALGORITHM_H
#define WEIR_ALGORITHM_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/weir.h"

/* What the state of a key counts. A switch by kind has no default, so that the compiler names it for a new kind. */
enum rule_kind {
    RULE_WINDOW,  /* units of the present window and of the one before: window.h */
    RULE_HISTORY, /* the time of every unit; the state is a summary: history.h */
    RULE_BUCKET,  /* the time at which the bucket will be full: bucket.h */
};

/*
 * The columns:
 *   name      the word in policy files, metrics and messages
 *   letter    the first letter of a limit's label, which is a part of record names in Redis: never changed
 *   kind      what the state counts
 *   queue     requests have a turn: what may pass now is no number of units that could be granted in advance
 *   slides    the window before counts in part
 *   calendar  a limit may have a calendar in place of a period
 */
/* clang-format off */
#define ALGORITHM_TABLE(ROW)                                                               \
    /*  enumerator           name              letter  kind          queue  slides calendar */ \
    ROW(WEIR_FIXED_WINDOW,   "fixed_window",   'f',    RULE_WINDOW,  false, false, true)   \
    ROW(WEIR_SLIDING_WINDOW, "sliding_window", 's',    RULE_WINDOW,  false, true,  false)  \
    ROW(WEIR_SLIDING_LOG,    "sliding_log",    'l',    RULE_HISTORY, false, false, false)  \
    ROW(WEIR_TOKEN_BUCKET,   "token_bucket",   'b',    RULE_BUCKET,  false, false, false)  \
    ROW(WEIR_LEAKY_BUCKET,   "leaky_bucket",   'q',    RULE_BUCKET,  true,  false, false)
/* clang-format on */

/* NOLINTBEGIN(bugprone-branch-clone,bugprone-macro-parentheses): rows of a table agree in a column. */
/* One case of a switch for each column. */
#define ALGORITHM_NAME_CASE(id, name, letter, kind, queue, slides, calendar)                                           \
    case id:                                                                                                           \
        return name;
#define ALGORITHM_LETTER_CASE(id, name, letter, kind, queue, slides, calendar)                                         \
    case id:                                                                                                           \
        return letter;
#define ALGORITHM_KIND_CASE(id, name, letter, kind, queue, slides, calendar)                                           \
    case id:                                                                                                           \
        return kind;
#define ALGORITHM_QUEUE_CASE(id, name, letter, kind, queue, slides, calendar)                                          \
    case id:                                                                                                           \
        return queue;
#define ALGORITHM_SLIDES_CASE(id, name, letter, kind, queue, slides, calendar)                                         \
    case id:                                                                                                           \
        return slides;
#define ALGORITHM_CALENDAR_CASE(id, name, letter, kind, queue, slides, calendar)                                       \
    case id:                                                                                                           \
        return calendar;

/* An entry of an array of names that is indexed by the algorithm. */
#define ALGORITHM_NAME_ENTRY(id, name, letter, kind, queue, slides, calendar) [id] = name,

/* NULL: there is no such algorithm. The other functions are for those that exist. */
static inline const char *algorithm_name(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_NAME_CASE)
    }
    return NULL;
}

static inline char algorithm_letter(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_LETTER_CASE)
    }
    return '\0';
}

static inline enum rule_kind algorithm_kind(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_KIND_CASE)
    }
    return RULE_WINDOW;
}

static inline bool algorithm_is_queue(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_QUEUE_CASE)
    }
    return false;
}

static inline bool algorithm_slides(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_SLIDES_CASE)
    }
    return false;
}

static inline bool algorithm_has_calendar(weir_algorithm algorithm)
{
    switch (algorithm) {
        ALGORITHM_TABLE(ALGORITHM_CALENDAR_CASE)
    }
    return false;
}
/* NOLINTEND(bugprone-branch-clone,bugprone-macro-parentheses) */

#endif
