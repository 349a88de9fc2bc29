/* SPDX-License-Identifier: Apache-2.0 */
/* See options.h. */
#include "limiter/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "fleet/fleet.h"
#include "named/named.h"
#include "policy/required.h"
#include "thread/thread.h"

/* The smallest options struct there ever was ends behind log_arg. */
#define OPTIONS_SIZE_MIN offsetof(weir_options, max_log_units)

/* No later version has more; a larger size is of a struct that was never initialized, and no such bytes are read. */
#define OPTIONS_SIZE_MAX 1024

/* More nodes than any fleet has: a number that is not meant. */
#define EXPECTED_NODES_MAX 65535

/* Nobody tries out 128 bits; and a file that was meant to hold a secret is no longer than that. */
#define SECRET_MIN 16
#define SECRET_MAX 1024

/* The default; and more than the workers of any server on one machine. */
#define PROCESSES     64
#define PROCESSES_MAX 1024

static int range(weir_error *error, const char *field, uint64_t value, uint64_t least, uint64_t most, const char *unit)
{
    if (value >= least && value <= most) {
        return 0;
    }
    return error_set(error, -EINVAL,
                     "options: %s is %" PRIu64 "; give %" PRIu64 " to %" PRIu64 "%s, or 0 for the default", field,
                     value, least, most, unit);
}

static int check_prefix(const char *prefix, weir_error *error)
{
    const size_t length = strlen(prefix);
    if (length == 0 || length > PREFIX_MAX) {
        return error_set(error, -EINVAL, "options: prefix has %zu bytes; give 1 to %d", length, PREFIX_MAX);
    }
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char) prefix[i];
        if (byte <= ' ' || byte >= 0x7f || byte == '{' || byte == '}') {
            return error_set(error, -EINVAL,
                             "options: prefix has byte 0x%02x at %zu; use printable ASCII without spaces and braces",
                             byte, i);
        }
    }
    return 0;
}

static int check_secret(const char *secret, weir_error *error)
{
    const size_t length = secret != NULL ? strnlen(secret, SECRET_MAX + 1) : SECRET_MIN;
    if (length < SECRET_MIN || length > SECRET_MAX) {
        return error_set(error, -EINVAL, "options: fleet_secret has %s bytes; give %d to %d, or NULL for none",
                         length < SECRET_MIN ? "too few" : "too many", SECRET_MIN, SECRET_MAX);
    }
    return 0;
}

static int check_processes(const weir_options *options, weir_error *error)
{
    if (!options->shared && options->max_processes != 0) {
        return error_set(error, -EINVAL,
                         "options: max_processes is %" PRIu32 " without shared; set shared, or give max_processes 0",
                         options->max_processes);
    }
    if (options->shared_name != NULL && named_check(options->shared_name, error) != 0) {
        return -EINVAL;
    }
    return options->shared ? range(error, "max_processes", options->max_processes, 2, PROCESSES_MAX, "") : 0;
}

int options_complete(const weir_options *in, weir_options *out, weir_error *error)
{
    const weir_options defaults = WEIR_OPTIONS_INIT;
    *out = defaults;
    if (in == NULL) {
        return error_clear(error);
    }
    if (in->size < OPTIONS_SIZE_MIN || in->size > OPTIONS_SIZE_MAX) {
        return error_set(error, -EINVAL,
                         "options: size is %zu, which no version of weir_options has; initialize the struct, as in "
                         "weir_options options = WEIR_OPTIONS_INIT",
                         in->size);
    }
    for (size_t i = sizeof(*out); i < in->size; i++) {
        if (((const unsigned char *) in)[i] != 0) {
            return error_set(
                error, -EINVAL,
                "options: byte %zu of %zu is set, which this version (%d.%d.%d) does not know; run with the libweir "
                "that the program was compiled for, or initialize the struct with WEIR_OPTIONS_INIT",
                i, in->size, WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
        }
    }
    memcpy(out, in,
           in->size < sizeof(*out) ? in->size : sizeof(*out)); /* what an older caller has not is the default */
    out->size = sizeof(*out);
    out->prefix = in->prefix != NULL ? in->prefix : defaults.prefix;
    out->max_keys = in->max_keys != 0 ? in->max_keys : defaults.max_keys;
    out->max_threads = in->max_threads != 0 ? in->max_threads : defaults.max_threads;
    out->sync_interval_ms = in->sync_interval_ms != 0 ? in->sync_interval_ms : defaults.sync_interval_ms;
    out->redis_timeout_ms = in->redis_timeout_ms != 0 ? in->redis_timeout_ms : defaults.redis_timeout_ms;
    out->tick_us = in->tick_us != 0 ? in->tick_us : defaults.tick_us;
    out->no_thread = in->no_thread || in->clock != NULL;
    out->max_log_units = out->max_log_units != 0 ? out->max_log_units : defaults.max_log_units;
    out->shared = out->shared || out->shared_name != NULL;
    out->max_processes = out->shared && out->max_processes == 0 ? PROCESSES : out->max_processes;

    int result = check_prefix(out->prefix, error);
    result = result != 0 ? result : range(error, "max_keys", out->max_keys, 1000, 100000000, "");
    result = result != 0 ? result : range(error, "max_threads", out->max_threads, 1, THREADS_MOST, "");
    result = result != 0 ? result : range(error, "sync_interval_ms", out->sync_interval_ms, 10, 60000, " ms");
    result = result != 0 ? result : range(error, "redis_timeout_ms", out->redis_timeout_ms, 10, 60000, " ms");
    result = result != 0 ? result : range(error, "tick_us", out->tick_us, 100, 100000, " us");
    result = result != 0 ? result : range(error, "max_log_units", out->max_log_units, 1000, 4000000000, "");
    result = result != 0 ? result : range(error, "expected_nodes", out->expected_nodes, 0, EXPECTED_NODES_MAX, "");
    result = result != 0 ? result : check_secret(out->fleet_secret, error);
    result = result != 0 ? result : check_processes(out, error);
    result = result != 0 ? result
                         : required_validate(&(struct required){out->required_policies, out->required_policy_count},
                                             "options: required_policies", error);
    if (result == 0 && in->clock != NULL && (in->clock->monotonic_ns == NULL || in->clock->wall_ns == NULL)) {
        result =
            error_set(error, -EINVAL, "options: clock has no %s; give both functions, or NULL for the system's clock",
                      in->clock->monotonic_ns == NULL ? "monotonic_ns" : "wall_ns");
    }
    return result != 0 ? result : error_clear(error);
}
