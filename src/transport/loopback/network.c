/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a fleet within one process.
 *
 * The delay of a request is drawn when the request is sent. Requests wait in one queue, by the time of their arrival.
 * Each step of any node applies the requests that have arrived by now. So rounds take effect in the order of arrival,
 * whichever node is stepped first. The answer is the same message with its replies, on its way back.
 */
#include "transport/loopback/network.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "transport/redis/answer.h"
#include "transport/redis/batch.h"
#include "transport/redis/script_call.h"

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
    return link->delay_min_ns + (range_ns != 0 ? network_random(&t->redis.random, range_ns + 1) : 0);
}

static void message_free(struct message *message)
{
    if (message == NULL) {
        return;
    }
    for (size_t i = 0; i < message->count; i++) {
        free(message->calls[i].words);
        if (message->calls[i].reply != NULL) {
            freeReplyObject(message->calls[i].reply);
        }
    }
    free(message->calls);
    free(message);
}

/* A copy of the words of a call. NULL: out of memory. */
static struct script_words *words_copy(enum script script, const struct command *command)
{
    const size_t count = (size_t) command->argc;
    size_t size = sizeof(struct script_words) + count * (sizeof(char *) + sizeof(size_t));
    for (size_t i = 0; i < count; i++) {
        size += command->lengths[i] + 1;
    }
    struct script_words *words = malloc(size);
    if (words == NULL) {
        return NULL;
    }
    const char **argv = (const char **) (words + 1);
    size_t *lengths = (size_t *) (argv + count);
    char *bytes = (char *) (lengths + count);
    *words = (struct script_words){script, {command->argc, argv, lengths}};
    for (size_t i = 0; i < count; i++) {
        memcpy(bytes, command->argv[i], command->lengths[i]);
        bytes[command->lengths[i]] = '\0';
        argv[i] = bytes;
        lengths[i] = command->lengths[i];
        bytes += lengths[i] + 1;
    }
    return words;
}

/* The calls of the round under way. NULL: out of memory. */
static struct message *message_make(struct loopback_transport *t)
{
    const size_t count = t->redis.batch_count;
    struct message *message = calloc(1, sizeof(*message));
    if (message == NULL) {
        return NULL;
    }
    message->calls = calloc(count, sizeof(*message->calls));
    bool complete = message->calls != NULL;
    message->count = complete ? count : 0;
    for (size_t i = 0; i < count && complete; i++) {
        const struct batch *batch = &t->redis.batches[i];
        if (batch->script < SCRIPT_WINDOW || batch->count != 0) {
            const struct command command = script_call_words(&t->redis, batch);
            message->calls[i].words = words_copy(batch->script, &command);
            complete = message->calls[i].words != NULL;
        }
    }
    if (!complete) {
        message_free(message);
        return NULL;
    }
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

/* Bytes of a message as Redis is sent it. */
static uint64_t message_size(const struct message *message)
{
    uint64_t size = 0;
    for (size_t i = 0; i < message->count; i++) {
        if (message->calls[i].words == NULL) {
            continue;
        }
        const struct command *command = &message->calls[i].words->command;
        char digits[DECIMAL_SIZE];
        size += 3 + decimal_write(digits, (uint64_t) command->argc); /* "*", CR LF */
        for (int n = 0; n < command->argc; n++) {
            size += 5 + decimal_write(digits, command->lengths[n]) + command->lengths[n]; /* "$", CR LF, CR LF */
        }
    }
    return size;
}

/* Sends a second copy, whose answer is not delivered. */
static void send_duplicate(struct loopback_transport *t, uint64_t due_ns)
{
    struct message *copy = message_make(t);
    if (copy != NULL) {
        copy->due_ns = due_ns + network_random(&t->redis.random, t->link.duplicate_delay_ns + 1);
        t->fleet->counts.duplicated++;
        enqueue(t->fleet, copy);
    }
}

/* Takes the reports that the fleet refuses, or of which nothing is heard, out of their batches. */
static void withhold_reports(struct loopback_transport *t)
{
    const struct loopback_fleet *fleet = t->fleet;
    for (size_t i = 0; i < t->redis.batch_count; i++) {
        struct batch *batch = &t->redis.batches[i];
        uint32_t *order = t->redis.report_order + batch->first;
        uint32_t kept = 0;
        for (uint32_t n = 0; n < batch->count; n++) {
            struct report *report = &t->redis.round->reports[order[n]];
            if (fleet->refused[0] != '\0' && strstr(report->record, fleet->refused) != NULL) {
                report->status = fleet->refusal;
            } else if (happens(&t->redis.random, t->link.unsaid_ppm)) {
                report->status = -EAGAIN;
            } else {
                order[kept++] = order[n];
            }
        }
        batch->count = kept;
    }
}

bool network_send(struct loopback_transport *t)
{
    struct loopback_fleet *fleet = t->fleet;
    struct round *round = t->redis.round;
    if (batch_make(&t->redis, t->stepped_ns) != 0) {
        return false;
    }
    withhold_reports(t);
    struct message *message = message_make(t);
    if (message == NULL) {
        return false;
    }
    round->sent_size = message_size(message);
    fleet->counts.rounds++;
    fleet->counts.reports += round->report_count;
    fleet->counts.size += round->sent_size;
    message->due_ns = network_time(fleet) + draw_delay(t);
    /* All numbers are drawn in every case, so that one setting does not change the draws of another. */
    const bool lost = happens(&t->redis.random, t->link.requests_lost_ppm);
    const bool twice = happens(&t->redis.random, t->link.duplicates_ppm);
    message->answer_lost = happens(&t->redis.random, t->link.answers_lost_ppm);
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

/* Runs the calls of a message that has arrived. */
static void apply_message(struct loopback_fleet *fleet, struct message *message)
{
    const uint64_t now_ns = fleet->wall_ns(fleet->arg);
    for (size_t i = 0; i < message->count; i++) {
        struct message_call *call = &message->calls[i];
        if (call->words != NULL) {
            call->reply = script_host_call(fleet->host, call->words->script, &call->words->command, now_ns);
        }
    }
    message->run = fleet->run;
    fleet->counts.applied++;
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
    apply_message(fleet, message);
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
    const struct message *answer = t->answer;
    (void) snprintf(t->server.identity, sizeof(t->server.identity), "run %" PRIu64, answer->run);
    for (uint32_t i = 0; i < answer->count; i++) {
        struct batch *batch = &t->redis.batches[i];
        const struct message_call *call = &answer->calls[i];
        const bool replied =
            call->reply != NULL && answer_read(&t->redis, &t->server, batch, call->reply, t->stepped_ns) == ANSWER_GOOD;
        const bool good = call->words == NULL || replied;
        if (good) {
            batch->state = BATCH_DONE;
        } else {
            batch_lost(&t->redis, i);
        }
    }
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
