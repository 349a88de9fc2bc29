/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts of scripts/, as the build embeds them. */
#ifndef WEIR_REDIS_SCRIPTS_H
#define WEIR_REDIS_SCRIPTS_H

extern const char script_heartbeat[];
extern const char script_overrides[];
extern const char script_report_window[];
extern const char script_report_bucket[];
extern const char script_report_log[];

#endif
