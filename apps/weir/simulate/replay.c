/* SPDX-License-Identifier: Apache-2.0 */
/* See replay.h. */
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "../policy_probe.h"
#include "key_text.h"
#include "policy/words.h"

#define MS_PER_S 1000

/*
 * So many requests before a request is played its client is asked for, and as many before that the slot that leads to
 * the client. The memory comes while other requests are played. bench/simulate.py measures it.
 */
#define AHEAD ((size_t) 8)

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    (void) number;
    interrupted = 1;
}

void replay_catch_interrupt(void)
{
    /* Without SA_RESTART: a read that waits ends. A second SIGINT kills. */
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int) SA_RESETHAND};
    (void) sigaction(SIGINT, &action, NULL);
}

/* No policy of that name, or more than one and none was named. */
static int fail_policy(const struct listed_policies *list, const char *path, const char *name)
{
    const char *names[WEIR_MAX_POLICIES];
    char all[400];
    for (size_t i = 0; i < list->count; i++) {
        names[i] = list->all[i].name;
    }
    const struct words words = {.names = names, .count = list->count};
    (void) words_list(&words, all, sizeof(all));
    const char *meant = name != NULL ? words_meant(&words, name) : NULL;
    if (name == NULL) {
        (void) fprintf(stderr, "weir simulate: %s has several policies; give --policy=NAME, one of %s\n", path, all);
    } else if (meant != NULL) {
        (void) fprintf(stderr, "weir simulate: %s has no policy \"%s\"; did you mean \"%s\"?\n", path, name, meant);
    } else {
        (void) fprintf(stderr, "weir simulate: %s has no policy \"%s\"; give one of %s\n", path, name, all);
    }
    return CODE_USAGE;
}

/* The policy of a name; without one, the only policy, whose tiers do not count. */
static const weir_policy *choose_policy(const struct listed_policies *list, const char *name)
{
    const weir_policy *only = NULL;
    if (name != NULL) {
        return listed_policies_find(list, name, strlen(name));
    }
    for (size_t i = 0; i < list->count; i++) {
        if (strchr(list->all[i].name, '/') == NULL) {
            if (only != NULL) {
                return NULL;
            }
            only = &list->all[i].policy;
        }
    }
    return only;
}

/* Reads a policy file. Returns an exit code. */
static int open_side(struct side *side, const char *path, const char *name, const struct choices *c, struct output *out)
{
    weir *probe = NULL;
    weir_error error;
    unsigned prefix = 0;
    int result = engine_probe(path, NULL, &prefix, &probe, &error);
    /* The overrides of the file are read anew when the policy is known whose keys may be addresses. */
    if (result == 0 && !listed_policies_take(&side->list, probe)) {
        result = -ENOMEM;
        (void) snprintf(error.message, sizeof(error.message), "out of memory");
    }
    weir_close(probe);
    if (result != 0) {
        output_fault(out, error.message);
        return policy_probe_is_bad(result) ? CODE_BAD : CODE_UNASKED;
    }
    side->policy = choose_policy(&side->list, name);
    if (side->policy == NULL) {
        return fail_policy(&side->list, path, name);
    }
    prefix = c->selection.key == KEY_ADDRESS ? c->selection.prefix : 0;
    probe = NULL;
    result = engine_probe(path, side->policy->name, &prefix, &probe, &error);
    weir_close(probe);
    side->options = (struct engine_options){
        .path = path, .policy = side->policy->name, .nodes = c->nodes, .max_keys = c->max_keys, .prefix = prefix};
    if (result != 0) {
        output_fault(out, error.message);
    }
    return result == 0 ? CODE_GOOD : CODE_UNASKED;
}

int replay_open(struct replay *r, const struct choices *choices, struct output *out)
{
    *r = (struct replay){.choices = choices, .side_count = choices->against != NULL ? 2 : 1};
    int code = open_side(&r->sides[SIDE_NEW], choices->policies, choices->policy, choices, out);
    if (code == CODE_GOOD && choices->against != NULL) {
        code = open_side(&r->sides[SIDE_OLD], choices->against, r->sides[SIDE_NEW].policy->name, choices, out);
    }
    if (code != CODE_GOOD) {
        return code;
    }
    const weir_policy *policy = r->sides[SIDE_NEW].policy;
    for (size_t i = 0; i < policy->limit_count; i++) {
        candidates_init(&r->candidates[i], &policy->limits[i]);
    }
    timeline_init(&r->timeline);
    if (!clients_open(&r->clients, choices->max_keys, policy->limit_count)) {
        output_fault(out, "weir simulate: out of memory; give a smaller --max-keys");
        return CODE_UNASKED;
    }
    r->decisions = choices->decisions != NULL ? fopen(choices->decisions, "we") : NULL;
    if (choices->decisions != NULL && r->decisions == NULL) {
        output_fault_of(out, choices->decisions, strerror(errno));
        return CODE_OUTPUT;
    }
    return CODE_GOOD;
}

void replay_close(struct replay *r)
{
    for (size_t i = 0; i < SIDES; i++) {
        engine_close(r->sides[i].engine);
        listed_policies_free(&r->sides[i].list);
    }
    clients_close(&r->clients);
    if (r->decisions != NULL) {
        (void) fclose(r->decisions);
    }
}

bool replay_pause(void *arg)
{
    struct replay *r = arg;
    progress_show(&r->progress);
    r->interrupted = r->interrupted || interrupted != 0;
    return !r->failed && !r->interrupted;
}

static void note_denial(struct client *client, uint64_t time_ms, bool denied)
{
    if (!denied) {
        client->stretched = false;
        return;
    }
    if (client->denied++ == 0) {
        client->first_ms = time_ms;
    }
    if (!client->stretched) {
        client->stretched = true;
        client->stretch_ms = time_ms;
    }
    client->last_ms = time_ms;
    const uint64_t stretch_ms = time_ms - client->stretch_ms;
    client->longest_ms = stretch_ms > client->longest_ms ? stretch_ms : client->longest_ms;
}

static void note_rate(struct client *client, uint64_t time_ms)
{
    const uint32_t second = (uint32_t) (time_ms / MS_PER_S);
    if (client->second != second) {
        client->second = second;
        client->in_second = 0;
    }
    client->in_second++;
    client->peak = client->in_second > client->peak ? client->in_second : client->peak;
}

static void write_decision(struct replay *r, const struct request *q, const enum decision decisions[SIDES])
{
    static const char *const words[] = {
        [DECISION_DENIED] = "denied", [DECISION_ADMITTED] = "admitted", [DECISION_DELAYED] = "delayed"};
    char text[KEY_TEXT_SIZE];
    (void) fprintf(r->decisions, "%" PRIu64 ",%s,%" PRIu64 ",%s", q->time_ms,
                   key_text(text, q->key, q->length, q->address), q->cost, words[decisions[SIDE_NEW]]);
    (void) fprintf(r->decisions, "%s%s\n", r->side_count > 1 ? "," : "",
                   r->side_count > 1 ? words[decisions[SIDE_OLD]] : "");
}

/* Decides a request, and counts it. */
static void play(struct replay *r, const struct request *q, uint64_t hash, size_t number)
{
    enum decision decisions[SIDES] = {DECISION_ADMITTED, DECISION_ADMITTED};
    bool denied[SIDES] = {false, false};
    for (size_t i = 0; i < r->side_count; i++) {
        struct side *side = &r->sides[i];
        decisions[i] = engine_decide(side->engine, number);
        denied[i] = decisions[i] == DECISION_DENIED;
        side->denied += denied[i];
        side->denied_units += denied[i] ? q->cost : 0;
        side->delayed += decisions[i] == DECISION_DELAYED;
    }
    r->denied_both += denied[SIDE_NEW] && denied[SIDE_OLD];
    timeline_add(&r->timeline, q->time_ms, denied[SIDE_NEW], denied[SIDE_OLD]);
    const struct client_key key = {hash, q->key, q->length, q->address};
    struct client *client = clients_get(&r->clients, &key, denied[SIDE_NEW] || denied[SIDE_OLD]);
    if (client != NULL) {
        struct candidate_row *rows = clients_rows(&r->clients, client);
        client->requests++;
        client->denied_old += denied[SIDE_OLD];
        note_denial(client, q->time_ms, denied[SIDE_NEW]);
        note_rate(client, q->time_ms);
        for (size_t i = 0; i < r->clients.row_count && clients_sampled(&r->clients, client); i++) {
            candidates_offer(&r->candidates[i], &rows[i], q->time_ms, q->cost);
        }
    }
    if (r->decisions != NULL) {
        write_decision(r, q, decisions);
    }
}

static bool open_engines(struct replay *r, uint64_t start_ms)
{
    for (size_t i = 0; i < r->side_count; i++) {
        struct side *side = &r->sides[i];
        side->engine = engine_open(&side->options, start_ms, &r->error);
        if (side->engine == NULL) {
            r->failed = true;
            return false;
        }
    }
    r->first_ms = start_ms;
    return true;
}

/* Asks for the memory that a request needs first. Returns the hash of its key. */
static uint64_t prepare(struct replay *r, const struct request *q, size_t number)
{
    for (size_t i = 0; i < r->side_count; i++) {
        engine_prepare(r->sides[i].engine, number);
    }
    const uint64_t hash = clients_hash(&r->clients, q->key, q->length);
    clients_prefetch_slot(&r->clients, hash);
    r->units += q->cost;
    return hash;
}

void replay_take(void *arg, const struct request *requests, size_t count)
{
    struct replay *r = arg;
    uint64_t hashes[MERGE_BATCH];
    if (r->failed || (r->sides[SIDE_NEW].engine == NULL && !open_engines(r, requests[0].time_ms))) {
        return;
    }
    for (size_t i = 0; i < r->side_count; i++) {
        engine_begin(r->sides[i].engine, requests);
    }
    for (size_t i = 0; i < count + 2 * AHEAD; i++) {
        if (i < count) {
            hashes[i] = prepare(r, &requests[i], i);
        }
        if (i >= AHEAD && i - AHEAD < count) {
            clients_prefetch_client(&r->clients, hashes[i - AHEAD]);
        }
        if (i >= 2 * AHEAD) {
            play(r, &requests[i - 2 * AHEAD], hashes[i - 2 * AHEAD], i - 2 * AHEAD);
        }
    }
    r->requests += count;
    r->last_ms = requests[count - 1].time_ms;
}
