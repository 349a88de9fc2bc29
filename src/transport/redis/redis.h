/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport over Redis (or Valkey).
 */
#ifndef WEIR_TRANSPORT_REDIS_REDIS_H
#define WEIR_TRANSPORT_REDIS_REDIS_H

#include "transport/transport.h"
#include "weir/weir.h"

/*
 * Parses config->url and prepares a transport; connects in its steps. 0; -EINVAL with a sentence that names what is
 * wrong with redis_url and what a right one looks like (never the password); -ENOMEM.
 */
int redis_transport_open(const struct transport_config *config, struct transport **out, weir_error *error);

#endif
