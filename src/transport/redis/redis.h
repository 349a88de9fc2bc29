/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over Redis (or Valkey). */
#ifndef WEIR_TRANSPORT_REDIS_REDIS_H
#define WEIR_TRANSPORT_REDIS_REDIS_H

#include "transport/transport.h"
#include "weir/weir.h"

/*
 * Parses config->url and makes a transport, which connects in its steps. 0; -EINVAL with a sentence that says what is
 * wrong with redis_url and what a right one looks like, without the password; -ENOMEM.
 */
int redis_transport_open(const struct transport_config *config, struct transport **out, weir_error *error);

#endif
