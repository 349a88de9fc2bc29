/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's life: open, reload on SIGHUP, drain and report on SIGTERM; who started it is told of each. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "gateway.h"
#include "kinds/kind_file.h"
#include "listening.h"
#include "log.h"
#include "notify.h"
#include "reload.h"
#include "xdp/xdp.h"
#include "xsk/forward.h"

/* Of the addresses that a line names; what has no room is left out. */
#define LIST_SIZE 400

/*
 * Logs why the limits could not be opened; names the option or the variable that gave Redis's URL. Returns the exit
 * code.
 */
static int tell_of_open(const struct gateway_options *options, int result, const char *message)
{
    static const char field[] = "redis_url";
    const bool of_url = strncmp(message, field, sizeof(field) - 1) == 0;
    log_line(WEIR_LOG_ERROR, "%s%s", of_url ? options->redis_origin : "",
             of_url ? message + sizeof(field) - 1 : message);
    return result == -EINVAL ? 2 : 1;
}

/* 0, or an exit code. */
static int open_limits(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    if (options->policies == NULL) {
        log_line(WEIR_LOG_WARNING, "no --policies: nothing is limited");
        return 0;
    }
    weir_options limits = WEIR_OPTIONS_INIT;
    limits.redis_url = options->redis_url;
    limits.fleet_secret = options->fleet_secret;
    limits.prefix = options->redis_prefix;
    limits.node_name = options->node_name;
    limits.sync_interval_ms = options->sync_interval_ms;
    limits.expected_nodes = options->expected_nodes;
    limits.max_keys = options->max_keys;
    limits.max_threads = options->threads + 1; /* one more tells what the kernel drops */
    limits.log = log_library;
    limits.no_denial_log = options->no_denial_log && gateway->sources.config == NULL; /* a reload may ask for them */
    weir_error error;
    const int result = weir_open(&limits, &gateway->weir, &error);
    if (result != 0) {
        return tell_of_open(options, result, error.message);
    }
    struct packet_kinds kinds;
    bool good = kind_file_read(options->kinds, &kinds, &error);
    if (!good) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
    }
    good = good && policies_start(&gateway->policies, gateway->weir, options->policies, &kinds, options->allow_missing);
    kind_store_set(&gateway->kinds, &kinds);
    if (!good) {
        weir_close(gateway->weir);
        return 1;
    }
    return 0;
}

/* Serves the pages, where they are wanted. */
static int start_http(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    const int handed = gateway->activation.metrics_fd;
    if (handed < 0 && options->metrics_text == NULL) {
        return 0;
    }
    gateway->http = http_start(gateway, &options->metrics, handed);
    if (gateway->http == NULL) {
        log_line(WEIR_LOG_ERROR, "--metrics %s: %s", options->metrics_text != NULL ? options->metrics_text : "",
                 strerror(errno));
    }
    return gateway->http != NULL ? 0 : -1;
}

/* Puts the backends of the options in force, and looks after their health. */
static int start_backends(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    char problem[256];
    for (unsigned i = 0; i < options->threads; i++) {
        gateway->reporters[i] = &gateway->workers[i].reports;
    }
    backends_init(&gateway->backends, options->fleet_secret, gateway->reporters, options->threads);
    if (backends_replace(&gateway->backends, options->backends, (unsigned) options->backend.count, problem,
                         sizeof(problem)) != 0) {
        log_line(WEIR_LOG_ERROR, "--backend: %s", problem);
        return -1;
    }
    gateway->checker = checker_start(&gateway->backends, &options->checks);
    if (gateway->checker == NULL) {
        log_line(WEIR_LOG_ERROR, "cannot start a thread: %s", strerror(errno));
    }
    return gateway->checker != NULL ? 0 : -1;
}

/* Opens the table of local ports. Without one of its own directory the gateway remembers ports until it ends. */
static int start_ports(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    const unsigned rest_ms = 1000 * options->port_rest_seconds;
    char problem[512];
    gateway->ports = ports_open(options->state, rest_ms, problem, sizeof(problem));
    if (gateway->ports == NULL && options->state != NULL) {
        log_line(WEIR_LOG_ERROR, "--state %s", problem);
        return -1;
    }
    if (gateway->ports == NULL) {
        log_line(WEIR_LOG_WARNING,
                 "%s; a restart will not know which client has which local port; give a directory with --state",
                 problem);
        gateway->ports = ports_open_private(rest_ms);
    }
    if (gateway->ports == NULL) {
        log_line(WEIR_LOG_ERROR, "no table of local ports: %s", strerror(ENOMEM));
        return -1;
    }
    const unsigned count = ports_count(gateway->ports);
    if (options->from[SETTING_SESSIONS] != NULL && gateway->sessions > count / options->threads &&
        !options->transparent) {
        log_line(WEIR_LOG_WARNING,
                 "--sessions %u: %u local ports allow fewer for each of %u threads; widen net.ipv4.ip_local_port_range",
                 gateway->sessions, count, options->threads);
    }
    return 0;
}

/* The packets a second that a policy lets pass for long. */
struct overall_rate {
    double packets;
    bool is_there;
};

static void read_overall_rate(void *arg, const weir_policy_info *info)
{
    struct overall_rate *rate = arg;
    for (size_t i = 0; strcmp(info->policy->name, "overall") == 0 && i < info->policy->limit_count; i++) {
        const weir_limit *limit = &info->policy->limits[i];
        const double packets = (double) limit->limit * 1e9 / (double) limit->period_ns;
        rate->packets = rate->is_there && rate->packets < packets ? rate->packets : packets;
        rate->is_there = true;
    }
}

/* Each packet that "overall" lets pass may be a new client's. Says so where that is more than there is room for. */
static void compare_overall(const struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    struct overall_rate overall = {.is_there = false};
    if (gateway->weir == NULL) {
        return;
    }
    (void) weir_list_policies(gateway->weir, read_overall_rate, &overall);
    const double sessions = (double) gateway->sessions * options->threads;
    const double rested = (double) ports_count(gateway->ports) - sessions;
    const double ports = rested > 0 ? rested / options->port_rest_seconds : 0;
    if (overall.is_there && (overall.packets > sessions || (overall.packets > ports && !options->transparent))) {
        log_line(WEIR_LOG_INFO,
                 "policy \"overall\" lets %.0f packets pass a second, and each may be a new client's; there are %.0f "
                 "sessions, and local ports for %.0f new clients a second",
                 overall.packets, sessions, ports);
    }
}

static int start_workers(struct gateway *gateway)
{
    for (; gateway->worker_count < gateway->options.threads; gateway->worker_count++) {
        if (worker_open(&gateway->workers[gateway->worker_count], gateway) != 0) {
            return -1;
        }
    }
    if (listening_start(gateway) != 0) {
        return -1;
    }
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        struct worker *worker = &gateway->workers[i];
        const int result = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (result != 0) {
            log_line(WEIR_LOG_ERROR, "cannot start a thread: %s", strerror(result));
            return -1;
        }
        worker->is_started = true;
    }
    return 0;
}

/*
 * Grows the process's table of descriptors to what it may need. While there is one thread that is quick; later the
 * kernel waits for all processors at each growth (synchronize_rcu), and packets wait with the thread.
 */
static void grow_descriptor_table(rlim_t count)
{
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int high = fd >= 0 && count <= INT_MAX ? fcntl(fd, F_DUPFD_CLOEXEC, (int) count - 1) : -1;
    if (high >= 0) {
        (void) close(high);
    }
    if (fd >= 0) {
        (void) close(fd);
    }
}

/* Each client has a descriptor: allow as many as this process may have, and keep the clients within that. */
static int fit_descriptors(struct gateway *gateway)
{
    struct gateway_options *options = &gateway->options;
    struct rlimit limit = {.rlim_max = 0};
    (void) getrlimit(RLIMIT_NOFILE, &limit); /* it fails only for a limit that the system does not know */
    limit.rlim_cur = limit.rlim_max;
    (void) setrlimit(RLIMIT_NOFILE, &limit);
    /* A reload may add listeners and backends. */
    const bool has_config = gateway->sources.config != NULL;
    const size_t listeners = has_config ? LISTENERS_MAX : options->listen.count + gateway->activation.listener_count;
    const size_t backends = has_config ? BACKENDS_MAX : options->backend.count;
    const rlim_t lanes = xdp_wants_forward(options->xdp) ? options->threads : 0;
    const rlim_t spare = GATEWAY_DESCRIPTORS(options->threads, listeners, backends) + lanes;
    const rlim_t most = limit.rlim_cur > spare ? (limit.rlim_cur - spare) / options->threads : 0;
    if (most < GATEWAY_SESSIONS_MIN) {
        log_line(WEIR_LOG_ERROR, "%ju file descriptors are too few for %u threads; raise the limit (ulimit -Hn)",
                 (uintmax_t) limit.rlim_cur, options->threads);
        return -1;
    }
    if (options->sessions > most) {
        log_line(WEIR_LOG_WARNING, "--sessions %u: %ju file descriptors allow %ju for each of %u threads",
                 options->sessions, (uintmax_t) limit.rlim_cur, (uintmax_t) most, options->threads);
    }
    gateway->sessions = options->sessions < most ? options->sessions : (unsigned) most;
    grow_descriptor_table(spare + (rlim_t) options->threads * gateway->sessions);
    return 0;
}

static void stop(struct gateway *gateway)
{
    forward_end(gateway->forward);
    atomic_store(&gateway->stopping, true);
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        if (gateway->workers[i].is_started) {
            (void) pthread_join(gateway->workers[i].thread, NULL);
        }
        worker_close(&gateway->workers[i]);
    }
    checker_stop(gateway->checker);
    forward_stop(gateway->forward);
    xdp_stop(gateway->xdp);
    record_stop(gateway->record);
    ports_close(gateway->ports);
    weir_close(gateway->weir);
}

/* Where the kernel cannot drop packets the gateway does, and where it cannot forward past the stack sockets do. */
static void start_xdp(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    char problem[256];
    char drop_problem[256];
    if (options->xdp == NULL) {
        return;
    }
    const bool forward = xdp_wants_forward(options->xdp);
    const struct xdp_forwarding forwarding = {options->threads, options->threads * gateway->sessions};
    if (gateway->weir == NULL && !forward) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: nothing is limited, so the kernel drops nothing", options->xdp);
        return;
    }
    gateway->xdp = xdp_start(options->xdp, forward ? &forwarding : NULL, &gateway->policies, gateway->weir, problem,
                             sizeof(problem));
    if (gateway->xdp == NULL && forward && gateway->weir != NULL) {
        gateway->xdp =
            xdp_start(options->xdp, NULL, &gateway->policies, gateway->weir, drop_problem, sizeof(drop_problem));
    }
    if (gateway->xdp == NULL) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: %s; packets are dropped here and not in the kernel%s", options->xdp,
                 problem, forward ? ", and go by sockets" : "");
        return;
    }
    struct xdp_status status;
    (void) xdp_get_status(gateway->xdp, &status);
    if (status.drops) {
        log_line(WEIR_LOG_INFO, "the kernel drops packets at %s (XDP, %s)", status.interface, status.mode);
    }
    if (forward && !status.forwards) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: %s; packets go by sockets", options->xdp, problem);
    }
}

/* After the backends, and before the workers. */
static void start_forward(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    char problem[256];
    struct xdp_status status;
    if (!xdp_get_status(gateway->xdp, &status) || !status.forwards) {
        return;
    }
    if (options->transparent) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: with --transparent packets go by sockets", options->xdp);
        return;
    }
    gateway->forward = forward_start(gateway->xdp, &gateway->backends, options->threads, problem, sizeof(problem));
    if (gateway->forward == NULL) {
        log_line(WEIR_LOG_WARNING, "--xdp %s: %s; packets go by sockets", options->xdp, problem);
        return;
    }
    const unsigned queues = forward_queues(gateway->forward);
    log_line(WEIR_LOG_INFO, "packets are forwarded past the network stack at %s (AF_XDP, %s, %u receive queue%s)",
             status.interface, status.mode, queues, queues == 1 ? "" : "s");
}

/* False: denied packets cannot be recorded. */
static bool start_record(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    if (options->record.path == NULL) {
        return true;
    }
    gateway->record = record_start(&options->record, options->threads, &gateway->policies);
    return gateway->record != NULL;
}

static void print_start(struct gateway *gateway)
{
    char listen[LIST_SIZE];
    const struct gateway_options *options = &gateway->options;
    (void) listeners_list(&gateway->listeners, listen, sizeof(listen));
    const struct log_field fields[] = {
        {"listen", listen, 0}, {"backend", options->backend_text, 0}, {"threads", NULL, gateway->worker_count}};
    log_event(WEIR_LOG_INFO, fields, sizeof(fields) / sizeof(fields[0]), "%s -> %s, %u threads", listen,
              options->backend_text, gateway->worker_count);
}

static void print_counts(struct gateway *gateway)
{
    const uint64_t offered = SUM(gateway, offered);
    const uint64_t passed = SUM(gateway, passed);
    const uint64_t replies = SUM(gateway, replies);
    const struct log_field fields[] = {{"offered", NULL, offered},
                                       {"passed", NULL, passed},
                                       {"dropped", NULL, offered - passed},
                                       {"replies", NULL, replies}};
    log_event(WEIR_LOG_INFO, fields, sizeof(fields) / sizeof(fields[0]),
              "offered %" PRIu64 ", passed %" PRIu64 ", dropped %" PRIu64 ", replies %" PRIu64, offered, passed,
              offered - passed, replies);
}

/* Whether every thread has waited or worked since this last held. */
static bool all_turned(struct gateway *gateway)
{
    uint64_t turns[GATEWAY_THREADS_MAX];
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        turns[i] = atomic_load_explicit(&gateway->workers[i].counters.turns, memory_order_relaxed);
        if (turns[i] == gateway->workers[i].turns_seen) {
            return false;
        }
    }
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        gateway->workers[i].turns_seen = turns[i];
    }
    return true;
}

/* The watchdog hears of a gateway whose threads all run. It is asked four times for each time that it may hear late. */
static void feed_watchdog(struct gateway *gateway, const struct notify *notify, unsigned *missed)
{
    if (all_turned(gateway)) {
        *missed = 0;
        notify_say(notify, "WATCHDOG=1");
    } else if (++*missed == 2) {
        log_line(WEIR_LOG_ERROR, "a thread stands still: the watchdog hears nothing until it goes on");
    }
}

/* The next signal; 0: the time has come to feed the watchdog. */
static int next_signal(const sigset_t *signals, uint64_t watchdog_us)
{
    const uint64_t wait_us = watchdog_us / 4;
    const struct timespec wait = {.tv_sec = (time_t) (wait_us / 1000000), .tv_nsec = (long) (wait_us % 1000000) * 1000};
    for (;;) {
        const int number = watchdog_us == 0 ? sigwaitinfo(signals, NULL) : sigtimedwait(signals, NULL, &wait);
        if (number >= 0 || errno != EINTR) {
            return number >= 0 ? number : 0;
        }
    }
}

/* Tells who started the gateway that it serves, and where. */
static void say_ready(struct gateway *gateway, const struct notify *notify, const char *more)
{
    char listen[LIST_SIZE];
    (void) listeners_list(&gateway->listeners, listen, sizeof(listen));
    notify_say(notify, "READY=1\nSTATUS=%s -> %s, %u threads%s", listen, gateway->options.backend_text,
               gateway->worker_count, more);
}

/* Serves until a signal ends it. */
static void serve(struct gateway *gateway, const sigset_t *signals, const struct notify *notify)
{
    unsigned missed = 0;
    say_ready(gateway, notify, "");
    for (;;) {
        const int number = next_signal(signals, notify->watchdog_us);
        if (number == 0) {
            feed_watchdog(gateway, notify, &missed);
        } else if (number == SIGHUP) {
            notify_reloading(notify);
            const bool good = reload(gateway);
            say_ready(gateway, notify, good ? "" : "; a reload was refused, see the log");
        } else {
            notify_say(notify, "STOPPING=1");
            return;
        }
    }
}

int main(int argc, char **argv)
{
    static struct gateway gateway;
    char problem[256];
    const bool activated = activation_open(&gateway.activation, problem, sizeof(problem));
    gateway.sources.has_handed = !activated || gateway.activation.listener_count != 0;
    options_parse(argc, argv, &gateway.sources, &gateway.options);
    reload_begin(&gateway);
    if (!activated || !listening_check(&gateway, problem, sizeof(problem))) {
        log_line(WEIR_LOG_ERROR, "%s", problem);
        return 2;
    }
    policy_table_init(&gateway.policies);
    kind_store_open(&gateway.kinds);
    listeners_init(&gateway.listeners);
    sigset_t signals;
    (void) sigemptyset(&signals);
    (void) sigaddset(&signals, SIGHUP);
    (void) sigaddset(&signals, SIGINT);
    (void) sigaddset(&signals, SIGTERM);
    (void) pthread_sigmask(SIG_BLOCK, &signals, NULL); /* before any thread: they all inherit it */
    (void) signal(SIGPIPE, SIG_IGN);                   /* the reader of the log may close it */
    if (fit_descriptors(&gateway) != 0) {
        return 1;
    }
    struct notify notify;
    notify_open(&notify);
    const int code = open_limits(&gateway);
    if (code != 0) {
        return code;
    }
    start_xdp(&gateway);
    if (!start_record(&gateway) || start_backends(&gateway) != 0 || start_ports(&gateway) != 0) {
        stop(&gateway);
        return 1;
    }
    start_forward(&gateway);
    compare_overall(&gateway);
    if (start_workers(&gateway) != 0) {
        stop(&gateway);
        return 1;
    }
    if (start_http(&gateway) != 0) {
        stop(&gateway);
        return 1;
    }
    print_start(&gateway);
    serve(&gateway, &signals, &notify);
    http_stop(gateway.http);
    stop(&gateway);
    notify_close(&notify);
    print_counts(&gateway);
    return atomic_load(&gateway.failed) ? 1 : 0;
}
