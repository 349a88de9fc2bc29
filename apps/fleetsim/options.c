/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/algorithm.h"
#include "base/numbers.h"

static const char usage[] =
    "weir-fleetsim --policies FILE [--policy NAME] [options]\n"
    "weir-fleetsim --limit ALGORITHM:UNITS/PERIOD[:BURST] [options]\n"
    "weir-fleetsim --reference FILE [--only TEXT] [--seeds N] [--seed N]\n"
    "What a fleet of nodes makes of a policy: real weirs in one process, under one virtual clock, on a network and a\n"
    "redis that fail as told. The same seed gives the same run.\n"
    "\n"
    "  --policies FILE          YAML policies; --policy NAME: the one that is asked (the first)\n"
    "  --limit LIMIT            one limit instead, such as fixed:1000/1s, bucket:50/1m:200; of fixed, sliding, log,\n"
    "                           bucket, leaky\n"
    "  --nodes N                nodes, with those that join later (4)\n"
    "  --expected-nodes N       nodes that each is told of (0: it is told nothing)\n"
    "  --interval MS            how often each speaks with redis (200); --timeout MS: for an answer (1000)\n"
    "  --seconds S              how long (12), the last --quiet S of it without traffic; --step MS: of the clock (2)\n"
    "  --demand X               units offered, over what the policy's first limit lets pass (3.0)\n"
    "  --pattern P              even, skew (9 of 10 on node 0), onoff, turns, move, jump (--jump-at S: half of the\n"
    "                           time), burst (--between X: the part of --demand asked for between bursts)\n"
    "  --keys N, --zipf S       keys (1), and how much rarer each is than the one before (1.0); --demand is of the "
    "first\n"
    "  --cost N                 units of each request (1)\n"
    "network\n"
    "  --delay MIN-MAX          of each message, each way, ms (0-0)\n"
    "  --loss PART              of requests, and of answers, such as 0.01; --lost-answers PART: of answers alone\n"
    "  --duplicates PART[:MS]   requests that come again, up to so much later (500)\n"
    "  --unsaid PART            single reports that redis could not take, and says so\n"
    "  --drift PPM              hosts' clocks are fast or slow by up to so much\n"
    "faults; NODES is 2 or 0-3, times are seconds since the traffic began; all can be given several times\n"
    "  --partition NODES@FROM-TO    nothing gets through to them or from them\n"
    "  --deaf NODES@FROM-TO         what they send arrives, the answers do not\n"
    "  --stuck NODES@FROM-TO        what they send first arrives at the end of it, the rest does not\n"
    "  --kill NODES@AT, --leave NODES@AT, --join NODES@AT\n"
    "  --clock NODES=SECONDS        their wall clocks are wrong\n"
    "  --redis-empty AT, --redis-flush AT       it restarts empty; it is emptied and runs on\n"
    "  --redis-behind AT:MS, --redis-rollback AT:MS   it restarts as it was so long ago; the same, unannounced\n"
    "  --redis-hang FROM-TO, --redis-down FROM-TO, --redis-refuse FROM-TO   it stands still, refuses connections, "
    "refuses\n"
    "                               records\n"
    "  --redis-slow FROM-TO:MS      it answers so much later\n"
    "  --redis-clock AT=SECONDS     its clock is set\n"
    "\n"
    "  --seed N                 (1)\n"
    "  --json                   the result as JSON; --by-second: and what passed in each second\n"
    "  --verbose                what the nodes log\n"
    "  --reference FILE         runs the scenarios of tests/fleet/reference.txt beside the figures there;\n"
    "                           --only TEXT: rows that contain it; --seeds N: so many runs of each, averaged (1)\n"
    "  --help, --version\n"
    "It exits with 0; 1: units were lost or invented, a node did not come back, or a row is off; 2: a wrong option.\n";

static _Noreturn void wrong(const char *option, const char *value, const char *what)
{
    (void) fprintf(stderr, "weir-fleetsim: --%s %s: %s\n", option, value, what);
    exit(2);
}

/* A number at *text, which moves on behind it. */
static double take(const char *option, const char *value, const char **text, double least, double most)
{
    char *end = NULL;
    const double number = strtod(*text, &end);
    if (end == *text || !(number >= least && number <= most)) {
        char what[80];
        (void) snprintf(what, sizeof(what), "give a number from %.10g to %.10g", least, most);
        wrong(option, value, what);
    }
    *text = end;
    return number;
}

static void take_sign(const char *option, const char *value, const char **text, char sign, const char *form)
{
    if (**text != sign) {
        wrong(option, value, form);
    }
    ++*text;
}

static void take_end(const char *option, const char *value, const char *text, const char *form)
{
    if (*text != '\0') {
        wrong(option, value, form);
    }
}

static double number(const char *option, const char *value, double least, double most)
{
    const char *text = value;
    const double n = take(option, value, &text, least, most);
    take_end(option, value, text, "there is something behind the number");
    return n;
}

static uint64_t whole(const char *option, const char *value, double least, double most)
{
    const double n = number(option, value, least, most);
    if (floor(n) != n) {
        wrong(option, value, "give a whole number");
    }
    return (uint64_t) n;
}

static uint32_t part(const char *option, const char *value, const char **text)
{
    return (uint32_t) lround(take(option, value, text, 0, 1) * 1e6);
}

static uint64_t seconds(const char *option, const char *value, const char **text)
{
    return (uint64_t) llround(take(option, value, text, 0, 1e6) * 1e9);
}

static const char *const pattern_names[SIM_PATTERNS] = {"even", "skew", "onoff", "move", "jump", "burst", "turns"};

const char *pattern_name(enum sim_pattern pattern)
{
    return pattern_names[pattern];
}

static enum sim_pattern pattern(const char *option, const char *value)
{
    for (size_t i = 0; i < SIM_PATTERNS; i++) {
        if (strcmp(value, pattern_names[i]) == 0) {
            return (enum sim_pattern) i;
        }
    }
    wrong(option, value, "give even, skew, onoff, turns, move, jump or burst");
}

/* "fixed:1000/1s", "bucket:50/1m:200" */
static void limit(struct command *c, const char *option, const char *value)
{
    static const char form[] =
        "give a limit such as fixed:1000/1s or bucket:50/1m:200; of fixed, sliding, log, bucket, "
        "leaky";
    static const char *const names[] = {"fixed", "sliding", "log", "bucket", "leaky"};
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {
        {"ms", NS_PER_MS}, {"s", NS_PER_S}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S}, {"d", 86400 * NS_PER_S}};
    const size_t length = strcspn(value, ":");
    size_t algorithm = 0;
    while (algorithm < 5 && (strlen(names[algorithm]) != length || strncmp(names[algorithm], value, length) != 0)) {
        algorithm++;
    }
    if (algorithm == 5) {
        wrong(option, value, form);
    }
    const char *text = value + length;
    take_sign(option, value, &text, ':', form);
    c->limit = (weir_limit){.algorithm = (weir_algorithm) algorithm};
    c->limit.limit = (uint64_t) take(option, value, &text, 1, 4e12);
    take_sign(option, value, &text, '/', form);
    const double periods = *text >= '0' && *text <= '9' ? take(option, value, &text, 1e-3, 1e9) : 1;
    const size_t unit_length = strcspn(text, ":");
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strlen(units[i].unit) == unit_length && strncmp(units[i].unit, text, unit_length) == 0) {
            c->limit.period_ns = (uint64_t) (periods * (double) units[i].ns);
        }
    }
    if (c->limit.period_ns == 0) {
        wrong(option, value, form);
    }
    text += unit_length;
    if (*text == ':') {
        text++;
        c->limit.burst = (uint64_t) take(option, value, &text, 1, 4e12);
    }
    take_end(option, value, text, form);
    if (algorithm_is_queue(c->limit.algorithm)) {
        c->limit.delay = c->limit.burst != 0 ? c->limit.burst : c->limit.limit;
    }
    c->limit_given = true;
}

static struct sim_fault *fault(struct command *c, const char *option, const char *value, enum sim_fault_kind kind)
{
    if (c->sim.fault_count == SIM_FAULTS_MAX) {
        wrong(option, value, "that is one fault too many; give at most 64");
    }
    struct sim_fault *next = &c->faults[c->sim.fault_count++];
    next->kind = kind;
    return next;
}

/* "2" or "0-3" */
static const char *nodes(struct sim_fault *f, const char *option, const char *value)
{
    const char *text = value;
    f->first = f->last = (unsigned) take(option, value, &text, 0, SIM_NODES_MAX - 1);
    if (*text == '-') {
        text++;
        f->last = (unsigned) take(option, value, &text, f->first, SIM_NODES_MAX - 1);
    }
    return text;
}

/* "10-20", from `text` on; returns what is behind it. */
static const char *stretch(struct sim_fault *f, const char *option, const char *value, const char *text,
                           const char *form)
{
    f->from_ns = seconds(option, value, &text);
    take_sign(option, value, &text, '-', form);
    f->until_ns = seconds(option, value, &text);
    if (f->until_ns < f->from_ns) {
        wrong(option, value, "it ends before it begins");
    }
    return text;
}

static void node_fault(struct command *c, enum sim_fault_kind kind, const char *option, const char *value)
{
    struct sim_fault *f = fault(c, option, value, kind);
    const char *text = nodes(f, option, value);
    if (kind == SIM_CLOCK) {
        static const char form[] = "give nodes and seconds, such as 1=3600 or 0-2=-30";
        take_sign(option, value, &text, '=', form);
        f->by_ns = llround(take(option, value, &text, -1e7, 1e7) * 1e9);
        take_end(option, value, text, form);
        return;
    }
    if (sim_fault_cuts(kind)) {
        static const char form[] = "give nodes and a stretch, such as 2@10-20 or 0-3@10-20";
        take_sign(option, value, &text, '@', form);
        take_end(option, value, stretch(f, option, value, text, form), form);
        return;
    }
    static const char form[] = "give nodes and a time, such as 2@10 or 0-3@10";
    take_sign(option, value, &text, '@', form);
    f->from_ns = seconds(option, value, &text);
    take_end(option, value, text, form);
}

static void redis_fault(struct command *c, enum sim_fault_kind kind, const char *option, const char *value)
{
    struct sim_fault *f = fault(c, option, value, kind);
    const char *text = value;
    if (kind == SIM_HANG || kind == SIM_DOWN || kind == SIM_REFUSE) {
        static const char form[] = "give a stretch, such as 10-20";
        take_end(option, value, stretch(f, option, value, text, form), form);
        return;
    }
    if (kind == SIM_SLOW) {
        static const char form[] = "give a stretch and milliseconds, such as 10-20:150";
        text = stretch(f, option, value, text, form);
        take_sign(option, value, &text, ':', form);
        f->by_ns = llround(take(option, value, &text, 0, 60000) * 1e6);
        take_end(option, value, text, form);
        return;
    }
    f->from_ns = seconds(option, value, &text);
    if (kind == SIM_BEHIND || kind == SIM_ROLLBACK) {
        take_sign(option, value, &text, ':', "give a time and how far back, such as 30:500");
        f->behind_ns = (uint64_t) (take(option, value, &text, 0, 1e9) * 1e6);
    } else if (kind == SIM_FLEET_CLOCK) {
        take_sign(option, value, &text, '=', "give a time and seconds, such as 30=3600");
        f->by_ns = llround(take(option, value, &text, -1e7, 1e7) * 1e9);
    }
    take_end(option, value, text, "there is something behind the time");
}

enum word {
    WORD_POLICIES = 256,
    WORD_POLICY,
    WORD_LIMIT,
    WORD_NODES,
    WORD_EXPECTED_NODES,
    WORD_INTERVAL,
    WORD_TIMEOUT,
    WORD_SECONDS,
    WORD_QUIET,
    WORD_STEP,
    WORD_DEMAND,
    WORD_PATTERN,
    WORD_JUMP_AT,
    WORD_BETWEEN,
    WORD_KEYS,
    WORD_ZIPF,
    WORD_COST,
    WORD_DELAY,
    WORD_LOSS,
    WORD_LOST_ANSWERS,
    WORD_DUPLICATES,
    WORD_UNSAID,
    WORD_DRIFT,
    WORD_SEED,
    WORD_JSON,
    WORD_BY_SECOND,
    WORD_VERBOSE,
    WORD_REFERENCE,
    WORD_ONLY,
    WORD_SEEDS,
    WORD_HELP,
    WORD_VERSION,
    WORD_FAULTS = 512 /* and the kind of the fault */
};

static const struct option known[] = {
    {"policies", required_argument, NULL, WORD_POLICIES},
    {"policy", required_argument, NULL, WORD_POLICY},
    {"limit", required_argument, NULL, WORD_LIMIT},
    {"nodes", required_argument, NULL, WORD_NODES},
    {"expected-nodes", required_argument, NULL, WORD_EXPECTED_NODES},
    {"interval", required_argument, NULL, WORD_INTERVAL},
    {"timeout", required_argument, NULL, WORD_TIMEOUT},
    {"seconds", required_argument, NULL, WORD_SECONDS},
    {"quiet", required_argument, NULL, WORD_QUIET},
    {"step", required_argument, NULL, WORD_STEP},
    {"demand", required_argument, NULL, WORD_DEMAND},
    {"pattern", required_argument, NULL, WORD_PATTERN},
    {"jump-at", required_argument, NULL, WORD_JUMP_AT},
    {"between", required_argument, NULL, WORD_BETWEEN},
    {"keys", required_argument, NULL, WORD_KEYS},
    {"zipf", required_argument, NULL, WORD_ZIPF},
    {"cost", required_argument, NULL, WORD_COST},
    {"delay", required_argument, NULL, WORD_DELAY},
    {"loss", required_argument, NULL, WORD_LOSS},
    {"lost-answers", required_argument, NULL, WORD_LOST_ANSWERS},
    {"duplicates", required_argument, NULL, WORD_DUPLICATES},
    {"unsaid", required_argument, NULL, WORD_UNSAID},
    {"drift", required_argument, NULL, WORD_DRIFT},
    {"seed", required_argument, NULL, WORD_SEED},
    {"json", no_argument, NULL, WORD_JSON},
    {"by-second", no_argument, NULL, WORD_BY_SECOND},
    {"verbose", no_argument, NULL, WORD_VERBOSE},
    {"reference", required_argument, NULL, WORD_REFERENCE},
    {"only", required_argument, NULL, WORD_ONLY},
    {"seeds", required_argument, NULL, WORD_SEEDS},
    {"help", no_argument, NULL, WORD_HELP},
    {"version", no_argument, NULL, WORD_VERSION},
    {"partition", required_argument, NULL, WORD_FAULTS + SIM_CUT},
    {"deaf", required_argument, NULL, WORD_FAULTS + SIM_DEAF},
    {"stuck", required_argument, NULL, WORD_FAULTS + SIM_STUCK},
    {"kill", required_argument, NULL, WORD_FAULTS + SIM_KILL},
    {"leave", required_argument, NULL, WORD_FAULTS + SIM_LEAVE},
    {"join", required_argument, NULL, WORD_FAULTS + SIM_JOIN},
    {"clock", required_argument, NULL, WORD_FAULTS + SIM_CLOCK},
    {"redis-empty", required_argument, NULL, WORD_FAULTS + SIM_EMPTY},
    {"redis-flush", required_argument, NULL, WORD_FAULTS + SIM_FLUSH},
    {"redis-behind", required_argument, NULL, WORD_FAULTS + SIM_BEHIND},
    {"redis-rollback", required_argument, NULL, WORD_FAULTS + SIM_ROLLBACK},
    {"redis-hang", required_argument, NULL, WORD_FAULTS + SIM_HANG},
    {"redis-down", required_argument, NULL, WORD_FAULTS + SIM_DOWN},
    {"redis-refuse", required_argument, NULL, WORD_FAULTS + SIM_REFUSE},
    {"redis-slow", required_argument, NULL, WORD_FAULTS + SIM_SLOW},
    {"redis-clock", required_argument, NULL, WORD_FAULTS + SIM_FLEET_CLOCK},
    {NULL, 0, NULL, 0},
};

/* Words about the network. False: it is none of them. */
static bool network_word(struct command *c, int word, const char *option, const char *value)
{
    struct loopback_link *link = &c->sim.link;
    const char *text = value;
    switch (word) {
    case WORD_DELAY:
        link->delay_min_ns = link->delay_max_ns = (uint64_t) (take(option, value, &text, 0, 60000) * 1e6);
        if (*text == '-') {
            text++;
            link->delay_max_ns = (uint64_t) (take(option, value, &text, 0, 60000) * 1e6);
        }
        if (link->delay_max_ns < link->delay_min_ns) {
            wrong(option, value, "the least is above the most");
        }
        break;
    case WORD_LOSS:
        link->requests_lost_ppm = link->answers_lost_ppm = part(option, value, &text);
        break;
    case WORD_LOST_ANSWERS:
        link->answers_lost_ppm = part(option, value, &text);
        break;
    case WORD_DUPLICATES:
        link->duplicates_ppm = part(option, value, &text);
        link->duplicate_delay_ns = 500 * NS_PER_MS;
        if (*text == ':') {
            text++;
            link->duplicate_delay_ns = (uint64_t) (take(option, value, &text, 0, 1e6) * 1e6);
        }
        break;
    case WORD_UNSAID:
        link->unsaid_ppm = part(option, value, &text);
        break;
    case WORD_DRIFT:
        c->sim.drift_ppm = (int32_t) take(option, value, &text, 0, 100000);
        break;
    default:
        return false;
    }
    take_end(option, value, text, "there is something behind the number");
    return true;
}

static bool sim_word(struct command *c, int word, const char *option, const char *value)
{
    struct sim_options *sim = &c->sim;
    switch (word) {
    case WORD_NODES:
        sim->nodes = (unsigned) whole(option, value, 1, SIM_NODES_MAX);
        break;
    case WORD_EXPECTED_NODES:
        sim->expected_nodes = (uint32_t) whole(option, value, 0, 65535);
        break;
    case WORD_INTERVAL:
        sim->interval_ms = (uint32_t) whole(option, value, 10, 60000);
        break;
    case WORD_TIMEOUT:
        sim->timeout_ms = (uint32_t) whole(option, value, 10, 60000);
        break;
    case WORD_SECONDS:
        sim->length_ns = (uint64_t) (number(option, value, 0.1, 1e6) * 1e9);
        break;
    case WORD_QUIET:
        sim->quiet_ns = (uint64_t) (number(option, value, 0, 1e6) * 1e9);
        break;
    case WORD_STEP:
        sim->step_ns = (uint64_t) (number(option, value, 0.1, 100) * 1e6);
        break;
    case WORD_DEMAND:
        sim->demand = number(option, value, 1e-6, 1e6);
        break;
    case WORD_PATTERN:
        sim->pattern = pattern(option, value);
        break;
    case WORD_JUMP_AT:
        sim->jump_ns = (uint64_t) (number(option, value, 0, 1e6) * 1e9);
        break;
    case WORD_BETWEEN:
        sim->between = number(option, value, 0, 1);
        break;
    case WORD_KEYS:
        sim->keys = (size_t) whole(option, value, 1, SIM_KEYS_MAX);
        break;
    case WORD_ZIPF:
        sim->zipf = number(option, value, 0, 10);
        break;
    case WORD_COST:
        sim->cost = whole(option, value, 1, 1e12);
        break;
    case WORD_SEED:
        sim->seed = whole(option, value, 0, 9007199254740992.0);
        break;
    default:
        return false;
    }
    return true;
}

static void other_word(struct command *c, int word, const char *option, const char *value)
{
    switch (word) {
    case WORD_POLICIES:
        c->policies_path = value;
        break;
    case WORD_POLICY:
        c->policy_name = value;
        break;
    case WORD_LIMIT:
        limit(c, option, value);
        break;
    case WORD_JSON:
        c->json = true;
        break;
    case WORD_BY_SECOND:
        c->by_second = true;
        break;
    case WORD_VERBOSE:
        c->verbose = true;
        break;
    case WORD_REFERENCE:
        c->reference = value;
        break;
    case WORD_ONLY:
        c->only = value;
        break;
    case WORD_SEEDS:
        c->seeds = (unsigned) whole(option, value, 1, 1000);
        break;
    case WORD_HELP:
        (void) fputs(usage, stdout);
        exit(0);
    case WORD_VERSION:
        (void) printf("weir-fleetsim %d.%d.%d\n", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
        exit(0);
    default:
        (void) fputs("weir-fleetsim --help lists the options\n", stderr);
        exit(2);
    }
}

/* Where the policies come from, and which one is asked. */
static void find_policy(struct command *c)
{
    if (c->policies_path == NULL) {
        c->policy = (weir_policy){.name = "limit", .limits = &c->limit, .limit_count = 1};
        c->sim.policies = &c->policy;
        c->sim.policy_count = 1;
        return;
    }
    weir_error error;
    if (policy_file_load(c->policies_path, &c->file, &error) != 0) {
        (void) fprintf(stderr, "weir-fleetsim: --policies: %s\n", error.message);
        exit(2);
    }
    c->sim.policies = policy_file_policies(c->file, &c->sim.policy_count);
    while (c->policy_name != NULL && c->sim.policy < c->sim.policy_count &&
           strcmp(c->sim.policies[c->sim.policy].name, c->policy_name) != 0) {
        c->sim.policy++;
    }
    if (c->sim.policy == c->sim.policy_count) {
        char what[200];
        (void) snprintf(what, sizeof(what), "there is no such policy in %s", c->policies_path);
        wrong("policy", c->policy_name != NULL ? c->policy_name : "", what);
    }
}

void options_parse(int argc, char **argv, struct command *out)
{
    memset(out, 0, sizeof(*out));
    sim_options_init(&out->sim);
    out->sim.zipf = 1;
    out->seeds = 1;
    int word;
    int index = 0;
    while ((word = getopt_long(argc, argv, "", known, &index)) != -1) {
        const char *option = word == '?' ? "" : known[index].name;
        if (word >= WORD_FAULTS) {
            const enum sim_fault_kind kind = (enum sim_fault_kind)(word - WORD_FAULTS);
            const bool of_nodes =
                sim_fault_cuts(kind) || kind == SIM_KILL || kind == SIM_LEAVE || kind == SIM_JOIN || kind == SIM_CLOCK;
            if (of_nodes) {
                node_fault(out, kind, option, optarg);
            } else {
                redis_fault(out, kind, option, optarg);
            }
        } else if (!network_word(out, word, option, optarg) && !sim_word(out, word, option, optarg)) {
            other_word(out, word, option, optarg);
        }
    }
    const int ways = (out->policies_path != NULL) + out->limit_given + (out->reference != NULL);
    if (optind < argc || ways != 1) {
        (void) fprintf(stderr, "weir-fleetsim: %s; weir-fleetsim --help lists the options\n",
                       optind < argc ? "there is a word too many" : "give one of --policies, --limit and --reference");
        exit(2);
    }
    out->sim.faults = out->faults;
    out->sim.jump_ns = out->sim.jump_ns != 0 ? out->sim.jump_ns : out->sim.length_ns / 2;
    if (out->reference == NULL) {
        find_policy(out);
    }
}
