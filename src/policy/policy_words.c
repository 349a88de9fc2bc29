/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_words.h. */
#include "policy/policy_words.h"

#include "algorithm/algorithm.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const algorithm_names[] = {ALGORITHM_TABLE(ALGORITHM_NAME_ENTRY)};
static const char *const calendar_names[] = {[WEIR_CALENDAR_DAY] = "day", [WEIR_CALENDAR_MONTH] = "month"};
static const char *const mode_names[] = {[WEIR_ENFORCE] = "enforce", [WEIR_SHADOW] = "shadow"};
static const char *const scope_names[] = {[WEIR_SCOPE_FLEET] = "fleet", [WEIR_SCOPE_PROCESS] = "process"};
static const char *const outage_names[] = {[WEIR_OUTAGE_SHARE] = "share",
                                           [WEIR_OUTAGE_LOCAL] = "local",
                                           [WEIR_OUTAGE_OPEN] = "open",
                                           [WEIR_OUTAGE_CLOSED] = "closed"};

static const struct word_alias algorithm_aliases[] = {{"fixed", "fixed_window"},
                                                      {"counter", "fixed_window"},
                                                      {"sliding", "sliding_window"},
                                                      {"sliding_counter", "sliding_window"},
                                                      {"rolling_window", "sliding_window"},
                                                      {"log", "sliding_log"},
                                                      {"sliding_window_log", "sliding_log"},
                                                      {"gcra", "token_bucket"},
                                                      {"token", "token_bucket"},
                                                      {"leaky", "leaky_bucket"},
                                                      {"limit_req", "leaky_bucket"}};
static const struct word_alias calendar_aliases[] = {
    {"hour", "period: 1h"},   {"hourly", "period: 1h"}, {"daily", "day"},         {"week", "period: 7d"},
    {"weekly", "period: 7d"}, {"monthly", "month"},     {"year", "period: 365d"}, {"minute", "period: 1m"}};
static const struct word_alias mode_aliases[] = {
    {"dry_run", "shadow"}, {"dryrun", "shadow"},   {"log_only", "shadow"},  {"monitor", "shadow"},
    {"report", "shadow"},  {"observe", "shadow"},  {"test", "shadow"},      {"on", "enforce"},
    {"block", "enforce"},  {"enabled", "enforce"}, {"enforcing", "enforce"}};
static const struct word_alias scope_aliases[] = {{"global", "fleet"},   {"cluster", "fleet"},   {"redis", "fleet"},
                                                  {"shared", "fleet"},   {"local", "process"},   {"node", "process"},
                                                  {"memory", "process"}, {"instance", "process"}};
static const struct word_alias outage_aliases[] = {{"fail_open", "open"},     {"allow", "open"},    {"pass", "open"},
                                                   {"fail_closed", "closed"}, {"deny", "closed"},   {"close", "closed"},
                                                   {"block", "closed"},       {"process", "local"}, {"even", "share"}};

#define WORDS(names_, aliases_)                                                                                        \
    {                                                                                                                  \
        .names = (names_), .count = COUNT(names_), .aliases = (aliases_), .alias_count = COUNT(aliases_)               \
    }
const struct words algorithm_words = WORDS(algorithm_names, algorithm_aliases);
const struct words calendar_words = {.names = calendar_names,
                                     .count = COUNT(calendar_names),
                                     .aliases = calendar_aliases,
                                     .alias_count = COUNT(calendar_aliases),
                                     .note = "Windows begin at multiples of a period since 1970, of 7d on Thursdays"};
const struct words mode_words = WORDS(mode_names, mode_aliases);
const struct words scope_words = WORDS(scope_names, scope_aliases);
const struct words outage_words = WORDS(outage_names, outage_aliases);
