/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway.h"
#include "secret.h"

static const char usage[] =
    "weir-gateway --listen ADDR --backend ADDR --policies FILE [options]\n"
    "A UDP reverse proxy that limits packets per source address (policy \"source\": IPv4 /32, IPv6 /64) and in all\n"
    "(policy \"overall\"). SIGHUP reads the policies again, SIGTERM ends it.\n"
    "\n"
    "  --listen ADDR            where clients send to: 127.0.0.1:7000, [::1]:7000, host:7000 or :7000\n"
    "  --backend ADDR           where it forwards to\n"
    "  --policies FILE          YAML policies; without it nothing is limited\n"
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
    "  --proxy-protocol         begin each packet to the backend with a PROXY protocol v2 header\n"
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

/* Where Redis is: on the command line, or in the environment; and its password from a file, where there is one. */
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

void options_parse(int argc, char **argv, struct gateway_options *out)
{
    static const struct option known[] = {
        {"listen", required_argument, NULL, 'l'},
        {"backend", required_argument, NULL, 'b'},
        {"policies", required_argument, NULL, 'p'},
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
        {"no-offload", no_argument, NULL, 'o'},
        {"log-level", required_argument, NULL, 'L'},
        {"log-format", required_argument, NULL, 'F'},
        {"no-denial-log", no_argument, NULL, 'D'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct gateway_options){.sessions = 4096,
                                    .max_keys = 262144,
                                    .idle_seconds = 30,
                                    .offload = true,
                                    .log_level = WEIR_LOG_INFO,
                                    .log_format = log_default_format(),
                                    .threads = cores < 1                     ? 1
                                               : cores < GATEWAY_THREADS_MAX ? (unsigned) cores
                                                                             : GATEWAY_THREADS_MAX};
    const char *check = NULL;
    const char *password_file = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (option) {
        case 'l':
            out->listen_text = optarg;
            break;
        case 'b':
            out->backend_text = optarg;
            break;
        case 'm':
            out->metrics_text = optarg;
            break;
        case 'p':
            out->policies = optarg;
            break;
        case 'r':
            out->redis_url = secret_take(optarg);
            out->redis_origin = "--redis";
            break;
        case 'x':
            out->redis_prefix = optarg;
            break;
        case 'n':
            out->node_name = optarg;
            break;
        case 'i':
            out->sync_interval_ms = number("sync-interval-ms", optarg, 10, 60000);
            break;
        case 'e':
            out->expected_nodes = number("expected-nodes", optarg, 1, 65535);
            break;
        case 't':
            out->threads = number("threads", optarg, 1, GATEWAY_THREADS_MAX);
            break;
        case 's':
            out->sessions = number("sessions", optarg, GATEWAY_SESSIONS_MIN, 1000000);
            break;
        case 'k':
            out->max_keys = number("max-keys", optarg, 1000, 100000000);
            break;
        case 'd':
            out->idle_seconds = number("idle", optarg, 1, 86400);
            break;
        case 'w':
            password_file = optarg;
            break;
        case 'f':
            free(out->fleet_secret);
            out->fleet_secret = secret_read("fleet-secret-file", optarg);
            break;
        case 'y':
            out->proxy_protocol = true;
            break;
        case 'a':
            out->allow_missing = true;
            break;
        case 'c':
            check = optarg;
            break;
        case 'o':
            out->offload = false;
            break;
        case 'L':
            level(optarg, &out->log_level);
            break;
        case 'F':
            format(optarg, &out->log_format);
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
    if (check != NULL && optind == argc) {
        exit(policies_check(check, out->allow_missing) ? 0 : 2);
    }
    if (optind < argc || out->listen_text == NULL || out->backend_text == NULL) {
        (void) fprintf(stderr, "weir-gateway: %s; weir-gateway --help lists the options\n",
                       optind < argc ? "there is a word too many" : "--listen and --backend are needed");
        exit(2);
    }
    find_redis(out, password_file);
    address("listen", out->listen_text, SOCK_DGRAM, &out->listen);
    address("backend", out->backend_text, SOCK_DGRAM, &out->backend);
    address("metrics", out->metrics_text, SOCK_STREAM, &out->metrics);
    if (address_is_same(&out->listen, &out->backend)) {
        wrong("backend", out->backend_text, "is the address it listens on");
    }
}
