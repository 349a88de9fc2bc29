/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words of a script's call without memory: whichever allocation fails, the next round allocates what is missing.
 * The linker's --wrap leads the library's calloc here (tests/meson.build).
 *
 * Guards: src/transport/redis/script_call.c
 */
#include <errno.h>
#include <stdlib.h>

#include "support/support.h"
#include "transport/redis/redis_state.h"
#include "transport/redis/script_call.h"

/* Names that the linker gives. */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

/* The allocation that fails, counted from 1; 0: none does. */
static size_t fails;
static size_t seen;

void *__wrap_calloc(size_t count, size_t size)
{
    return ++seen == fails ? NULL : __real_calloc(count, size);
}

static void test_an_allocation_that_failed_is_made_again(void **state)
{
    (void) state;
    for (size_t failing = 1; failing <= 4; failing++) {
        struct redis_transport *t = __real_calloc(1, sizeof(*t));
        fails = failing;
        seen = 0;
        assert_int_equal(script_call_make_room(t), failing <= 3 ? -ENOMEM : 0);
        fails = 0;
        assert_int_equal(script_call_make_room(t), 0);
        assert_true(t->argv != NULL && t->lengths != NULL && t->texts != NULL);
        assert_int_equal(seen, failing <= 3 ? 4 : 3);
        free(t->argv);
        free(t->lengths);
        free(t->texts);
        free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_allocation_that_failed_is_made_again),
    };
    return cmocka_run_group_tests_name("unit/transport/script_memory", tests, NULL, NULL);
}
