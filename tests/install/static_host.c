/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program with functions of its own whose names the library has inside too. It links with the static library, and
 * neither calls the other's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

int history_init(void);
void rcu_synchronize(void);
int table_open(void);
int error_set(void);
int pages_reserve(void);

static int calls;

int history_init(void)
{
    return ++calls;
}

void rcu_synchronize(void)
{
    calls++;
}

int table_open(void)
{
    return ++calls;
}

int error_set(void)
{
    return ++calls;
}

int pages_reserve(void)
{
    return ++calls;
}

int main(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 2, .calendar = WEIR_CALENDAR_MONTH};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, &policy, 1, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    /* A month may begin in between. */
    unsigned allowed = 0;
    for (int i = 0; i < 5; i++) {
        allowed += weir_check(thread, &key, 1, NULL);
    }
    weir_detach(thread);
    weir_close(w);
    if (calls != 0) {
        return fprintf(stderr, "the library called functions of the program\n"), 1;
    }
    rcu_synchronize();
    printf("%u allowed, %d own\n", allowed, history_init() + table_open() + error_set() + pages_reserve());
    return allowed == 2 || allowed == 4 ? EXIT_SUCCESS : EXIT_FAILURE;
}
