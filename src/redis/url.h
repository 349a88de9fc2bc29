/* SPDX-License-Identifier: Apache-2.0 */
/* Where Redis is, and as whom to speak to it. */
#ifndef WEIR_REDIS_URL_H
#define WEIR_REDIS_URL_H

#include "weir/weir.h"

#define URL_FIELD_SIZE 256

struct redis_url {
    char host[URL_FIELD_SIZE]; /* empty: `path` is a socket's */
    char port[8];
    char path[108];                /* as long as a socket's can be */
    char user[URL_FIELD_SIZE];     /* empty: none */
    char password[URL_FIELD_SIZE]; /* empty: none */
    int database;
};

/*
 * redis://[user[:password]@]host[:port][/database] or unix://[user[:password]@]/path[?db=database]. Alone before the @,
 * as in redis://:password@host, a password goes without a user. 0, or -EINVAL with a sentence that never holds the
 * password.
 */
int redis_url_parse(const char *text, struct redis_url *out, weir_error *error);

#endif
