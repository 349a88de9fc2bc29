/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The http block, or the stream block, at each point of nginx's life:
 *
 *   postconfiguration     all directives are read, and nothing has changed yet
 *   shared memory         acquires the instance; nginx refuses the configuration where there is none
 *   init_module           the configuration is good: its policies come into force
 *   init_process          a worker starts: it enters the instance
 *   exit_process          a worker ends: it leaves
 *   end of the pool       the cycle is over in the master, or was refused: it releases the instance
 *
 * nginx ends when init_module fails in a reload. So nothing that may fail is left to init_module but want of memory.
 */
#ifndef WEIR_NGINX_BLOCK_H
#define WEIR_NGINX_BLOCK_H

#include "nginx_weir.h"

/* Of an empty block. False: no memory. */
bool block_begin(struct block *block, ngx_conf_t *cf);

/*
 * postconfiguration: finds the policies of all checks, and has nginx make a piece of shared memory that stands for the
 * instance. `anchor` names this piece; no zone can have a name with a colon. False: nginx has said why.
 */
bool block_finish(struct block *block, ngx_conf_t *cf, const char *anchor, ngx_module_t *module);

/* Whether there are policies, and so an instance. */
bool block_limits(const struct block *block);

/* init_module, init_process and exit_process. `block` is NULL where the cycle has no such block. */
void block_put_in_force(struct block *block, ngx_log_t *log);
void block_enter(struct block *block, ngx_log_t *log);
void block_leave(struct block *block);

#endif
