/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir top: what every node of a fleet does now. Nodes are asked over HTTP, or the fleet is read from Redis.
 *
 * The loop of the screen waits for the keyboard and for answers at once. A signal that ends the program sets a flag:
 * the loop then gives the terminal back, and the signal is raised again.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../command.h"
#include "../redis_link.h"
#include "inspect/inspector.h"
#include "tell_top.h"
#include "top_screen.h"

enum {
    OPTION_INTERVAL = OPTION_OWN,
    OPTION_ONCE,
    OPTION_PREFIX,
    OPTION_REDIS,
    OPTION_SAMPLE,
    OPTION_STATUS,
    OPTION_COUNT
};
static const struct option_form options[OPTION_COUNT] = {COMMON_OPTIONS,
                                                         [OPTION_INTERVAL] = {"interval", 'i', true},
                                                         [OPTION_ONCE] = {"once", '1', false},
                                                         [OPTION_PREFIX] = {"prefix", 0, true},
                                                         [OPTION_REDIS] = {"redis", 0, true},
                                                         [OPTION_SAMPLE] = {"sample", 0, true},
                                                         [OPTION_STATUS] = {"status", 0, false}};

static const char help[] = "Usage: weir top [OPTION]... --status ADDR...\n"
                           "       weir top [OPTION]... [--redis=URL]\n"
                           "\n"
                           "Shows live what the nodes of a fleet do: rates, denials, the keys that are\n"
                           "denied most, sync health, and the outage mode of every node. In the full screen\n"
                           "\"q\" quits and \"h\" lists the keys.\n"
                           "\n"
                           "With --status each node is asked over HTTP: weir-gateway's --metrics address, or\n"
                           "any host that serves weir_write_status. ADDR is host:port, unix:/path,\n"
                           "host:port/path or a URL; the path is /status.json where none is given.\n"
                           "\n"
                           "With --redis the nodes are those with a heartbeat in Redis, and the keys are\n"
                           "those of the hottest records of a sample. A reading costs Redis a SCAN of\n"
                           "--sample names, and one or two small reads for each record; nothing is written.\n"
                           "Of a Cluster every shard is read.\n"
                           "\n"
                           "Options:\n"
                           "      --status          the arguments are addresses of nodes\n"
                           "      --redis=URL       redis://[user:password@]host[:port][/database],\n"
                           "                        unix:///path, redis+sentinel:// or redis+cluster://,\n"
                           "                        or rediss:// with TLS, as nodes have it; else\n"
                           "                        WEIR_REDIS_URL in the environment\n"
                           "      --prefix=PREFIX   of every key in Redis (weir)\n"
                           "      --sample=N        names read from Redis each time, 100 to 100,000 (1,000)\n"
                           "  -i, --interval=S      seconds between readings, 0.1 to 3600 (1)\n"
                           "  -1, --once            two readings, printed once as plain text\n"
                           "      --json            as --once, as one line of JSON\n"
                           "      --color=WHEN      auto (default), always or never\n"
                           "  -h, --help            this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir top --status edge1:9100 edge2:9100\n"
                           "  weir top --redis redis://10.0.0.5\n"
                           "  weir top --once --status unix:/run/gateway.sock\n"
                           "  weir top --json --status edge1:9100 | jq '.nodes[].sync_errors'\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  every node has answered\n"
                           "  2  the command line is wrong, or there is no terminal\n"
                           "  3  a node, or Redis, cannot be reached\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest. An outage mode is no error.\n";

struct session {
    const struct arguments *arguments;
    struct output *out;
    int interval_ms;
    bool of_redis, paused, helps, shows_fleet;
    enum top_sort sort;
    struct top_nodes nodes;
    char *url; /* of Redis */
    struct fleet_sample sample;
    struct top_view view;
    bool failed; /* Redis, at the last reading */
    weir_error error;
};

static volatile sig_atomic_t end_signal;

static void note_signal(int number)
{
    end_signal = number;
}

static bool is_ended(void)
{
    return end_signal != 0;
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int fail_usage(const struct session *s, const char *sentence)
{
    (void) fprintf(stderr, "%s: %s\n", s->arguments->command, sentence);
    return CODE_USAGE;
}

/* A number of an option, between two bounds; `otherwise` where it is not given. False: a sentence is on stderr. */
static bool read_option(const struct session *s, int option, double least, double most, double otherwise, double *out)
{
    const char *text = s->arguments->values[option];
    char *end = NULL;
    *out = text != NULL ? strtod(text, &end) : otherwise;
    const bool good = text == NULL || (end != text && *end == '\0' && *out >= least && *out <= most);
    if (!good) {
        (void) fprintf(stderr, "%s: --%s takes a number from %g to %g\n", s->arguments->command, options[option].name,
                       least, most);
    }
    return good;
}

/* Opens what is asked. Returns an exit code; a sentence is on stderr where it is not CODE_GOOD. */
static int open_source(struct session *s)
{
    const struct arguments *arguments = s->arguments;
    const char *prefix = arguments->values[OPTION_PREFIX] != NULL ? arguments->values[OPTION_PREFIX] : "weir";
    double seconds;
    double sample;
    if (!read_option(s, OPTION_INTERVAL, 0.1, 3600, 1, &seconds) ||
        !read_option(s, OPTION_SAMPLE, 100, 100000, 1000, &sample)) {
        return CODE_USAGE;
    }
    s->interval_ms = (int) (seconds * 1000);
    if (arguments->operand_count != 0 || arguments->values[OPTION_STATUS] != NULL) {
        char why[256];
        if (arguments->values[OPTION_REDIS] != NULL) {
            return fail_usage(s, "--redis takes no addresses; give --status with them, or --redis alone");
        }
        if (arguments->operand_count == 0) {
            return fail_usage(s, "--status: there is no address; give one such as 10.0.0.7:9100");
        }
        return top_nodes_open(&s->nodes, arguments->operands, arguments->operand_count, why, sizeof(why))
                   ? CODE_GOOD
                   : fail_usage(s, why);
    }
    s->of_redis = true;
    s->url = redis_link_take_url(arguments->values[OPTION_REDIS]);
    if (s->url == NULL) {
        return fail_usage(s, "there is no node to ask; give --status ADDR..., --redis=URL, or WEIR_REDIS_URL in the "
                             "environment");
    }
    const size_t length = strlen(prefix);
    if (length == 0 || length > 32 || strpbrk(prefix, "{}*?[]\\ ") != NULL) {
        return fail_usage(s, "--prefix takes 1 to 32 bytes without braces, spaces, '*', '?', '[', ']' and '\\'");
    }
    const int opened = fleet_sample_open(&s->sample, s->url, prefix, (size_t) sample, &s->error);
    if (opened == 0) {
        inspector_end_by(s->sample.in, is_ended);
        return CODE_GOOD;
    }
    output_fault(s->out, s->error.message);
    return opened != -ENOMEM ? CODE_USAGE : CODE_UNASKED;
}

static void close_source(struct session *s)
{
    if (s->of_redis) {
        fleet_sample_close(&s->sample);
        redis_link_drop_url(s->url);
    } else {
        top_nodes_close(&s->nodes);
    }
    top_view_free(&s->view);
}

static void make_view(struct session *s)
{
    if (s->of_redis && s->failed && s->shows_fleet && !s->helps) {
        return; /* what the last good reading has shown stays */
    }
    s->shows_fleet = s->of_redis && !s->helps;
    top_view_clear(&s->view);
    if (s->helps) {
        top_view_help(&s->view);
    } else if (s->of_redis) {
        top_view_fleet(&s->view, &s->sample);
    } else {
        top_view_nodes(&s->view, &s->nodes, s->sort);
    }
}

/* Whether every node has answered, or Redis has. */
static bool all_answer(const struct session *s)
{
    bool good = !s->of_redis || (!s->failed && fleet_sample_lost(&s->sample) == 0);
    for (size_t i = 0; i < s->nodes.count; i++) {
        good = good && s->nodes.all[i].up;
    }
    return good;
}

static void read_once(struct session *s)
{
    if (s->of_redis) {
        s->failed = !fleet_sample_read(&s->sample, &s->error);
        return;
    }
    top_nodes_begin(&s->nodes);
    while (!top_nodes_step(&s->nodes, -1, s->interval_ms)) {
    }
}

static int print_once(struct session *s)
{
    read_once(s);
    if (!s->of_redis) { /* a rate is the difference of two readings */
        (void) poll(NULL, 0, s->interval_ms);
        read_once(s);
    }
    if (s->failed) {
        output_fault(s->out, s->error.message);
        return CODE_UNASKED;
    }
    make_view(s);
    for (size_t i = 0; i < s->view.count; i++) {
        output_styled(s->out, s->view.lines[i].style, s->view.lines[i].text);
        output_text(s->out, "\n");
    }
    if (s->of_redis && s->out->json) {
        tell_top_fleet(s->out, &s->sample);
    } else if (s->out->json) {
        tell_top_nodes(s->out, &s->nodes);
    }
    return all_answer(s) ? CODE_GOOD : CODE_UNASKED;
}

static void show(struct session *s)
{
    char title[VIEW_LINE_SIZE];
    make_view(s);
    if (s->failed) {
        (void) snprintf(title, sizeof(title), " weir top: no answer: %.200s", s->error.message);
    } else {
        (void) snprintf(title, sizeof(title), " weir top%s, every %g s, sorted by %s; q quits, h helps",
                        s->paused ? ", PAUSED" : "", (double) s->interval_ms / 1000, top_sort_name(s->sort));
    }
    screen_show(&s->view, title);
}

/* Does what the keys say. False: quit. */
static bool take_keys(struct session *s, int64_t *next_ms)
{
    enum screen_key key;
    while ((key = screen_key(&s->view)) != KEY_IS_NONE) {
        switch (key) {
        case KEY_IS_QUIT:
            return false;
        case KEY_IS_SORT:
            s->sort = (s->sort + 1) % SORT_COUNT;
            break;
        case KEY_IS_READ:
            *next_ms = 0;
            break;
        case KEY_IS_PAUSE:
            s->paused = !s->paused;
            break;
        case KEY_IS_HELP:
            s->helps = !s->helps;
            break;
        default:
            break;
        }
        show(s);
    }
    return true;
}

/* Begins a reading where one is due, and waits for the keyboard and for answers. */
static void go_on(struct session *s, int64_t *next_ms)
{
    const int64_t now = now_ms();
    if (now >= *next_ms && (!s->paused || *next_ms == 0)) {
        *next_ms = now + s->interval_ms;
        if (s->of_redis) {
            read_once(s);
            show(s);
        } else if (!s->nodes.under_way) {
            top_nodes_begin(&s->nodes);
        }
    }
    if (s->nodes.under_way) {
        if (top_nodes_step(&s->nodes, STDIN_FILENO, 200)) {
            show(s);
        }
        return;
    }
    const int64_t left = *next_ms - now;
    struct pollfd keyboard = {.fd = STDIN_FILENO, .events = POLLIN};
    (void) poll(&keyboard, 1, s->paused || left > 500 ? 500 : left > 0 ? (int) left : 0);
    if ((keyboard.revents & (POLLHUP | POLLERR)) != 0) {
        end_signal = end_signal != 0 ? end_signal : SIGHUP; /* the terminal is gone */
    }
}

static int run_screen(struct session *s)
{
    char why[160];
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    if (!screen_open(s->out->colour, why, sizeof(why))) {
        return fail_usage(s, why);
    }
    /* ncurses has handlers of its own for two of these: ours come after them, and without SA_RESTART. */
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void) sigaction(numbers[i], &(struct sigaction){.sa_handler = note_signal}, NULL);
    }
    int64_t next_ms = 0;
    show(s);
    while (end_signal == 0 && take_keys(s, &next_ms)) {
        go_on(s, &next_ms);
    }
    screen_close();
    if (end_signal != 0) {
        (void) signal(end_signal, SIG_DFL);
        (void) raise(end_signal);
    }
    return CODE_GOOD;
}

static int run_top(const struct arguments *arguments, struct output *out)
{
    struct session s = {.arguments = arguments, .out = out};
    int code = open_source(&s);
    if (code == CODE_GOOD) {
        code = out->json || arguments->values[OPTION_ONCE] != NULL ? print_once(&s) : run_screen(&s);
    }
    close_source(&s);
    return code;
}

const struct command top_command = {.name = "top",
                                    .summary = "what the nodes do now: rates, denials, sync health",
                                    .help = help,
                                    .options = options,
                                    .option_count = OPTION_COUNT,
                                    .run = run_top};
