/* SPDX-License-Identifier: Apache-2.0 */
/* See messages.h. */
#include "messages.h"

#include <pthread.h>

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static ngx_log_t *cycle_log;

void messages_limiting(const ngx_http_request_t *r, const struct location *location, const struct excess *excess)
{
    ngx_log_error(location->limit_log_level, r->connection->log, 0,
                  "limiting requests%s, excess: %uL.%03uL by zone \"%V\"", location->dry_run ? ", dry run" : "",
                  excess->thousandths / 1000, excess->thousandths % 1000, &excess->shm_zone->shm.name);
}

void messages_delaying(const ngx_http_request_t *r, const struct location *location, const struct excess *excess)
{
    ngx_log_error(location->delay_log_level, r->connection->log, 0,
                  "delaying request%s, excess: %uL.%03uL, by zone \"%V\"", location->dry_run ? ", dry run" : "",
                  excess->thousandths / 1000, excess->thousandths % 1000, &excess->shm_zone->shm.name);
}

void messages_write(void *arg, weir_log_level level, const char *message)
{
    static const ngx_uint_t levels[] = {
        [WEIR_LOG_ERROR] = NGX_LOG_ERR, [WEIR_LOG_WARNING] = NGX_LOG_WARN, [WEIR_LOG_INFO] = NGX_LOG_INFO};
    (void) arg;
    (void) pthread_mutex_lock(&log_lock);
    for (const ngx_log_t *log = cycle_log; log != NULL; log = log->next) {
        if (log->writer == NULL) {
            /* A copy, without the next log and without what nginx's own thread changes. */
            ngx_log_t copy = {.log_level = log->log_level, .file = log->file};
            ngx_log_error(levels[level], &copy, 0, "weir: %s", message);
        }
    }
    (void) pthread_mutex_unlock(&log_lock);
}

void messages_set_log(ngx_log_t *log)
{
    (void) pthread_mutex_lock(&log_lock);
    cycle_log = log;
    (void) pthread_mutex_unlock(&log_lock);
}
