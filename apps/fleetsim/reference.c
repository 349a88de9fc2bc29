/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"

#define LINE_MAX_SIZE 256

/* In a mean there may be so much more than the limit where it counts as better. */
#define NEARLY 0.005

static const struct {
    const char *name;
    weir_algorithm algorithm;
} algorithms[] = {{"fixed", WEIR_FIXED_WINDOW}, {"sliding", WEIR_SLIDING_WINDOW}, {"bucket", WEIR_TOKEN_BUCKET}};

static const struct {
    const char *name;
    enum sim_pattern pattern;
} patterns[] = {{"even", SIM_EVEN}, {"skew", SIM_SKEW}, {"onoff", SIM_ONOFF}, {"move", SIM_MOVE}};

static bool parse(const char *line, struct reference_row *row)
{
    unsigned long long limit;
    unsigned long long period_s;
    /* NOLINTNEXTLINE(cert-err34-c): what does not fit makes no row */
    if (sscanf(line, "%15s %u %llu %llu %lf %15s %lf %lf %lf %lf %lf %lf", row->algorithm, &row->nodes, &limit,
               &period_s, &row->demand, row->pattern, &row->naive_mean, &row->naive_most, &row->naive_least, &row->mean,
               &row->most, &row->least) != 12) {
        return false;
    }
    row->limit = limit;
    row->period_s = period_s;
    bool known[2] = {false, false};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        known[0] = known[0] || strcmp(row->algorithm, algorithms[i].name) == 0;
    }
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        known[1] = known[1] || strcmp(row->pattern, patterns[i].name) == 0;
    }
    return known[0] && known[1];
}

int reference_read(const char *path, struct reference_row **rows, size_t *count, weir_error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return error_set(error, -errno, "%s: %s", path, strerror(errno));
    }
    char line[LINE_MAX_SIZE];
    int result = 0;
    unsigned number = 0;
    *rows = NULL;
    *count = 0;
    while (result == 0 && fgets(line, sizeof(line), file) != NULL) {
        number++;
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        struct reference_row *grown = realloc(*rows, (*count + 1) * sizeof(**rows));
        if (grown == NULL) {
            result = error_set(error, -ENOMEM, "out of memory");
            break;
        }
        *rows = grown;
        if (!parse(line, &grown[(*count)++])) {
            result = error_set(error, -EINVAL, "%s: line %u is no row; see the file's head", path, number);
        }
    }
    (void) fclose(file);
    if (result == 0 && *count == 0) {
        result = error_set(error, -EINVAL, "%s: there is no row in it", path);
    }
    if (result != 0) {
        free(*rows);
        *rows = NULL;
    }
    return result;
}

void reference_name(const struct reference_row *row, char *out, size_t size)
{
    (void) snprintf(out, size, "%s %u %llu %llu %g %s", row->algorithm, row->nodes, (unsigned long long) row->limit,
                    (unsigned long long) row->period_s, row->demand, row->pattern);
}

static int run_once(const struct reference_row *row, uint64_t seed, struct sim_result *result, weir_error *error)
{
    weir_limit limit = {.limit = row->limit, .period_ns = row->period_s * NS_PER_S};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        limit.algorithm = strcmp(row->algorithm, algorithms[i].name) == 0 ? algorithms[i].algorithm : limit.algorithm;
    }
    const weir_policy policy = {.name = "reference", .limits = &limit, .limit_count = 1};
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.nodes = row->nodes;
    options.policies = &policy;
    options.policy_count = 1;
    options.demand = row->demand;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        options.pattern = strcmp(row->pattern, patterns[i].name) == 0 ? patterns[i].pattern : options.pattern;
    }
    /* As the reference does. */
    options.length_ns = min_u64(max_u64(8 * row->period_s, 12), 240) * NS_PER_S;
    options.step_ns = (row->nodes > 30 || row->period_s > 10 ? 5 : 2) * NS_PER_MS;
    struct sim *sim = NULL;
    const int opened = sim_open(&options, &sim, error);
    if (opened != 0) {
        return opened;
    }
    sim_run(sim);
    sim_get_result(sim, result);
    sim_close(sim);
    return 0;
}

int reference_run(const struct reference_row *row, uint64_t seed, unsigned runs, struct sim_result *result,
                  weir_error *error)
{
    struct sim_result next;
    int status = run_once(row, seed, result, error);
    for (unsigned i = 1; i < runs && status == 0; i++) {
        status = run_once(row, seed + i, &next, error);
        if (status == 0) {
            result->mean += next.mean;
            result->false_share += next.false_share;
            result->jain += next.jain;
            result->most = next.most > result->most ? next.most : result->most;
            result->least = next.least < result->least ? next.least : result->least;
        }
    }
    result->mean /= runs;
    result->false_share /= runs;
    result->jain /= runs;
    return status;
}

enum reference_grade reference_grade(const struct reference_row *row, const struct sim_result *result)
{
    const double off = result->mean - row->mean;
    if (off <= REFERENCE_WITHIN && off >= -REFERENCE_WITHIN) {
        return REFERENCE_SAME;
    }
    /* Where the reference lets too little pass, more is better, up to the limit. */
    return off > 0 && result->mean <= 1 + NEARLY ? REFERENCE_BETTER : REFERENCE_OFF;
}

void reference_print_head(void)
{
    (void) printf("%-9s %5s %6s %6s %6s %-6s  %-21s  %-21s  %6s  %-6s %6s %6s\n", "algorithm", "nodes", "limit",
                  "period", "demand", "pattern", "weir mean/most/least", "mirror", "off", "grade", "false%", "jain");
}

void reference_print_row(const struct reference_row *row, const struct sim_result *result)
{
    static const char *const grades[] = {"same", "better", "OFF"};
    (void) printf(
        "%-9s %5u %6llu %5llus %5.1fx %-6s   %.3f / %.3f / %.3f  %.3f / %.3f / %.3f  %+.3f  %-6s %6.2f %6.3f\n",
        row->algorithm, row->nodes, (unsigned long long) row->limit, (unsigned long long) row->period_s, row->demand,
        row->pattern, result->mean, result->most, result->least, row->mean, row->most, row->least,
        result->mean - row->mean, grades[reference_grade(row, result)], 100 * result->false_share, result->jain);
    (void) fflush(stdout);
}
