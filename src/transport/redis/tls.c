/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tls.h.
 *
 * What this file relies on in hiredis_ssl. On a non-blocking context redisInitiateSSL begins the handshake and returns.
 * context->funcs->read returns 0 if it would have to wait, and goes on with the handshake; so does redisBufferWrite.
 * Before hiredis 1.5 its own contexts check no host name, so the SSL objects are made here.
 *
 * OpenSSL writes with write(), so a lost connection raises SIGPIPE. The signal is blocked meanwhile and then discarded
 * (signal_hold).
 */
#include "transport/redis/tls.h"

#include <errno.h>

#include <hiredis/hiredis.h>

#include "base/error.h"

#ifdef WEIR_HAS_TLS

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis_ssl.h>
#include <hiredis/sds.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define CHUNK_SIZE 16384 /* bytes of one write: the size of a TLS record */

struct tls_context {
    SSL_CTX *openssl;
};

struct tls {
    redisContext *context; /* its descriptor belongs to the socket; NULL: the handshake has failed at once */
    SSL *openssl;          /* owned by `context` */
    char problem[120];     /* "": none known */
};

/* The signal mask before SIGPIPE was blocked in this thread, and whether a SIGPIPE was pending. */
struct signal_hold {
    sigset_t before;
    bool was_pending;
};

static void signal_hold(struct signal_hold *hold)
{
    sigset_t pipe_set;
    sigset_t pending;
    (void) sigemptyset(&pipe_set);
    (void) sigaddset(&pipe_set, SIGPIPE);
    (void) sigpending(&pending);
    hold->was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void) pthread_sigmask(SIG_BLOCK, &pipe_set, &hold->before);
}

static void signal_release(const struct signal_hold *hold)
{
    if (!hold->was_pending) {
        const struct timespec none = {0};
        sigset_t pipe_set;
        (void) sigemptyset(&pipe_set);
        (void) sigaddset(&pipe_set, SIGPIPE);
        while (sigtimedwait(&pipe_set, NULL, &none) < 0 && errno == EINTR) {
        }
    }
    (void) pthread_sigmask(SIG_SETMASK, &hold->before, NULL);
}

static int note_loss(struct tls *tls)
{
    const long verified = SSL_get_verify_result(tls->openssl);
    const char *reason = verified != X509_V_OK ? X509_verify_cert_error_string(verified)
                                               : ERR_reason_error_string(ERR_peek_last_error());
    if (reason != NULL) {
        (void) snprintf(tls->problem, sizeof(tls->problem), "TLS: %s", reason);
    }
    ERR_clear_error();
    return -ECONNRESET;
}

static int bad_file(SSL_CTX *openssl, weir_error *error, const char *option, const char *path)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    (void) error_set(error, -EINVAL,
                     "redis_url: %s=%.100s: %.60s; give a file in PEM format that this process may read", option, path,
                     reason != NULL ? reason : "cannot be read");
    SSL_CTX_free(openssl);
    return -EINVAL;
}

int tls_context_open(const struct redis_url *url, struct tls_context **out, weir_error *error)
{
    SSL_CTX *openssl = SSL_CTX_new(TLS_client_method());
    struct tls_context *context = malloc(sizeof(*context));
    if (openssl == NULL || context == NULL) {
        SSL_CTX_free(openssl);
        free(context);
        return error_set(error, -ENOMEM, "out of memory");
    }
    context->openssl = openssl;
    (void) SSL_CTX_set_min_proto_version(openssl, TLS1_2_VERSION);
    SSL_CTX_set_verify(openssl, SSL_VERIFY_PEER, NULL);
    const int trusts = url->ca[0] != '\0' ? SSL_CTX_load_verify_locations(openssl, url->ca, NULL)
                                          : SSL_CTX_set_default_verify_paths(openssl);
    if (trusts != 1) {
        free(context);
        return bad_file(openssl, error, "ca", url->ca);
    }
    if (url->cert[0] != '\0' && SSL_CTX_use_certificate_chain_file(openssl, url->cert) != 1) {
        free(context);
        return bad_file(openssl, error, "cert", url->cert);
    }
    if (url->key[0] != '\0' && SSL_CTX_use_PrivateKey_file(openssl, url->key, SSL_FILETYPE_PEM) != 1) {
        free(context);
        return bad_file(openssl, error, "key", url->key);
    }
    ERR_clear_error();
    *out = context;
    return 0;
}

void tls_context_close(struct tls_context *context)
{
    if (context != NULL) {
        SSL_CTX_free(context->openssl);
        free(context);
    }
}

/* Requires a certificate for this host name or address. */
static bool expect_name(SSL *openssl, const char *name)
{
    X509_VERIFY_PARAM *expected = SSL_get0_param(openssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(expected, name) == 1) {
        return true;
    }
    return SSL_set_tlsext_host_name(openssl, name) == 1 && X509_VERIFY_PARAM_set1_host(expected, name, 0) == 1;
}

int tls_open(struct tls_context *context, int fd, const char *name, struct tls **out)
{
    redisOptions options = {0};
    options.type = REDIS_CONN_USERFD;
    options.endpoint.fd = fd;
    options.options = REDIS_OPT_NONBLOCK;
    struct tls *tls = calloc(1, sizeof(*tls));
    SSL *openssl = SSL_new(context->openssl);
    redisContext *hiredis = redisConnectWithOptions(&options);
    if (tls == NULL || openssl == NULL || hiredis == NULL || !expect_name(openssl, name)) {
        if (hiredis != NULL) {
            (void) redisFreeKeepFd(hiredis);
        }
        SSL_free(openssl);
        free(tls);
        ERR_clear_error();
        return -ENOMEM;
    }
    *tls = (struct tls){.context = hiredis, .openssl = openssl};
    struct signal_hold hold;
    signal_hold(&hold);
    const int result = redisInitiateSSL(hiredis, openssl);
    signal_release(&hold);
    if (result != REDIS_OK) {
        (void) note_loss(tls);
        (void) redisFreeKeepFd(hiredis);
        SSL_free(openssl);
        tls->context = NULL;
        tls->openssl = NULL;
    }
    *out = tls;
    return 0;
}

void tls_close(struct tls *tls)
{
    if (tls != NULL) {
        if (tls->context != NULL) {
            (void) redisFreeKeepFd(tls->context); /* frees `openssl` as well, and writes nothing */
        }
        free(tls);
    }
}

ssize_t tls_read(struct tls *tls, char *buffer, size_t size)
{
    if (tls->context == NULL) {
        return -ECONNRESET;
    }
    struct signal_hold hold;
    signal_hold(&hold); /* a handshake or a key update writes */
    const ssize_t got = tls->context->funcs->read(tls->context, buffer, size);
    signal_release(&hold);
    return got < 0 ? note_loss(tls) : got;
}

int tls_flush(struct tls *tls)
{
    if (!tls_unsent(tls)) {
        return 0;
    }
    int done = 0;
    struct signal_hold hold;
    signal_hold(&hold);
    const int result = redisBufferWrite(tls->context, &done);
    signal_release(&hold);
    return result != REDIS_OK ? note_loss(tls) : 0;
}

ssize_t tls_write(struct tls *tls, const char *bytes, size_t size)
{
    const int result = tls->context != NULL ? tls_flush(tls) : -ECONNRESET;
    if (result != 0 || tls_unsent(tls)) {
        return result;
    }
    const size_t taken = size < CHUNK_SIZE ? size : CHUNK_SIZE;
    if (redisAppendFormattedCommand(tls->context, bytes, taken) != REDIS_OK) {
        return -ENOMEM;
    }
    const int flushed = tls_flush(tls);
    return flushed != 0 ? flushed : (ssize_t) taken;
}

bool tls_unsent(const struct tls *tls)
{
    return tls->context != NULL && sdslen(tls->context->obuf) != 0;
}

const char *tls_problem(const struct tls *tls)
{
    return tls != NULL && tls->problem[0] != '\0' ? tls->problem : NULL;
}

#else

int tls_context_open(const struct redis_url *url, struct tls_context **out, weir_error *error)
{
    (void) url;
    (void) out;
    return error_set(
        error, -ENOTSUP,
        "redis_url: rediss:// asks for TLS, and this weir was built with hiredis %d.%d, without it; build it "
        "with hiredis 1.0 or later, its hiredis_ssl, and OpenSSL, or give redis://",
        HIREDIS_MAJOR, HIREDIS_MINOR);
}

void tls_context_close(struct tls_context *context)
{
    (void) context;
}

int tls_open(struct tls_context *context, int fd, const char *name, struct tls **out)
{
    (void) context;
    (void) fd;
    (void) name;
    (void) out;
    return -ENOTSUP;
}

void tls_close(struct tls *tls)
{
    (void) tls;
}

ssize_t tls_read(struct tls *tls, char *buffer, size_t size)
{
    (void) tls;
    (void) buffer;
    (void) size;
    return -ENOTSUP;
}

ssize_t tls_write(struct tls *tls, const char *bytes, size_t size)
{
    (void) tls;
    (void) bytes;
    (void) size;
    return -ENOTSUP;
}

int tls_flush(struct tls *tls)
{
    (void) tls;
    return -ENOTSUP;
}

bool tls_unsent(const struct tls *tls)
{
    (void) tls;
    return false;
}

const char *tls_problem(const struct tls *tls)
{
    (void) tls;
    return NULL;
}

#endif
