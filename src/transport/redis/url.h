/* SPDX-License-Identifier: Apache-2.0 */
/* The options' redis_url, parsed: addresses, login, database and TLS. */
#ifndef WEIR_TRANSPORT_REDIS_URL_H
#define WEIR_TRANSPORT_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/weir.h"

#define URL_FIELD_SIZE 256 /* bytes with the 0: a host name has at most 253 */

/* Most hosts in one URL. */
#define URL_SEEDS_MAX 16

enum redis_kind {
    REDIS_SERVER,   /* a server, or a Cluster if it says that it is of one */
    REDIS_SENTINEL, /* the hosts are Sentinels */
    REDIS_CLUSTER,
};

struct redis_seed {
    char host[URL_FIELD_SIZE];
    char port[8];
};

struct redis_url {
    enum redis_kind kind;
    bool tls;
    size_t seed_count; /* 0: `path` is a socket's */
    struct redis_seed seeds[URL_SEEDS_MAX];
    char path[108]; /* as long as a socket's can be */
    char user[URL_FIELD_SIZE], password[URL_FIELD_SIZE];
    char primary[URL_FIELD_SIZE]; /* its name, for the Sentinels */
    char sentinel_user[URL_FIELD_SIZE], sentinel_password[URL_FIELD_SIZE];
    char ca[URL_FIELD_SIZE], cert[URL_FIELD_SIZE], key[URL_FIELD_SIZE]; /* files; empty: the system's CAs; none */
    char servername[URL_FIELD_SIZE];                                    /* the certificate's; empty: the host */
    int database;
    int protocol; /* of RESP: 2 or 3 */
};

/*
 *   redis://[user[:password]@]host[:port][,host...][/database]           or rediss://: with TLS
 *   redis+cluster://[user[:password]@]host[:port][,host...]              or rediss+cluster://
 *   redis+sentinel://[user[:password]@]host[:port][,host...]/primary[/database]   or rediss+sentinel://
 *   unix://[user[:password]@]/path
 *
 * each with ?name=value&... (docs/redis.md lists them). Alone before the @, as in redis://:password@host, a password
 * goes without a user. 0, or -EINVAL with a sentence that never holds a password.
 */
int url_parse(const char *text, struct redis_url *out, weir_error *error);

#endif
