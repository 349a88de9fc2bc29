/* SPDX-License-Identifier: Apache-2.0 */
/* See sentences.h. */
#include "sentences.h"

#include "rate.h"

/* Thousandths of requests, as nginx counts them. */
static uint64_t thousandths(const struct excess *excess)
{
    return rate_excess(excess->rate, excess->wait_ns);
}

void sentences_limiting(const ngx_http_request_t *r, const struct location *location, const struct excess *excess)
{
    ngx_log_error(location->limit_log_level, r->connection->log, 0,
                  "limiting requests%s, excess: %uL.%03uL by zone \"%V\"", location->dry_run ? ", dry run" : "",
                  thousandths(excess) / 1000, thousandths(excess) % 1000, &excess->shm_zone->shm.name);
}

void sentences_delaying(const ngx_http_request_t *r, const struct location *location, const struct excess *excess)
{
    ngx_log_error(location->delay_log_level, r->connection->log, 0,
                  "delaying request%s, excess: %uL.%03uL, by zone \"%V\"", location->dry_run ? ", dry run" : "",
                  thousandths(excess) / 1000, thousandths(excess) % 1000, &excess->shm_zone->shm.name);
}

void sentences_denied(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy)
{
    ngx_log_error(location->limit_log_level, r->connection->log, 0, "limiting requests%s by policy \"%V\"",
                  location->dry_run ? ", dry run," : "", policy);
}

void sentences_queued(const ngx_http_request_t *r, const struct location *location, const ngx_str_t *policy)
{
    ngx_log_error(location->delay_log_level, r->connection->log, 0, "delaying request%s by policy \"%V\"",
                  location->dry_run ? ", dry run," : "", policy);
}
