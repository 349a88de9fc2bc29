/* SPDX-License-Identifier: Apache-2.0 */
/* See unkeyed.h. */
#include "unkeyed.h"

void unkeyed_open(struct unkeyed_counts *counts, ngx_log_t *log)
{
    counts->memory = (ngx_shm_t){
        .size = (WEIR_MAX_POLICIES + 1) * sizeof(ngx_atomic_t), .name = ngx_string("weir:unkeyed"), .log = log};
    if (ngx_shm_alloc(&counts->memory) != NGX_OK) {
        counts->memory.addr = NULL; /* nginx has said why */
    }
}

void unkeyed_close(struct unkeyed_counts *counts)
{
    if (counts->memory.addr != NULL) {
        counts->memory.log = ngx_cycle->log; /* that of the cycle which opened it may be gone */
        ngx_shm_free(&counts->memory);
    }
}

/* NULL: the policy is not known, or there was no memory. */
static ngx_atomic_t *count_of(const struct unkeyed_counts *counts, weir_policy_id policy)
{
    ngx_atomic_t *all = (ngx_atomic_t *) (void *) counts->memory.addr;
    return all != NULL && policy != WEIR_NO_POLICY && policy <= WEIR_MAX_POLICIES ? &all[policy] : NULL;
}

uint64_t unkeyed_count(const struct unkeyed_counts *counts, weir_policy_id policy)
{
    const ngx_atomic_t *count = count_of(counts, policy);
    return count != NULL ? *count : 0;
}

static bool has_name(const ngx_str_t *names, const ngx_str_t *name)
{
    const u_char *at = names->data;
    const u_char *const end = at + names->len;
    while (at < end) {
        const u_char *comma = ngx_strlchr((u_char *) (uintptr_t) at, (u_char *) (uintptr_t) end, ',');
        const size_t length = (size_t) ((comma != NULL ? comma : end) - at);
        if (length == name->len && ngx_strncmp(at, name->data, length) == 0) {
            return true;
        }
        at += length + 1;
    }
    return false;
}

void unkeyed_note(struct unkeyed_counts *counts, ngx_pool_t *pool, ngx_str_t *names, const ngx_str_t *name,
                  weir_policy_id policy)
{
    if (has_name(names, name)) {
        return;
    }
    ngx_atomic_t *count = count_of(counts, policy);
    if (count != NULL) {
        (void) ngx_atomic_fetch_add(count, 1);
    }
    u_char *joined = ngx_pnalloc(pool, names->len + 1 + name->len);
    if (joined == NULL) {
        return;
    }
    const ngx_str_t before = *names;
    u_char *end = before.len != 0 ? ngx_sprintf(joined, "%V,%V", &before, name) : ngx_sprintf(joined, "%V", name);
    *names = (ngx_str_t){(size_t) (end - joined), joined};
}
