/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/transparent.h"
#include "gateway.h"
#include "kinds/kind_file.h"
#include "secret.h"
#include "xdp/xdp.h"

static const char usage[] =
    "weir-gateway --listen ADDR --backend ADDR --policies FILE [options]\n"
    "A UDP reverse proxy that limits packets per source address (policy \"source\": IPv4 /32, IPv6 /64), per network\n"
    "(\"network24\") and in all (\"overall\"). SIGHUP reads the policies again, SIGTERM ends it.\n"
    "\n"
    "  --listen ADDR            where clients send to: 127.0.0.1:7000, [::1]:7000, host:7000 or :7000\n"
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
    "  --max-keys N             sources that the limits remember, of all threads (262144)\n"
    "  --xdp IFACE[,mode=native|generic]\n"
    "                           drop packets of sources whose denials repeat in the kernel, at this interface\n"
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

static _Noreturn void wrong(const char *option, const char *value, const char *what)
{
    (void) fprintf(stderr, "weir-gateway: --%s %s: %s\n", option, value, what);
    exit(2);
}

static unsigned number(const char *option, const char *value, unsigned least, unsigned most)
{
    char *end = NULL;
    const unsigned long n = strtoul(value, &end, 10);
    if (end == value || *end != '\0' || n < least || n > most) {
        char what[64];
        (void) snprintf(what, sizeof(what), "give a number from %u to %u", least, most);
        wrong(option, value, what);
    }
    return (unsigned) n;
}

static void level(const char *value, weir_log_level *out)
{
    char why[128];
    if (!log_find_level(value, out, why, sizeof(why))) {
        wrong("log-level", value, why);
    }
}

static void format(const char *value, enum log_format *out)
{
    char why[128];
    if (!log_find_format(value, out, why, sizeof(why))) {
        wrong("log-format", value, why);
    }
}

static void address(const char *option, const char *value, int type, struct address *out)
{
    const int result = value != NULL ? address_find(value, type, out) : 0;
    if (result != 0) {
        (void) fprintf(stderr, "weir-gateway: --%s %s: %s\n", option, value, address_problem(result));
        exit(result == ADDRESS_MALFORMED ? 2 : 1);
    }
}

static void probe(const char *value, struct probe_payload *out)
{
    char why[128];
    if (!probe_parse(value, out, why, sizeof(why))) {
        wrong("probe", value, why);
    }
}

/* Looks the backends up, and writes them in a line. */
static void find_backends(struct gateway_options *options)
{
    char why[512];
    size_t length = 0;
    for (unsigned i = 0; i < options->backend_count; i++) {
        struct backend_choice *backend = &options->backends[i];
        const int result = backend_choice_parse(options->backend_texts[i], backend, why, sizeof(why));
        if (result != 0) {
            (void) fprintf(stderr, "weir-gateway: --backend %s: %s\n", options->backend_texts[i], why);
            exit(result == ADDRESS_MALFORMED ? 2 : 1);
        }
        if (address_is_same(&options->listen, &backend->address)) {
            wrong("backend", options->backend_texts[i], "is the address it listens on");
        }
        if (length < sizeof(options->backend_text)) {
            length += (size_t) snprintf(options->backend_text + length, sizeof(options->backend_text) - length, "%s%s",
                                        i != 0 ? ", " : "", backend->text);
        }
    }
    if (!backends_check(options->backends, options->backend_count, why, sizeof(why))) {
        (void) fprintf(stderr, "weir-gateway: --backend: %s\n", why);
        exit(2);
    }
    options->checks.introduces = options->proxy_protocol;
}

/* Whether the backends can be sent packets from the clients' addresses. */
static void check_transparent(const struct gateway_options *options)
{
    if (options->transparent && options->proxy_protocol) {
        (void) fputs(
            "weir-gateway: --transparent: the client's address is told by --proxy-protocol; give one of both\n",
            stderr);
        exit(2);
    }
    for (unsigned i = 0; i < options->backend_count && options->transparent; i++) {
        const int result = transparent_allowed(options->backends[i].address.u.any.sa_family);
        if (result != 0) {
            (void) fprintf(stderr, "weir-gateway: --transparent: %s%s\n", strerror(-result),
                           result == -EPERM ? "; it needs CAP_NET_ADMIN (in a unit of systemd AmbientCapabilities)"
                                            : "");
            exit(1);
        }
    }
}

/* Finds Redis's URL on the command line or in the environment, and its password in a file, if one is given. */
static void find_redis(struct gateway_options *options, const char *password_file)
{
    char *in_environment = getenv("WEIR_REDIS_URL");
    if (options->redis_url == NULL && options->policies != NULL && in_environment != NULL && *in_environment != '\0') {
        options->redis_url = strdup(in_environment);
        options->redis_origin = "WEIR_REDIS_URL";
    }
    if (options->redis_url != NULL && options->policies == NULL) {
        (void) fputs("weir-gateway: --redis: there are no limits to share; give --policies as well\n", stderr);
        exit(2);
    }
    if (password_file == NULL) {
        return;
    }
    if (options->redis_url == NULL) {
        wrong("redis-password-file", password_file, "there is no Redis to give it to; give --redis as well");
    }
    char *without_password = options->redis_url;
    options->redis_url = secret_url(without_password, password_file);
    free(without_password);
}

static const struct option long_options[] = {
    {"listen", required_argument, NULL, 'l'},
    {"backend", required_argument, NULL, 'b'},
    {"probe", required_argument, NULL, 'P'},
    {"probe-interval-ms", required_argument, NULL, 'I'},
    {"probe-rise", required_argument, NULL, 'Q'},
    {"probe-fall", required_argument, NULL, 'U'},
    {"backend-silence", required_argument, NULL, 'S'},
    {"policies", required_argument, NULL, 'p'},
    {"kinds", required_argument, NULL, 'K'},
    {"redis", required_argument, NULL, 'r'},
    {"redis-prefix", required_argument, NULL, 'x'},
    {"node-name", required_argument, NULL, 'n'},
    {"threads", required_argument, NULL, 't'},
    {"sessions", required_argument, NULL, 's'},
    {"metrics", required_argument, NULL, 'm'},
    {"sync-interval-ms", required_argument, NULL, 'i'},
    {"expected-nodes", required_argument, NULL, 'e'},
    {"allow-missing", no_argument, NULL, 'a'},
    {"check", required_argument, NULL, 'c'},
    {"max-keys", required_argument, NULL, 'k'},
    {"idle", required_argument, NULL, 'd'},
    {"redis-password-file", required_argument, NULL, 'w'},
    {"fleet-secret-file", required_argument, NULL, 'f'},
    {"proxy-protocol", no_argument, NULL, 'y'},
    {"transparent", no_argument, NULL, 'T'},
    {"xdp", required_argument, NULL, 'X'},
    {"record", required_argument, NULL, 'R'},
    {"record-rate", required_argument, NULL, 'A'},
    {"record-snap", required_argument, NULL, 'N'},
    {"record-size", required_argument, NULL, 'M'},
    {"no-offload", no_argument, NULL, 'o'},
    {"log-level", required_argument, NULL, 'L'},
    {"log-format", required_argument, NULL, 'F'},
    {"no-denial-log", no_argument, NULL, 'D'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},
    {NULL, 0, NULL, 0},
};

/* The command line: the options of the gateway, and options that are used up while it is read. */
struct command {
    struct gateway_options *out;
    const char *check, *password_file;
};

/* Takes an option whose value is a text or a word. False: it is another one. */
static bool take_text(struct command *command, int option, const char *value)
{
    struct gateway_options *out = command->out;
    switch (option) {
    case 'l':
        out->listen_text = value;
        return true;
    case 'b':
        if (out->backend_count == BACKENDS_MAX) {
            wrong("backend", value, "is one too many; a gateway has 64 backends at most");
        }
        out->backend_texts[out->backend_count++] = value;
        return true;
    case 'P':
        probe(value, &out->checks.payload);
        return true;
    case 'm':
        out->metrics_text = value;
        return true;
    case 'p':
        out->policies = value;
        return true;
    case 'K':
        out->kinds = value;
        return true;
    case 'x':
        out->redis_prefix = value;
        return true;
    case 'n':
        out->node_name = value;
        return true;
    case 'X':
        out->xdp = value;
        if (!xdp_option_is_good(value)) {
            wrong("xdp", value, "give an interface, and a mode if you like: eth0,mode=native or eth0,mode=generic");
        }
        return true;
    case 'R':
        out->record.path = value;
        return true;
    case 'w':
        command->password_file = value;
        return true;
    case 'c':
        command->check = value;
        return true;
    case 'L':
        level(value, &out->log_level);
        return true;
    case 'F':
        format(value, &out->log_format);
        return true;
    default:
        return false;
    }
}

/* Takes an option whose value is a number. False: it is another one. */
static bool take_number(struct gateway_options *out, int option, const char *value)
{
    switch (option) {
    case 'i':
        out->sync_interval_ms = number("sync-interval-ms", value, 10, 60000);
        return true;
    case 'e':
        out->expected_nodes = number("expected-nodes", value, 1, 65535);
        return true;
    case 't':
        out->threads = number("threads", value, 1, GATEWAY_THREADS_MAX);
        return true;
    case 's':
        out->sessions = number("sessions", value, GATEWAY_SESSIONS_MIN, 1000000);
        return true;
    case 'k':
        out->max_keys = number("max-keys", value, 1000, 100000000);
        return true;
    case 'A':
        out->record.rate = number("record-rate", value, 1, 1000000);
        return true;
    case 'N':
        out->record.snap = number("record-snap", value, 0, 65507);
        return true;
    case 'M':
        out->record.size_mb = number("record-size", value, 1, 1000000);
        return true;
    case 'I':
        out->checks.interval_ms = number("probe-interval-ms", value, 100, 60000);
        return true;
    case 'Q':
        out->checks.rise = number("probe-rise", value, 1, 100);
        return true;
    case 'U':
        out->checks.fall = number("probe-fall", value, 1, 100);
        return true;
    case 'S':
        out->checks.silence_seconds = number("backend-silence", value, 1, 3600);
        return true;
    case 'd':
        out->idle_seconds = number("idle", value, 1, 86400);
        return true;
    default:
        return false;
    }
}

/* Takes a secret, a flag, or an option after which the program ends. */
static void take_other(struct gateway_options *out, int option, char *value)
{
    switch (option) {
    case 'r':
        out->redis_url = secret_take(value);
        out->redis_origin = "--redis";
        break;
    case 'f':
        free(out->fleet_secret);
        out->fleet_secret = secret_read("fleet-secret-file", value);
        break;
    case 'y':
        out->proxy_protocol = true;
        break;
    case 'T':
        out->transparent = true;
        break;
    case 'a':
        out->allow_missing = true;
        break;
    case 'o':
        out->offload = false;
        break;
    case 'D':
        out->no_denial_log = true;
        break;
    case 'h':
        (void) fputs(usage, stdout);
        exit(0);
    case 'v':
        (void) printf("weir-gateway %d.%d.%d\n", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
        exit(0);
    default:
        (void) fputs("weir-gateway --help lists the options\n", stderr);
        exit(2);
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

/* One worker for each core. */
static unsigned default_threads(void)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores < 1) {
        return 1;
    }
    return cores < GATEWAY_THREADS_MAX ? (unsigned) cores : GATEWAY_THREADS_MAX;
}

void options_parse(int argc, char **argv, struct gateway_options *out)
{
    *out = (struct gateway_options){.sessions = 4096,
                                    .max_keys = 262144,
                                    .idle_seconds = 30,
                                    .offload = true,
                                    .record = {.rate = 1000, .snap = 256, .size_mb = 100},
                                    .checks = {.interval_ms = 1000, .rise = 2, .fall = 3},
                                    .log_level = WEIR_LOG_INFO,
                                    .log_format = log_default_format(),
                                    .threads = default_threads()};
    struct command command = {.out = out};
    int option;
    while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (!take_text(&command, option, optarg) && !take_number(out, option, optarg)) {
            take_other(out, option, optarg);
        }
    }
    if (command.check != NULL && optind == argc) {
        exit(check_files(command.check, out) ? 0 : 2);
    }
    if (optind < argc || out->listen_text == NULL || out->backend_count == 0) {
        (void) fprintf(stderr, "weir-gateway: %s; weir-gateway --help lists the options\n",
                       optind < argc ? "there is a word too many" : "--listen and --backend are needed");
        exit(2);
    }
    if (out->kinds != NULL && out->policies == NULL) {
        wrong("kinds", out->kinds,
              "there are no limits that a packet could cost something of; give --policies as well");
    }
    find_redis(out, command.password_file);
    address("listen", out->listen_text, SOCK_DGRAM, &out->listen);
    find_backends(out);
    check_transparent(out);
    address("metrics", out->metrics_text, SOCK_STREAM, &out->metrics);
}
