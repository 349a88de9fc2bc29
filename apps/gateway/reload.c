/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See reload.h. What can fail comes first: the file is read, hosts are looked up, sockets are opened. The policies are
 * the last of it, as their reload is whole or not at all. What comes after cannot fail.
 */
#include "reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "gateway.h"
#include "kinds/kind_file.h"
#include "log.h"
#include "xdp/xdp.h"

/* A reload under way. */
struct change {
    struct settings *file;
    struct gateway_options options;
    unsigned opened[LISTENERS_MAX]; /* numbers of listeners that are new */
    size_t opened_count;
    uint32_t kept; /* a bit for each listener in force that stays */
    struct http *http;
    bool new_metrics;
};

void reload_begin(struct gateway *gateway)
{
    const struct gateway_options *options = &gateway->options;
    log_start(options->log_level, options->log_format);
    log_denials(!options->no_denial_log);
    atomic_store(&gateway->idle_seconds, options->idle_seconds);
}

static bool refuse(const char *sentence)
{
    log_line(WEIR_LOG_ERROR, "settings stay as they were: %s", sentence);
    return false;
}

/* Reads the file, and makes options of it. */
static bool read_again(struct gateway *gateway, struct change *change)
{
    weir_error error;
    struct setting_problem problem;
    change->file = calloc(1, sizeof(*change->file));
    if (change->file == NULL) {
        return refuse("out of memory");
    }
    if (config_read(gateway->sources.config, change->file, &error) != 0) {
        return refuse(error.message);
    }
    if (!settings_apply(&gateway->sources.line, change->file, &change->options, &problem) ||
        !options_check(&change->options, gateway->activation.listener_count != 0, &problem)) {
        return refuse(problem.sentence);
    }
    return true;
}

/* Looks up what is new of listeners, backends and metrics. A host name that is in force is not looked up again. */
static bool find_addresses(struct gateway *gateway, struct change *change)
{
    struct gateway_options *options = &change->options;
    struct setting_problem problem;
    for (size_t i = 0; i < options->listen.count; i++) {
        if (!options_find_listen(options, &gateway->options, i, &problem)) {
            return refuse(problem.sentence);
        }
        const unsigned number = listeners_find(&gateway->listeners, &options->listens[i]);
        change->kept |= number != LISTENER_SLOTS ? UINT32_C(1) << number : 0;
    }
    if (!options_find_backends(options, &gateway->options, &problem)) {
        return refuse(problem.sentence);
    }
    change->new_metrics = settings_differ(options, &gateway->options, SETTING_METRICS) &&
                          gateway->activation.metrics_fd < 0; /* the pages stay on a socket that was handed over */
    return !change->new_metrics || options->metrics_text == NULL ||
           options_find_address(options, SETTING_METRICS, 0, &options->metrics, &problem) || refuse(problem.sentence);
}

/* Opens the listeners that are new. */
static bool open_listeners(struct gateway *gateway, struct change *change)
{
    struct gateway_options *options = &change->options;
    for (size_t i = 0; i < options->listen.count; i++) {
        const struct listener_request request = {.text = options->listen.texts[i], .address = options->listens[i]};
        if (listeners_find(&gateway->listeners, &request.address) != LISTENER_SLOTS) {
            continue;
        }
        const int opened = listeners_open(gateway, &request);
        if (opened < 0) {
            struct setting_problem problem;
            settings_fail(options, SETTING_LISTEN, i, 1, strerror(-opened), &problem);
            return refuse(problem.sentence);
        }
        change->opened[change->opened_count++] = (unsigned) opened;
    }
    return true;
}

/* Serves the pages at another address, where the file has one. */
static bool open_metrics(struct gateway *gateway, struct change *change)
{
    struct gateway_options *options = &change->options;
    struct setting_problem problem;
    if (!change->new_metrics || options->metrics_text == NULL) {
        return true;
    }
    change->http = http_start(gateway, &options->metrics, -1);
    if (change->http == NULL) {
        settings_fail(options, SETTING_METRICS, 0, 1, strerror(errno), &problem);
        return refuse(problem.sentence);
    }
    return true;
}

/* Reads the policies and the kinds again. Where there were none, or are none any more, that waits for a restart. */
static bool reload_policies(struct gateway *gateway, const struct gateway_options *options)
{
    if (gateway->weir == NULL || options->policies == NULL) {
        return true;
    }
    struct packet_kinds kinds;
    weir_error error;
    const bool read = kind_file_read(options->kinds, &kinds, &error);
    if (!read) {
        log_line(WEIR_LOG_ERROR, "policies and kinds stay as they were: %s", error.message);
    }
    if (!read ||
        !policies_reload(&gateway->policies, gateway->weir, options->policies, &kinds, options->allow_missing)) {
        return gateway->sources.config == NULL ? false : refuse("the policies were refused");
    }
    kind_store_set(&gateway->kinds, &kinds);
    xdp_policies_changed(gateway->xdp);
    return true;
}

/* Whether the backends can be put in force: threads may have sessions of too many that lists before had. */
static bool backends_fit(struct gateway *gateway, const struct gateway_options *options)
{
    return backends_have_room(&gateway->backends, options->backends, (unsigned) options->backend.count) ||
           refuse("too many backends were exchanged within a moment; try again");
}

static void undo(struct gateway *gateway, struct change *change)
{
    for (size_t i = 0; i < change->opened_count; i++) {
        listeners_drop(gateway, change->opened[i]);
    }
    http_stop(change->http);
    if (change->file != NULL) {
        settings_free(change->file);
        free(change->file);
    }
}

/* Whether a setting's change waits for a restart. */
static bool waits(const struct gateway *gateway, const struct gateway_options *options, enum setting setting)
{
    const bool changed = settings_differ(options, &gateway->options, setting);
    if (setting == SETTING_POLICIES) {
        return (gateway->weir != NULL) != (options->policies != NULL);
    }
    if (setting == SETTING_METRICS && gateway->activation.metrics_fd >= 0) {
        return changed;
    }
    return changed && !setting_entries[setting].is_live;
}

/*
 * Notes and tells which changes wait for a restart. A setting that waits is told again only if it has become another
 * one since.
 */
static void tell_waiting(struct gateway *gateway, const struct gateway_options *options)
{
    struct gateway_options before;
    struct setting_problem ignored;
    uint64_t waiting = 0;
    char names[256] = "";
    size_t length = 0;
    size_t count = 0;
    (void) settings_apply(&gateway->sources.line, gateway->sources.latest, &before, &ignored);
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        if (!waits(gateway, options, (enum setting) i)) {
            continue;
        }
        waiting |= UINT64_C(1) << i;
        if (settings_differ(options, &before, (enum setting) i) && length < sizeof(names)) {
            length += (size_t) snprintf(names + length, sizeof(names) - length, "%s%s", count++ != 0 ? ", " : "",
                                        setting_entries[i].name);
        }
    }
    atomic_store(&gateway->waiting, waiting);
    if (count != 0) {
        log_line(WEIR_LOG_WARNING, "%s: %s: a change waits for a restart", gateway->sources.config, names);
    }
}

/* Puts what has been checked in force. */
static void commit(struct gateway *gateway, struct change *change)
{
    struct gateway_options *now = &gateway->options;
    const struct gateway_options *next = &change->options;
    struct option_sources *sources = &gateway->sources;
    for (size_t i = 0; i < change->opened_count; i++) {
        (void) listeners_serve(gateway, change->opened[i]);
        change->kept |= UINT32_C(1) << change->opened[i];
    }
    for (unsigned i = 0; i < LISTENER_SLOTS; i++) {
        const struct listener *listener = &gateway->listeners.all[i];
        if (listener->is_in_force && !listener->is_handed && (change->kept >> i & 1) == 0) {
            listeners_remove(gateway, i);
        }
    }
    if (change->new_metrics) {
        http_stop(gateway->http);
        gateway->http = change->http;
    }
    if (settings_differ(next, now, SETTING_BACKEND)) {
        char ignored[256]; /* they have been checked, and there is room */
        (void) backends_replace(&gateway->backends, next->backends, (unsigned) next->backend.count, ignored,
                                sizeof(ignored));
    }
    tell_waiting(gateway, next);
    now->listen = next->listen;
    now->backend = next->backend;
    memcpy(now->listens, next->listens, sizeof(now->listens));
    memcpy(now->backends, next->backends, sizeof(now->backends));
    memcpy(now->backend_text, next->backend_text, sizeof(now->backend_text));
    now->policies = next->policies;
    now->kinds = next->kinds;
    now->allow_missing = next->allow_missing;
    now->idle_seconds = next->idle_seconds;
    now->log_level = next->log_level;
    now->log_format = next->log_format;
    now->no_denial_log = next->no_denial_log;
    if (gateway->activation.metrics_fd < 0) {
        now->metrics_text = next->metrics_text;
        now->metrics = next->metrics;
    }
    reload_begin(gateway);
    if (sources->latest != sources->first) {
        settings_free(sources->latest);
        free(sources->latest);
    }
    sources->latest = change->file;
}

/* Reads the policies alone: there is no file of settings. */
static bool reload_without_config(struct gateway *gateway)
{
    if (!reload_policies(gateway, &gateway->options)) {
        return false;
    }
    log_line(WEIR_LOG_INFO, "policies of %s are in force", gateway->options.policies);
    return true;
}

static bool reload_config(struct gateway *gateway)
{
    static struct change change; /* large */
    change = (struct change){.file = NULL};
    if (!read_again(gateway, &change) || !find_addresses(gateway, &change) || !open_listeners(gateway, &change) ||
        !open_metrics(gateway, &change) || !backends_fit(gateway, &change.options) ||
        !reload_policies(gateway, &change.options)) {
        undo(gateway, &change);
        return false;
    }
    commit(gateway, &change);
    const char *policies = gateway->weir != NULL ? gateway->options.policies : NULL;
    log_line(WEIR_LOG_INFO, "settings of %s are in force%s%s", gateway->sources.config,
             policies != NULL ? ", and policies of " : "", policies != NULL ? policies : "");
    return true;
}

bool reload(struct gateway *gateway)
{
    const bool has_config = gateway->sources.config != NULL;
    record_reopen(gateway->record);
    if (!has_config && gateway->weir == NULL) {
        log_line(WEIR_LOG_WARNING, "there are no policies to read again: it was started without --policies");
        return true;
    }
    const bool good = has_config ? reload_config(gateway) : reload_without_config(gateway);
    (void) atomic_fetch_add(good ? &gateway->reloads : &gateway->reload_errors, 1);
    return good;
}
