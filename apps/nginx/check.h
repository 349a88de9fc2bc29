/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir: what a location asks of a policy of the file, or a server of streams.
 *
 * All checks of one place are one decision: a request takes the units of all of them, or of none.
 */
#ifndef WEIR_NGINX_CHECK_H
#define WEIR_NGINX_CHECK_H

#include "nginx_weir.h"
#include "protocol.h"
#include "rare_line.h"
#include "unkeyed.h"

struct policy;

/* A tier that a check may choose: the text after the '/' of a policy's name. */
struct tier {
    ngx_str_t name;
    const struct policy *policy;
};

/*
 * policy_name  as the directive has it
 * address      that the key is; NULL: the key is text, or its policy has other keys as well
 * cost         not compiled: 1
 * tier         not compiled: the policy itself, whatever tiers it has
 * policy       found when all directives are read, as are the tiers
 * file, line   of the directive, for the error log
 * bad_cost     the line about a cost that is no number
 */
struct check {
    ngx_str_t policy_name;
    struct expression key;
    const struct address *address;
    struct expression cost;
    struct expression tier;
    struct policy *policy;
    ngx_array_t tiers; /* struct tier */
    ngx_str_t file;
    ngx_uint_t line;
    struct rare_line bad_cost;
};

/* What one place of the configuration has: struct check *, and struct charge. */
struct check_list {
    ngx_array_t checks;
    ngx_array_t charges;
};

/* A check of one request. */
struct asked {
    const struct check *check;
    const struct policy *policy; /* the check's, or one of its tiers */
    weir_key key;
    uint64_t cost;
};

/*
 * What the checks of one request came to. Lives in the request's pool.
 *
 * list      the place that decided
 * policy    the policy whose limit decided
 * verdict   of that policy; meaningless where `count` is 0
 * wait_ns   how long the request has to wait in the queue of its policy
 * unkeyed   a bit for each check of the list whose key is empty
 * asked     `count` of them: a check with an empty key does not count
 */
struct checked {
    const struct check_list *list;
    const struct policy *policy;
    weir_verdict verdict;
    uint64_t wait_ns;
    uint32_t unkeyed;
    size_t count;
    struct asked asked[WEIR_MAX_KEYS_AT_ONCE];
};

/* The handler of weir; the offset of the command is that of the list. */
char *check_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* A place without checks of its own has those outside, and their charges where it has none. */
void check_inherit(const struct check_list *outside, struct check_list *list);

/* When all directives are read: finds the policies of all checks. False: one is not in the file; the log says which. */
bool check_finish(const struct block *block, ngx_conf_t *cf);

/* The checks that a request makes; NULL: no memory. Nothing is decided yet. */
struct checked *check_prepare(const struct asker *asker, const struct check_list *list, const weir *w);

/* Notes the checks whose key is empty, as unkeyed_note(). */
void check_note_unkeyed(const struct checked *checked, struct unkeyed_counts *counts, ngx_pool_t *pool,
                        ngx_str_t *names);

/* Leaves out what was asked before, in another location: the same policy, by the same text of a key. */
void check_leave_out(struct checked *checked, const struct checked *before);

/* Decides, and takes the units of a request that may pass. A queue that is asked alone gives a time to wait. */
bool check_decide(weir_thread *thread, struct checked *checked);

/* The same decision for what cannot wait: a queue refuses what would have to. */
bool check_decide_at_once(weir_thread *thread, struct checked *checked);

/* Gives the units of a request back that passed its checks and was refused after that. */
void check_take_back(weir_thread *thread, struct checked *checked);

#endif
