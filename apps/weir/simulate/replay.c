/* SPDX-License-Identifier: Apache-2.0 */
/* See replay.h. */
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../gateway/kinds/kind_file.h"
#include "../../gateway/network.h"
#include "../../gateway/policy_kind.h"
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

/* The forms that the keys have: addresses and networks, and no bytes where all requests have one key. */
static void choose_forms(struct tried_file *file, const struct selection *s)
{
    static const struct policy_kind all = {.scope = SCOPE_OVERALL};
    if (s->key == KEY_ALL) {
        file->form = policy_kind_form(&all);
    } else if (s->key == KEY_ADDRESS) {
        const bool whole4 = s->prefix4 == 0 || s->prefix4 == 32;
        const weir_key_form *form6 =
            fields_is_byte_prefix(s->prefix) ? weir_address_form(s->prefix) : weir_network_form(6, s->prefix);
        const bool same = whole4 && fields_is_byte_prefix(s->prefix);
        file->form = same ? form6 : whole4 ? weir_address_form(128) : weir_network_form(4, s->prefix4);
        file->form6 = same ? NULL : form6;
    }
}

/* Whether the gateway uses each policy of a file; *some: it uses one. */
static bool is_of_gateway(const struct tried_file *file, bool *some)
{
    bool all = true;
    *some = false;
    for (size_t i = 0; i < file->list.count; i++) {
        struct policy_kind kind;
        const bool used = policy_kind_read(file->list.all[i].name, &kind);
        all = all && used;
        *some = *some || used;
    }
    return all;
}

/* The policy whose figures are told first: that of each source, or the first that the gateway uses. */
static const weir_policy *choose_first(const struct listed_policies *list)
{
    const weir_policy *source = listed_policies_find(list, "source", strlen("source"));
    for (size_t i = 0; source == NULL && i < list->count; i++) {
        struct policy_kind kind;
        source = policy_kind_read(list->all[i].name, &kind) ? &list->all[i].policy : NULL;
    }
    return source;
}

/* Whether a file is played as the gateway plays it: without a word about keys that is so where it uses all policies. */
static bool plays_gateway(const struct replay *r, const struct tried_file *file, const char *name)
{
    bool some;
    struct policy_kind kind;
    const bool all = is_of_gateway(file, &some);
    const bool fits = name == NULL || policy_kind_read(name, &kind);
    return r->choices->gateway ? some && fits : all && fits && !r->choices->key_given;
}

/* Reads a policy file. Returns an exit code. */
static int open_side(struct replay *r, struct side *side, const char *path, const char *name, struct output *out)
{
    const struct choices *c = r->choices;
    weir_error error;
    int result = tried_file_read(&side->file, path, &error);
    if (result != 0) {
        output_fault(out, error.message);
        return policy_probe_is_bad(result) ? CODE_BAD : CODE_UNASKED;
    }
    const bool gateway = plays_gateway(r, &side->file, name);
    side->policy = gateway && name == NULL ? choose_first(&side->file.list) : choose_policy(&side->file.list, name);
    if (side->policy == NULL) {
        return fail_policy(&side->file.list, side->file.path, name);
    }
    if ((c->gateway && !gateway) || (side != r->sides && gateway != r->gateway)) {
        (void) fprintf(stderr, "weir simulate: %s has no policy that weir-gateway uses, as source or overall\n",
                       side->file.path);
        return CODE_USAGE;
    }
    r->gateway = gateway;
    if (!gateway) {
        side->file.policy = side->policy->name;
        choose_forms(&side->file, &c->selection);
    }
    result = tried_file_check(&side->file, &error);
    if (result != 0) {
        output_fault(out, error.message);
        return CODE_UNASKED;
    }
    side->options = (struct engine_options){.file = &side->file,
                                            .policy = side->policy,
                                            .nodes = c->nodes,
                                            .max_keys = c->max_keys,
                                            .all = c->selection.key == KEY_ALL,
                                            .gateway = gateway,
                                            .only = gateway ? name : NULL,
                                            .kinds = &r->kinds};
    return CODE_GOOD;
}

/* Whether a policy of the file counts bytes. */
static bool counts_bytes(const struct tried_file *file)
{
    bool counts = false;
    for (size_t i = 0; i < file->list.count; i++) {
        struct policy_kind kind;
        counts = counts || (policy_kind_read(file->list.all[i].name, &kind) && kind.of_bytes);
    }
    return counts;
}

/* What the gateway knows of a request: its whole address, its bytes and its kind. Returns an exit code. */
static int open_gateway(struct replay *r, struct choices *choices, struct output *out)
{
    weir_error error;
    if (!r->gateway) {
        if (choices->kinds != NULL) {
            (void) fprintf(stderr, "weir simulate: --kinds is for policies of weir-gateway; see --key=gateway\n");
            return CODE_USAGE;
        }
        return CODE_GOOD;
    }
    if (!kind_file_read(choices->kinds, &r->kinds, &error)) {
        output_fault(out, error.message);
        return CODE_BAD;
    }
    struct selection *s = &choices->selection;
    s->packets = true;
    s->kinds = &r->kinds;
    s->bytes = counts_bytes(&r->sides[SIDE_NEW].file) || (r->side_count > 1 && counts_bytes(&r->sides[SIDE_OLD].file));
    return CODE_GOOD;
}

/* Opens the file of decisions. "-" is standard output: what is written there otherwise goes to standard error. */
static bool open_decisions(struct replay *r)
{
    if (strcmp(r->choices->decisions, "-") != 0) {
        r->decisions = fopen(r->choices->decisions, "we");
        return r->decisions != NULL;
    }
    const int file = dup(STDOUT_FILENO);
    r->decisions = file >= 0 ? fdopen(file, "w") : NULL;
    if (r->decisions == NULL && file >= 0) {
        (void) close(file);
    }
    return r->decisions != NULL && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

/* How many limits are tried beside the policy's own: of the gateway those of sources, where each packet costs 1. */
static size_t count_tried(const struct replay *r)
{
    const weir_policy *policy = r->sides[SIDE_NEW].policy;
    return r->gateway && (strcmp(policy->name, "source") != 0 || r->kinds.count != 0) ? 0 : policy->limit_count;
}

int replay_open(struct replay *r, struct choices *choices, struct output *out)
{
    *r = (struct replay){.choices = choices, .side_count = choices->against != NULL ? 2 : 1};
    int code = open_side(r, &r->sides[SIDE_NEW], choices->policies, choices->policy, out);
    if (code == CODE_GOOD && choices->against != NULL) {
        const char *name = r->gateway ? choices->policy : r->sides[SIDE_NEW].file.policy;
        code = open_side(r, &r->sides[SIDE_OLD], choices->against, name, out);
    }
    code = code == CODE_GOOD ? open_gateway(r, choices, out) : code;
    if (code != CODE_GOOD) {
        return code;
    }
    const size_t tried = count_tried(r);
    for (size_t i = 0; i < tried; i++) {
        candidates_init(&r->candidates[i], &r->sides[SIDE_NEW].policy->limits[i]);
    }
    timeline_init(&r->timeline);
    if (!clients_open(&r->clients, choices->max_keys, tried)) {
        output_fault(out, "weir simulate: out of memory; give a smaller --max-keys");
        return CODE_UNASKED;
    }
    if (choices->decisions != NULL && !open_decisions(r)) {
        output_fault_of(out, choices->decisions, strerror(errno));
        return CODE_OUTPUT;
    }
    return CODE_GOOD;
}

void replay_close(struct replay *r)
{
    for (size_t i = 0; i < SIDES; i++) {
        engine_close(r->sides[i].engine);
        tried_file_free(&r->sides[i].file);
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

/* The bytes of the key that figures are told of: of IPv6 the gateway's source is a network of 64 bits. */
static size_t length_of(const struct replay *r, const struct request *q)
{
    return r->gateway && q->address && q->length > SOURCE_PREFIX / 8 ? SOURCE_PREFIX / 8 : q->length;
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
    const struct client_key key = {hash, q->key, length_of(r, q), q->address};
    struct client *client = clients_get(&r->clients, &key, denied[SIDE_NEW] || denied[SIDE_OLD]);
    if (client != NULL) {
        struct candidate_row *rows = clients_rows(&r->clients, client);
        client->requests++;
        client->denied_old += denied[SIDE_OLD];
        note_denial(client, q->time_ms, denied[SIDE_NEW]);
        note_rate(client, q->time_ms);
        for (size_t i = 0; i < r->clients.row_count && clients_sampled(&r->clients, client); i++) {
            candidates_offer(&r->candidates[i], &rows[i], q->time_ms, r->gateway ? 1 : q->cost);
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
    const uint64_t hash = clients_hash(&r->clients, q->key, length_of(r, q));
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
