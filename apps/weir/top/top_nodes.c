/* SPDX-License-Identifier: Apache-2.0 */
/* See top_nodes.h. */
#include "top_nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "base/plain.h"

/* A node that takes longer is as good as gone. */
#define TIMEOUT_MS 2000L

/* The most bytes of an answer: 1,023 policies of 16 long keys each have room. */
#define ANSWER_MOST ((size_t) 16 << 20)

#define DEFAULT_PATH "/status.json"

struct top_request {
    CURL *easy;
    char *url, *socket_path;
    char *bytes;
    size_t length, capacity;
};

static size_t take_bytes(char *bytes, size_t one, size_t count, void *arg)
{
    struct top_request *request = arg;
    const size_t more = one * count;
    if (more > ANSWER_MOST - request->length) {
        return 0;
    }
    if (request->length + more > request->capacity) {
        const size_t capacity = 2 * (request->length + more);
        char *grown = realloc(request->bytes, capacity);
        if (grown == NULL) {
            return 0;
        }
        request->bytes = grown;
        request->capacity = capacity;
    }
    memcpy(request->bytes + request->length, bytes, more);
    request->length += more;
    return more;
}

/* "unix:/path" and "unix:/path:/uri"; "http://..." and "https://..."; "host:port" and "host:port/uri". */
static bool set_address(struct top_request *request, const char *address)
{
    int made;
    if (strncmp(address, "unix:", 5) == 0) {
        const char *path = address + 5;
        const char *uri = strstr(path, ":/");
        const size_t length = uri != NULL ? (size_t) (uri - path) : strlen(path);
        request->socket_path = length != 0 ? strndup(path, length) : NULL;
        made = asprintf(&request->url, "http://localhost%s", uri != NULL ? uri + 1 : DEFAULT_PATH);
        return request->socket_path != NULL && made > 0;
    }
    const char *rest = strstr(address, "://");
    const bool has_scheme = rest != NULL;
    rest = has_scheme ? rest + 3 : address;
    made = asprintf(&request->url, "%s%s%s", has_scheme ? "" : "http://", address,
                    strchr(rest, '/') != NULL ? "" : DEFAULT_PATH);
    return made > 0 && *rest != '\0';
}

/* No file and no other protocol, whatever an address says. */
static bool keep_to_http(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500 /* 7.85.0 */
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK;
#else
    return curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS)) == CURLE_OK;
#endif
}

static bool set_options(struct top_request *request)
{
    CURL *easy = request->easy;
    return curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK &&
           (request->socket_path == NULL ||
            curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->socket_path) == CURLE_OK) &&
           keep_to_http(easy) && curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, TIMEOUT_MS) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_USERAGENT, "weir-top") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, (void *) request) == CURLE_OK;
}

bool top_nodes_open(struct top_nodes *nodes, const char *const *addresses, size_t count, char *why, size_t size)
{
    memset(nodes, 0, sizeof(*nodes));
    (void) snprintf(why, size, "out of memory");
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return false;
    }
    nodes->multi = curl_multi_init();
    nodes->all = calloc(count, sizeof(*nodes->all));
    if (nodes->multi == NULL || nodes->all == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        struct top_node *node = &nodes->all[nodes->count++];
        node->address = addresses[i];
        node->request = calloc(1, sizeof(*node->request));
        if (node->request == NULL || (node->request->easy = curl_easy_init()) == NULL) {
            return false;
        }
        if (!set_address(node->request, addresses[i]) || !set_options(node->request)) {
            char plain[TOP_NAME_SIZE];
            (void) plain_quoted(plain, sizeof(plain), addresses[i]);
            (void) snprintf(why, size, "\"%s\" is no address; give one such as 10.0.0.7:9100 or unix:/run/weir.sock",
                            plain);
            return false;
        }
    }
    return true;
}

void top_nodes_close(struct top_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        struct top_request *request = nodes->all[i].request;
        if (request != NULL) {
            if (nodes->under_way && request->easy != NULL) {
                (void) curl_multi_remove_handle(nodes->multi, request->easy);
            }
            curl_easy_cleanup(request->easy);
            free(request->url);
            free(request->socket_path);
            free(request->bytes);
            free(request);
        }
        top_status_free(&nodes->all[i].now);
        top_status_free(&nodes->all[i].before);
    }
    free(nodes->all);
    if (nodes->multi != NULL) {
        (void) curl_multi_cleanup(nodes->multi);
    }
    curl_global_cleanup();
    memset(nodes, 0, sizeof(*nodes));
}

void top_nodes_begin(struct top_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        nodes->all[i].request->length = 0;
        (void) curl_multi_add_handle(nodes->multi, nodes->all[i].request->easy);
    }
    nodes->under_way = true;
}

static struct top_node *node_of(struct top_nodes *nodes, const CURL *easy)
{
    size_t i = 0;
    while (nodes->all[i].request->easy != easy) {
        i++;
    }
    return &nodes->all[i];
}

/* Takes a good answer in: the reading before it stays, unless the node was started anew meanwhile. */
static void take_status(struct top_node *node, const struct top_status *status)
{
    top_status_free(&node->before);
    const bool same_run = node->has_now && status->uptime_ms >= node->now.uptime_ms;
    node->before = node->now;
    node->has_before = same_run;
    node->now = *status;
    node->has_now = true;
}

static void end_request(struct top_node *node, CURLcode result)
{
    struct top_request *request = node->request;
    struct top_status status = {.policies = NULL};
    long code = 0;
    (void) curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &code);
    node->up = false;
    if (result == CURLE_OPERATION_TIMEDOUT) {
        (void) snprintf(node->error, sizeof(node->error), "no answer within %ld s", TIMEOUT_MS / 1000);
    } else if (result != CURLE_OK) {
        long number = 0;
        (void) curl_easy_getinfo(request->easy, CURLINFO_OS_ERRNO, &number);
        (void) snprintf(node->error, sizeof(node->error), "%s",
                        number != 0 ? strerror((int) number) : curl_easy_strerror(result));
    } else if (code != 200) {
        (void) snprintf(node->error, sizeof(node->error), "the answer is HTTP %ld", code);
    } else if (top_status_read(&status, request->bytes != NULL ? request->bytes : "", request->length, node->error,
                               sizeof(node->error))) {
        take_status(node, &status);
        node->up = true;
        return;
    }
    top_status_free(&status);
}

bool top_nodes_step(struct top_nodes *nodes, int fd, int wait_ms)
{
    int running = 0;
    int left = 0;
    (void) curl_multi_perform(nodes->multi, &running);
    if (running != 0) {
        struct curl_waitfd keyboard = {.fd = fd, .events = CURL_WAIT_POLLIN};
        (void) curl_multi_poll(nodes->multi, &keyboard, fd >= 0, wait_ms, NULL);
        (void) curl_multi_perform(nodes->multi, &running);
    }
    for (const CURLMsg *message; (message = curl_multi_info_read(nodes->multi, &left)) != NULL;) {
        CURL *easy = message->easy_handle;
        const CURLcode result = message->data.result;
        (void) curl_multi_remove_handle(nodes->multi, easy); /* message is gone after this */
        end_request(node_of(nodes, easy), result);
    }
    nodes->under_way = running != 0;
    return running == 0;
}

double top_rate(const struct top_node *node, uint64_t now, uint64_t before)
{
    if (!node->up || !node->has_before || node->now.uptime_ms <= node->before.uptime_ms) {
        return -1;
    }
    const double seconds = (double) (node->now.uptime_ms - node->before.uptime_ms) / 1000;
    return now > before ? (double) (now - before) / seconds : 0;
}
