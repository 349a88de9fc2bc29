/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS, where this build and the server have it: certificates made for the test, good and bad ones. Where the build has
 * none, rediss:// and RESP3 are refused with a sentence that says what is missing.
 *
 * Guards: src/transport/redis/tls.c, src/transport/redis/socket.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/exchange.h"
#include "support/server.h"
#include "support/support.h"

#define TIMEOUT_MS 1000

#ifndef WEIR_HAS_TLS

static void refused(const char *url, const char *says)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    weir *w = NULL;
    weir_error error;
    const int result = weir_open(&options, &w, &error);
    if (strstr(url, "protocol=3") != NULL && result == 0) {
        weir_close(w); /* a hiredis that has RESP3, and no TLS beside it */
        return;
    }
    assert_int_equal(result, -ENOTSUP);
    assert_null(w);
    assert_non_null(strstr(error.message, says));
    assert_non_null(strstr(error.message, "hiredis 1.0"));
    assert_null(strstr(error.message, "hunter2"));
}

static void test_what_this_build_does_not_have_is_refused(void **state)
{
    (void) state;
    refused("rediss://:hunter2@127.0.0.1:1", "rediss://");
    refused("rediss+cluster://127.0.0.1:1", "hiredis_ssl");
    refused("rediss+sentinel://127.0.0.1:1/p", "OpenSSL");
    refused("redis://:hunter2@127.0.0.1:1?protocol=3", "protocol=2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_this_build_does_not_have_is_refused)};
    return cmocka_run_group_tests_name("redis/tls", tests, NULL, NULL);
}

#else

/* A server with a certificate for redis.example and 127.0.0.1, and one for a client, all in its directory. */
struct tls_server {
    struct server server;
    int port;
    char texts[5][128];
    const char *arguments[16];
};

static bool make_certificates(const char *directory)
{
    char command[2000];
    (void) snprintf(
        command, sizeof(command),
        "cd %s && exec >/dev/null 2>&1 && "
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem && "
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -keyout other.key -out other.pem "
        "&& printf 'subjectAltName=DNS:redis.example,IP:127.0.0.1' >san && "
        "for name in server client; do openssl req -newkey rsa:2048 -nodes -subj /CN=$name -keyout $name.key "
        "-out $name.csr && openssl x509 -req -days 2 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial "
        "-extfile san -out $name.pem || exit 1; done",
        directory);
    return system(command) == 0;
}

/* False, and said: there is no TLS to be had here. */
static bool tls_start(struct tls_server *s, bool clients_too)
{
    if (!server_available()) {
        return false;
    }
    char command[400];
    (void) snprintf(command, sizeof(command), "'%s' --tls-port 0 --port 0 --bogus 1 2>&1 | grep -q tls-port",
                    server_program());
    if (system("openssl version >/dev/null 2>&1") != 0 || system(command) == 0) {
        print_message("# skipped: no openssl, or a redis-server without TLS\n");
        return false;
    }
    server_init(&s->server);
    assert_true(make_certificates(s->server.directory));
    s->port = server_free_port();
    (void) snprintf(s->texts[0], sizeof(s->texts[0]), "%d", s->port);
    (void) snprintf(s->texts[1], sizeof(s->texts[1]), "%s/server.pem", s->server.directory);
    (void) snprintf(s->texts[2], sizeof(s->texts[2]), "%s/server.key", s->server.directory);
    (void) snprintf(s->texts[3], sizeof(s->texts[3]), "%s/ca.pem", s->server.directory);
    const char *const arguments[] = {
        "--tls-port", s->texts[0],          "--tls-cert-file", s->texts[1],          "--tls-key-file",
        s->texts[2],  "--tls-ca-cert-file", s->texts[3],       "--tls-auth-clients", clients_too ? "yes" : "no",
        NULL};
    memcpy((void *) s->arguments, (const void *) arguments, sizeof(arguments));
    s->server.arguments = s->arguments;
    server_launch(&s->server);
    return true;
}

/* `options`: with %s for the directory, at most twice. */
static struct transport *tls_open_with(const struct tls_server *s, const char *options)
{
    char url[800];
    int length = snprintf(url, sizeof(url), "rediss://127.0.0.1:%d/0?", s->port);
    for (const char *c = options; *c != '\0'; c++) {
        length += snprintf(url + length, sizeof(url) - (size_t) length, *c == '$' ? "%s" : "%.1s",
                           *c == '$' ? s->server.directory : c);
    }
    return open_redis(url, TIMEOUT_MS);
}

static void speaks(struct transport *t)
{
    static struct report reports[2000]; /* more than a socket takes at once */
    static uint64_t said;
    for (int again = 0; again < 3; again++) {
        said++;
        for (size_t i = 0; i < 2000; i++) {
            reports[i] = window("a.1", said, said);
            (void) snprintf(reports[i].record, sizeof(reports[i].record), "weir:{%03zx}:p:%0200zu", i % 1024, i);
        }
        struct round round = {.reports = reports, .report_count = 2000, .node = "n1", .node_lifetime_ms = 5000};
        assert_int_equal(exchange(t, &round), TRANSPORT_ROUND_DONE);
        for (size_t i = 0; i < 2000; i++) {
            assert_int_equal(reports[i].author_count, said);
        }
    }
    assert_null(t->ops->problem(t));
}

static void fails(struct transport *t, const char *says)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    while (t->ops->problem(t) == NULL && real_ns() < until_ns) {
        (void) t->ops->step(t, transport_ns());
        assert_int_equal(t->ops->state(t), TRANSPORT_DOWN);
        nap_ms(1);
    }
    if (t->ops->problem(t) == NULL || strstr(t->ops->problem(t), says) == NULL) {
        fail_msg("not \"%s\" but \"%s\"", says, t->ops->problem(t) != NULL ? t->ops->problem(t) : "nothing");
    }
    t->ops->close(t);
}

static void test_certificates_are_checked(void **state)
{
    (void) state;
    struct tls_server s;
    if (!tls_start(&s, false)) {
        skip();
    }
    struct transport *t = tls_open_with(&s, "ca=$/ca.pem");
    speaks(t);
    t->ops->close(t);
    t = tls_open_with(&s, "ca=$/ca.pem&servername=redis.example&protocol=3");
    speaks(t);
    /* One that goes away raises no signal, and comes back. */
    server_kill(&s.server);
    struct round round = {.node = "n1", .node_lifetime_ms = 5000};
    assert_int_equal(t->ops->begin(t, &round, transport_ns()), 0);
    assert_int_equal(step_until(t, true), TRANSPORT_ROUND_FAILED);
    server_restart(&s.server);
    speaks(t);
    t->ops->close(t);
    fails(tls_open_with(&s, "ca=$/other.pem"), "certificate");
    fails(tls_open_with(&s, ""), "certificate"); /* the system's authorities do not know it */
    fails(tls_open_with(&s, "ca=$/ca.pem&servername=other.example"), "mismatch");
    server_stop(&s.server);
}

static void test_a_client_has_a_certificate_too(void **state)
{
    (void) state;
    struct tls_server s;
    if (!tls_start(&s, true)) {
        skip();
    }
    struct transport *t = tls_open_with(&s, "ca=$/ca.pem&cert=$/client.pem&key=$/client.key");
    speaks(t);
    t->ops->close(t);
    fails(tls_open_with(&s, "ca=$/ca.pem"), "connection lost");
    server_stop(&s.server);
}

static void test_a_server_without_tls_or_without_a_word_is_an_outage(void **state)
{
    (void) state;
    struct tls_server s;
    if (!tls_start(&s, false)) {
        skip();
    }
    const int port = s.port;
    s.port = s.server.port; /* the plain one */
    struct transport *t = tls_open_with(&s, "ca=$/ca.pem");
    const uint64_t before_ns = transport_ns();
    fails(t, ""); /* no answer, or one that is not TLS */
    assert_true(transport_ns() - before_ns < 5 * SECOND);
    s.port = port;
    server_pause(&s.server); /* connected by the kernel, and then nothing: the handshake must not block */
    t = tls_open_with(&s, "ca=$/ca.pem");
    /* By this clock the time-out takes many steps. A handshake that blocks would end with the first ones. */
    unsigned steps = 0;
    unsigned longs = 0; /* a machine that stands still has a step take long, but not each of them */
    for (; t->ops->problem(t) == NULL; steps++) {
        const uint64_t step_ns = real_ns();
        (void) t->ops->step(t, transport_ns());
        longs += real_ns() - step_ns > TIMEOUT_MS * MILLISECOND / 2;
        nap_ms(1);
    }
    assert_non_null(strstr(t->ops->problem(t), "no answer"));
    assert_true(steps >= TIMEOUT_MS * MILLISECOND / LOOK_MOST_NS);
    assert_true(longs < steps / 4);
    t->ops->close(t);
    server_resume(&s.server);
    server_stop(&s.server);
}

static void test_files_that_do_not_do_are_refused_at_once(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    weir_error error;
    options.redis_url = "rediss://127.0.0.1:1?ca=/nonexistent.pem";
    assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
    assert_non_null(strstr(error.message, "ca=/nonexistent.pem"));
    options.redis_url = "rediss://127.0.0.1:1?cert=/nonexistent.pem&key=/nonexistent.key";
    assert_int_equal(weir_open(&options, &w, &error), -EINVAL);
    assert_non_null(strstr(error.message, "cert=/nonexistent.pem"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certificates_are_checked),
        cmocka_unit_test(test_a_client_has_a_certificate_too),
        cmocka_unit_test(test_a_server_without_tls_or_without_a_word_is_an_outage),
        cmocka_unit_test(test_files_that_do_not_do_are_refused_at_once),
    };
    return cmocka_run_group_tests_name("redis/tls", tests, NULL, NULL);
}

#endif
