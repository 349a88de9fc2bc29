/* SPDX-License-Identifier: Apache-2.0 */
/* See messages.h. */
#include "messages.h"

#include <pthread.h>

/* Lines of the library between two looks, and bytes of one. The library's own lines are some 200 bytes long. */
#define LINES_MOST 32
#define LINE_SIZE  512

struct line {
    ngx_uint_t level;
    u_char text[LINE_SIZE];
};

/* Of one process. Under the lock: lines of the library's thread that nginx's thread has not written yet. */
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;
static struct line lines[LINES_MOST];
static size_t line_count;
static size_t lost_count;

void messages_write(void *arg, weir_log_level level, const char *message)
{
    static const ngx_uint_t levels[] = {
        [WEIR_LOG_ERROR] = NGX_LOG_ERR, [WEIR_LOG_WARNING] = NGX_LOG_WARN, [WEIR_LOG_INFO] = NGX_LOG_INFO};
    (void) arg;
    (void) pthread_mutex_lock(&lines_lock);
    if (line_count < LINES_MOST) {
        lines[line_count].level = levels[level];
        (void) ngx_cpystrn(lines[line_count].text, (u_char *) message, LINE_SIZE);
        line_count++;
    } else {
        lost_count++;
    }
    (void) pthread_mutex_unlock(&lines_lock);
}

void messages_flush(void)
{
    (void) pthread_mutex_lock(&lines_lock);
    for (size_t i = 0; i < line_count; i++) {
        ngx_log_error(lines[i].level, ngx_cycle->log, 0, "weir: %s", lines[i].text);
    }
    if (lost_count != 0) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0, "weir: %uz more lines were lost", lost_count);
    }
    line_count = 0;
    lost_count = 0;
    (void) pthread_mutex_unlock(&lines_lock);
}
