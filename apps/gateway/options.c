/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: its words become settings (settings.c), and the options of those are made ready for a start. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/transparent.h"
#include "config.h"
#include "gateway.h"
#include "kinds/kind_file.h"
#include "log.h"
#include "secret.h"

static const char usage[] =
    "weir-gateway --listen ADDR --backend ADDR --policies FILE [options]\n"
    "weir-gateway --config FILE [options]\n"
    "A UDP reverse proxy that limits packets per source address (policy \"source\": IPv4 /32, IPv6 /64), per network\n"
    "(\"network24\") and in all (\"overall\"). SIGHUP reads the policies again, SIGTERM ends it.\n"
    "\n"
    "  --listen ADDR            where clients send to: 127.0.0.1:7000, [::1]:7000, host:7000 or :7000; up to 16 times\n"
    "  --backend ADDR[,weight=N][,drain]\n"
    "                           where it forwards to; given several times, each client goes to one of them\n"
    "  --probe PAYLOAD          ask each backend whether it is up, by packets of this text or 0x and hex digits\n"
    "  --probe-interval-ms N    how often (1000)\n"
    "  --probe-rise N           answers in a row by which a backend is up (2)\n"
    "  --probe-fall N           probes in a row without an answer by which it is down (3)\n"
    "  --backend-silence SECONDS\n"
    "                           a backend that clients sent packets to for so long, and that replied to none, is down\n"
    "  --policies FILE          YAML policies; without it nothing is limited\n"
    "  --kinds FILE             YAML kinds of packets, by their first bytes and size, and what each costs\n"
    "  --allow-missing          take a policy file that has no policy of ours, or lacks one that is in force\n"
    "  --check FILE             print what the policies of a file are, or what is wrong with it, and do nothing else\n"
    "  --config FILE            YAML settings: these options by name; the command line goes before; SIGHUP reads them "
    "again\n"
    "  --check-config FILE      the same for a file of settings and for the policies that it names\n"
    "  --redis URL              share the limits: redis://[user:password@]host[:port][/db] or unix:///path\n"
    "                           (or in the environment, as WEIR_REDIS_URL)\n"
    "  --redis-password-file FILE\n"
    "                           its first line is the password\n"
    "  --fleet-secret-file FILE its first line, the same on all nodes, keeps hashed sources secret in Redis\n"
    "  --redis-prefix PREFIX    of every key in Redis (weir)\n"
    "  --node-name NAME         for people who read the log (the host name)\n"
    "  --sync-interval-ms N     how often to speak with Redis (200)\n"
    "  --expected-nodes N       gateways that share the limits, until they have been heard of (1)\n"
    "  --threads N              threads, each with a socket of its own (one per core)\n"
    "  --sessions N             clients remembered per thread (4096); each takes a file descriptor\n"
    "  --idle SECONDS           after which a silent client is forgotten (30)\n"
    "  --port-rest SECONDS      for which a client's local port is no other client's after its last packet (4)\n"
    "  --state DIR              where the table of local ports is kept, which a restart reads again\n"
    "  --max-keys N             sources that the limits remember, of all threads (262144)\n"
    "  --xdp IFACE[,mode=native|generic][,forward]\n"
    "                           drop packets of sources whose denials repeat in the kernel, at this interface;\n"
    "                           forward: the others go past the network stack (AF_XDP)\n"
    "  --record FILE            write a sample of the packets that are denied to FILE (pcapng)\n"
    "  --record-rate N          at most so many packets a second (1000)\n"
    "  --record-snap BYTES      of each packet's payload (256)\n"
    "  --record-size MB         of a file; a full one becomes FILE.1 (100)\n"
    "  --proxy-protocol         begin each packet to the backend with a PROXY protocol v2 header\n"
    "  --transparent            the backend sees the client's address, as if there were no gateway (needs routing)\n"
    "  --no-offload             no datagrams merged by the kernel on their way in or out (UDP_GRO, UDP_SEGMENT)\n"
    "  --log-level LEVEL        error, warning or info (info): lines up to this one\n"
    "  --log-format FORMAT      text, journal or json (journal where stderr goes to journald, else text)\n"
    "  --no-denial-log          no lines about policies that deny\n"
    "  --metrics ADDR           serve /metrics (Prometheus), /status (JSON) and /healthz over HTTP\n"
    "  -h, --help, --version\n";

static _Noreturn void end_with(const struct setting_problem *problem)
{
    (void) fprintf(stderr, "weir-gateway: %s\n", problem->sentence);
    exit(problem->code);
}

/* Options of the command line that are no settings. */
enum { OPTION_CHECK = 'c', OPTION_CONFIG = 'C', OPTION_CHECK_CONFIG = 'K', OPTION_HELP = 'h', OPTION_VERSION = 'v' };

/* Settings as options are numbered from here. */
#define OPTION_SETTING 256

/* What the command line asks for beside settings. */
struct command {
    const char *check, *config;
    bool only_checks;
};

/* The options of getopt_long: all settings, and those beside them. */
struct option_table {
    struct option all[SETTING_COUNT + 6];
};

static void list_options(struct option_table *out)
{
    static const struct option others[] = {{"check", required_argument, NULL, OPTION_CHECK},
                                           {"config", required_argument, NULL, OPTION_CONFIG},
                                           {"check-config", required_argument, NULL, OPTION_CHECK_CONFIG},
                                           {"help", no_argument, NULL, OPTION_HELP},
                                           {"version", no_argument, NULL, OPTION_VERSION},
                                           {NULL, 0, NULL, 0}};
    for (int i = 0; i < SETTING_COUNT; i++) {
        const enum setting_form form = setting_entries[i].form;
        const bool is_flag = form == FORM_FLAG || form == FORM_FLAG_OFF;
        out->all[i] = (struct option){setting_entries[i].name, is_flag ? no_argument : required_argument, NULL,
                                      OPTION_SETTING + i};
    }
    memcpy(&out->all[SETTING_COUNT], others, sizeof(others));
}

/* Takes a setting of the command line. */
static void take_setting(struct settings *line, enum setting setting, char *value)
{
    char *url = setting == SETTING_REDIS ? secret_take(value) : NULL;
    const char *text = url != NULL ? url : value;
    const char *what = "";
    if (!settings_add(line, setting, text != NULL ? text : "true", &what)) {
        (void) fprintf(stderr, "weir-gateway: --%s %s: %s\n", setting_entries[setting].name, value, what);
        exit(2);
    }
    free(url);
}

/* Takes an option that is no setting. */
static void take_other(struct command *command, int option, const char *value)
{
    switch (option) {
    case OPTION_CHECK:
        command->check = value;
        break;
    case OPTION_CHECK_CONFIG:
        command->only_checks = true;
        command->config = value;
        break;
    case OPTION_CONFIG:
        command->config = value;
        break;
    case OPTION_HELP:
        (void) fputs(usage, stdout);
        exit(0);
    case OPTION_VERSION:
        (void) printf("weir-gateway %d.%d.%d\n", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
        exit(0);
    default:
        (void) fputs("weir-gateway --help lists the options\n", stderr);
        exit(2);
    }
}

bool options_check(const struct gateway_options *options, bool has_handed, struct setting_problem *problem)
{
    *problem = (struct setting_problem){.code = 2};
    if ((options->listen.count == 0 && !has_handed) || options->backend.count == 0) {
        (void) snprintf(problem->sentence, sizeof(problem->sentence), "%s; weir-gateway --help lists the options",
                        "--listen and --backend are needed");
        return false;
    }
    if (options->redis != NULL && options->policies == NULL) {
        settings_fail(options, SETTING_REDIS, 0, 2, "there are no limits to share; give --policies as well", problem);
        return false;
    }
    if (options->kinds != NULL && options->policies == NULL) {
        settings_fail(options, SETTING_KINDS, 0, 2,
                      "there are no limits that a packet could cost something of; give --policies as well", problem);
        return false;
    }
    if (options->transparent && options->proxy_protocol) {
        settings_fail(options, SETTING_TRANSPARENT, 0, 2,
                      "the client's address is told by --proxy-protocol; give one of both", problem);
        return false;
    }
    for (size_t i = 0; i < options->backend.count; i++) {
        const char *text = options->backend.texts[i];
        const size_t length = strcspn(text, ",");
        for (size_t j = 0; j < options->listen.count; j++) {
            if (strlen(options->listen.texts[j]) == length && strncmp(options->listen.texts[j], text, length) == 0) {
                settings_fail(options, SETTING_BACKEND, i, 2, "is the address it listens on", problem);
                return false;
            }
        }
    }
    return true;
}

/* Finds Redis's URL among the settings or in the environment, and its password in a file, if one is given. */
static void find_redis(struct gateway_options *options)
{
    const char *in_environment = getenv("WEIR_REDIS_URL");
    const char *url = options->redis;
    if (url != NULL) {
        settings_origin(options, SETTING_REDIS, options->redis_origin, sizeof(options->redis_origin));
    } else if (options->policies != NULL && in_environment != NULL && *in_environment != '\0') {
        url = in_environment;
        (void) snprintf(options->redis_origin, sizeof(options->redis_origin), "WEIR_REDIS_URL");
    }
    if (options->redis_password_file != NULL && url == NULL) {
        struct setting_problem problem;
        settings_fail(options, SETTING_REDIS_PASSWORD_FILE, 0, 2,
                      "there is no Redis to give it to; give --redis as well", &problem);
        end_with(&problem);
    }
    if (url != NULL) {
        options->redis_url =
            options->redis_password_file != NULL ? secret_url(url, options->redis_password_file) : strdup(url);
    }
    if (options->fleet_secret_file != NULL) {
        options->fleet_secret = secret_read("fleet-secret-file", options->fleet_secret_file);
    }
}

bool options_find_address(const struct gateway_options *options, enum setting setting, size_t index,
                          struct address *out, struct setting_problem *problem)
{
    const char *text = setting == SETTING_LISTEN ? options->listen.texts[index] : options->metrics_text;
    const int result = address_find(text, setting == SETTING_METRICS ? SOCK_STREAM : SOCK_DGRAM, out);
    if (result != 0) {
        settings_fail(options, setting, index, result == ADDRESS_MALFORMED ? 2 : 1, address_problem(result), problem);
    }
    return result == 0;
}

bool options_find_listen(struct gateway_options *options, const struct gateway_options *before, size_t index,
                         struct setting_problem *problem)
{
    const char *text = options->listen.texts[index];
    size_t known = 0;
    while (before != NULL && known < before->listen.count && strcmp(before->listen.texts[known], text) != 0) {
        known++;
    }
    if (before != NULL && known < before->listen.count) {
        options->listens[index] = before->listens[known];
    } else if (!options_find_address(options, SETTING_LISTEN, index, &options->listens[index], problem)) {
        return false;
    }
    for (size_t i = 0; i < index; i++) {
        if (address_is_same(&options->listens[i], &options->listens[index])) {
            settings_fail(options, SETTING_LISTEN, index, 2, "is given twice; leave one out", problem);
            return false;
        }
    }
    return true;
}

/* Looks a backend up, unless `before` has it. */
static bool find_backend(struct gateway_options *options, const struct gateway_options *before, size_t index,
                         struct setting_problem *problem)
{
    struct backend_choice *backend = &options->backends[index];
    const char *text = options->backend.texts[index];
    char why[512];
    int result = backend_choice_read(text, backend, why, sizeof(why)) ? 0 : ADDRESS_MALFORMED;
    bool is_known = false;
    for (size_t i = 0; result == 0 && before != NULL && i < before->backend.count && !is_known; i++) {
        is_known = strcmp(before->backends[i].text, backend->text) == 0;
        backend->address = is_known ? before->backends[i].address : backend->address;
    }
    if (result == 0 && !is_known) {
        result = backend_choice_parse(text, backend, why, sizeof(why));
    }
    if (result != 0) {
        settings_fail(options, SETTING_BACKEND, index, result == ADDRESS_MALFORMED ? 2 : 1, why, problem);
    }
    return result == 0;
}

bool options_find_backends(struct gateway_options *options, const struct gateway_options *before,
                           struct setting_problem *problem)
{
    size_t length = 0;
    for (size_t i = 0; i < options->backend.count; i++) {
        const struct backend_choice *backend = &options->backends[i];
        if (!find_backend(options, before, i, problem)) {
            return false;
        }
        for (size_t j = 0; j < options->listen.count; j++) {
            if (address_is_same(&options->listens[j], &backend->address)) {
                settings_fail(options, SETTING_BACKEND, i, 2, "is the address it listens on", problem);
                return false;
            }
        }
        if (length < sizeof(options->backend_text)) {
            length += (size_t) snprintf(options->backend_text + length, sizeof(options->backend_text) - length, "%s%s",
                                        i != 0 ? ", " : "", backend->text);
        }
    }
    char why[256];
    if (!backends_check(options->backends, (unsigned) options->backend.count, why, sizeof(why))) {
        settings_fail(options, SETTING_BACKEND, SETTING_TEXTS_MAX, 2, why, problem);
        return false;
    }
    return true;
}

/* Looks up the hosts of all addresses. */
static void find_addresses(struct gateway_options *options)
{
    struct setting_problem problem;
    bool good =
        options->metrics_text == NULL || options_find_address(options, SETTING_METRICS, 0, &options->metrics, &problem);
    for (size_t i = 0; i < options->listen.count && good; i++) {
        good = options_find_listen(options, NULL, i, &problem);
    }
    if (!good || !options_find_backends(options, NULL, &problem)) {
        end_with(&problem);
    }
}

/* Whether the backends can be sent packets from the clients' addresses. */
static void check_transparent(const struct gateway_options *options)
{
    for (size_t i = 0; i < options->backend.count && options->transparent; i++) {
        const int result = transparent_allowed(options->backends[i].address.u.any.sa_family);
        if (result != 0) {
            struct setting_problem problem;
            char why[160];
            (void) snprintf(why, sizeof(why), "%s%s", strerror(-result),
                            result == -EPERM ? "; it needs CAP_NET_ADMIN (in a unit of systemd AmbientCapabilities)"
                                             : "");
            settings_fail(options, SETTING_TRANSPARENT, 0, 1, why, &problem);
            end_with(&problem);
        }
    }
}

/* Checks a file of policies, and that of the kinds. False, after a sentence on stderr: a gateway would not start. */
static bool check_files(const char *policies, const struct gateway_options *options)
{
    struct packet_kinds kinds;
    weir_error error;
    if (!kind_file_read(options->kinds, &kinds, &error)) {
        log_line(WEIR_LOG_ERROR, "%s", error.message);
        return false;
    }
    if (!policies_check(policies, &kinds, options->allow_missing)) {
        return false;
    }
    for (size_t i = 0; i < kinds.count; i++) {
        (void) printf("kind %s: costs %u\n", kinds.all[i].name, (unsigned) kinds.all[i].cost);
    }
    return true;
}

/* The end of --check-config. */
static _Noreturn void check_config(const char *config, const struct gateway_options *options)
{
    if (options->policies != NULL && !check_files(options->policies, options)) {
        exit(2);
    }
    (void) printf("%s: good%s%s\n", config, options->policies == NULL ? "; nothing is limited" : "",
                  options->listen.count == 0 ? "; it has no \"listen\", so sockets must be handed over" : "");
    exit(0);
}

/* Reads the file of settings; ends the program where that cannot be taken. */
static struct settings *read_config(const char *path)
{
    struct settings *file = calloc(1, sizeof(*file));
    weir_error error;
    if (file == NULL) {
        exit(1);
    }
    const int result = config_read(path, file, &error);
    if (result != 0) {
        (void) fprintf(stderr, "weir-gateway: %s\n", error.message);
        exit(result == -EINVAL ? 2 : 1);
    }
    return file;
}

void options_parse(int argc, char **argv, struct option_sources *sources, struct gateway_options *out)
{
    struct command command = {.check = NULL};
    struct option_table table;
    struct setting_problem problem;
    list_options(&table);
    int option;
    while ((option = getopt_long(argc, argv, "h", table.all, NULL)) != -1) {
        if (option >= OPTION_SETTING) {
            take_setting(&sources->line, (enum setting)(option - OPTION_SETTING), optarg);
        } else {
            take_other(&command, option, optarg);
        }
    }
    sources->config = command.config;
    sources->first = command.config != NULL ? read_config(command.config) : NULL;
    sources->latest = sources->first;
    if (!settings_apply(&sources->line, sources->first, out, &problem)) {
        end_with(&problem);
    }
    if (command.check != NULL && optind == argc) {
        exit(check_files(command.check, out) ? 0 : 2);
    }
    if (optind < argc) {
        (void) fputs("weir-gateway: there is a word too many; weir-gateway --help lists the options\n", stderr);
        exit(2);
    }
    if (!options_check(out, sources->has_handed || command.only_checks, &problem)) {
        end_with(&problem);
    }
    if (command.only_checks) {
        check_config(command.config, out);
    }
    find_redis(out);
    find_addresses(out);
    check_transparent(out);
}
