/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a fleet within one process.
 *
 * The delay of a request is drawn when the request is sent. Requests wait in one queue, by the time of their arrival.
 * Each step of any node applies the requests that have arrived by now. So rounds take effect in the order of arrival,
 * whichever node is stepped first. The answer is the request's own copy, on its way back.
 */
#include "transport/loopback/network.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"

#define PPM 1000000 /* one in a million, the unit of a link model */

struct loopback_fleet *network_lock(const struct loopback_fleet *fleet)
{
    struct loopback_fleet *unlocked =
        (struct loopback_fleet *) (uintptr_t) fleet; /* a const fleet has a lock all the same */
    (void) pthread_mutex_lock(&unlocked->lock);
    return unlocked;
}

void network_unlock(struct loopback_fleet *fleet)
{
    (void) pthread_mutex_unlock(&fleet->lock);
}

/* splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. */
uint64_t network_random(uint64_t *state, uint64_t bound)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return bound != 0 ? hash_mix(*state) % bound : 0;
}

static bool happens(uint64_t *random, uint32_t ppm)
{
    return ppm != 0 && network_random(random, PPM) < ppm;
}

uint64_t network_time(struct loopback_fleet *fleet)
{
    const uint64_t now_ns =
        fleet->network_ns != NULL ? fleet->network_ns(fleet->network_arg) : fleet->wall_ns(fleet->arg);
    fleet->network_now_ns = max_u64(fleet->network_now_ns, now_ns); /* the shared clock may step back */
    return fleet->network_now_ns;
}

static uint64_t draw_delay(struct loopback_transport *t)
{
    const struct loopback_link *link = &t->link;
    const uint64_t range_ns = saturating_sub(link->delay_max_ns, link->delay_min_ns);
    return link->delay_min_ns + (range_ns != 0 ? network_random(&t->random, range_ns + 1) : 0);
}

static void message_free(struct message *message)
{
    if (message == NULL) {
        return;
    }
    if (message->round.overrides_new) {
        overrides_drop(message->round.overrides, message->round.override_count);
    }
    if (message->round.limits.news) {
        overrides_drop(message->round.limits.others, message->round.limits.other_count);
    }
    free(message->round.reports);
    free(message->logs);
    free(message);
}

static struct message *message_copy(struct loopback_transport *t)
{
    const struct round *round = t->round;
    size_t logs = 0;
    for (size_t i = 0; i < round->report_count; i++) {
        logs += round->reports[i].history != NULL;
    }
    struct message *message = calloc(1, sizeof(*message));
    if (message == NULL) {
        return NULL;
    }
    message->round = *round;
    message->round.overrides = NULL;
    message->round.overrides_new = message->round.limits.news = false;
    message->round.reports = malloc((round->report_count + 1) * sizeof(*round->reports));
    message->logs = malloc((logs + 1) * sizeof(*message->logs));
    if (message->round.reports == NULL || message->logs == NULL) {
        message_free(message);
        return NULL;
    }
    struct history_report *history = message->logs;
    for (size_t i = 0; i < round->report_count; i++) {
        struct report *report = &message->round.reports[i];
        *report = round->reports[i];
        if (report->history != NULL) {
            *history = *report->history;
            report->history = history++;
        }
    }
    (void) snprintf(message->node, sizeof(message->node), "%s", round->node);
    message->round.node = message->node;
    message->run = t->run;
    message->heartbeat_ns = t->heartbeat_ns;
    message->created_ns = t->created_ns;
    return message;
}

static void enqueue(struct loopback_fleet *fleet, struct message *message)
{
    struct message **at = &fleet->queue;
    message->number = ++fleet->message_count;
    while (*at != NULL && (*at)->due_ns <= message->due_ns) {
        at = &(*at)->next;
    }
    message->next = *at;
    *at = message;
}

/* Bytes of one argument of a Redis command. */
static uint64_t argument_size(size_t length)
{
    const size_t digits = 1U + (length >= 10 ? 1U : 0U) + (length >= 100 ? 1U : 0U);
    return length + 5 + digits; /* $, digits of the length, CR LF, CR LF */
}

static uint64_t number_size(uint64_t number)
{
    size_t digits = 1;
    while (number >= 10) {
        number /= 10;
        digits++;
    }
    return argument_size(digits);
}

/* The size of a report as Redis is sent it. */
static uint64_t report_size(const struct report *report)
{
    uint64_t size = argument_size(strlen(report->record)) + argument_size(strlen(report->author));
    if (report->kind == REPORT_HISTORY) {
        const struct history_report *history = report->history;
        size += number_size(history->first) + number_size(history->refund_from) + number_size(history->refund_to) +
                number_size(history->now_us) + number_size(history->period_us) + number_size(history->limit) +
                number_size(report->reset_us) + number_size(report->expire_ms) + number_size(history->time_count);
        return size + history->time_count * number_size(history->now_us);
    }
    size += number_size(report->count) + number_size(report->demand) + number_size(report->refunds) +
            number_size(report->reset_us) + number_size(report->reset_kept) + number_size(report->expire_ms);
    if (report->kind == REPORT_BUCKET) {
        size += number_size(report->acked) + number_size(report->acked_refunds) + number_size(report->known_refunds) +
                number_size(report->known) + number_size(report->tat_us) + number_size(report->from_us) +
                number_size(report->moves) + number_size(report->unit_ps);
    }
    return size;
}

/* Sends a second copy, whose answer is not delivered. */
static void send_duplicate(struct loopback_transport *t, uint64_t due_ns)
{
    struct message *copy = message_copy(t);
    if (copy != NULL) {
        copy->due_ns = due_ns + network_random(&t->random, t->link.duplicate_delay_ns + 1);
        t->fleet->counts.duplicated++;
        enqueue(t->fleet, copy);
    }
}

bool network_send(struct loopback_transport *t)
{
    struct loopback_fleet *fleet = t->fleet;
    struct message *message = message_copy(t);
    if (message == NULL) {
        return false;
    }
    t->round->sent_size = 0;
    for (size_t i = 0; i < t->round->report_count; i++) {
        t->round->sent_size += report_size(&t->round->reports[i]);
    }
    message->round.sent_size = t->round->sent_size;
    fleet->counts.rounds++;
    fleet->counts.reports += t->round->report_count;
    fleet->counts.size += t->round->sent_size;
    message->due_ns = network_time(fleet) + draw_delay(t);
    /* All numbers are drawn in every case, so that one setting does not change the draws of another. */
    const bool lost = happens(&t->random, t->link.requests_lost_ppm);
    const bool twice = happens(&t->random, t->link.duplicates_ppm);
    message->answer_lost = happens(&t->random, t->link.answers_lost_ppm);
    if (t->stuck && t->held == NULL) {
        message->from = t;
        t->request = t->held = message;
        return true;
    }
    if (t->cut || t->stuck || lost) {
        fleet->counts.lost++;
        message_free(message);
        return true;
    }
    if (twice) {
        send_duplicate(t, message->due_ns);
    }
    message->from = t;
    t->request = message;
    enqueue(fleet, message);
    return true;
}

static void answer_overrides(const struct loopback_fleet *fleet, struct round *round)
{
    char version[sizeof(round->overrides_version)];
    (void) snprintf(version, sizeof(version), "%llu", (unsigned long long) fleet->override_version);
    if (strcmp(version, round->overrides_version) == 0 ||
        (fleet->override_version == 0 && round->overrides_version[0] == '\0')) {
        return;
    }
    round->overrides = calloc(fleet->override_count + 1, sizeof(*round->overrides));
    if (round->overrides == NULL) {
        return;
    }
    /* The limits of scripts/overrides.lua. */
    size_t kept = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < fleet->override_count && kept < OVERRIDES_MAX; i++) {
        const struct override_text *entry = &fleet->overrides[i];
        const size_t size = strlen(entry->field) + strlen(entry->value);
        if (size <= OVERRIDE_SIZE_MAX && bytes + size <= OVERRIDES_SIZE_MAX) {
            round->overrides[kept++] =
                (struct override_text){.field = strdup(entry->field), .value = strdup(entry->value)};
            bytes += size;
        }
    }
    round->override_count = kept;
    round->overrides_left_out = fleet->override_count - kept;
    round->overrides_new = true;
    memcpy(round->overrides_version, version, sizeof(version));
}

static bool is_of_name(const char *text, const char *other)
{
    const size_t length = strcspn(text, "\n");
    return length == strcspn(other, "\n") && memcmp(text, other, length) == 0;
}

/* By the rules of scripts/limits.lua. `answers`: somebody gets the answer. */
static void answer_limits(struct loopback_fleet *fleet, struct round_limits *limits, uint64_t now_ns, bool answers)
{
    struct told_limits *own = NULL;
    struct told_limits *vacant = NULL;
    const bool stays = limits->life_ms != 0;
    bool changed = fleet->told_version == 0;
    for (size_t i = 0; i < TOLD_LIMITS_MAX; i++) {
        struct told_limits *told = &fleet->told[i];
        const bool is_own = strcmp(told->digest, limits->digest) == 0;
        const bool left = (is_own || strcmp(told->digest, limits->before) == 0) && is_of_name(told->text, limits->text);
        if (told->digest[0] != '\0' && !(is_own && stays) && (left || told->until_ns <= now_ns)) {
            told->digest[0] = '\0';
            changed = true;
        }
        own = told->digest[0] != '\0' && is_own ? told : own;
        vacant = told->digest[0] == '\0' ? told : vacant;
    }
    changed = changed || (own == NULL && stays);
    own = own != NULL ? own : vacant;
    if (own != NULL && stays) {
        memcpy(own->digest, limits->digest, sizeof(own->digest));
        memcpy(own->text, limits->text, sizeof(own->text));
        own->until_ns = now_ns + limits->life_ms * NS_PER_MS;
    }
    fleet->told_version += changed;
    char version[sizeof(limits->version)];
    (void) snprintf(version, sizeof(version), "%llu", (unsigned long long) fleet->told_version);
    limits->others =
        answers && strcmp(version, limits->version) != 0 ? calloc(TOLD_LIMITS_MAX, sizeof(*limits->others)) : NULL;
    limits->other_count = 0;
    limits->news = limits->others != NULL;
    for (size_t i = 0; i < TOLD_LIMITS_MAX && limits->news; i++) {
        if (fleet->told[i].digest[0] != '\0' && strcmp(fleet->told[i].digest, limits->digest) != 0) {
            limits->others[limits->other_count++].value = strdup(fleet->told[i].text);
        }
    }
    memcpy(limits->version, version, sizeof(version));
}

static void apply_round(struct loopback_fleet *fleet, struct message *message)
{
    struct round *round = &message->round;
    struct loopback_transport *t = message->from;
    const uint64_t now_ns = fleet->wall_ns(fleet->arg);
    const uint64_t last_ns = nodes_heartbeat(&fleet->nodes, round, now_ns);
    for (size_t i = 0; i < round->report_count; i++) {
        struct report *report = &round->reports[i];
        if (fleet->refused[0] != '\0' && strstr(report->record, fleet->refused) != NULL) {
            report->status = fleet->refusal;
        } else if (t != NULL && happens(&t->random, t->link.unsaid_ppm)) {
            report->status = -EAGAIN;
        } else {
            records_apply(&fleet->records, report, now_ns);
        }
    }
    fleet->counts.applied++;
    if (t != NULL) {
        answer_overrides(fleet, round);
    }
    if (round->limits.told) {
        answer_limits(fleet, &round->limits, now_ns, t != NULL);
    }
    const uint64_t failed_ns = message->heartbeat_ns + round->node_lifetime_ms * NS_PER_MS;
    const bool failed = last_ns == 0 && round->fleet_wall_ns > failed_ns; /* other nodes have removed the heartbeat */
    const bool older = last_ns < message->heartbeat_ns && round->fleet_wall_ns >= message->heartbeat_ns;
    round->lost_state =
        !round->first && !round->leaves &&
        ((older && !failed) || message->run != fleet->run || message->created_ns != fleet->nodes.created_ns);
    message->run = fleet->run;
    message->created_ns = fleet->nodes.created_ns;
    message->last_ns = last_ns;
}

/* Without a delay a round takes effect in its own node's step, whichever node is stepped before. */
static bool waits_for_sender(const struct message *message, const struct loopback_transport *stepped)
{
    const struct loopback_transport *t = message->from;
    return t != NULL && t != stepped && t->link.delay_max_ns == 0;
}

static void arrive(struct loopback_fleet *fleet, struct message *message, uint64_t now_ns)
{
    struct loopback_transport *t = message->from;
    if (t != NULL) {
        t->request = NULL;
    }
    if (fleet->down) {
        fleet->counts.lost++;
        message_free(message);
        return;
    }
    apply_round(fleet, message);
    /* With loses_answers the round fails at once; other lost answers end with a timeout. */
    if (t == NULL || t->cut || t->deaf || (message->answer_lost && !fleet->loses_answers)) {
        fleet->counts.answers_lost += t != NULL;
        message_free(message);
        return;
    }
    message->due_ns = now_ns + draw_delay(t) + fleet->slow_ns;
    t->answer = message;
}

void network_run(struct loopback_fleet *fleet, const struct loopback_transport *stepped)
{
    const uint64_t now_ns = network_time(fleet);
    struct message **at = &fleet->queue;
    while (!fleet->hung && *at != NULL && (*at)->due_ns <= now_ns) {
        struct message *message = *at;
        if (waits_for_sender(message, stepped)) {
            at = &message->next;
        } else {
            *at = message->next;
            arrive(fleet, message, now_ns);
        }
    }
}

void network_abandon(struct loopback_transport *t)
{
    if (t->request != NULL) {
        t->request->from = NULL;
        t->request = NULL;
    }
    message_free(t->answer);
    t->answer = NULL;
    t->round = NULL;
}

void network_release(struct loopback_transport *t)
{
    if (t->held != NULL) {
        t->held->due_ns = network_time(t->fleet) + draw_delay(t);
        enqueue(t->fleet, t->held);
        t->held = NULL;
    }
}

void network_deliver(struct loopback_transport *t)
{
    struct round *to = t->round;
    struct round *from = &t->answer->round;
    for (size_t i = 0; i < to->report_count; i++) {
        struct history_report *history = to->reports[i].history;
        if (history != NULL) {
            *history = *from->reports[i].history;
        }
        to->reports[i] = from->reports[i];
        to->reports[i].history = history;
    }
    to->fleet_wall_ns = from->fleet_wall_ns;
    to->ahead_ns = from->ahead_ns;
    to->live_nodes = from->live_nodes;
    to->suspect_nodes = from->suspect_nodes;
    to->watermark_ns = from->watermark_ns;
    to->lost_state = from->lost_state;
    memcpy(to->overrides_version, from->overrides_version, sizeof(to->overrides_version));
    to->overrides_new = from->overrides_new;
    to->overrides = from->overrides;
    to->override_count = from->override_count;
    to->overrides_left_out = from->overrides_left_out;
    from->overrides_new = false; /* the caller owns the overrides now */
    memcpy(to->limits.version, from->limits.version, sizeof(to->limits.version));
    to->limits.news = from->limits.news;
    to->limits.others = from->limits.others;
    to->limits.other_count = from->limits.other_count;
    from->limits.news = false;
    t->run = t->answer->run;
    /* A round that asks is no heartbeat: the next round has to find the heartbeat that was there. */
    const uint64_t told_ns = from->fleet_ns != 0 ? min_u64(from->fleet_ns, from->fleet_wall_ns) : from->fleet_wall_ns;
    t->heartbeat_ns = from->asks ? t->answer->last_ns : told_ns;
    t->created_ns = t->answer->created_ns;
    network_abandon(t);
}

void network_clear(struct loopback_fleet *fleet)
{
    while (fleet->queue != NULL) {
        struct message *next = fleet->queue->next;
        if (fleet->queue->from != NULL) {
            fleet->queue->from->request = NULL;
        }
        message_free(fleet->queue);
        fleet->queue = next;
    }
}
