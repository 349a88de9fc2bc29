/* SPDX-License-Identifier: Apache-2.0 */
/* See settings.h. */
#include "settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"
#include "xdp/xdp.h"

#define AT(field) offsetof(struct gateway_options, field)

const struct setting_entry setting_entries[SETTING_COUNT] = {
    [SETTING_LISTEN] = {"listen", FORM_LIST, AT(listen), 0, LISTENERS_MAX, true},
    [SETTING_BACKEND] = {"backend", FORM_LIST, AT(backend), 0, BACKENDS_MAX, true},
    [SETTING_PROBE] = {"probe", FORM_PROBE, AT(probe), 0, 0, false},
    [SETTING_PROBE_INTERVAL_MS] = {"probe-interval-ms", FORM_NUMBER, AT(checks.interval_ms), 100, 60000, false},
    [SETTING_PROBE_RISE] = {"probe-rise", FORM_NUMBER, AT(checks.rise), 1, 100, false},
    [SETTING_PROBE_FALL] = {"probe-fall", FORM_NUMBER, AT(checks.fall), 1, 100, false},
    [SETTING_BACKEND_SILENCE] = {"backend-silence", FORM_NUMBER, AT(checks.silence_seconds), 1, 3600, false},
    [SETTING_POLICIES] = {"policies", FORM_PATH, AT(policies), 0, 0, true},
    [SETTING_KINDS] = {"kinds", FORM_PATH, AT(kinds), 0, 0, true},
    [SETTING_ALLOW_MISSING] = {"allow-missing", FORM_FLAG, AT(allow_missing), 0, 0, true},
    [SETTING_REDIS] = {"redis", FORM_TEXT, AT(redis), 0, 0, false},
    [SETTING_REDIS_PASSWORD_FILE] = {"redis-password-file", FORM_PATH, AT(redis_password_file), 0, 0, false},
    [SETTING_FLEET_SECRET_FILE] = {"fleet-secret-file", FORM_PATH, AT(fleet_secret_file), 0, 0, false},
    [SETTING_REDIS_PREFIX] = {"redis-prefix", FORM_TEXT, AT(redis_prefix), 0, 0, false},
    [SETTING_NODE_NAME] = {"node-name", FORM_TEXT, AT(node_name), 0, 0, false},
    [SETTING_SYNC_INTERVAL_MS] = {"sync-interval-ms", FORM_NUMBER, AT(sync_interval_ms), 10, 60000, false},
    [SETTING_EXPECTED_NODES] = {"expected-nodes", FORM_NUMBER, AT(expected_nodes), 1, 65535, false},
    [SETTING_THREADS] = {"threads", FORM_NUMBER, AT(threads), 1, GATEWAY_THREADS_MAX, false},
    [SETTING_SESSIONS] = {"sessions", FORM_NUMBER, AT(sessions), GATEWAY_SESSIONS_MIN, 1000000, false},
    [SETTING_IDLE] = {"idle", FORM_NUMBER, AT(idle_seconds), 1, 86400, true},
    [SETTING_PORT_REST] = {"port-rest", FORM_NUMBER, AT(port_rest_seconds), 1, 3600, false},
    [SETTING_STATE] = {"state", FORM_PATH, AT(state), 0, 0, false},
    [SETTING_MAX_KEYS] = {"max-keys", FORM_NUMBER, AT(max_keys), 1000, 100000000, false},
    [SETTING_XDP] = {"xdp", FORM_INTERFACE, AT(xdp), 0, 0, false},
    [SETTING_RECORD] = {"record", FORM_PATH, AT(record.path), 0, 0, false},
    [SETTING_RECORD_RATE] = {"record-rate", FORM_NUMBER, AT(record.rate), 1, 1000000, false},
    [SETTING_RECORD_SNAP] = {"record-snap", FORM_NUMBER, AT(record.snap), 0, 65507, false},
    [SETTING_RECORD_SIZE] = {"record-size", FORM_NUMBER, AT(record.size_mb), 1, 1000000, false},
    [SETTING_PROXY_PROTOCOL] = {"proxy-protocol", FORM_FLAG, AT(proxy_protocol), 0, 0, false},
    [SETTING_TRANSPARENT] = {"transparent", FORM_FLAG, AT(transparent), 0, 0, false},
    [SETTING_NO_OFFLOAD] = {"no-offload", FORM_FLAG_OFF, AT(offload), 0, 0, false},
    [SETTING_LOG_LEVEL] = {"log-level", FORM_LEVEL, AT(log_level), 0, 0, true},
    [SETTING_LOG_FORMAT] = {"log-format", FORM_FORMAT, AT(log_format), 0, 0, true},
    [SETTING_NO_DENIAL_LOG] = {"no-denial-log", FORM_FLAG, AT(no_denial_log), 0, 0, true},
    [SETTING_METRICS] = {"metrics", FORM_TEXT, AT(metrics_text), 0, 0, true},
};

bool settings_add(struct settings *settings, enum setting setting, const char *text, const char **what)
{
    struct setting_texts *texts = &settings->of[setting];
    if (setting_entries[setting].form != FORM_LIST && texts->count != 0) {
        free(texts->texts[0]); /* on a command line the last one counts */
        texts->count = 0;
    }
    if (setting_entries[setting].form == FORM_LIST && texts->count == setting_entries[setting].most) {
        *what = setting == SETTING_LISTEN ? "is one too many; a gateway listens on 16 addresses at most"
                                          : "is one too many; a gateway has 64 backends at most";
        return false;
    }
    texts->texts[texts->count] = strdup(text);
    if (texts->texts[texts->count] == NULL) {
        *what = "out of memory";
        return false;
    }
    texts->count++;
    return true;
}

void settings_free(struct settings *settings)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        for (size_t j = 0; j < settings->of[i].count; j++) {
            free(settings->of[i].texts[j]);
        }
        settings->of[i].count = 0;
    }
}

void settings_origin(const struct gateway_options *options, enum setting setting, char *out, size_t size)
{
    const struct settings *from = options->from[setting];
    const char *name = setting_entries[setting].name;
    if (from == NULL || from->file == NULL) {
        (void) snprintf(out, size, "--%s", name);
    } else {
        (void) snprintf(out, size, "%s:%u:%u: %s", from->file, from->of[setting].places[0].line,
                        from->of[setting].places[0].column, name);
    }
}

void settings_fail(const struct gateway_options *options, enum setting setting, size_t index, int code,
                   const char *what, struct setting_problem *out)
{
    const struct settings *from = options->from[setting];
    const struct setting_entry *entry = &setting_entries[setting];
    const bool has_value = from != NULL && index < from->of[setting].count && setting != SETTING_REDIS &&
                           entry->form != FORM_FLAG && entry->form != FORM_FLAG_OFF; /* a URL may have a password */
    const char *value = has_value ? from->of[setting].texts[index] : "";
    out->code = code;
    if (from != NULL && from->file != NULL) {
        const size_t place = index < from->of[setting].count ? index : 0;
        (void) snprintf(out->sentence, sizeof(out->sentence), "%s:%u:%u: %s%s%s: %s", from->file,
                        from->of[setting].places[place].line, from->of[setting].places[place].column, entry->name,
                        has_value ? " " : "", value, what);
    } else {
        (void) snprintf(out->sentence, sizeof(out->sentence), "--%s%s%s: %s", entry->name, has_value ? " " : "", value,
                        what);
    }
}

static bool take_number(const struct setting_entry *entry, const char *text, unsigned *out, char *why, size_t size)
{
    char *end = NULL;
    errno = 0;
    const unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || n < entry->least || n > entry->most) {
        (void) snprintf(why, size, "give a number from %u to %u", entry->least, entry->most);
        return false;
    }
    *out = (unsigned) n;
    return true;
}

/* Writes the texts of a setting to its option. False: `why` says what is wrong with the first one. */
static bool take(enum setting setting, const struct setting_texts *given, struct gateway_options *out, char *why,
                 size_t size)
{
    const struct setting_entry *entry = &setting_entries[setting];
    void *field = (char *) out + entry->offset;
    const char *text = given->texts[0];
    switch (entry->form) {
    case FORM_LIST:
        memcpy(((struct text_list *) field)->texts, given->texts, sizeof(given->texts));
        ((struct text_list *) field)->count = given->count;
        return true;
    case FORM_NUMBER:
        return take_number(entry, text, field, why, size);
    case FORM_FLAG:
        *(bool *) field = strcmp(text, "true") == 0;
        return true;
    case FORM_FLAG_OFF:
        *(bool *) field = strcmp(text, "true") != 0;
        return true;
    case FORM_LEVEL:
        return log_find_level(text, field, why, size);
    case FORM_FORMAT:
        return log_find_format(text, field, why, size);
    case FORM_INTERFACE:
        *(const char **) field = text;
        (void) snprintf(why, size,
                        "give an interface, and a mode if you like: eth0,mode=native or eth0,mode=generic; and "
                        "forward: eth0,forward");
        return xdp_option_is_good(text);
    case FORM_PROBE:
        *(const char **) field = text;
        return probe_parse(text, &out->checks.payload, why, size);
    case FORM_TEXT:
    case FORM_PATH:
    default:
        *(const char **) field = text;
        return true;
    }
}

/* One worker for each core. */
static unsigned default_threads(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) {
        return 1;
    }
    return cores < GATEWAY_THREADS_MAX ? (unsigned) cores : GATEWAY_THREADS_MAX;
}

static bool check_backends(const struct gateway_options *options, struct setting_problem *problem)
{
    static struct backend_choice choices[BACKENDS_MAX]; /* of the main thread, and large */
    for (size_t i = 0; i < options->backend.count; i++) {
        char why[160];
        if (!backend_choice_read(options->backend.texts[i], &choices[i], why, sizeof(why))) {
            settings_fail(options, SETTING_BACKEND, i, 2, why, problem);
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(choices[i].text, choices[j].text) == 0) {
                (void) snprintf(why, sizeof(why), "%.100s is given twice; leave one out", choices[i].text);
                settings_fail(options, SETTING_BACKEND, i, 2, why, problem);
                return false;
            }
        }
    }
    return true;
}

static bool check_metrics(const struct gateway_options *options, struct setting_problem *problem)
{
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    if (options->metrics_text != NULL && !address_split(options->metrics_text, host, &port)) {
        settings_fail(options, SETTING_METRICS, 0, 2, address_problem(ADDRESS_MALFORMED), problem);
        return false;
    }
    return true;
}

/* The addresses are well-formed, and none is given twice. Their hosts are not looked up. */
static bool check_addresses(const struct gateway_options *options, struct setting_problem *problem)
{
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    const struct text_list *listen = &options->listen;
    for (size_t i = 0; i < listen->count; i++) {
        if (!address_split(listen->texts[i], host, &port)) {
            settings_fail(options, SETTING_LISTEN, i, 2, address_problem(ADDRESS_MALFORMED), problem);
            return false;
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(listen->texts[i], listen->texts[j]) == 0) {
                settings_fail(options, SETTING_LISTEN, i, 2, "is given twice; leave one out", problem);
                return false;
            }
        }
    }
    return check_backends(options, problem) && check_metrics(options, problem);
}

bool settings_apply(const struct settings *line, const struct settings *file, struct gateway_options *out,
                    struct setting_problem *problem)
{
    *out = (struct gateway_options){.sessions = 4096,
                                    .max_keys = 262144,
                                    .idle_seconds = 30,
                                    .port_rest_seconds = 4,
                                    .offload = true,
                                    .record = {.rate = 1000, .snap = 256, .size_mb = 100},
                                    .checks = {.interval_ms = 1000, .rise = 2, .fall = 3},
                                    .log_level = WEIR_LOG_INFO,
                                    .log_format = log_default_format(),
                                    .threads = default_threads()};
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        const enum setting setting = (enum setting) i;
        char why[160];
        out->from[i] = line->of[i].count != 0 ? line : NULL;
        if (out->from[i] == NULL && file != NULL && file->of[i].count != 0) {
            out->from[i] = file;
        }
        if (out->from[i] != NULL && !take(setting, &out->from[i]->of[i], out, why, sizeof(why))) {
            settings_fail(out, setting, 0, 2, why, problem);
            return false;
        }
    }
    out->checks.introduces = out->proxy_protocol;
    return check_addresses(out, problem);
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool is_same_list(const struct text_list *a, const struct text_list *b)
{
    for (size_t i = 0; i < a->count && a->count == b->count; i++) {
        if (strcmp(a->texts[i], b->texts[i]) != 0) {
            return false;
        }
    }
    return a->count == b->count;
}

bool settings_differ(const struct gateway_options *a, const struct gateway_options *b, enum setting setting)
{
    const struct setting_entry *entry = &setting_entries[setting];
    const void *one = (const char *) a + entry->offset;
    const void *other = (const char *) b + entry->offset;
    switch (entry->form) {
    case FORM_LIST:
        return !is_same_list(one, other);
    case FORM_NUMBER:
    case FORM_LEVEL:
    case FORM_FORMAT:
        return memcmp(one, other, sizeof(unsigned)) != 0;
    case FORM_FLAG:
    case FORM_FLAG_OFF:
        return *(const bool *) one != *(const bool *) other;
    case FORM_TEXT:
    case FORM_PATH:
    case FORM_INTERFACE:
    case FORM_PROBE:
    default:
        return !is_same_text(*(const char *const *) one, *(const char *const *) other);
    }
}

_Static_assert(sizeof(weir_log_level) == sizeof(unsigned) && sizeof(enum log_format) == sizeof(unsigned),
               "words are compared as numbers");
