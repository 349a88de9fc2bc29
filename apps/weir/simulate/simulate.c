/* SPDX-License-Identifier: Apache-2.0 */
/* weir simulate: what a policy would have done to the requests of a log. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "choices.h"
#include "doubts.h"
#include "plot.h"
#include "report.h"

/* As a shell says of a program that SIGINT has ended. */
#define CODE_INTERRUPTED 130

/* Rows of the table by time. */
#define STEP_ROWS 24

static const struct option_form options[OPTION_COUNT] = {COMMON_OPTIONS,
                                                         [OPTION_AGAINST] = {"against", 'a', true},
                                                         [OPTION_COST] = {"cost", 0, true},
                                                         [OPTION_DECISIONS] = {"decisions", 0, true},
                                                         [OPTION_FIELDS] = {"fields", 0, true},
                                                         [OPTION_FORMAT] = {"format", 'f', true},
                                                         [OPTION_KEY] = {"key", 'k', true},
                                                         [OPTION_KINDS] = {"kinds", 0, true},
                                                         [OPTION_LATE] = {"late", 0, true},
                                                         [OPTION_MAX_KEYS] = {"max-keys", 0, true},
                                                         [OPTION_NODES] = {"nodes", 'n', true},
                                                         [OPTION_PLOT] = {"plot", 0, true},
                                                         [OPTION_POLICIES] = {"policies", 'p', true},
                                                         [OPTION_POLICY] = {"policy", 0, true},
                                                         [OPTION_PORT] = {"port", 0, true},
                                                         [OPTION_THROUGH] = {"through", 0, true},
                                                         [OPTION_TO] = {"to", 0, true},
                                                         [OPTION_TOP] = {"top", 0, true}};

static const char help[] = "Usage: weir simulate --policies FILE [OPTION]... TRACE...\n"
                           "\n"
                           "Replays the requests of logs through the library under a clock of their own:\n"
                           "who would have been limited, when and how much, and which limit would have let\n"
                           "nearly all through. A TRACE is an access log (Common, Combined), JSON lines, a\n"
                           "log of HAProxy, CSV (time,key[,cost]) or pcap; plain, gzip or zstd; \"-\" is\n"
                           "standard input. Several are merged by time.\n"
                           "\n"
                           "Options:\n"
                           "  -p, --policies=FILE    the policies to try\n"
                           "      --policy=NAME      which of them; needed where there are several\n"
                           "  -a, --against=FILE     the present policies, to compare with\n"
                           "  -k, --key=KEY          address (default), a network as address/24, address/64\n"
                           "                         or address/24,64, all (one key), gateway (as\n"
                           "                         weir-gateway plays its file), user, path, path:2,\n"
                           "                         header:user-agent, header:1 (HAProxy), field:NAME\n"
                           "      --cost=COST        1 (default), or bytes\n"
                           "  -f, --format=FORMAT    auto (default), common, combined, json, haproxy, csv,\n"
                           "                         pcap, alb (AWS load balancers), w3c (IIS, CloudFront)\n"
                           "      --fields=LIST      names in JSON: time=ts,address=ip,user=u,path=p,bytes=b\n"
                           "                         (a.b is b within a)\n"
                           "      --kinds=FILE       weir-gateway's file of kinds of packets\n"
                           "      --late=DURATION    lines that come so late are put in order; 15m\n"
                           "      --to=ADDRESS       of captures, what goes there is a request; if there is\n"
                           "      --port=PORT        neither, what goes where most datagrams go\n"
                           "  -n, --nodes=N          a fleet of N nodes that take requests in turn; 1\n"
                           "      --through=PERCENT  what a limit is to let through; 99.9\n"
                           "      --top=N            keys that are listed; 10\n"
                           "      --max-keys=N       keys that are counted exactly; 262144\n"
                           "      --plot=FILE        draw it: FILE ends in .svg or .png\n"
                           "      --decisions=FILE   every decision, as time_ms,key,cost,decision; \"-\" is\n"
                           "                         standard output: all else goes to standard error\n"
                           "      --json             the findings as data: one line of JSON\n"
                           "      --color=WHEN       auto (default), always or never\n"
                           "  -h, --help             this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir simulate --policies api.yaml /var/log/nginx/access.log*\n"
                           "  weir simulate -p new.yaml --against old.yaml access.log.gz\n"
                           "  weir simulate -p api.yaml --policy login --key path:2 --plot a.svg access.log\n"
                           "  ssh edge1 cat /var/log/haproxy.log | weir simulate -p api.yaml -\n"
                           "  weir simulate -p api.yaml --json access.log | jq '.limits[0].for_keys'\n"
                           "\n"
                           "Exit codes:\n"
                           "  0    the traces were replayed; requests that were denied are no failure\n"
                           "  1    a policy file is malformed\n"
                           "  2    the command line is wrong\n"
                           "  3    a file cannot be read to its end\n"
                           "  4    the output cannot be written\n"
                           "  5    a trace is of no known format, or has no request, key or size of the kind\n"
                           "       that was asked for\n"
                           "  6    more than one request in a hundred was left out: too late, or at no time\n"
                           "       that the others agree with\n"
                           "  7    more than one key in a hundred is no address, though the key is one\n"
                           "  8    a capture is too short to tell a rate, or the limit cannot help: each\n"
                           "       source comes once or twice\n"
                           "  130  interrupted (SIGINT); what was read so far is told\n"
                           "Where several apply, the largest.\n";

static int greatest(int a, int b)
{
    return a > b ? a : b;
}

/* The traces of the command line. */
struct inputs {
    struct trace *all;
    size_t count;
};

static int open_traces(struct inputs *in, const struct arguments *a, const struct choices *choices, struct output *out)
{
    int code = CODE_GOOD;
    in->all = calloc(a->operand_count, sizeof(*in->all));
    if (in->all == NULL) {
        output_fault(out, "weir simulate: out of memory");
        return CODE_UNASKED;
    }
    for (in->count = 0; in->count < a->operand_count; in->count++) {
        struct trace *t = &in->all[in->count];
        bool malformed;
        if (!trace_open(t, a->operands[in->count], choices->format, &choices->selection, &malformed)) {
            output_fault_of(out, t->name, t->fault.text);
            code = greatest(code, malformed ? CODE_UNREADABLE : CODE_UNASKED);
        }
    }
    return code;
}

static void close_traces(struct inputs *in)
{
    for (size_t i = 0; i < in->count; i++) {
        trace_close(&in->all[i]);
    }
    free(in->all);
}

/* Tells what ended the reading early. Returns an exit code. */
static int tell_ends(const struct inputs *in, const struct replay *r, struct output *out)
{
    int code = CODE_GOOD;
    for (size_t i = 0; i < in->count; i++) {
        const struct trace *t = &in->all[i];
        if (t->failed) {
            output_fault_of(out, t->name, t->fault.text);
            code = greatest(code, CODE_UNASKED);
        } else if (t->record_count == 0 && !r->interrupted && !t->stopped) {
            char text[EXAMPLE_SIZE + 200];
            if (t->packets != NULL) {
                (void) snprintf(
                    text, sizeof(text),
                    "none of its %llu packets is a UDP datagram to the service; --to and --port name another",
                    (unsigned long long) t->line_count);
            } else {
                (void) snprintf(text, sizeof(text), "has no request in format %s%s%s%s", t->format->name,
                                t->clientless_count != 0 ? " that says who its client is" : "",
                                t->example_line != 0 ? "; its first malformed line: " : "", t->example);
            }
            output_fault_of(out, t->name, text);
            code = greatest(code, CODE_UNREADABLE);
        }
    }
    if (r->failed) {
        output_fault(out, r->error.message);
        code = greatest(code, CODE_UNASKED);
    }
    return code;
}

static int tell_findings(struct output *out, struct report *report)
{
    const struct replay *r = report->replay;
    struct findings findings;
    struct doubts doubts;
    if (!findings_make(&findings, r)) {
        output_fault(out, "weir simulate: out of memory");
        findings_free(&findings);
        return CODE_UNASKED;
    }
    report->findings = &findings;
    doubts_find(&doubts, report);
    report->doubts = &doubts;
    int code = doubts_code(&doubts);
    report->steps = r->timeline;
    timeline_fit(&report->steps, STEP_ROWS);
    if (out->json) {
        report_data(out, report);
    } else {
        report_text(out, report);
    }
    if (r->choices->plot != NULL) {
        code = greatest(code, plot_write(out, report, r->choices->plot));
    }
    report->findings = NULL;
    report->doubts = NULL;
    findings_free(&findings);
    return code;
}

/* Closes the file of decisions, so that an error of it is told. */
static int end_decisions(struct replay *r, struct output *out)
{
    FILE *file = r->decisions;
    r->decisions = NULL;
    if (file == NULL) {
        return CODE_GOOD;
    }
    const bool wrong = ferror(file) != 0;
    if (fclose(file) != 0 || wrong) {
        output_fault_of(out, strcmp(r->choices->decisions, "-") == 0 ? "<stdout>" : r->choices->decisions,
                        errno != 0 ? strerror(errno) : "cannot be written");
        return CODE_OUTPUT;
    }
    return CODE_GOOD;
}

static int replay_traces(struct replay *r, struct inputs *in, struct output *out)
{
    struct report report = {.replay = r, .traces = in->all, .trace_count = in->count};
    progress_begin(&r->progress, in->all, in->count, !out->json);
    errno = 0;
    const struct merge_taker taker = {replay_take, replay_pause, r};
    const bool good = merge_run(in->all, in->count, r->choices->late_s, &taker, &report.counts);
    progress_end(&r->progress);
    int code = tell_ends(in, r, out);
    if (!good) {
        output_fault(out, "weir simulate: out of memory");
        code = greatest(code, CODE_UNASKED);
    }
    code = greatest(code, end_decisions(r, out));
    if (r->requests != 0 && !r->failed) {
        code = greatest(code, tell_findings(out, &report));
    }
    if (r->interrupted) {
        char text[80];
        (void) snprintf(text, sizeof(text), "weir simulate: interrupted after %llu requests",
                        (unsigned long long) r->requests);
        output_fault(out, text);
        code = CODE_INTERRUPTED;
    }
    return code;
}

static int simulate(const struct arguments *arguments, struct output *out)
{
    struct choices choices;
    struct inputs inputs = {NULL, 0};
    if (!choices_read(&choices, arguments)) {
        return CODE_USAGE;
    }
    const char *lacks = choices.plot != NULL ? plot_lacks() : NULL;
    if (lacks != NULL) {
        output_fault(out, lacks);
        return CODE_UNASKED;
    }
    struct replay *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        output_fault(out, "weir simulate: out of memory");
        return CODE_UNASKED;
    }
    int code = replay_open(r, &choices, out);
    if (choices.decisions != NULL && strcmp(choices.decisions, "-") == 0) {
        out->colour = out->error_colour;
    }
    replay_catch_interrupt();
    code = code == CODE_GOOD ? open_traces(&inputs, arguments, &choices, out) : code;
    code = code == CODE_GOOD ? replay_traces(r, &inputs, out) : code;
    close_traces(&inputs);
    replay_close(r);
    free(r);
    return code;
}

static_assert(OPTION_COUNT <= OPTIONS_MAX, "arguments have room for every option");

const struct command simulate_command = {.name = "simulate",
                                         .summary = "what a policy would have done to the requests of a log",
                                         .help = help,
                                         .options = options,
                                         .option_count = OPTION_COUNT,
                                         .run = simulate};
