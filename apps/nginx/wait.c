/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See wait.h.
 *
 * The timer is that of the connection's writing, which nothing else uses before an answer. nginx clears `delayed` when
 * the timer runs out, and ends the timer with the request. A client that goes away meanwhile is noticed by reading.
 */
#include "wait.h"

static void wait_end(ngx_http_request_t *r)
{
    ngx_event_t *write = r->connection->write;
    if (write->delayed) { /* called for another reason than the timer */
        if (ngx_handle_write_event(write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }
        return;
    }
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}

ngx_int_t wait_begin(ngx_http_request_t *r, ngx_msec_t delay)
{
    ngx_event_t *read = r->connection->read;
    if (read->ready) { /* no further event would tell of a client that has gone already */
        ngx_post_event(read, &ngx_posted_events);
    } else if (ngx_handle_read_event(read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = wait_end;
    r->connection->write->delayed = 1;
    ngx_time_update(); /* a timer begins at nginx's time: it would end early if that is older than the decision's */
    ngx_add_timer(r->connection->write, delay);
    return NGX_AGAIN;
}
