/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weir of a module: one for all its policies, shared by all workers, and kept over reloads.
 *
 * The master acquires an instance while it makes a cycle: the instance of the cycle before, where its settings are the
 * same, else a new one. Each worker enters it, and leaves it at its end. The master releases it with the cycle. So an
 * instance lasts as long as a cycle in the master has it, and its memory as long as a worker has joined it. The memory
 * has a name (instance_name.h), by which the master of a new binary opens it too.
 *
 * nginx has one thread in each process. All functions but instance_thread may wait for the library.
 */
#ifndef WEIR_NGINX_INSTANCE_H
#define WEIR_NGINX_INSTANCE_H

#include "nginx_weir.h"
#include "redis.h"
#include "unkeyed.h"
#include "weir/weir.h"

/*
 * What an instance is opened with. Other settings need another weir, with which limits begin anew.
 *
 * size      bytes that the own policies ask for
 * workers   of the configuration
 * pid_path  of nginx's pid file, terminated
 * own       own_count policies that the cycle has beside those of its file
 * file      the policies of its file
 */
struct instance_settings {
    size_t size;
    size_t workers;
    const ngx_str_t *pid_path;
    struct redis_settings redis;
    const struct own_policy *own;
    size_t own_count;
    const struct policy_file *file;
};

/* NULL: there can be none, and the log says why. */
struct instance *instance_acquire(const struct instance_settings *settings, ngx_log_t *log);

/* Leaves the instance in this process, and frees it here when no other cycle has it. */
void instance_release(struct instance *instance);

/*
 * Puts the policies of a cycle in force, its own and those of the file, and gives them their numbers. Own policies that
 * there are no more stay: workers of earlier cycles go on to limit by them. False: the policies before stay in force,
 * and the log says why.
 */
bool instance_set_policies(struct instance *instance, const struct block *block, ngx_log_t *log);

/* In a worker: joins, and attaches its thread. False: the worker does not limit for now, and the log says why. */
bool instance_enter(struct instance *instance, ngx_log_t *log);

/* At the end of a worker, or in a process that does not serve. */
void instance_leave(struct instance *instance);

/*
 * The handle of this worker, with the time of this turn of nginx's loop. NULL: none, and requests pass. Tries to enter
 * from time to time where that has failed.
 */
weir_thread *instance_thread(struct instance *instance, ngx_log_t *log);

/* Requests without a key, of all workers of the instance. They begin anew with an upgrade of nginx. */
struct unkeyed_counts *instance_unkeyed(struct instance *instance);

/* The same for a request that is to be decided. NULL: it passes without a limit, and is counted. */
weir_thread *instance_ask(struct instance *instance, ngx_log_t *log);

/* To make keys, to look up policies, and to read statistics. NULL: this process has left. */
const weir *instance_weir(const struct instance *instance);

#endif
