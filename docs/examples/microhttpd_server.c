/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small HTTP server on threads of a library, libmicrohttpd: four of them. Each client's address may send 5 requests a
 * second and 10 at once; every answer tells the client how it stands, and who is refused gets a 429 with Retry-After.
 *
 *   microhttpd_server [PORT [REDIS_URL]]    port 0: any that is free; with redis://127.0.0.1 the limit is the fleet's
 *
 * /metrics is for Prometheus, and /status a page for people. A server that is open to the world has both on another
 * address. SIGINT and SIGTERM end it.
 */
#include <microhttpd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <weir/weir.h>

static weir *w;
static weir_policy_id api;
static thread_local weir_thread *mine; /* given back when the thread ends */

static void say(void *arg, weir_log_level level, const char *message)
{
    (void) arg;
    (void) fprintf(stderr, "%s: %s\n", level == WEIR_LOG_INFO ? "info" : "warning", message);
}

/* May this client go on? The key is its address, as bytes: of IPv6 the /64. */
static bool allow(struct MHD_Connection *connection, weir_verdict *verdict)
{
    uint8_t client[16];
    const struct sockaddr *from = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    const size_t size = weir_address_key(from, 64, client);
    if (mine == NULL) {
        mine = weir_attach(w); /* once in each thread; NULL, as there are too many: the check lets pass */
    }
    const weir_key key = weir_make_key(w, api, client, size);
    return weir_check(mine, &key, 1, verdict);
}

/* The lines that weir writes, "Name: value\r\n", into a response of a library that wants name and value. */
static void add_fields(struct MHD_Response *response, const weir_verdict *verdict)
{
    char fields[1024];
    const int size = weir_write_headers(WEIR_HEADERS_DRAFT_11, w, api, verdict, fields, sizeof fields);
    if (size < 0 || (size_t) size >= sizeof fields) {
        return;
    }
    char *rest = fields;
    for (char *line = strtok_r(rest, "\r\n", &rest); line != NULL; line = strtok_r(NULL, "\r\n", &rest)) {
        char *value = strstr(line, ": ");
        *value = '\0';
        (void) MHD_add_response_header(response, line, value + 2);
    }
}

/* What weir writes into a buffer, as a response. */
static struct MHD_Response *text_of(int (*write)(const weir *, char *, size_t))
{
    const size_t size = (size_t) write(w, NULL, 0) + 1024; /* numbers grow meanwhile */
    char *text = (char *) malloc(size);
    if (text == NULL) {
        return NULL;
    }
    (void) write(w, text, size);
    return MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
}

/* The page, and for the page its figures: the same address with ?format=json. */
static struct MHD_Response *status_of(struct MHD_Connection *connection)
{
    const char *format = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "format");
    if (format != NULL && strcmp(format, "json") == 0) {
        return text_of(weir_write_status);
    }
    size_t length;
    const char *page = weir_status_page(&length);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(length, (void *) (uintptr_t) page, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        (void) MHD_add_response_header(response, "Content-Type", "text/html; charset=utf-8");
    }
    return response;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_size, void **seen)
{
    (void) arg, (void) method, (void) version, (void) body;
    if (*seen == NULL || *body_size != 0) { /* the first call is of the headers, then come pieces of the body */
        *seen = connection;
        *body_size = 0;
        return MHD_YES;
    }
    static char served[] = "served\n", refused[] = "too many requests\n";
    weir_verdict verdict;
    unsigned status = MHD_HTTP_OK;
    struct MHD_Response *response = NULL;
    if (strcmp(url, "/metrics") == 0) {
        response = text_of(weir_write_metrics);
    } else if (strcmp(url, "/status") == 0) {
        response = status_of(connection);
    } else {
        status = allow(connection, &verdict) ? MHD_HTTP_OK : MHD_HTTP_TOO_MANY_REQUESTS;
        char *text = status == MHD_HTTP_OK ? served : refused;
        response = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_PERSISTENT);
        if (response != NULL) {
            add_fields(response, &verdict);
        }
    }
    if (response == NULL) {
        return MHD_NO;
    }
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

int main(int argc, char **argv)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = argc > 2 ? argv[2] : NULL;
    options.log = say;
    weir_limit limit = WEIR_LIMIT_INIT;
    limit.algorithm = WEIR_TOKEN_BUCKET;
    limit.limit = 5;
    limit.period_ns = 1000000000;
    limit.burst = 10;
    weir_policy policy = WEIR_POLICY_INIT;
    policy.name = "api";
    policy.limits = &limit;
    policy.limit_count = 1;
    sigset_t ends; /* before there are threads, which take it over */
    (void) sigemptyset(&ends);
    (void) sigaddset(&ends, SIGINT);
    (void) sigaddset(&ends, SIGTERM);
    (void) pthread_sigmask(SIG_BLOCK, &ends, NULL);
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0 ||
        weir_set_key_form(w, "api", weir_address_form(64), &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    api = weir_find_policy(w, "api");
    if (options.redis_url != NULL) {
        (void) weir_sync(w,
                         1000); /* hears of the other servers before it serves; without an answer it serves as well */
    }
    const int port = argc > 1 ? atoi(argv[1]) : 8080;
    struct MHD_Daemon *daemon = MHD_start_daemon(MHD_USE_AUTO_INTERNAL_THREAD, (uint16_t) port, NULL, NULL, answer,
                                                 NULL, MHD_OPTION_THREAD_POOL_SIZE, 4U, MHD_OPTION_END);
    if (daemon == NULL) {
        return fprintf(stderr, "port %d cannot be had\n", port), 1;
    }
    printf("http://127.0.0.1:%u/\n", (unsigned) MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    (void) fflush(stdout);
    int signal_number = 0;
    (void) sigwait(&ends, &signal_number);
    MHD_stop_daemon(daemon); /* its threads end, and give their handles back */
    weir_close(w);
}
