/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as Prometheus text, status as JSON. */
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/report.h"
#include "gateway.h"
#include "xdp/xdp.h"
#include "xsk/forward.h"

uint64_t sum_of(const struct gateway *gateway, size_t offset)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < gateway->worker_count; i++) {
        const char *counters = (const char *) &gateway->workers[i].counters;
        /* Acquire, for bump and publish: a worker writes `offered` and `replies` of a turn last. */
        sum +=
            atomic_load_explicit((const _Atomic uint64_t *) (const void *) (counters + offset), memory_order_acquire);
    }
    return sum;
}

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text->bytes + text->length, text->size - text->length, format, arguments);
    va_end(arguments);
    text->length += n > 0 && (size_t) n < text->size - text->length ? (size_t) n : 0;
}

static void metric(struct text *text, const char *name, const char *type, const char *help, uint64_t value)
{
    add(text, "# HELP weir_gateway_%s %s\n# TYPE weir_gateway_%s %s\nweir_gateway_%s %" PRIu64 "\n", name, help, name,
        type, name, value);
}

/* What each listener in force has received. `form` has its address, and a count. */
static void add_listeners(struct text *text, struct gateway *gateway, const char *between, bool json)
{
    const char *separator = "";
    (void) pthread_mutex_lock(&gateway->listeners.mutex);
    for (size_t i = 0; i < LISTENER_SLOTS; i++) {
        const struct listener *listener = &gateway->listeners.all[i];
        if (listener->is_in_force) {
            add(text,
                json ? "%s{\"address\":\"%s\",\"offered\":%" PRIu64 "}"
                     : "%sweir_gateway_listener_packets_total{listen=\"%s\"} %" PRIu64 "\n",
                separator, listener->text, SUM(gateway, received[i]));
            separator = between;
        }
    }
    (void) pthread_mutex_unlock(&gateway->listeners.mutex);
}

/* Sessions that made way, by their use then. */
static void add_evicted(struct text *text, const struct gateway *gateway)
{
    add(text, "# HELP weir_gateway_evicted_sessions_total Sessions closed to make room for another client.\n"
              "# TYPE weir_gateway_evicted_sessions_total counter\n");
    static const char *const states[USE_COUNT] = {
        [USE_ANSWERED] = "answered", [USE_WAITING] = "waiting", [USE_USED] = "used"};
    for (int use = 0; use < USE_COUNT; use++) {
        add(text, "weir_gateway_evicted_sessions_total{state=\"%s\"} %" PRIu64 "\n", states[use],
            SUM(gateway, sessions_evicted[use]));
    }
}

/* By the gateway and by the kernel. */
static uint64_t invalid_sources(struct gateway *gateway)
{
    struct xdp_status kernel;
    return SUM(gateway, invalid_sources) + (xdp_get_status(gateway->xdp, &kernel) ? kernel.invalid_sources : 0);
}

static unsigned count_waiting(struct gateway *gateway)
{
    return (unsigned) __builtin_popcountll(atomic_load(&gateway->waiting));
}

/* The settings whose change waits for a restart, by name. */
static void add_waiting(struct text *text, struct gateway *gateway)
{
    add(text, "\"waiting\":[");
    const char *separator = "";
    for (uint64_t left = atomic_load(&gateway->waiting); left != 0; left &= left - 1) {
        add(text, "%s\"%s\"", separator, setting_entries[__builtin_ctzll(left)].name);
        separator = ",";
    }
    add(text, "],");
}

struct text write_metrics(struct gateway *gateway)
{
    const int library = gateway->weir != NULL ? weir_write_metrics(gateway->weir, NULL, 0) : 0;
    struct text text = {.size = 32768 + REPORT_SIZE + (size_t) library * 2};
    text.bytes = malloc(text.size);
    if (text.bytes == NULL) {
        return text;
    }
    metric(&text, "offered_packets_total", "counter", "Packets from clients.", SUM(gateway, offered));
    add(&text, "# HELP weir_gateway_listener_packets_total Packets from clients, by the address that they sent to.\n"
               "# TYPE weir_gateway_listener_packets_total counter\n");
    add_listeners(&text, gateway, "", false);
    metric(&text, "passed_packets_total", "counter", "Packets within the limits.", SUM(gateway, passed));
    metric(&text, "offered_bytes_total", "counter", "Bytes of packets from clients, without headers.",
           SUM(gateway, offered_bytes));
    metric(&text, "passed_bytes_total", "counter", "Bytes of packets within the limits.", SUM(gateway, passed_bytes));
    metric(&text, "reply_bytes_total", "counter", "Bytes of replies sent to clients.", SUM(gateway, replied_bytes));
    add(&text, "# HELP weir_gateway_dropped_packets_total Packets over a limit.\n"
               "# TYPE weir_gateway_dropped_packets_total counter\n");
    const size_t count = atomic_load(&gateway->policies.count);
    for (size_t i = 0; i < count; i++) {
        add(&text, "weir_gateway_dropped_packets_total{limit=\"%s\"} %" PRIu64 "\n", gateway->policies.all[i].name,
            SUM(gateway, dropped[i]));
    }
    add(&text, "weir_gateway_dropped_packets_total{limit=\"*\"} %" PRIu64 "\n", SUM(gateway, dropped_of_all));
    metric(&text, "unsendable_packets_total", "counter", "Packets that passed and could not be forwarded.",
           SUM(gateway, unsendable));
    metric(&text, "without_port_packets_total", "counter",
           "Packets of new clients that were not forwarded as no local port had rested; they are unsendable, too.",
           SUM(gateway, without_port));
    metric(
        &text, "invalid_source_packets_total", "counter",
        "Packets dropped as no client has their source: port 0, an address of a listener or a backend, and the like.",
        invalid_sources(gateway));
    metric(&text, "loops_total", "counter", "Clients that were found to be gateways or echoes.", SUM(gateway, loops));
    metric(&text, "looped_packets_total", "counter", "Packets dropped of such clients.", SUM(gateway, looped));
    text.length += report_metrics(&gateway->backends, text.bytes + text.length, text.size - text.length);
    metric(&text, "reply_packets_total", "counter", "Replies sent to clients.", SUM(gateway, replies));
    metric(&text, "lost_reply_packets_total", "counter", "Replies that could not be sent to their client.",
           SUM(gateway, lost_replies));
    metric(&text, "sessions", "gauge", "Clients with a socket to the backend.", SUM(gateway, sessions));
    add_evicted(&text, gateway);
    metric(&text, "moved_sessions_total", "counter", "Sessions that moved from a backend that is down to another one.",
           SUM(gateway, sessions_moved));
    metric(&text, "merged_packets_total", "counter", "Packets that the kernel handed over together with others.",
           SUM(gateway, merged));
    metric(&text, "segmented_packets_total", "counter", "Packets that the kernel was given together with others.",
           SUM(gateway, segmented));
    add(&text, "# HELP weir_gateway_policy_in_force Whether there is a policy of that name: 1, or 0.\n"
               "# TYPE weir_gateway_policy_in_force gauge\n");
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &gateway->policies.all[i];
        add(&text, "weir_gateway_policy_in_force{policy=\"%s\"} %d\n", policy->name,
            atomic_load(&policy->id) != WEIR_NO_POLICY);
    }
    struct xdp_status kernel;
    if (xdp_get_status(gateway->xdp, &kernel)) {
        metric(&text, "kernel_dropped_packets_total", "counter", "Packets dropped by XDP, of sources that are denied.",
               kernel.packets);
        metric(&text, "kernel_dropped_bytes_total", "counter", "Bytes of packets dropped by XDP, without headers.",
               kernel.bytes);
        metric(&text, "kernel_attached", "gauge", "Whether the program of XDP is on its interface: 1, or 0.",
               kernel.is_attached);
        metric(&text, "kernel_held_keys", "gauge", "Sources and networks whose packets XDP drops.", kernel.keys);
    }
    if (gateway->forward != NULL) {
        metric(&text, "forward_received_packets_total", "counter", "Packets received by AF_XDP.",
               SUM(gateway, frames_received));
        metric(&text, "forward_sent_packets_total", "counter", "Packets sent by AF_XDP.", SUM(gateway, frames_sent));
        metric(&text, "forward_lost_packets_total", "counter",
               "Packets received by AF_XDP that found no room, were damaged, or were for nobody any more.",
               SUM(gateway, frames_lost));
    }
    struct record_status recorded;
    if (record_get_status(gateway->record, &recorded)) {
        metric(&text, "recorded_packets_total", "counter", "Denied packets in the files of --record.",
               recorded.packets);
        metric(&text, "record_lost_packets_total", "counter",
               "Denied packets that were to be recorded and were not: the queue was full, or the file failed.",
               recorded.lost);
        metric(&text, "record_fails", "gauge", "Whether the file of --record cannot be written: 1, or 0.",
               recorded.fails);
    }
    metric(&text, "reloads_total", "counter", "Reloads that were taken.", atomic_load(&gateway->reloads));
    metric(&text, "reload_errors_total", "counter", "Reloads that were refused.", atomic_load(&gateway->reload_errors));
    metric(&text, "waiting_settings", "gauge", "Settings whose change waits for a restart.", count_waiting(gateway));
    if (gateway->weir != NULL) {
        const int n = weir_write_metrics(gateway->weir, text.bytes + text.length, text.size - text.length);
        text.length += n > 0 && (size_t) n < text.size - text.length ? (size_t) n : 0;
    }
    return text;
}

/* What each policy is, and what became of the packets that were checked by it. */
static void add_policies(struct text *text, const struct gateway *gateway)
{
    const size_t count = atomic_load(&gateway->policies.count);
    add(text, "\"dropped\":{");
    for (size_t i = 0; i < count; i++) {
        add(text, "%s\"%s\":%" PRIu64, i != 0 ? "," : "", gateway->policies.all[i].name, SUM(gateway, dropped[i]));
    }
    if (SUM(gateway, dropped_of_all) != 0) {
        add(text, ",\"*\":%" PRIu64, SUM(gateway, dropped_of_all));
    }
    add(text, "},\"policies\":{");
    for (size_t i = 0; i < count; i++) {
        const struct gateway_policy *policy = &gateway->policies.all[i];
        const bool in_force = atomic_load(&policy->id) != WEIR_NO_POLICY;
        const uint64_t dropped = SUM(gateway, dropped[i]);
        const uint64_t offered = SUM(gateway, checked[i]);
        add(text,
            "%s\"%s\":{\"in_force\":%s,\"mode\":\"%s\",\"offered\":%" PRIu64 ",\"passed\":%" PRIu64
            ",\"dropped\":%" PRIu64 ",\"would_deny\":%" PRIu64 "}",
            i != 0 ? "," : "", policy->name, in_force ? "true" : "false",
            !in_force                      ? "off"
            : atomic_load(&policy->shadow) ? "shadow"
                                           : "enforce",
            offered, offered > dropped ? offered - dropped : 0, dropped, SUM(gateway, would_deny[i]));
    }
    add(text, "},");
}

static void add_offenders(struct text *text, const struct gateway *gateway)
{
    weir_offender offenders[WEIR_TOP_OFFENDERS];
    const struct gateway_policy *sources = &gateway->policies.all[0]; /* "source" */
    const bool shadow = atomic_load(&sources->shadow);
    size_t count = 0;
    if (gateway->weir != NULL) {
        count = weir_top_offenders(gateway->weir, atomic_load(&sources->id), offenders, WEIR_TOP_OFFENDERS);
    }
    add(text, "\"offenders\":[");
    for (size_t i = 0; i < count; i++) {
        const char *source = offenders[i].key; /* an address, or a hash: nothing that JSON would have escaped */
        const uint64_t units = offenders[i].denied_units;
        add(text,
            "%s{\"source\":\"%s\",\"hashed\":%s,\"mode\":\"%s\",\"denied\":%" PRIu64 ",\"would_deny\":%" PRIu64
            ",\"error\":%" PRIu64 "}",
            i != 0 ? "," : "", source, *source == '~' ? "true" : "false", shadow ? "shadow" : "enforce",
            shadow ? 0 : units, shadow ? units : 0, offenders[i].error_units);
    }
    add(text, "],");
}

struct text write_status(struct gateway *gateway)
{
    static const char *const links[] = {"none", "down", "up"};
    struct text text = {.bytes = malloc(32768 + REPORT_SIZE), .size = 32768 + REPORT_SIZE};
    if (text.bytes == NULL) {
        return text;
    }
    const uint64_t checks = SUM(gateway, timed_checks);
    const uint64_t waiting = SUM(gateway, sessions_evicted[USE_WAITING]);
    const uint64_t used = SUM(gateway, sessions_evicted[USE_USED]);
    weir_stats stats = {.fleet_age_ns = UINT64_MAX};
    if (gateway->weir != NULL) {
        weir_get_stats(gateway->weir, &stats);
    }
    add(&text,
        "{\"version\":\"%d.%d.%d\",\"threads\":%u,\"offered\":%" PRIu64 ",\"passed\":%" PRIu64
        ",\"unsendable\":%" PRIu64 ",\"without_port\":%" PRIu64 ",\"replies\":%" PRIu64 ",\"sessions\":%" PRIu64
        ",\"ns_per_check\":%.1f,\"reloads\":%" PRIu64 ",\"reload_errors\":%" PRIu64 ",",
        WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH, gateway->worker_count, SUM(gateway, offered),
        SUM(gateway, passed), SUM(gateway, unsendable), SUM(gateway, without_port), SUM(gateway, replies),
        SUM(gateway, sessions), checks != 0 ? (double) SUM(gateway, timed_ns) / (double) checks : 0.0,
        atomic_load(&gateway->reloads), atomic_load(&gateway->reload_errors));
    add(&text, "\"backend\":\"%s\",\"refused\":%" PRIu64 ",\"backends\":", report_state_of_all(&gateway->backends),
        SUM(gateway, refused));
    text.length += report_json(&gateway->backends, text.bytes + text.length, text.size - text.length);
    add(&text, ",");
    add(&text,
        "\"bytes\":{\"offered\":%" PRIu64 ",\"passed\":%" PRIu64 ",\"replies\":%" PRIu64 "},\"lost_replies\":%" PRIu64
        ",\"evicted_sessions\":%" PRIu64 ",\"evicted_waiting\":%" PRIu64 ",\"evicted_used\":%" PRIu64
        ",\"moved_sessions\":%" PRIu64 ",\"invalid_sources\":%" PRIu64 ",\"loops\":%" PRIu64 ",\"looped\":%" PRIu64 ",",
        SUM(gateway, offered_bytes), SUM(gateway, passed_bytes), SUM(gateway, replied_bytes),
        SUM(gateway, lost_replies), SUM(gateway, sessions_evicted[USE_ANSWERED]) + waiting + used, waiting, used,
        SUM(gateway, sessions_moved), invalid_sources(gateway), SUM(gateway, loops), SUM(gateway, looped));
    add_waiting(&text, gateway);
    add(&text, "\"listeners\":[");
    add_listeners(&text, gateway, ",", true);
    add(&text, "],");
    add_policies(&text, gateway);
    add_offenders(&text, gateway);
    add(&text, "\"offload\":{\"receive\":%s,\"send\":%s,\"merged\":%" PRIu64 ",\"segmented\":%" PRIu64 "},",
        SUM(gateway, merges) == gateway->worker_count ? "true" : "false",
        SUM(gateway, segments) == gateway->worker_count ? "true" : "false", SUM(gateway, merged),
        SUM(gateway, segmented));
    struct xdp_status kernel;
    if (xdp_get_status(gateway->xdp, &kernel)) {
        add(&text,
            "\"kernel\":{\"interface\":\"%s\",\"mode\":\"%s\",\"keys\":%" PRIu32 ",\"dropped\":%" PRIu64
            ",\"dropped_bytes\":%" PRIu64 "},",
            kernel.interface, kernel.mode, kernel.keys, kernel.packets, kernel.bytes);
    } else {
        add(&text, "\"kernel\":null,");
    }
    if (gateway->forward != NULL) {
        add(&text, "\"forward\":{\"queues\":%u,\"received\":%" PRIu64 ",\"sent\":%" PRIu64 ",\"lost\":%" PRIu64 "},",
            forward_queues(gateway->forward), SUM(gateway, frames_received), SUM(gateway, frames_sent),
            SUM(gateway, frames_lost));
    } else {
        add(&text, "\"forward\":null,");
    }
    struct record_status recorded;
    if (record_get_status(gateway->record, &recorded)) {
        add(&text, "\"record\":{\"fails\":%s,\"packets\":%" PRIu64 ",\"lost\":%" PRIu64 "},",
            recorded.fails ? "true" : "false", recorded.packets, recorded.lost);
    } else {
        add(&text, "\"record\":null,");
    }
    add(&text, "\"limited\":%s,\"keys\":%" PRIu64 ",\"redis\":\"%s\",\"live_nodes\":%" PRIu32 ",\"fleet_age_ms\":",
        gateway->weir != NULL ? "true" : "false", stats.key_count, links[stats.link], stats.live_nodes);
    if (stats.fleet_age_ns == UINT64_MAX) {
        add(&text, "null}\n");
    } else {
        add(&text, "%" PRIu64 "}\n", stats.fleet_age_ns / 1000000);
    }
    return text;
}

struct text write_weir_status(struct gateway *gateway)
{
    struct text text = {.size = 2 * (size_t) weir_write_status(gateway->weir, NULL, 0) + 4096};
    text.bytes = malloc(text.size);
    if (text.bytes != NULL) {
        const int n = weir_write_status(gateway->weir, text.bytes, text.size);
        text.length = n > 0 && (size_t) n < text.size ? (size_t) n : 0;
    }
    return text;
}
