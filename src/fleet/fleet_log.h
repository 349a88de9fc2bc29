/* SPDX-License-Identifier: Apache-2.0 */
/* One line for the host's log. */
#ifndef WEIR_FLEET_FLEET_LOG_H
#define WEIR_FLEET_FLEET_LOG_H

#include "weir/weir.h"

struct fleet;

/* Control characters are replaced: a line may quote what is stored in Redis. */
__attribute__((format(printf, 3, 4))) void fleet_log(const struct fleet *fleet, weir_log_level level,
                                                     const char *format, ...);

#endif
