/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's settings: each text sets its own option and nothing else, each number has its bounds, and what is wrong
 * is said with its place. What settings say of one another, and whose hosts are looked up.
 *
 * Guards: apps/gateway/settings.c, apps/gateway/options.c
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../apps/gateway/backends/transparent.h"
#include "../apps/gateway/config.h"
#include "../apps/gateway/gateway.h"
#include "../apps/gateway/kinds/kind_file.h"
#include "../apps/gateway/secret.h"
#include "../apps/gateway/xdp/xdp.h"
#include "support/support.h"

#define AT(field) offsetof(struct gateway_options, field), sizeof(((struct gateway_options *) NULL)->field)

static unsigned lookups;

/* What the program has elsewhere, and is not asked for here. */
int config_read(const char *path, struct settings *out, weir_error *error)
{
    (void) path;
    (void) out;
    (void) error;
    return -1;
}

char *secret_take(char *argument)
{
    (void) argument;
    return NULL;
}

char *secret_url(const char *url, const char *path)
{
    (void) url;
    (void) path;
    return NULL;
}

char *secret_read(const char *option, const char *path)
{
    (void) option;
    (void) path;
    return NULL;
}

bool policies_check(const char *path, const struct packet_kinds *kinds, bool allow_missing)
{
    (void) path;
    (void) kinds;
    (void) allow_missing;
    return false;
}

bool kind_file_read(const char *path, struct packet_kinds *out, weir_error *error)
{
    (void) path;
    (void) out;
    (void) error;
    return false;
}

int transparent_allowed(int family)
{
    (void) family;
    return 0;
}

bool xdp_option_is_good(const char *option)
{
    return strcmp(option, "eth0") == 0;
}

bool backends_check(const struct backend_choice *choices, unsigned count, char *problem, size_t size)
{
    if (count == 3 && choices[2].weight == 100) {
        (void) snprintf(problem, size, "too heavy");
        return false;
    }
    return true;
}

/* The resolver: names are of 192.0.2.1, but for one that is unknown. */
bool address_split(const char *text, char host[ADDRESS_HOST_SIZE], uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || strlen(text) >= ADDRESS_HOST_SIZE) {
        return false;
    }
    (void) snprintf(host, ADDRESS_HOST_SIZE, "%.*s", (int) (colon - text), text);
    *port = (uint16_t) strtoul(colon + 1, NULL, 10);
    return *port != 0;
}

int address_find(const char *text, int type, struct address *out)
{
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    if (!address_split(text, host, &port)) {
        return ADDRESS_MALFORMED;
    }
    lookups++;
    assert_int_equal(type, port == 9090 ? SOCK_STREAM : SOCK_DGRAM);
    *out = (struct address){.u.v4 = {.sin_family = AF_INET, .sin_port = htons(port)}, .length = sizeof(out->u.v4)};
    if (inet_pton(AF_INET, host, &out->u.v4.sin_addr) != 1) {
        out->u.v4.sin_addr.s_addr = htonl(0xc0000201);
    }
    return strcmp(host, "unknown") == 0 ? -2 : 0;
}

const char *address_problem(int result)
{
    return result == ADDRESS_MALFORMED ? "is no address" : "is unknown";
}

bool address_is_same(const struct address *a, const struct address *b)
{
    return a->u.v4.sin_port == b->u.v4.sin_port && a->u.v4.sin_addr.s_addr == b->u.v4.sin_addr.s_addr;
}

/* Settings of words "name=text", split at spaces; all of them of the file "f.yaml", at 11:1, 12:2 ..., or of a line. */
static void give(struct settings *out, const char *words, bool of_file)
{
    static char copies[2][9000];
    char *copy = copies[of_file];
    unsigned place = 1;
    (void) snprintf(copy, sizeof(copies[0]), "%s", words);
    memset(out, 0, sizeof(*out));
    out->file = of_file ? "f.yaml" : NULL;
    for (char *word; (word = strtok_r(copy, " ", &copy)) != NULL; place++) {
        const char *what = "";
        char *text = strchr(word, '=');
        unsigned setting = 0;
        *text++ = '\0';
        while (strcmp(setting_entries[setting].name, word) != 0) {
            assert_true(++setting < SETTING_COUNT);
        }
        assert_true(settings_add(out, (enum setting) setting, text, &what));
        const size_t last = out->of[setting].count - 1;
        out->of[setting].places[last].line = 10 + place;
        out->of[setting].places[last].column = place;
    }
}

static struct settings line, file;
static struct gateway_options options, other;
static struct setting_problem problem;

static bool apply(const char *words, struct gateway_options *out)
{
    settings_free(&line);
    give(&line, words, false);
    memset(&problem, 0, sizeof(problem));
    return settings_apply(&line, NULL, out, &problem);
}

static void test_each_setting_is_kept_and_changes_nothing_else(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        size_t offset, size;
        unsigned least, most, usual;
    } numbers[] = {
        {"probe-interval-ms", AT(checks.interval_ms), 100, 60000, 1000},
        {"probe-rise", AT(checks.rise), 1, 100, 2},
        {"probe-fall", AT(checks.fall), 1, 100, 3},
        {"backend-silence", AT(checks.silence_seconds), 1, 3600, 0},
        {"sync-interval-ms", AT(sync_interval_ms), 10, 60000, 0},
        {"expected-nodes", AT(expected_nodes), 1, 65535, 0},
        {"threads", AT(threads), 1, 64, UINT32_MAX},
        {"sessions", AT(sessions), 16, 1000000, 4096},
        {"idle", AT(idle_seconds), 1, 86400, 30},
        {"max-keys", AT(max_keys), 1000, 100000000, 262144},
        {"record-rate", AT(record.rate), 1, 1000000, 1000},
        {"record-snap", AT(record.snap), 0, 65507, 256},
        {"record-size", AT(record.size_mb), 1, 1000000, 100},
    };
    static const struct {
        const char *words;
        size_t offset, size;
        uint64_t value;
    } words[] = {
        {"allow-missing=true", AT(allow_missing), 1},
        {"allow-missing=false", AT(allow_missing), 0},
        {"transparent=true", AT(transparent), 1},
        {"no-offload=true", AT(offload), 0},
        {"no-offload=false", AT(offload), 1},
        {"no-denial-log=true", AT(no_denial_log), 1},
        {"log-level=error", AT(log_level), WEIR_LOG_ERROR},
        {"log-level=warning", AT(log_level), WEIR_LOG_WARNING},
        {"log-level=info", AT(log_level), WEIR_LOG_INFO},
        {"log-format=json", AT(log_format), LOG_JSON},
        {"log-format=journal", AT(log_format), LOG_JOURNAL},
        {"log-format=text", AT(log_format), LOG_TEXT},
    };
    static const struct {
        const char *name;
        size_t offset;
    } texts[] = {{"policies", offsetof(struct gateway_options, policies)},
                 {"kinds", offsetof(struct gateway_options, kinds)},
                 {"redis", offsetof(struct gateway_options, redis)},
                 {"redis-password-file", offsetof(struct gateway_options, redis_password_file)},
                 {"fleet-secret-file", offsetof(struct gateway_options, fleet_secret_file)},
                 {"redis-prefix", offsetof(struct gateway_options, redis_prefix)},
                 {"node-name", offsetof(struct gateway_options, node_name)},
                 {"record", offsetof(struct gateway_options, record.path)}};
    char given[200], wanted[300];
    assert_true(apply("", &options));
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    assert_int_equal(options.threads, cores < 64 ? cores : 64);
    assert_true(options.offload && options.log_level == WEIR_LOG_INFO && options.policies == NULL);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const unsigned good[] = {numbers[i].least, numbers[i].most};
        unsigned value;
        assert_true(apply("", &options));
        memcpy(&value, (char *) &options + numbers[i].offset, sizeof(value));
        assert_true(value == numbers[i].usual || numbers[i].usual == UINT32_MAX);
        for (unsigned n = 0; n < 2; n++) {
            (void) snprintf(given, sizeof(given), "%s=%u", numbers[i].name, good[n]);
            assert_true(apply(given, &other));
            memcpy(&value, (char *) &other + numbers[i].offset, sizeof(value));
            assert_int_equal(value, good[n]);
            memcpy((char *) &other + numbers[i].offset, (char *) &options + numbers[i].offset, sizeof(value));
            memcpy(other.from, options.from, sizeof(other.from));
            assert_memory_equal(&other, &options, sizeof(other));
        }
        for (unsigned n = 0; n < 7; n++) {
            const char *const wrong[] = {"", "x", "7x", "-1", "99999999999999999999", "", "+1"};
            if (n == 0) {
                (void) snprintf(given, sizeof(given), "%s=%d", numbers[i].name, (int) numbers[i].least - 1);
            } else if (n == 5) {
                (void) snprintf(given, sizeof(given), "%s=%u", numbers[i].name, numbers[i].most + 1);
            } else {
                (void) snprintf(given, sizeof(given), "%s=%s", numbers[i].name, wrong[n]);
            }
            assert_false(apply(given, &other));
            *strchr(given, '=') = ' ';
            (void) snprintf(wanted, sizeof(wanted), "--%s: give a number from %u to %u", given, numbers[i].least,
                            numbers[i].most);
            assert_string_equal(problem.sentence, wanted);
            assert_int_equal(problem.code, 2);
        }
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        assert_true(apply("", &options));
        assert_true(apply(words[i].words, &other));
        assert_memory_equal((char *) &other + words[i].offset, &words[i].value, words[i].size);
        memcpy((char *) &other + words[i].offset, (char *) &options + words[i].offset, words[i].size);
        memcpy(other.from, options.from, sizeof(other.from));
        assert_memory_equal(&other, &options, sizeof(other));
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text;
        (void) snprintf(given, sizeof(given), "%s=one %s=two", texts[i].name, texts[i].name);
        assert_true(apply("", &options));
        assert_true(apply(given, &other));
        memcpy(&text, (char *) &other + texts[i].offset, sizeof(text));
        assert_string_equal(text, "two"); /* on a command line the last one counts */
        memset((char *) &other + texts[i].offset, 0, sizeof(text));
        memcpy(other.from, options.from, sizeof(other.from));
        assert_memory_equal(&other, &options, sizeof(other));
    }
    assert_true(apply("proxy-protocol=true xdp=eth0 metrics=:9090 probe=ab listen=:1 listen=:2 backend=h:3", &other));
    assert_true(other.proxy_protocol && other.checks.introduces);
    assert_string_equal(other.xdp, "eth0");
    assert_string_equal(other.metrics_text, ":9090");
    assert_string_equal(other.probe, "ab");
    assert_int_equal(other.checks.payload.size, 2);
    assert_true(other.listen.count == 2 && other.backend.count == 1);
    assert_string_equal(other.listen.texts[1], ":2");
}

static void test_what_is_wrong_is_said_with_its_place(void **state)
{
    (void) state;
    static const struct {
        const char *words, *problem; /* %: the place; a setting's name */
    } rows[] = {
        {"xdp=eth1", "xdp eth1: give an interface, and a mode if you like: eth0,mode=native or eth0,mode=generic; and "
                     "forward: eth0,forward"},
        {"listen=:1 listen=x", "listen x: is no address"},
        {"listen=:1 listen=:2 listen=:1", "listen :1: is given twice; leave one out"},
        {"metrics=x", "metrics x: is no address"},
        {"backend=h:3 backend=g:3 backend=h:3,drain", "backend h:3,drain: h:3 is given twice; leave one out"},
        {"log-level=loud", NULL},
        {"log-format=loud", NULL},
        {"backend=h:3,weight=0", NULL},
        {"probe=0x1", NULL},
    };
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const bool of_file = i % 2 != 0;
        const char *words = rows[i / 2].words;
        char wanted[300];
        unsigned place = 1;
        settings_free(&line);
        settings_free(&file);
        give(&line, of_file ? "" : words, false);
        give(&file, of_file ? words : "", true);
        assert_false(settings_apply(&line, &file, &options, &problem));
        assert_int_equal(problem.code, 2);
        for (const char *at = words; (at = strchr(at, ' ')) != NULL; at++, place++) {
        }
        if (of_file) {
            (void) snprintf(wanted, sizeof(wanted), "f.yaml:%u:%u: ", 10 + place, place);
        } else {
            (void) snprintf(wanted, sizeof(wanted), "--");
        }
        assert_int_equal(strncmp(problem.sentence, wanted, strlen(wanted)), 0);
        if (rows[i / 2].problem != NULL) {
            assert_string_equal(problem.sentence + strlen(wanted), rows[i / 2].problem);
        }
    }
    /* The command line goes before the file; a URL may have a password, and is not told. */
    char origin[100];
    settings_free(&line);
    settings_free(&file);
    give(&line, "idle=7", false);
    give(&file, "redis=redis://:word@h idle=8 sessions=99 transparent=true", true);
    assert_true(settings_apply(&line, &file, &options, &problem));
    assert_true(options.idle_seconds == 7 && options.sessions == 99);
    settings_origin(&options, SETTING_REDIS, origin, sizeof(origin));
    assert_string_equal(origin, "f.yaml:11:1: redis");
    settings_origin(&options, SETTING_IDLE, origin, sizeof(origin));
    assert_string_equal(origin, "--idle");
    settings_origin(&options, SETTING_THREADS, origin, sizeof(origin));
    assert_string_equal(origin, "--threads");
    settings_fail(&options, SETTING_REDIS, 0, 1, "what", &problem);
    assert_string_equal(problem.sentence, "f.yaml:11:1: redis: what");
    assert_int_equal(problem.code, 1);
    settings_fail(&options, SETTING_TRANSPARENT, 0, 2, "what", &problem);
    assert_string_equal(problem.sentence, "f.yaml:14:4: transparent: what");
    settings_fail(&options, SETTING_SESSIONS, 1, 2, "what", &problem); /* of all of them: where the first one is */
    assert_string_equal(problem.sentence, "f.yaml:13:3: sessions: what");
    settings_fail(&options, SETTING_IDLE, 0, 2, "what", &problem);
    assert_string_equal(problem.sentence, "--idle 7: what");
    settings_fail(&options, SETTING_KINDS, 0, 2, "what", &problem);
    assert_string_equal(problem.sentence, "--kinds: what");
    /* A list has so many texts. */
    for (unsigned i = 0; i < 2; i++) {
        const enum setting setting = i == 0 ? SETTING_LISTEN : SETTING_BACKEND;
        const char *what = "";
        unsigned count = 0;
        settings_free(&line);
        while (settings_add(&line, setting, "h:1", &what)) {
            count++;
        }
        assert_int_equal(count, i == 0 ? 16 : 64);
        assert_non_null(strstr(what, i == 0 ? "16 addresses" : "64 backends"));
    }
    settings_free(&line);
    assert_int_equal(line.of[SETTING_BACKEND].count, 0);
}

static void test_a_setting_differs_where_its_value_does(void **state)
{
    (void) state;
    /* Three settings of which no two are alike; NULL: there are two. */
    static const char *const rows[][3] = {
        {"listen=:1 listen=:2", "listen=:1 listen=:3", ""},
        {"listen=:1", "listen=:1 listen=:2", "listen=:2"},
        {"idle=7", "idle=8", ""},
        {"log-level=error", "log-level=info", "log-level=warning"},
        {"log-format=json", "log-format=text", "log-format=journal"},
        {"allow-missing=true", "allow-missing=false", NULL},
        {"no-offload=true", "", NULL},
        {"policies=a", "policies=b", ""},
        {"redis=a", "redis=b", ""},
        {"xdp=eth0", "", NULL},
        {"probe=a", "probe=b", ""},
    };
    static struct settings one, two;
    for (size_t i = 0; i < 9 * sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const *row = rows[i / 9];
        const size_t a = i / 3 % 3, b = i % 3;
        if (row[a] == NULL || row[b] == NULL) {
            continue;
        }
        give(&one, row[a], false);
        give(&two, row[b], false);
        assert_true(settings_apply(&one, NULL, &options, &problem));
        assert_true(settings_apply(&two, NULL, &other, &problem));
        for (unsigned setting = 0; setting < SETTING_COUNT; setting++) {
            const size_t length = strlen(setting_entries[setting].name);
            const bool is_it = strncmp(row[0], setting_entries[setting].name, length) == 0 && row[0][length] == '=';
            assert_int_equal(settings_differ(&options, &other, (enum setting) setting), is_it && a != b);
        }
        settings_free(&one);
        settings_free(&two);
    }
}

static void test_settings_that_do_not_fit_one_another_are_refused(void **state)
{
    (void) state;
    static const struct {
        const char *words;
        bool handed;
        const char *problem;
    } rows[] = {
        {"listen=:1 backend=h:2", false, NULL},
        {"backend=h:2", true, NULL},
        {"backend=h:2", false, "--listen and --backend are needed; weir-gateway --help lists the options"},
        {"listen=:1", true, "--listen and --backend are needed; weir-gateway --help lists the options"},
        {"listen=:1 backend=h:2 redis=r", false, "--redis: there are no limits to share; give --policies as well"},
        {"listen=:1 backend=h:2 redis=r policies=p", false, NULL},
        {"listen=:1 backend=h:2 kinds=k", false,
         "--kinds k: there are no limits that a packet could cost something of; give --policies as well"},
        {"listen=:1 backend=h:2 kinds=k policies=p", false, NULL},
        {"listen=:1 backend=h:2 transparent=true proxy-protocol=true", false,
         "--transparent: the client's address is told by --proxy-protocol; give one of both"},
        {"listen=:1 backend=h:2 transparent=true", false, NULL},
        {"listen=:1 backend=h:2 proxy-protocol=true", false, NULL},
        {"listen=h:2 listen=:1 backend=h:2 backend=g:2", false, "--backend h:2: is the address it listens on"},
        {"listen=:1 listen=h:2 backend=g:2 backend=h:2,drain", false,
         "--backend h:2,drain: is the address it listens on"},
        {"listen=h:22 listen=hh:2 listen=h:2x backend=h:2", false, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const bool applied = apply(rows[i].words, &options);
        assert_true(applied || i == sizeof(rows) / sizeof(rows[0]) - 1);
        assert_int_equal(options_check(&options, rows[i].handed, &problem), rows[i].problem == NULL);
        assert_string_equal(problem.sentence, rows[i].problem != NULL ? rows[i].problem : "");
        assert_int_equal(problem.code, 2);
    }
}

static void test_a_host_is_looked_up_once_and_an_address_is_one_listeners_or_backends(void **state)
{
    (void) state;
    static const struct {
        const char *words, *before, *problem;
        int code;
        unsigned lookups;
    } rows[] = {
        {"listen=a:1 listen=a:2 backend=a:3 backend=a:4,weight=2", NULL, NULL, 0, 4},
        {"listen=a:1 listen=a:2 backend=a:3,drain backend=a:4", "listen=a:2 backend=a:4,weight=9", NULL, 0, 2},
        {"listen=a:1 listen=a:2 backend=a:3 backend=a:4", "listen=a:2 listen=a:1 backend=a:4 backend=a:3", NULL, 0, 0},
        {"listen=a:1 listen=b:1 backend=a:3", NULL, "--listen b:1: is given twice; leave one out", 2, 2},
        {"listen=a:1 listen=b:1 backend=a:3", "listen=b:1 backend=a:9", "--listen b:1: is given twice; leave one out",
         2, 1},
        {"listen=unknown:1 backend=a:3", NULL, "--listen unknown:1: is unknown", 1, 1},
        {"listen=a:1 backend=unknown:3", NULL, NULL, 1, 2},
        {"listen=a:1 backend=a:3 backend=b:1", NULL, "--backend b:1: is the address it listens on", 2, 3},
        {"listen=a:1 listen=a:5 backend=a:3 backend=b:5", NULL, "--backend b:5: is the address it listens on", 2, 4},
        {"listen=a:1 backend=a:3 backend=a:4 backend=a:5,weight=100", NULL, "--backend: too heavy", 2, 4},
    };
    static struct settings before_line;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct gateway_options *before = NULL;
        if (rows[i].before != NULL) {
            settings_free(&before_line);
            give(&before_line, rows[i].before, false);
            assert_true(settings_apply(&before_line, NULL, &other, &problem));
            for (size_t n = 0; n < other.listen.count; n++) {
                assert_true(options_find_listen(&other, NULL, n, &problem));
            }
            assert_true(options_find_backends(&other, NULL, &problem));
            before = &other;
        }
        assert_true(apply(rows[i].words, &options));
        lookups = 0;
        bool good = true;
        for (size_t n = 0; n < options.listen.count && good; n++) {
            good = options_find_listen(&options, before, n, &problem);
        }
        good = good && options_find_backends(&options, before, &problem);
        assert_int_equal(good, rows[i].code == 0);
        assert_int_equal(lookups, rows[i].lookups);
        if (rows[i].problem != NULL) {
            assert_string_equal(problem.sentence, rows[i].problem);
        }
        assert_int_equal(problem.code, rows[i].code);
        if (good) {
            assert_string_equal(options.backend_text, "a:3, a:4");
            assert_int_equal(options.listens[1].u.v4.sin_port, htons(2));
            assert_int_equal(options.backends[1].address.u.v4.sin_port, htons(4));
            assert_int_equal(options.backends[0].drain, i == 1);
            assert_int_equal(options.backends[1].weight, i == 0 ? 2 : 1);
        }
    }
    /* What has no room in the text is left out. */
    char words[9000] = "listen=a:1";
    size_t length = strlen(words);
    for (unsigned i = 0; i < 64; i++) {
        length +=
            (size_t) snprintf(words + length, sizeof(words) - length, " backend=a-host-of-some-length:%u", 1000 + i);
    }
    assert_true(apply(words, &options) && options_find_backends(&options, NULL, &problem));
    assert_int_equal(strlen(options.backend_text), sizeof(options.backend_text) - 1);
    assert_int_equal(strncmp(options.backend_text, "a-host-of-some-length:1000, a-host-of-some-length:1001, ", 56), 0);
    struct address found;
    assert_true(apply("metrics=a:9090", &options));
    assert_true(options_find_address(&options, SETTING_METRICS, 0, &found, &problem));
    assert_int_equal(found.u.v4.sin_port, htons(9090));
    assert_true(apply("metrics=unknown:9090", &options));
    assert_false(options_find_address(&options, SETTING_METRICS, 0, &found, &problem));
    assert_string_equal(problem.sentence, "--metrics unknown:9090: is unknown");
    assert_int_equal(problem.code, 1);
    settings_free(&line);
    settings_free(&file);
    settings_free(&before_line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_setting_is_kept_and_changes_nothing_else),
        cmocka_unit_test(test_what_is_wrong_is_said_with_its_place),
        cmocka_unit_test(test_a_setting_differs_where_its_value_does),
        cmocka_unit_test(test_settings_that_do_not_fit_one_another_are_refused),
        cmocka_unit_test(test_a_host_is_looked_up_once_and_an_address_is_one_listeners_or_backends),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_settings", tests, NULL, NULL);
}
