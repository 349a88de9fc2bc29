/* SPDX-License-Identifier: Apache-2.0 */
/* See report.h. The texts of backends have no character that a label or a string of JSON would have escaped. */
#include "report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A text that grows, and ends where there is no room. */
struct page {
    char *bytes;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void add(struct page *page, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(page->bytes + page->length, page->size - page->length, format, arguments);
    va_end(arguments);
    page->length += n > 0 && (size_t) n < page->size - page->length ? (size_t) n : 0;
}

unsigned report_backends(struct backends *backends, struct backend_line out[BACKENDS_MAX])
{
    unsigned count = 0;
    (void) pthread_mutex_lock(&backends->lock);
    for (unsigned place = 0; place < BACKEND_PLACES && count < BACKENDS_MAX; place++) {
        const struct backend *backend = &backends->places[place];
        const enum backend_role role = backend_role(backend);
        if (role == BACKEND_ABSENT) {
            continue;
        }
        struct backend_line *line = &out[count++];
        memcpy(line->text, backend->text, sizeof(line->text));
        line->role = role;
        line->weight = atomic_load_explicit(&backend->weight, memory_order_relaxed);
        line->reasons = health_reasons(&backend->health);
        line->sums = backends_sums(backends, place);
    }
    (void) pthread_mutex_unlock(&backends->lock);
    return count;
}

const char *report_state(const struct backend_line *line)
{
    return line->reasons == 0                             ? "up"
           : (line->reasons & BACKEND_REFUSES) != 0       ? "refuses"
           : (line->reasons & BACKEND_HAS_NO_ANSWER) != 0 ? "no answer"
                                                          : "silent";
}

const char *report_state_of_all(struct backends *backends)
{
    struct backend_line lines[BACKENDS_MAX];
    const unsigned count = report_backends(backends, lines);
    bool has_refused = false;
    for (unsigned i = 0; i < count; i++) {
        if (lines[i].role == BACKEND_SERVES && lines[i].reasons == 0) {
            return "ok";
        }
        has_refused = has_refused || (lines[i].role == BACKEND_SERVES && (lines[i].reasons & BACKEND_REFUSES) != 0);
    }
    return has_refused ? "refuses" : "down";
}

/* The values of a metric, one of each backend. */
static uint64_t up_of(const struct backend_line *line)
{
    return line->reasons == 0;
}

static uint64_t draining_of(const struct backend_line *line)
{
    return line->role == BACKEND_DRAINING;
}

static uint64_t sessions_of(const struct backend_line *line)
{
    return line->sums.sessions;
}

static uint64_t sent_of(const struct backend_line *line)
{
    return line->sums.sent;
}

static uint64_t replies_of(const struct backend_line *line)
{
    return line->sums.replies;
}

static uint64_t refused_of(const struct backend_line *line)
{
    return line->sums.refused;
}

size_t report_metrics(struct backends *backends, char *out, size_t size)
{
    static const struct {
        const char *name, *type, *help;
        uint64_t (*value)(const struct backend_line *);
    } metrics[] = {
        {"up", "gauge", "Whether a backend is up: 1, or 0.", up_of},
        {"draining", "gauge", "Whether a backend gets no new sessions: 1, or 0.", draining_of},
        {"sessions", "gauge", "Clients with a socket to a backend.", sessions_of},
        {"sent_packets_total", "counter", "Packets of clients sent to a backend.", sent_of},
        {"reply_packets_total", "counter", "Replies of a backend.", replies_of},
        {"refused_packets_total", "counter", "Packets that a backend refused, at least.", refused_of},
    };
    struct backend_line lines[BACKENDS_MAX];
    struct page page = {out, size, 0};
    const unsigned count = report_backends(backends, lines);
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        const char *name = metrics[i].name;
        add(&page, "# HELP weir_gateway_backend_%s %s\n# TYPE weir_gateway_backend_%s %s\n", name, metrics[i].help,
            name, metrics[i].type);
        for (unsigned j = 0; j < count; j++) {
            add(&page, "weir_gateway_backend_%s{backend=\"%s\"} %" PRIu64 "\n", name, lines[j].text,
                metrics[i].value(&lines[j]));
        }
    }
    return page.length;
}

size_t report_json(struct backends *backends, char *out, size_t size)
{
    struct backend_line lines[BACKENDS_MAX];
    struct page page = {out, size, 0};
    const unsigned count = report_backends(backends, lines);
    add(&page, "[");
    for (unsigned i = 0; i < count; i++) {
        const struct backend_line *line = &lines[i];
        add(&page,
            "%s{\"backend\":\"%s\",\"state\":\"%s\",\"up\":%s,\"draining\":%s,\"weight\":%u,\"sessions\":%" PRIu64
            ",\"sent\":%" PRIu64 ",\"replies\":%" PRIu64 ",\"refused\":%" PRIu64 "}",
            i != 0 ? "," : "", line->text, report_state(line), line->reasons == 0 ? "true" : "false",
            line->role == BACKEND_DRAINING ? "true" : "false", line->weight, line->sums.sessions, line->sums.sent,
            line->sums.replies, line->sums.refused);
    }
    add(&page, "]");
    return page.length;
}
