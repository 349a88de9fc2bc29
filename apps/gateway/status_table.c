/* SPDX-License-Identifier: Apache-2.0 */
/* The status as tables of HTML, for browsers that run no script. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/report.h"
#include "gateway.h"
#include "status.h"

/* Keys have characters that HTML would take for its own. */
static void put_text(FILE *file, const char *text)
{
    for (const char *c = text; *c != '\0'; c++) {
        switch (*c) {
        case '<':
            (void) fputs("&lt;", file);
            break;
        case '>':
            (void) fputs("&gt;", file);
            break;
        case '&':
            (void) fputs("&amp;", file);
            break;
        default:
            (void) fputc(*c, file);
        }
    }
}

static void put_row(FILE *file, const char *name, uint64_t value)
{
    (void) fprintf(file, "<tr><th scope=\"row\">");
    put_text(file, name);
    (void) fprintf(file, "</th><td>%" PRIu64 "</td></tr>\n", value);
}

static void put_counts(FILE *file, const struct gateway *gateway)
{
    weir_stats stats;
    weir_get_stats(gateway->weir, &stats);
    (void) fputs("<table>\n<caption>This node</caption>\n", file);
    put_row(file, "packets offered", SUM(gateway, offered));
    put_row(file, "packets admitted", SUM(gateway, passed));
    put_row(file, "checks allowed", stats.allowed_count);
    put_row(file, "checks denied", stats.denied_count);
    put_row(file, "checks that shadow mode would have denied", stats.would_deny_count);
    put_row(file, "keys", stats.key_count);
    put_row(file, "room for keys", stats.key_capacity);
    put_row(file, "live nodes", stats.live_nodes);
    put_row(file, "syncs", stats.sync_count);
    put_row(file, "syncs that failed", stats.sync_error_count);
    if (stats.fleet_age_ns != UINT64_MAX) {
        put_row(file, "milliseconds since the last sync", stats.fleet_age_ns / 1000000);
    }
    (void) fputs("</table>\n", file);
}

static void put_offenders(FILE *file, const struct gateway *gateway, const struct gateway_policy *policy)
{
    weir_offender offenders[WEIR_TOP_OFFENDERS];
    const weir_policy_id id = atomic_load(&policy->id);
    const size_t count = weir_top_offenders(gateway->weir, id, offenders, WEIR_TOP_OFFENDERS);
    if (count == 0) {
        return;
    }
    (void) fprintf(file, "<table>\n<caption>Denied most by %s: units</caption>\n", policy->name);
    for (size_t i = 0; i < count; i++) {
        put_row(file, offenders[i].key, offenders[i].denied_units);
    }
    (void) fputs("</table>\n", file);
}

static void put_backends(FILE *file, struct gateway *gateway)
{
    struct backend_line lines[BACKENDS_MAX];
    const unsigned count = report_backends(&gateway->backends, lines);
    (void) fputs("<table>\n<caption>Backends</caption>\n<tr><th scope=\"col\">backend</th><th scope=\"col\">state</th>"
                 "<th scope=\"col\">sessions</th><th scope=\"col\">packets sent</th><th scope=\"col\">replies</th>"
                 "<th scope=\"col\">packets refused</th></tr>\n",
                 file);
    for (unsigned i = 0; i < count; i++) {
        const struct backend_sums *sums = &lines[i].sums;
        (void) fputs("<tr><th scope=\"row\">", file);
        put_text(file, lines[i].text);
        (void) fprintf(file,
                       "</th><td>%s%s</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64 "</td><td>%" PRIu64
                       "</td></tr>\n",
                       report_state(&lines[i]), lines[i].role == BACKEND_DRAINING ? ", drains" : "", sums->sessions,
                       sums->sent, sums->replies, sums->refused);
    }
    (void) fputs("</table>\n", file);
}

static void put_page(FILE *file, struct gateway *gateway)
{
    const size_t count = atomic_load(&gateway->policies.count);
    (void) fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n"
                 "<meta http-equiv=\"refresh\" content=\"5\">\n<title>weir</title>\n</head>\n<body>\n<h1>weir</h1>\n",
                 file);
    put_counts(file, gateway);
    put_backends(file, gateway);
    (void) fputs("<table>\n<caption>Packets denied, by policy</caption>\n", file);
    for (size_t i = 0; i < count; i++) {
        put_row(file, gateway->policies.all[i].name, SUM(gateway, dropped[i]));
    }
    (void) fputs("</table>\n", file);
    for (size_t i = 0; i < count; i++) {
        put_offenders(file, gateway, &gateway->policies.all[i]);
    }
    (void) fputs("</body>\n</html>\n", file);
}

struct text write_status_table(struct gateway *gateway)
{
    struct text text = {.bytes = NULL};
    FILE *file = open_memstream(&text.bytes, &text.length);
    if (file == NULL) {
        return text;
    }
    put_page(file, gateway);
    if (fclose(file) != 0) {
        free(text.bytes);
        return (struct text){.bytes = NULL};
    }
    return text;
}
