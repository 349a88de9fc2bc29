/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared library in a program that loads and unloads it.
 *
 * Guards: src/meson.build, src/thread/handle.c
 */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

#include "support/support.h"

struct library {
    void *handle;
    int (*open)(const weir_options *options, weir **out, weir_error *error);
    weir_thread *(*attach)(weir *w);
    void (*close)(weir *w);
    weir *w;
    sem_t attached, unloaded;
};

/* ISO C has no conversion of an object pointer to a function pointer; POSIX has. */
static void find(const struct library *library, const char *name, void *function)
{
    void *address = dlsym(library->handle, name);
    if (address == NULL) {
        fail_msg("%s", dlerror());
    }
    *(void **) function = address;
}

static void *outlive_the_library(void *arg)
{
    struct library *library = arg;
    const bool attached = library->attach(library->w) != NULL;
    (void) sem_post(&library->attached);
    while (sem_wait(&library->unloaded) != 0) {
    }
    return attached ? library : NULL;
}

/* Opens a library, attaches a thread, closes and unloads, and lets the thread end. */
static void outlive(const char *path, bool stays)
{
    struct library library = {.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL)};
    if (library.handle == NULL) {
        fail_msg("%s", dlerror());
    }
    find(&library, "weir_open", (void *) &library.open);
    find(&library, "weir_attach", (void *) &library.attach);
    find(&library, "weir_close", (void *) &library.close);
    assert_int_equal(sem_init(&library.attached, 0, 0), 0);
    assert_int_equal(sem_init(&library.unloaded, 0, 0), 0);
    const weir_options options = WEIR_OPTIONS_INIT;
    assert_int_equal(library.open(&options, &library.w, NULL), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, outlive_the_library, &library), 0);
    while (sem_wait(&library.attached) != 0) {
    }
    library.close(library.w);
    assert_int_equal(dlclose(library.handle), 0);
    void *loaded = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    assert_int_equal(loaded != NULL, stays);
    if (loaded != NULL) {
        assert_int_equal(dlclose(loaded), 0);
    }
    assert_int_equal(sem_post(&library.unloaded), 0);
    void *attached = NULL;
    assert_int_equal(pthread_join(thread, &attached), 0);
    assert_ptr_equal(attached, &library);
    (void) sem_destroy(&library.attached);
    (void) sem_destroy(&library.unloaded);
}

static void test_a_thread_that_attached_may_end_after_the_library_is_unloaded(void **state)
{
    (void) state;
    for (int round = 0; round < 3; round++) {
        outlive(LIBRARY_PATH, true);
    }
}

static void test_and_after_a_plugin_is_unloaded_that_holds_the_library(void **state)
{
    (void) state;
    for (int round = 0; round < 3; round++) {
        outlive(PLUGIN_PATH, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_attached_may_end_after_the_library_is_unloaded),
        cmocka_unit_test(test_and_after_a_plugin_is_unloaded_that_holds_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
