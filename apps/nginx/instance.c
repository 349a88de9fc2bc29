/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See instance.h.
 *
 * Which process does what, as nginx has them (docs/processes.md):
 *
 *   the first process opens the weir. As a daemon it forks and ends, and the master is a child that has not joined
 *   a worker           joins when it starts, and does the background work in turn with the others
 *   the master         joins when it sets policies, at a reload; it has no thread
 *   helpers (caches)   free their copy
 *   a new binary       opens the same weir by its name (instance_name.h)
 *
 * Memory of an instance is the process's own: an instance outlives the pools of cycles.
 */
#include "instance.h"

#include <string.h>

#include "instance_name.h"
#include "known_policies.h"
#include "messages.h"
#include "policies.h"
#include "poller.h"

/* nginx's documentation has a zone hold 16,000 addresses in a megabyte. */
#define BYTES_OF_KEY 64

/* Keys of the smallest table, some 4 MiB, and processes of the smallest weir. */
#define LEAST_KEYS      65536
#define LEAST_PROCESSES 64

/* The library's most. */
#define MOST_KEYS      100000000
#define MOST_PROCESSES 1024

/* A queue has no grants, so ticks of zones serve the background work alone. At 1,000 us they take 3% of a busy
 * processor, at this 0.5%; above it the work comes late (bench/nginx.py). */
#define TICK_US 10000

/* Seconds between two attempts to enter an instance. */
#define RETRY_SECONDS 1

#define NS_PER_S UINT64_C(1000000000)

/*
 * next       the instances of this process: one, and the one before while a reload is under way
 * name       of the memory; a weir without a name is not found by a new binary
 * w          NULL: this process has left
 * thread     the handle of this process's one thread
 * turn_end   posted in a turn of nginx's loop that has asked for the handle: it runs at the end of the turn
 * poller     of this process; a worker's runs
 * pid        the process that has joined, which may be this one's parent
 * cycles     how many cycles have acquired it
 * keys       of the table
 * processes  that may be joined at once
 * known      the policies of this cycle and of earlier ones
 */
struct instance {
    struct instance *next;
    struct instance_name name;
    weir *w;
    weir_thread *thread;
    ngx_event_t turn_end;
    struct poller poller;
    ngx_pid_t pid;
    time_t retry_time;
    unsigned cycles;
    size_t keys;
    size_t processes;
    struct redis_settings redis;
    struct known_policies known;
    struct unkeyed_counts unkeyed;
};

static struct instance *instances;

const weir *instance_weir(const struct instance *instance)
{
    return instance->w;
}

struct unkeyed_counts *instance_unkeyed(struct instance *instance)
{
    return &instance->unkeyed;
}

/* From `least` on doubled until there is room, so that zones and workers may become more without another weir. */
static size_t room_for(size_t count, size_t least, size_t most)
{
    size_t room = least;
    while (room < count && room < most) {
        room *= 2;
    }
    return ngx_min(room, most);
}

static size_t wanted_keys(const struct instance_settings *settings)
{
    return ngx_min(settings->size / BYTES_OF_KEY + settings->file->keys, MOST_KEYS);
}

/* Workers of so many cycles, and two masters. */
static size_t places_for(const struct instance_settings *settings, size_t cycles)
{
    return ngx_min(settings->workers, MOST_PROCESSES / cycles) * cycles + 2;
}

/* What a weir must have: workers of two cycles are joined during a reload. */
static size_t least_processes(const struct instance_settings *settings)
{
    return ngx_min(places_for(settings, 2), MOST_PROCESSES);
}

/* Of a new weir: two masters may reload during an upgrade; and the first process of a daemon counts for a while. */
static size_t wanted_processes(const struct instance_settings *settings)
{
    return ngx_min(places_for(settings, 4) + 1, MOST_PROCESSES);
}

static char *copy_text(const char *text)
{
    const size_t size = text != NULL ? strlen(text) + 1 : 0;
    char *copy = size != 0 ? ngx_alloc(size, ngx_cycle->log) : NULL;
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

/* The texts of the settings belong to the instance. */
static bool copy_redis(struct instance *instance, const struct redis_settings *redis)
{
    instance->redis = *redis;
    instance->redis.url = copy_text(redis->url);
    instance->redis.prefix = copy_text(redis->prefix);
    return redis_equal(&instance->redis, redis);
}

static void free_instance(struct instance *instance)
{
    ngx_free((void *) instance->redis.url);
    ngx_free((void *) instance->redis.prefix);
    known_policies_free(&instance->known);
    unkeyed_close(&instance->unkeyed);
    ngx_free(instance);
}

static void set_options(const struct instance *instance, weir_options *options)
{
    redis_to_options(&instance->redis, options);
    options->shared = true;
    options->no_thread = true;
    options->tick_us = TICK_US;
    options->max_processes = (uint32_t) instance->processes;
    options->max_threads = (uint32_t) instance->processes;
    options->max_keys = instance->keys;
    options->log = messages_write;
}

/* Tells of what is not as an operator may expect. */
static void tell_entry(const struct instance_name *name, ngx_log_t *log)
{
    if (name->entry == INSTANCE_RESUMED) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: goes on with the limits of an nginx that was killed");
    }
    if (name->entry == INSTANCE_NEW && name->refused[0] != '\0') {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: limits begin anew, as the other nginx's weir does not fit: %s",
                      name->refused);
    }
}

/* Opens the weir of an instance: by a name, or without where there is none to be had. */
static int instance_open(struct instance *instance, const struct instance_settings *settings, ngx_log_t *log,
                         weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    const struct instance_need need = {settings->pid_path, wanted_keys(settings), least_processes(settings),
                                       instances == NULL};
    set_options(instance, &options);
    if (instance_name_open(&instance->name, &need, &options, &instance->w, error) == 0) {
        instance->keys = options.max_keys;
        instance->processes = options.max_processes;
        tell_entry(&instance->name, log);
        messages_flush();
        return 0;
    }
    weir_error unnamed;
    set_options(instance, &options);
    if (weir_open(&options, &instance->w, &unnamed) != 0) {
        *error = unnamed;
        return unnamed.code;
    }
    ngx_log_error(NGX_LOG_WARN, log, 0, "weir: limits will begin anew with an upgrade of nginx: %s", error->message);
    return 0;
}

static bool fits(const struct instance *instance, const struct instance_settings *settings)
{
    return instance->w != NULL && wanted_keys(settings) <= instance->keys &&
           least_processes(settings) <= instance->processes && redis_equal(&instance->redis, &settings->redis) &&
           known_policies_have_room(&instance->known, settings->own, settings->own_count, settings->file);
}

static struct instance *open_new(const struct instance_settings *settings, ngx_log_t *log)
{
    struct instance *instance = ngx_calloc(sizeof(*instance), log);
    if (instance == NULL) {
        return NULL;
    }
    weir_error error = {.code = 0, .message = "no memory"};
    instance->keys = room_for(wanted_keys(settings), LEAST_KEYS, MOST_KEYS);
    instance->processes = room_for(wanted_processes(settings), LEAST_PROCESSES, MOST_PROCESSES);
    instance_name_init(&instance->name);
    if (!copy_redis(instance, &settings->redis) || instance_open(instance, settings, log, &error) != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "weir: %s", error.message);
        free_instance(instance);
        return NULL;
    }
    if (instance->name.entry == INSTANCE_UPGRADED) {
        known_policies_adopt(&instance->known, instance->w, log);
    }
    unkeyed_open(&instance->unkeyed, log);
    instance->pid = ngx_pid;
    instance->next = instances;
    instances = instance;
    return instance;
}

struct instance *instance_acquire(const struct instance_settings *settings, ngx_log_t *log)
{
    struct instance *instance = instances;
    while (instance != NULL && !fits(instance, settings)) {
        instance = instance->next;
    }
    if (instance == NULL) {
        if (instances != NULL) {
            ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: other settings need another weir, and limits begin anew");
        }
        instance = open_new(settings, log);
    }
    if (instance != NULL) {
        instance->cycles++;
    }
    return instance;
}

void instance_release(struct instance *instance)
{
    if (--instance->cycles != 0) {
        return;
    }
    instance_name_release(&instance->name);
    instance_leave(instance);
    struct instance **at = &instances;
    while (*at != instance) {
        at = &(*at)->next;
    }
    *at = instance->next;
    free_instance(instance);
}

/* Joins where this process has not. */
static bool join(struct instance *instance, ngx_log_t *log)
{
    if (instance->w == NULL) {
        return false;
    }
    if (instance->pid == ngx_pid) {
        return true;
    }
    weir_error error;
    instance->thread = NULL; /* a parent's, as are the poller and the turn */
    instance->poller.running = false;
    instance->turn_end.posted = 0;
    if (weir_join(instance->w, &error) != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, 0, "weir: this process does not limit: %s", error.message);
        return false;
    }
    instance->pid = ngx_pid;
    return true;
}

bool instance_enter(struct instance *instance, ngx_log_t *log)
{
    instance_name_leave(&instance->name);
    if (!join(instance, log)) {
        return false;
    }
    const bool fleet = instance->redis.url != NULL;
    const int result =
        instance->poller.running ? 0 : poller_start(&instance->poller, instance->w, fleet, ngx_cycle->log);
    if (result != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, result, "weir: no thread for the background work");
    }
    if (instance->thread == NULL) {
        instance->thread = weir_attach(instance->w);
        if (instance->thread == NULL) {
            ngx_log_error(NGX_LOG_ALERT, log, 0,
                          "weir: this process does not limit: too many workers are attached, or /dev/shm is full");
        }
    }
    return instance->thread != NULL;
}

void instance_leave(struct instance *instance)
{
    instance_name_leave(&instance->name);
    if (instance->pid == ngx_pid) {
        poller_stop(&instance->poller);
        weir_detach(instance->thread);
    }
    if (instance->turn_end.posted) {
        ngx_delete_posted_event(&instance->turn_end);
    }
    weir_close(instance->w);
    messages_flush();
    instance->thread = NULL;
    instance->w = NULL;
}

/* The next turn has another time. */
static void turn_has_ended(ngx_event_t *turn_end)
{
    const struct instance *instance = turn_end->data;
    weir_set_time(instance->thread, 0);
}

/*
 * All requests of a turn of nginx's loop are decided by one time, as nginx's own timers are. So the clock is read once,
 * which takes as long as a decision does. nginx runs posted events at the end of a turn.
 */
static void begin_turn(struct instance *instance)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    weir_set_time(instance->thread, (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec);
    instance->turn_end = (ngx_event_t){.handler = turn_has_ended, .data = instance, .log = ngx_cycle->log};
    ngx_post_event(&instance->turn_end, &ngx_posted_events);
}

weir_thread *instance_thread(struct instance *instance, ngx_log_t *log)
{
    const bool entered = instance->thread != NULL && instance->pid == ngx_pid;
    if (!entered && instance->w != NULL && ngx_time() >= instance->retry_time) {
        instance->retry_time = ngx_time() + RETRY_SECONDS;
        (void) instance_enter(instance, log);
    }
    if (instance->thread == NULL || instance->pid != ngx_pid) {
        return NULL;
    }
    if (!instance->turn_end.posted) {
        begin_turn(instance);
    }
    return instance->thread;
}

/* Keys that are addresses are written as such, and keys that are no more are not. */
static int set_forms(struct instance *instance, const struct block *block, weir_error *error)
{
    const struct own_policy *own = block->own.elts;
    const struct policy *of_file = block->file.policies.elts;
    int result = 0;
    for (size_t i = 0; i < block->own.nelts && result == 0; i++) {
        result = known_policies_set_form(&instance->known, instance->w, own[i].name, own[i].key_bits, error);
    }
    for (size_t i = 0; i < block->file.policies.nelts && result == 0; i++) {
        result = known_policies_set_form(&instance->known, instance->w, (const char *) of_file[i].name.data,
                                         policies_key_bits(&block->file, &of_file[i]), error);
    }
    return result;
}

/* Puts own policies in force, of this and of earlier cycles, and those of the file. */
static bool publish(struct instance *instance, const struct block *block, ngx_log_t *log)
{
    weir_policy *policies = ngx_alloc((instance->known.count + 1) * sizeof(*policies), log);
    if (policies == NULL) {
        return false;
    }
    const size_t count = known_policies_own(&instance->known, policies);
    weir_error error;
    const char *path = (const char *) block->file.path.data;
    int result = set_forms(instance, block, &error);
    if (result == 0) {
        result = path != NULL ? weir_load_policies_with(instance->w, path, policies, count, &error)
                              : weir_set_policies(instance->w, policies, count, &error);
    }
    if (result != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, 0, "weir: the zones and policies before stay in force: %s", error.message);
    }
    ngx_free(policies);
    return result == 0;
}

bool instance_set_policies(struct instance *instance, const struct block *block, ngx_log_t *log)
{
    const struct own_policy *own = block->own.elts;
    instance_name_confirm(&instance->name);
    if (!join(instance, log) || !known_policies_add(&instance->known, block, log)) {
        return false;
    }
    const bool done = publish(instance, block, log);
    for (size_t i = 0; i < block->own.nelts; i++) {
        *own[i].id = weir_find_policy(instance->w, own[i].name);
    }
    policies_set_ids(&block->file, instance->w);
    return done;
}
