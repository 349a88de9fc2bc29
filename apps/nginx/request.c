/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See request.h.
 *
 * A request takes a place in the queue of each of its limits, or of none. So all queues but the last are asked first,
 * and nothing is taken while one of them refuses. Then places are taken one after the other. Another worker may take
 * the last place of a queue in between; then the places taken are given back.
 *
 * Checks of policies come first, in one decision. What they took is given back where a limit refuses.
 *
 * A location with `weir_ask_again on` decides a request that was decided before: by the checks and limits that it was
 * not asked for yet, all of them or none. Each such decision is a round. A request that one refuses gets back what it
 * took in the rounds before, as a refused request takes nothing. A subrequest that is refused takes nothing either, and
 * the request goes on with what it has.
 */
#include "request.h"

#include "address.h"
#include "charge.h"
#include "check.h"
#include "instance.h"
#include "policies.h"
#include "request_state.h"
#include "sentences.h"
#include "wait.h"
#include "zone.h"

/* A limit of the location, with the request's key. */
struct queue {
    const struct limit *limit;
    const struct zone *zone;
    weir_key key;
    uint64_t wait_ns; /* of the request in this queue */
};

/* Limits of one request that need no memory of its pool. */
#define FEW_QUEUES 4

/* The queues of one request. */
struct queues {
    struct queue few[FEW_QUEUES];
    struct queue *all;
    size_t count;
};

/*
 * What a request was asked for in one location.
 *
 * before   the round before; NULL: there was none
 * taken    it took what it was asked for; else it was refused, and takes nothing
 * refused  the request ends
 */
struct round {
    const struct round *before;
    struct checked *checked;
    const struct queue *queues;
    size_t queue_count;
    bool taken;
    bool refused;
};

/* What was decided, and the policy or the limit that did; policy NULL: the limit. `again`: not for the first time. */
struct decision {
    bool refused;
    bool again;
    ngx_msec_t delay;
    const ngx_str_t *policy;
    struct excess excess;
};

/*
 * The text of a zone's key. That of a single variable is the variable's own: a copy of it takes 200 instructions. The
 * bytes stay for as long as the request is being decided.
 */
static inline ngx_int_t find_key_text(ngx_http_request_t *r, const struct zone *zone, ngx_str_t *out)
{
    if (zone->address != NULL) {
        const struct asker asker = http_asker(r);
        return address_key(&asker, zone->address, out) ? NGX_OK : NGX_ERROR;
    }
    if (zone->variable == NGX_ERROR) {
        return ngx_http_complex_value(r, zone->key.compiled, out);
    }
    const ngx_http_variable_value_t *value = ngx_http_get_flushed_variable(r, (ngx_uint_t) zone->variable);
    *out = value != NULL && !value->not_found ? (ngx_str_t){value->len, value->data} : (ngx_str_t){0, NULL};
    return NGX_OK;
}

/* Notes that a zone counts nothing of a request, as its key is empty. */
static ngx_int_t note_unkeyed(ngx_http_request_t *r, const struct zone *zone)
{
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_str_t *names = request_state_unkeyed(r);
    if (names != NULL) {
        unkeyed_note(instance_unkeyed(http->block.instance), r->pool, names, &zone->name, zone->policy);
    }
    return NGX_DECLINED;
}

/* As note_unkeyed(), of checks. */
static void note_unkeyed_checks(ngx_http_request_t *r, const struct checked *checked)
{
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_str_t *names = checked->unkeyed != 0 ? request_state_unkeyed(r) : NULL;
    if (names != NULL) {
        check_note_unkeyed(checked, instance_unkeyed(http->block.instance), r->pool, names);
    }
}

/* The key of a request in a zone. NGX_DECLINED: it is empty, and the zone does not count. */
static inline ngx_int_t make_key(ngx_http_request_t *r, struct zone *zone, const weir *w, weir_key *out)
{
    ngx_str_t text;
    if (find_key_text(r, zone, &text) != NGX_OK) {
        return NGX_ERROR;
    }
    if (text.len == 0) {
        return note_unkeyed(r, zone);
    }
    *out = weir_make_key(w, zone->policy, text.data, text.len);
    return NGX_OK;
}

/* The queues of all limits that count. */
static ngx_int_t find_queues(ngx_http_request_t *r, const struct location *location, const weir *w,
                             struct queues *queues)
{
    struct limit *const *limits = location->limits.elts;
    const ngx_uint_t most = location->limits.nelts;
    queues->count = 0;
    queues->all = most <= FEW_QUEUES ? queues->few : ngx_palloc(r->pool, most * sizeof(*queues->all));
    if (queues->all == NULL) {
        return NGX_ERROR;
    }
    for (ngx_uint_t i = 0; i < most; i++) {
        struct queue *queue = &queues->all[queues->count];
        struct zone *zone = limits[i]->shm_zone->data;
        *queue = (struct queue){.limit = limits[i], .zone = zone};
        const ngx_int_t found = make_key(r, zone, w, &queue->key);
        if (found == NGX_ERROR) {
            return NGX_ERROR;
        }
        queues->count += found == NGX_OK;
    }
    return NGX_OK;
}

/* Asks for a place with a cost of 0, or takes it with a cost of 1. */
static bool queue_has_place(weir_thread *thread, struct queue *queue, uint64_t cost)
{
    return weir_reserve(thread, &queue->key, cost, queue->limit->longest_wait_ns, &queue->wait_ns);
}

/* Takes a place in each queue, or none. Returns the number of places: fewer than queues where that one refused. */
static size_t take_places(weir_thread *thread, struct queues *queues)
{
    for (size_t i = 0; i + 1 < queues->count; i++) {
        if (!queue_has_place(thread, &queues->all[i], 0)) {
            return i;
        }
    }
    for (size_t i = 0; i < queues->count; i++) {
        if (!queue_has_place(thread, &queues->all[i], 1)) {
            for (size_t taken = 0; taken < i; taken++) {
                weir_refund(thread, &queues->all[taken].key, 1);
            }
            return i;
        }
    }
    return queues->count;
}

/* To the nearest. */
static ngx_msec_t to_msec(uint64_t ns)
{
    return (ns + 500000) / 1000000;
}

/* Milliseconds that a place means: what is beyond the delay waits. */
static inline ngx_msec_t place_delay(const struct limit *limit, uint64_t wait_ns)
{
    return wait_ns <= limit->undelayed_ns ? 0 : to_msec(wait_ns - limit->delay_ns);
}

static void set_excess(struct decision *decision, const struct queue *queue)
{
    decision->excess = (struct excess){queue->limit->shm_zone, queue->zone->rate, queue->wait_ns};
}

/* Decides by the limits. The longest delay of all counts, as all have to be kept. */
static struct decision decide_limits(weir_thread *thread, struct queues *queues)
{
    struct decision decision = {.refused = false};
    const size_t places = take_places(thread, queues);
    if (places < queues->count) {
        decision.refused = true;
        set_excess(&decision, &queues->all[places]);
        return decision;
    }
    for (size_t i = queues->count; i-- != 0;) {
        const ngx_msec_t delay = place_delay(queues->all[i].limit, queues->all[i].wait_ns);
        if (delay > decision.delay) {
            decision.delay = delay;
            set_excess(&decision, &queues->all[i]);
        }
    }
    return decision;
}

/* Decides by the checks, and by the limits. */
static struct decision decide(weir_thread *thread, struct checked *checked, struct queues *queues)
{
    if (!check_decide(thread, checked)) {
        return (struct decision){.refused = true, .policy = &checked->policy->name};
    }
    struct decision decision = decide_limits(thread, queues);
    if (decision.refused) {
        check_take_back(thread, checked);
    } else if (to_msec(checked->wait_ns) > decision.delay) {
        decision.delay = to_msec(checked->wait_ns);
        decision.policy = &checked->policy->name;
    }
    return decision;
}

/* A subrequest that is refused after its request was decided refuses nothing but itself. */
static void set_status(ngx_http_request_t *r, const struct decision *decision, enum request_status status)
{
    if (!decision->again) {
        request_state_set(r, status);
    } else if (r == r->main || status != REQUEST_REJECTED) {
        request_state_add(r, status);
    }
}

static ngx_int_t refuse(ngx_http_request_t *r, const struct location *location, const struct decision *decision)
{
    if (decision->policy != NULL) {
        sentences_denied(r, location, decision->policy);
    } else {
        sentences_limiting(r, location, &decision->excess);
    }
    set_status(r, decision, location->dry_run ? REQUEST_REJECTED_DRY_RUN : REQUEST_REJECTED);
    if (location->dry_run) {
        return NGX_DECLINED;
    }
    return (ngx_int_t) (decision->policy != NULL ? location->check_status_code : location->status_code);
}

/* Does with the request what was decided. */
static ngx_int_t act(ngx_http_request_t *r, const struct location *location, const struct decision *decision)
{
    if (decision->refused) {
        return refuse(r, location, decision);
    }
    if (decision->delay == 0) {
        set_status(r, decision, REQUEST_PASSED);
        return NGX_DECLINED;
    }
    if (decision->policy != NULL) {
        sentences_queued(r, location, decision->policy);
    } else {
        sentences_delaying(r, location, &decision->excess);
    }
    set_status(r, decision, location->dry_run ? REQUEST_DELAYED_DRY_RUN : REQUEST_DELAYED);
    return location->dry_run ? NGX_DECLINED : wait_begin(r, decision->delay);
}

/* What a location without checks asks; nothing changes it. */
static struct checked no_checks;

static bool has_queue(const struct round *round, const struct zone *zone)
{
    size_t i = 0;
    while (i < round->queue_count && round->queues[i].zone != zone) {
        i++;
    }
    return i < round->queue_count;
}

/* Leaves out what the request was asked for in a round. */
static void leave_out(const struct round *round, struct checked *checked, struct queues *queues)
{
    size_t kept = 0;
    for (size_t i = 0; i < queues->count; i++) {
        if (!has_queue(round, queues->all[i].zone)) {
            queues->all[kept++] = queues->all[i];
        }
    }
    queues->count = kept;
    if (checked->count != 0) {
        check_leave_out(checked, round->checked);
    }
}

/* A round of the request, in memory of its pool; NULL: there is none. */
static struct round *make_round(ngx_http_request_t *r, const struct round *before, struct checked *checked,
                                const struct queues *queues)
{
    struct round *round = ngx_palloc(r->pool, sizeof(*round));
    struct queue *kept = ngx_palloc(r->pool, (queues->count + 1) * sizeof(*kept));
    if (round == NULL || kept == NULL) {
        return NULL;
    }
    ngx_memcpy(kept, queues->all, queues->count * sizeof(*kept));
    *round = (struct round){.before = before, .checked = checked, .queues = kept, .queue_count = queues->count};
    return request_state_keep_round(r, round) == NGX_OK ? round : NULL;
}

/* Gives back what the request took in a round, and in those before. */
static void take_back(weir_thread *thread, const struct round *round)
{
    for (; round != NULL; round = round->before) {
        if (round->taken) {
            check_take_back(thread, round->checked);
        }
        for (size_t i = 0; i < round->queue_count && round->taken; i++) {
            weir_refund(thread, &round->queues[i].key, 1);
        }
    }
}

/* Of several decisions clients are told the one that refused, or else the one with the least left. */
static void tell_strictest(ngx_http_request_t *r, const struct location *location, const struct decision *decision,
                           const struct checked *checked)
{
    const struct checked *told = request_state_checked(r);
    if (checked->policy != NULL && (decision->refused || told == NULL || told->policy == NULL ||
                                    checked->verdict.remaining < told->verdict.remaining)) {
        (void) request_state_keep(r, location, checked); /* there is a state, of the round before */
    }
}

/* What a round comes to, beside its decision. */
static void end_round(ngx_http_request_t *r, const struct location *location, const struct decision *decision,
                      struct round *round, weir_thread *thread)
{
    const bool refused = decision->refused && !location->dry_run;
    round->taken = !decision->refused;
    round->refused = refused;
    if (refused && r != r->main) {
        (void) request_state_keep_round(r, round->before); /* the next subrequest is asked anew */
        return;
    }
    if (refused) {
        take_back(thread, round->before);
    }
    if (decision->again) {
        tell_strictest(r, location, decision, round->checked);
    }
}

/* Decides by all limits and checks of the location. */
static ngx_int_t decide_all(ngx_http_request_t *r, const struct location *location, weir_thread *thread, const weir *w)
{
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    const struct round *before = http->asks_again ? request_state_round(r) : NULL;
    const struct asker asker = http_asker(r);
    struct queues queues;
    struct checked *checked = location->list.checks.nelts != 0 ? check_prepare(&asker, &location->list, w) : &no_checks;
    if (checked == NULL || find_queues(r, location, w, &queues) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    note_unkeyed_checks(r, checked);
    for (const struct round *round = before; round != NULL; round = round->before) {
        leave_out(round, checked, &queues);
    }
    if (queues.count + checked->count == 0) {
        return NGX_DECLINED;
    }
    struct round *round = http->asks_again ? make_round(r, before, checked, &queues) : NULL;
    if ((http->asks_again && round == NULL) ||
        (before == NULL && checked->count != 0 && request_state_keep(r, location, checked) != NGX_OK)) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    struct decision decision = decide(thread, checked, &queues);
    if (round != NULL) {
        decision.again = request_state_is_decided(r);
        end_round(r, location, &decision, round, thread);
    }
    return act(r, location, &decision);
}

/* The same by one limit, as most locations have it: with a third of the instructions. */
static ngx_int_t decide_one(ngx_http_request_t *r, const struct location *location, weir_thread *thread, const weir *w)
{
    const struct limit *limit = *(struct limit *const *) location->limits.elts;
    struct zone *zone = limit->shm_zone->data;
    weir_key key;
    uint64_t wait_ns;
    const ngx_int_t made = make_key(r, zone, w, &key);
    if (made != NGX_OK) {
        return made == NGX_DECLINED ? NGX_DECLINED : NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    const bool refused = !weir_reserve(thread, &key, 1, limit->longest_wait_ns, &wait_ns);
    const ngx_msec_t delay = refused ? 0 : place_delay(limit, wait_ns);
    if (!refused && delay == 0) {
        request_state_set(r, REQUEST_PASSED);
        return NGX_DECLINED;
    }
    const struct decision decision = {
        .refused = refused, .delay = delay, .excess = {limit->shm_zone, zone->rate, wait_ns}};
    return act(r, location, &decision);
}

/* Whether a request that was decided is asked here for what it was not asked for yet. */
static bool asks_again(const ngx_http_request_t *r, const struct location *location)
{
    const struct round *round = location->ask_again == 1 ? request_state_round(r) : NULL;
    return location->ask_again == 1 && (round == NULL || !round->refused);
}

ngx_int_t request_handler(ngx_http_request_t *r)
{
    const struct location *location = ngx_http_get_module_loc_conf(r, ngx_http_weir_module);
    const ngx_uint_t limit_count = location->limits.nelts;
    const ngx_uint_t check_count = location->list.checks.nelts;
    const bool decided = limit_count + check_count != 0 && request_state_is_decided(r);
    if (limit_count + check_count == 0 || (decided && !asks_again(r, location))) {
        return NGX_DECLINED;
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    ngx_log_t *log = r->connection->log;
    weir_thread *thread =
        decided ? instance_thread(http->block.instance, log) : instance_ask(http->block.instance, log);
    if (thread == NULL) {
        request_state_add(r, REQUEST_PASSED); /* and counts once, whatever redirects follow */
        return NGX_DECLINED;
    }
    const weir *w = instance_weir(http->block.instance);
    return check_count == 0 && limit_count == 1 && !http->asks_again ? decide_one(r, location, thread, w)
                                                                     : decide_all(r, location, thread, w);
}

/* Charges for the checks of one decision. False: no memory. */
static bool charge(ngx_http_request_t *r, const struct checked *checked)
{
    if (checked == NULL || checked->count == 0 || checked->list->charges.nelts == 0) {
        return true;
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    weir_thread *thread = instance_thread(http->block.instance, r->connection->log);
    const struct asker asker = http_asker(r);
    return thread == NULL || charge_all(&asker, checked, thread);
}

ngx_int_t request_log_handler(ngx_http_request_t *r)
{
    /* With log_subrequest nginx logs subrequests, too. */
    if (r != r->main || !request_state_passed(r)) {
        return NGX_OK;
    }
    const struct http_weir *http = ngx_http_get_module_main_conf(r, ngx_http_weir_module);
    if (!http->asks_again) {
        return charge(r, request_state_checked(r)) ? NGX_OK : NGX_ERROR;
    }
    bool done = true;
    for (const struct round *round = request_state_round(r); round != NULL; round = round->before) {
        done = charge(r, round->checked) && done;
    }
    return done ? NGX_OK : NGX_ERROR;
}
