/* SPDX-License-Identifier: Apache-2.0 */
/* weir-fleetsim: what a fleet makes of a policy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "options.h"
#include "reference.h"

static void log_line(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    static const char *const names[] = {
        [WEIR_LOG_ERROR] = "error", [WEIR_LOG_WARNING] = "warning", [WEIR_LOG_INFO] = "info"};
    (void) fprintf(stderr, "%s: %s\n", names[level], message);
}

static const char *yes(bool is)
{
    return is ? "true" : "false";
}

static void print_seconds(const struct sim *sim, bool json)
{
    const size_t count = sim_second_count(sim);
    (void) printf("%s", json ? " \"seconds\": [" : "\nsecond   asked / limit   admitted / limit\n");
    for (size_t i = 0; i < count; i++) {
        const struct sim_second second = sim_get_second(sim, i);
        if (json) {
            (void) printf("%s[%.4f, %.4f]", i != 0 ? ", " : "", second.asked, second.admitted);
        } else {
            (void) printf("%6zu %15.3f %18.3f\n", i, second.asked, second.admitted);
        }
    }
    (void) printf("%s", json ? "],\n" : "");
}

static void print_json(const struct command *c, const struct sim *sim, const struct sim_result *r,
                       const struct sim_audit *a)
{
    (void) printf("{\"seed\": %llu, \"policy\": \"%s\", \"nodes\": %u, \"pattern\": \"%s\", \"demand\": %g,\n",
                  (unsigned long long) c->sim.seed, c->sim.policies[c->sim.policy].name, c->sim.nodes,
                  pattern_name(c->sim.pattern), c->sim.demand);
    (void) printf(" \"windows\": %u, \"mean\": %.6f, \"most\": %.6f, \"least\": %.6f, \"worst_key\": %.6f,\n",
                  r->windows, r->mean, r->most, r->least, r->worst);
    (void) printf(" \"asked\": %llu, \"admitted\": %llu, \"denied\": %llu, \"falsely_denied\": %llu,\n",
                  (unsigned long long) r->asked, (unsigned long long) r->admitted, (unsigned long long) r->denied,
                  (unsigned long long) r->falsely);
    (void) printf(" \"of_one\": %.6f,\n", r->of_one);
    (void) printf(" \"false_share\": %.6f, \"false_worst_second\": %.6f, \"worst_second\": %u,\n", r->false_share,
                  r->false_worst, r->false_second);
    (void) printf(" \"jain\": %.6f, \"part_most\": %.6f, \"part_least\": %.6f,\n", r->jain, r->part_most,
                  r->part_least);
    (void) printf(" \"rounds_per_s\": %.3f, \"reports_per_s\": %.3f, \"bytes_per_s\": %.0f, \"recovered_s\": %.3f,\n",
                  r->rounds_rate, r->reports_rate, r->size_rate, r->recovered_s);
    (void) printf(" \"told\": %s, \"checked\": %llu, \"lost\": %llu, \"invented\": %llu, \"open\": %s, \"good\": %s,\n",
                  yes(a->told), (unsigned long long) a->checked, (unsigned long long) a->lost,
                  (unsigned long long) a->invented, yes(a->open), yes(a->good));
    if (c->by_second) {
        print_seconds(sim, true);
    }
    (void) printf(" \"wrong\": \"%s\", \"digest\": \"%016llx\"}\n", a->wrong, (unsigned long long) r->digest);
}

/* What the first line of the table does not stand for. */
static void print_scope(const struct sim_options *o)
{
    const weir_policy *policy = &o->policies[o->policy];
    const uint64_t traffic_ns = o->length_ns - (o->quiet_ns < o->length_ns ? o->quiet_ns : o->length_ns);
    if (policy->limits[0].period_ns > traffic_ns) {
        (void) printf(
            "                     of a part of a window: the traffic of %g s is shorter than the period of %g s\n",
            (double) traffic_ns / 1e9, (double) policy->limits[0].period_ns / 1e9);
    }
    if (policy->limit_count > 1) {
        (void) printf("                     of the first of %zu limits: the others deny as well\n",
                      policy->limit_count);
    }
}

static void print_table(const struct command *c, const struct sim *sim, const struct sim_result *r,
                        const struct sim_audit *a)
{
    const unsigned long long seed = c->sim.seed;
    (void) printf("policy \"%s\" on %u %s, %g times its limit, %s, %g s; seed %llu\n\n",
                  c->sim.policies[c->sim.policy].name, c->sim.nodes, plain_number(c->sim.nodes, "node", "nodes"),
                  c->sim.demand, pattern_name(c->sim.pattern), (double) c->sim.length_ns / 1e9, seed);
    (void) printf("admitted / limit     mean %.3f, most %.3f, least %.3f of %u %s\n", r->mean, r->most, r->least,
                  r->windows, plain_number(r->windows, "window", "windows"));
    print_scope(&c->sim);
    if (c->sim.keys > 1) {
        (void) printf("                     %.3f for the worst key in its worst window\n", r->worst);
    }
    (void) printf("units                %llu asked, %llu admitted, %llu denied\n", (unsigned long long) r->asked,
                  (unsigned long long) r->admitted, (unsigned long long) r->denied);
    (void) printf("of one limiter       %.3f of what one that sees every request would admit\n", r->of_one);
    (void) printf("false denials        %.3f%% of what was asked, %.2f%% in the worst second (%u)\n",
                  100 * r->false_share, 100 * r->false_worst, r->false_second);
    (void) printf("fairness             Jain %.4f; nodes admit %.1f%% to %.1f%% of their requests\n", r->jain,
                  100 * r->part_least, 100 * r->part_most);
    (void) printf("told redis           %.1f rounds, %.1f reports, %.0f bytes a second, all nodes\n", r->rounds_rate,
                  r->reports_rate, r->size_rate);
    if (c->sim.fault_count != 0 && r->recovered_s >= 0) {
        (void) printf("after the faults     every node had a good round within %.3f s\n", r->recovered_s);
    } else if (c->sim.fault_count != 0) {
        (void) printf("after the faults     not every node had a good round before the end\n");
    }
    (void) printf("when all was quiet   %llu counts compared, %llu units lost, %llu invented; told in %.3f s\n",
                  (unsigned long long) a->checked, (unsigned long long) a->lost, (unsigned long long) a->invented,
                  (double) a->told_ns / 1e9);
    if (!a->good) {
        (void) printf("WRONG                %s\n", a->wrong);
    }
    (void) printf("digest               %016llx\n", (unsigned long long) r->digest);
    if (c->by_second) {
        print_seconds(sim, false);
    }
}

static int run(struct command *c)
{
    struct sim *sim = NULL;
    weir_error error;
    if (c->verbose) {
        c->sim.log = log_line;
    }
    if (sim_open(&c->sim, &sim, &error) != 0) {
        (void) fprintf(stderr, "weir-fleetsim: %s\n", error.message);
        return 2;
    }
    struct sim_result result;
    struct sim_audit audit;
    sim_run(sim);
    sim_get_result(sim, &result);
    sim_audit(sim, &audit);
    if (c->json) {
        print_json(c, sim, &result, &audit);
    } else {
        print_table(c, sim, &result, &audit);
    }
    sim_close(sim);
    return audit.good ? 0 : 1;
}

static int run_reference(const struct command *c)
{
    struct reference_row *rows = NULL;
    size_t count = 0;
    weir_error error;
    if (reference_read(c->reference, &rows, &count, &error) != 0) {
        (void) fprintf(stderr, "weir-fleetsim: --reference %s\n", error.message);
        return 2;
    }
    size_t ran = 0;
    size_t off = 0;
    reference_print_head();
    for (size_t i = 0; i < count; i++) {
        struct sim_result result;
        char name[80];
        reference_name(&rows[i], name, sizeof(name));
        if (c->only != NULL && strstr(name, c->only) == NULL) {
            continue;
        }
        if (reference_run(&rows[i], c->sim.seed, c->seeds, &result, &error) != 0) {
            (void) fprintf(stderr, "weir-fleetsim: %s\n", error.message);
            free(rows);
            return 1;
        }
        reference_print_row(&rows[i], &result);
        ran++;
        off += reference_grade(&rows[i], &result) == REFERENCE_OFF;
    }
    (void) printf("%zu rows, %zu of them off by more than %.2f; seed %llu\n", ran, off, REFERENCE_WITHIN,
                  (unsigned long long) c->sim.seed);
    free(rows);
    if (ran == 0) {
        (void) fprintf(stderr, "weir-fleetsim: --only %s: there is no such row\n", c->only);
        return 2;
    }
    return off == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct command command;
    options_parse(argc, argv, &command);
    if (command.reference != NULL) {
        return run_reference(&command);
    }
    const int status = run(&command);
    policy_file_free(command.file);
    return status;
}
