/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limiter that is opened when memory runs out, at each of its parts in turn: it says so,
 * and closing it gives back what it had.
 *
 * Guards: src/thread/limiter.c, src/process/process.c, src/process/table.c, src/process/sync_pool.c,
 * src/process/history_store.c, src/process/evicted_sketch.c, src/process/top_denied.c
 */
#include <errno.h>

#include "base/pages.h"
#include "support/bare_process.h"
#include "thread/limiter.h"

void *__real_pages_take(struct pages_owner *owner, size_t size, unsigned use);
void *__real_pages_reserve(size_t size, unsigned use);
void __real_pages_give(const struct pages_owner *owner, void *memory, size_t size);
void __real_pages_release(void *memory, size_t size);
void *__wrap_pages_take(struct pages_owner *owner, size_t size, unsigned use);
void *__wrap_pages_reserve(size_t size, unsigned use);
void __wrap_pages_give(const struct pages_owner *owner, void *memory, size_t size);
void __wrap_pages_release(void *memory, size_t size);

static unsigned asked, refused; /* parts so far, and the number of the one that is not to be had */
static size_t bytes;            /* that are taken */

static void *counted(void *memory, size_t size)
{
    bytes += memory != NULL ? size : 0;
    return memory;
}

void *__wrap_pages_take(struct pages_owner *owner, size_t size, unsigned use)
{
    return asked++ == refused ? NULL : counted(__real_pages_take(owner, size, use), size);
}

void *__wrap_pages_reserve(size_t size, unsigned use)
{
    return asked++ == refused ? NULL : counted(__real_pages_reserve(size, use), size);
}

void __wrap_pages_give(const struct pages_owner *owner, void *memory, size_t size)
{
    bytes -= memory != NULL ? size : 0;
    __real_pages_give(owner, memory, size);
}

void __wrap_pages_release(void *memory, size_t size)
{
    bytes -= memory != NULL ? size : 0;
    __real_pages_release(memory, size);
}

static void test_what_is_missing_is_said_and_the_rest_is_given_back(void **state)
{
    (void) state;
    for (int fleet = 0; fleet < 2; fleet++) {
        const struct limiter_options options = {
            .process = {.max_keys = 100, .max_log_units = 100, .fleet = fleet != 0, .origin_ns = BARE_ORIGIN_NS},
            .max_threads = 2,
            .max_processes = 1};
        int result = -ENOMEM;
        for (refused = 0; result != 0; refused++) {
            struct limiter limiter;
            memset(&limiter, 0, sizeof(limiter));
            asked = 0;
            result = limiter_open(&limiter, &options);
            assert_int_equal(result, asked > refused ? -ENOMEM : 0);
            if (result == 0) {
                assert_int_equal(bytes, process_reserved(&limiter.process) + limiter.memory_size + limiter.slots_size +
                                            limiter.threads_size);
            }
            limiter_close(&limiter);
            assert_int_equal(bytes, 0);
        }
        assert_int_equal(refused, fleet != 0 ? 15 : 12); /* the number of parts, and one */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_missing_is_said_and_the_rest_is_given_back),
    };
    return cmocka_run_group_tests_name("unit/thread/open_memory", tests, NULL, NULL);
}
