/* SPDX-License-Identifier: Apache-2.0 */
/* A private redis-server on a Unix socket, that keeps nothing on disk, for the peers that need one; one at a time. */
#ifndef WEIR_BENCH_REDIS_SERVER_H
#define WEIR_BENCH_REDIS_SERVER_H

/* NULL when it accepts connections; else why there is none. */
const char *redis_server_start(void);
const char *redis_server_socket(void);
void redis_server_stop(void);

#endif
