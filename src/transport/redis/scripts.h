/* SPDX-License-Identifier: Apache-2.0 */
/* The Lua scripts of scripts/, as the build embeds them, and the names by which EVALSHA calls them. */
#ifndef WEIR_TRANSPORT_REDIS_SCRIPTS_H
#define WEIR_TRANSPORT_REDIS_SCRIPTS_H

extern const char script_read_nodes[], script_read_nodes_sha[];
extern const char script_read_authors[], script_read_authors_sha[];
extern const char script_read_entries[], script_read_entries_sha[];
extern const char script_read_use[], script_read_use_sha[];
extern const char script_read_page[], script_read_page_sha[];
extern const char script_heartbeat[], script_heartbeat_sha[];
extern const char script_overrides[], script_overrides_sha[];
extern const char script_limits[], script_limits_sha[];
extern const char script_report_window[], script_report_window_sha[];
extern const char script_report_bucket[], script_report_bucket_sha[];
extern const char script_report_history[], script_report_history_sha[];

#endif
