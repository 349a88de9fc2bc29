/* SPDX-License-Identifier: Apache-2.0 */
/* weir_redis: where the fleet meets, and how often. */
#ifndef WEIR_NGINX_REDIS_H
#define WEIR_NGINX_REDIS_H

#include <stdbool.h>

/* clang-format off: nginx wants them in this order */
#include <ngx_config.h>
#include <ngx_core.h>
/* clang-format on */

#include "weir/weir.h"

/*
 * What weir_redis says. The texts are terminated and live as long as the cycle, or as the instance that has copied
 * them. A number of 0 is the library's default.
 */
struct redis_settings {
    bool given;      /* the directive is in the file */
    const char *url; /* NULL: no fleet */
    const char *prefix;
    uint32_t timeout_ms;
    uint32_t interval_ms;
    uint32_t nodes;
};

/* The handler of weir_redis; the offset of the command is that of the settings. */
char *redis_directive(ngx_conf_t *cf, ngx_command_t *command, void *conf);

/* Writes the settings into options of the library. */
void redis_to_options(const struct redis_settings *redis, weir_options *options);

bool redis_equal(const struct redis_settings *a, const struct redis_settings *b);

#endif
