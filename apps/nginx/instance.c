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

/* Keys of the smallest table, some 4 MiB. */
#define LEAST_KEYS 65536

/* The library's most keys. */
#define MOST_KEYS 100000000

/* A queue has no grants, so ticks of zones serve the background work alone. At 1,000 us they take 3% of a busy
 * processor, at this 0.5%; above it the work comes late (bench/nginx.py). */
#define TICK_US 10000

/* Seconds between two attempts to enter an instance, and between two lines of a worker that finds no place. */
#define RETRY_SECONDS 1
#define TELL_SECONDS  60

/*
 * Processes that may be joined, the most that the library takes: workers of many cycles serve their last clients after
 * reloads. A place takes some 530 bytes, and one that nobody has takes no time.
 */
#define PLACES 1024

#define NS_PER_S UINT64_C(1000000000)

/*
 * next       the instances of this process: one, and the one before while a reload is under way
 * name       of the memory; a weir without a name is not found by a new binary
 * w          NULL: this process has left
 * thread     the handle of this process's one thread
 * turn_end   posted in a turn of nginx's loop that has asked for the handle: it runs at the end of the turn
 * poller     of this process; a worker's runs
 * pid        the process that has joined, which may be this one's parent
 * tell_time  before it no further line says that this process does not limit
 * unlimited  requests that have passed since this process found no place; in all, for its lines
 * cycles     how many cycles have acquired it
 * keys       of the table
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
    time_t tell_time;
    uint64_t unlimited;
    unsigned cycles;
    size_t keys;
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

/* Doubled until there is room, so that zones may grow without another weir. */
static size_t room_for_keys(size_t count)
{
    size_t room = LEAST_KEYS;
    while (room < count && room < MOST_KEYS) {
        room *= 2;
    }
    return ngx_min(room, MOST_KEYS);
}

static size_t wanted_keys(const struct instance_settings *settings)
{
    return ngx_min(settings->size / BYTES_OF_KEY + settings->file->keys, MOST_KEYS);
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
    options->max_processes = options->max_threads = PLACES;
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
    const struct instance_need need = {settings->pid_path, wanted_keys(settings), settings->workers, instances == NULL};
    set_options(instance, &options);
    if (instance_name_open(&instance->name, &need, &options, &instance->w, error) == 0) {
        instance->keys = options.max_keys;
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
           redis_equal(&instance->redis, &settings->redis) &&
           known_policies_have_room(&instance->known, settings->own, settings->own_count, settings->file);
}

static struct instance *open_new(const struct instance_settings *settings, ngx_log_t *log)
{
    struct instance *instance = ngx_calloc(sizeof(*instance), log);
    if (instance == NULL) {
        return NULL;
    }
    weir_error error = {.code = 0, .message = "no memory"};
    instance->keys = room_for_keys(wanted_keys(settings));
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

/* Joins where this process has not. 0, or an error with a sentence. */
static int join(struct instance *instance, weir_error *error)
{
    if (instance->pid == ngx_pid) {
        return 0;
    }
    instance->thread = NULL; /* a parent's, as are the poller and the turn */
    instance->poller.running = false;
    instance->turn_end.posted = 0;
    const int result = weir_join(instance->w, error);
    if (result == -ENOSPC) {
        *error = (weir_error){.code = result,
                              .message = "all 1,024 places are taken, most likely by workers of earlier reloads that "
                                         "still serve; worker_shutdown_timeout ends them"};
    }
    instance->pid = result == 0 ? ngx_pid : instance->pid;
    return result;
}

/* Joins, and attaches this process's one thread. False: `why` says what is missing. */
static bool enter(struct instance *instance, ngx_log_t *log, weir_error *why)
{
    if (join(instance, why) != 0) {
        return false;
    }
    const bool fleet = instance->redis.url != NULL;
    const int started =
        instance->poller.running ? 0 : poller_start(&instance->poller, instance->w, fleet, ngx_cycle->log);
    if (started != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, started, "weir: no thread for the background work");
    }
    instance->thread = instance->thread != NULL ? instance->thread : weir_attach(instance->w);
    *why = (weir_error){.code = -ENOSPC, .message = "there is no memory for its counters, as /dev/shm is full"};
    return instance->thread != NULL;
}

bool instance_enter(struct instance *instance, ngx_log_t *log)
{
    weir_error why;
    instance_name_leave(&instance->name);
    if (instance->w == NULL) {
        return false;
    }
    const bool entered = enter(instance, log, &why);
    if (entered && instance->tell_time != 0) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0, "weir: this worker limits again; %uL requests had passed without a limit",
                      instance->unlimited);
        instance->tell_time = 0;
        instance->unlimited = 0;
    } else if (!entered && ngx_time() >= instance->tell_time) {
        ngx_log_error(NGX_LOG_ALERT, log, 0, "weir: this worker does not limit: %s; %uL requests have passed",
                      why.message, instance->unlimited);
        instance->tell_time = ngx_time() + TELL_SECONDS;
    }
    return entered;
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

weir_thread *instance_ask(struct instance *instance, ngx_log_t *log)
{
    weir_thread *thread = instance_thread(instance, log);
    if (thread == NULL && instance->w != NULL) {
        instance->unlimited++;
        weir_count_unlimited(instance->w, 1);
    }
    return thread;
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

/*
 * Whether the file still has the policies that it had when the configuration was read. Directives look for theirs among
 * these, and a request of one that is not there would pass. 0; as weir_validate_policies.
 */
static int require_policies(const struct policy_file *file, ngx_log_t *log, weir_error *error)
{
    const struct policy *policies = file->policies.elts;
    const char **names = ngx_alloc((file->policies.nelts + 1) * sizeof(*names), log);
    if (names == NULL) {
        *error = (weir_error){-ENOMEM, "out of memory"};
        return -ENOMEM;
    }
    for (size_t i = 0; i < file->policies.nelts; i++) {
        names[i] = (const char *) policies[i].name.data;
    }
    const int result = weir_validate_policies((const char *) file->path.data, names, file->policies.nelts, error);
    ngx_free((void *) names);
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
    int result = path != NULL ? require_policies(&block->file, log, &error) : 0;
    result = result != 0 ? result : set_forms(instance, block, &error);
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

/* Where they cannot be put in force, those before are, and policies of the same names have the same numbers. */
static void set_ids(const struct instance *instance, const struct block *block)
{
    const struct own_policy *own = block->own.elts;
    for (size_t i = 0; i < block->own.nelts; i++) {
        *own[i].id = weir_find_policy(instance->w, own[i].name);
    }
    policies_set_ids(&block->file, instance->w);
}

bool instance_set_policies(struct instance *instance, const struct block *block, ngx_log_t *log)
{
    weir_error error;
    bool done = false;
    instance_name_confirm(&instance->name);
    if (instance->w == NULL) {
        return false;
    }
    if (join(instance, &error) != 0) {
        ngx_log_error(NGX_LOG_ALERT, log, 0, "weir: the zones and policies before stay in force: %s", error.message);
    } else {
        done = known_policies_add(&instance->known, block, log) && publish(instance, block, log);
    }
    set_ids(instance, block);
    return done;
}
