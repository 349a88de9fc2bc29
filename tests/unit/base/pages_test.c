/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved memory: which of it may lie on huge pages, what of it is present, and that nothing of it is left behind.
 *
 * Guards: src/base/pages.c, src/base/pages.h
 */
#include "base/pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/smaps.h"
#include "support/support.h"

#define PAGE ((uint64_t) sysconf(_SC_PAGESIZE))
#define HUGE (UINT64_C(2) << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* headers older than the kernel */
#endif

static uint64_t present_pages(void *memory, size_t size)
{
    static unsigned char pages[8192];
    const size_t count = (size + PAGE - 1) / PAGE;
    assert_true(count <= sizeof(pages));
    assert_int_equal(mincore(memory, size, pages), 0);
    uint64_t present = 0;
    for (size_t i = 0; i < count; i++) {
        present += pages[i] & 1;
    }
    return present;
}

/* qemu-user answers every madvise with success and carries out few: memory that was to be present is not. */
static bool madvise_populates(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    const bool populates = madvise(page, PAGE, MADV_POPULATE_WRITE) != 0 || present_pages(page, PAGE) == 1;
    (void) munmap(page, PAGE);
    if (!populates) {
        print_message(
            "# skipped: madvise(MADV_POPULATE_WRITE) succeeds here and populates nothing, as under qemu-user\n");
    }
    return populates;
}

/* Whether the kernel notes wishes for huge pages. */
static bool kernel_has_huge_pages(void)
{
    unsigned char *memory = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    const bool has = madvise(memory, 2 * HUGE, MADV_HUGEPAGE) == 0 && mapping_of(memory).huge;
    (void) munmap(memory, 2 * HUGE);
    return has;
}

/* A kernel that does not populate, before Linux 5.14. The linker's --wrap leads the library's calls here. */
static bool populates_nothing;

int __real_madvise(void *at, size_t size, int advice);
int __wrap_madvise(void *at, size_t size, int advice);

int __wrap_madvise(void *at, size_t size, int advice)
{
    if (populates_nothing && advice == MADV_POPULATE_WRITE) {
        errno = EINVAL;
        return -1;
    }
    return __real_madvise(at, size, advice);
}

static void test_memory_is_present_where_the_kernel_cannot_populate_it(void **state)
{
    (void) state;
    static const size_t sizes[] = {1, 4096, 4097, 100000, (5 << 20) + 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        populates_nothing = true;
        unsigned char *memory = pages_reserve(sizes[i], PAGES_PRESENT);
        populates_nothing = false;
        assert_non_null(memory);
        assert_int_equal(present_pages(memory, sizes[i]), (sizes[i] + PAGE - 1) / PAGE);
        for (size_t at = 0; at < sizes[i]; at++) {
            assert_int_equal(memory[at], 0);
        }
        pages_release(memory, sizes[i]);
    }
}

static void expect_gone(void *memory, size_t size)
{
    unsigned char page;
    for (size_t at = 0; at < size; at += PAGE) {
        assert_int_equal(mincore((unsigned char *) memory + at, PAGE, &page), -1);
        assert_int_equal(errno, ENOMEM);
    }
}

static void test_huge_pages_are_wished_for_where_they_are_whole(void **state)
{
    (void) state;
    if (PAGE != 4096 || !madvise_populates()) {
        skip(); /* of other sizes there are other huge ones */
    }
    static const size_t sizes[] = {4 << 20, (4 << 20) + 1, (5 << 20) - 100, (9 << 20) + 4096, (6 << 20)};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *memory = pages_reserve(sizes[i], PAGES_PRESENT);
        assert_non_null(memory);
        const uint64_t huge = sizes[i] / HUGE * HUGE;
        assert_int_equal((uintptr_t) memory % HUGE, 0);
        struct mapping mapping = mapping_of(memory);
        assert_int_equal(mapping.huge, kernel_has_huge_pages());
        if (mapping.huge) {
            assert_int_equal(mapping.end % HUGE, 0);
            mapping = mapping_of(memory + huge - 1);
            assert_true(mapping.huge && (huge == sizes[i] || (uintptr_t) memory + huge == mapping.end));
            assert_true(huge == sizes[i] || mapping_of(memory + sizes[i] - 1).small);
        }
        assert_int_equal(present_pages(memory, sizes[i]), (sizes[i] + PAGE - 1) / PAGE);
        for (size_t at = 0; at < sizes[i]; at += 1000) {
            assert_int_equal(memory[at], 0);
            memory[at] = 1;
        }
        memory[sizes[i] - 1] = 1;
        pages_release(memory, sizes[i]);
        expect_gone(memory, sizes[i]);
    }
}

static void test_two_reservations_share_no_huge_page(void **state)
{
    (void) state;
    enum { COUNT = 8 };
    const size_t size = (5 << 20) + 4096;
    unsigned char *memory[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        memory[i] = pages_reserve(size, i % 2 == 0 ? PAGES_PRESENT : 0);
        assert_non_null(memory[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < i; j++) {
            const uintptr_t a = (uintptr_t) memory[i];
            const uintptr_t b = (uintptr_t) memory[j];
            assert_true((a + size - 1) / HUGE < b / HUGE || (b + size - 1) / HUGE < a / HUGE);
        }
        if (i % 2 != 0) {
            assert_int_equal(present_pages(memory[i], size), 0);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        pages_release(memory[i], size);
    }
    pages_release(NULL, size);
}

static void test_no_more_is_taken_than_asked_for_and_all_of_it_given_back(void **state)
{
    (void) state;
    const size_t size = (5 << 20) + 1;
    const size_t before = count_mapped_pages();
    unsigned char *memory = pages_reserve(size, PAGES_PRESENT);
    assert_non_null(memory);
    assert_int_equal(count_mapped_pages(), before + (size + PAGE - 1) / PAGE);
    pages_release(memory, size);
    assert_int_equal(count_mapped_pages(), before);
}

static void test_what_is_small_or_sparse_lies_on_small_pages(void **state)
{
    (void) state;
    if (!madvise_populates()) {
        skip();
    }
    unsigned char *small = pages_reserve(100000, PAGES_PRESENT);
    unsigned char *sparse = pages_reserve(8 << 20, PAGES_SPARSE);
    assert_false(mapping_of(small).huge);
    assert_false(mapping_of(sparse).huge);
    assert_int_equal(mapping_of(small).small, kernel_has_huge_pages());
    assert_int_equal(mapping_of(sparse).small, kernel_has_huge_pages());
    assert_int_equal(present_pages(small, 100000), (100000 + PAGE - 1) / PAGE);
    assert_int_equal(present_pages(sparse, 8 << 20), 0);
    sparse[5 << 20] = 1;
    assert_int_equal(present_pages(sparse, 8 << 20), 1);
    pages_release(small, 100000);
    pages_release(sparse, 8 << 20);
    expect_gone(small, 100000);
}

static void test_more_than_there_is_is_not_to_be_had(void **state)
{
    (void) state;
    assert_null(pages_reserve((size_t) 1 << 50, 0));
    assert_null(pages_reserve((size_t) 1 << 50, PAGES_SPARSE));
}

static void test_parts_of_an_arena_begin_at_cache_lines(void **state)
{
    (void) state;
    static const size_t sizes[][2] = {{0, 0}, {1, 64}, {64, 64}, {65, 128}, {1000, 1024}};
    unsigned char memory[2000];
    unsigned char *next = memory;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *here = next;
        assert_int_equal(arena_padded(sizes[i][0]), sizes[i][1]);
        assert_ptr_equal(arena_carve(&next, sizes[i][0]), here);
        assert_ptr_equal(next, here + sizes[i][1]);
    }
    assert_int_equal(pages_padded(0), 0);
    assert_int_equal(pages_padded(1), PAGE);
    assert_int_equal(pages_padded(PAGE), PAGE);
    assert_int_equal(pages_padded(PAGE + 1), 2 * PAGE);
}

/* A mapping of its own for each part, which a forked child shares or has a copy of. */
static void test_an_owner_without_a_segment_says_how_its_parts_are_shared(void **state)
{
    (void) state;
    for (unsigned shared = 0; shared < 2; shared++) {
        const struct pages_owner owner = {.use = shared != 0 ? PAGES_SHARED : 0};
        struct pages_owner own = owner;
        unsigned char *part = pages_take(&own, PAGE, 0);
        unsigned char *large = pages_take(shared != 0 ? &own : NULL, HUGE * 2, PAGES_SPARSE);
        assert_true(part != NULL && large != NULL);
        const pid_t child = fork();
        if (child == 0) {
            part[5] = large[5] = 7;
            _exit(0);
        }
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(part[5] == shared * 7 && large[5] == shared * 7);
        pages_give(&own, part, PAGE);
        pages_give(NULL, large, HUGE * 2);
        pages_give(NULL, NULL, PAGE);
        expect_gone(part, PAGE);
        assert_int_equal(pages_commit(NULL, part, PAGE), 0); /* all of it was there */
        assert_int_equal(own.error, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_huge_pages_are_wished_for_where_they_are_whole),
        cmocka_unit_test(test_memory_is_present_where_the_kernel_cannot_populate_it),
        cmocka_unit_test(test_two_reservations_share_no_huge_page),
        cmocka_unit_test(test_no_more_is_taken_than_asked_for_and_all_of_it_given_back),
        cmocka_unit_test(test_what_is_small_or_sparse_lies_on_small_pages),
        cmocka_unit_test(test_more_than_there_is_is_not_to_be_had),
        cmocka_unit_test(test_parts_of_an_arena_begin_at_cache_lines),
        cmocka_unit_test(test_an_owner_without_a_segment_says_how_its_parts_are_shared),
    };
    return cmocka_run_group_tests_name("unit/base/pages", tests, NULL, NULL);
}
