/* SPDX-License-Identifier: Apache-2.0 */
/* See block.h. */
#include "block.h"

#include "check.h"
#include "instance.h"
#include "policies.h"

/* nginx asks for so many pages of a piece of shared memory. */
#define ANCHOR_PAGES 8

bool block_begin(struct block *block, ngx_conf_t *cf)
{
    return ngx_array_init(&block->checks, cf->pool, 4, sizeof(struct check *)) == NGX_OK;
}

bool block_limits(const struct block *block)
{
    return block->own.nelts + block->file.policies.nelts != 0;
}

/* The cycle is over in this process. */
static void release(void *data)
{
    struct block *block = data;
    if (block->instance != NULL) {
        instance_release(block->instance);
    }
}

/* nginx makes the shared memory of a cycle: the last moment at which it can refuse the configuration. */
static ngx_int_t acquire(ngx_shm_zone_t *shm_zone, void *data)
{
    struct block *block = shm_zone->data;
    (void) data;
    if (ngx_test_config) {
        return NGX_OK;
    }
    const struct instance_settings settings = {.size = block->own_size,
                                               .workers = (size_t) block->core->worker_processes,
                                               .pid_path = &block->core->pid,
                                               .redis = block->redis,
                                               .own = block->own.elts,
                                               .own_count = block->own.nelts,
                                               .file = &block->file};
    block->instance = instance_acquire(&settings, shm_zone->shm.log);
    return block->instance != NULL ? NGX_OK : NGX_ERROR;
}

static bool add_anchor(struct block *block, ngx_conf_t *cf, const char *anchor, ngx_module_t *module)
{
    ngx_str_t name = {ngx_strlen(anchor), (u_char *) anchor};
    ngx_shm_zone_t *shm_zone = ngx_shared_memory_add(cf, &name, ANCHOR_PAGES * ngx_pagesize, module);
    ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(cf->pool, 0);
    if (shm_zone == NULL || cleanup == NULL) {
        return false;
    }
    shm_zone->init = acquire;
    shm_zone->data = block;
    cleanup->handler = release;
    cleanup->data = block;
    return true;
}

bool block_finish(struct block *block, ngx_conf_t *cf, const char *anchor, ngx_module_t *module)
{
    if (!check_finish(block, cf) || !policies_fit_own(block, cf) || !policies_read_again(cf, &block->file)) {
        return false;
    }
    block->core = (const ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx, ngx_core_module);
    return !block_limits(block) || add_anchor(block, cf, anchor, module);
}

/* An instance whose policies could not be changed limits by those before, which is no reason to end nginx. */
void block_put_in_force(struct block *block, ngx_log_t *log)
{
    if (block != NULL && block->instance != NULL) {
        (void) instance_set_policies(block->instance, block, log);
    }
}

void block_enter(struct block *block, ngx_log_t *log)
{
    if (block == NULL || block->instance == NULL) {
        return;
    }
    if (ngx_process == NGX_PROCESS_HELPER) {
        instance_leave(block->instance);
    } else {
        (void) instance_enter(block->instance, log);
    }
}

void block_leave(struct block *block)
{
    if (block != NULL && block->instance != NULL) {
        instance_leave(block->instance);
    }
}
