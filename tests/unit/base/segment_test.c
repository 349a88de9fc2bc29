/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory with a name: one opener at a time, parts in one order, one mapping in a process, and nothing left of it.
 *
 * Guards: src/base/memory/segment.c, src/algorithm/rate_table.c, src/base/pages.c
 */
#include "base/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "algorithm/rate_table.h"
#include "base/atomics.h"
#include "base/pages.h"
#include "support/independent.h"
#include "support/smaps.h"
#include "support/support.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* headers older than the kernel */
#endif

#define PAGE  ((size_t) sysconf(_SC_PAGESIZE))
#define HUGE  ((size_t) 2 << 20)
#define BLOCK 512 /* bytes, of st_blocks */
#define SIZE  ((size_t) 16 << 20)

static char name[SEGMENT_NAME_SIZE];

/* Makes a segment of SIZE bytes with this id, and keeps its lock. */
static void make(struct segment *segment, uint64_t id)
{
    bool first = false;
    assert_int_equal(segment_open(segment, name), 0);
    assert_int_equal(ftruncate(segment->fd, (off_t) SIZE), 0);
    segment->fresh = true;
    assert_int_equal(segment_map(segment, id, SIZE, &first), 0);
    assert_true(first);
}

static void test_parts_lie_in_order_and_begin_at_pages(void **state)
{
    (void) state;
    struct segment segment;
    make(&segment, 7);
    const unsigned char *at = segment.at;
    assert_int_equal((uintptr_t) at % HUGE, 0);
    assert_ptr_equal(segment_take(&segment, 1, false), at);
    assert_ptr_equal(segment_take(&segment, PAGE + 1, false), at + PAGE);
    assert_ptr_equal(segment_take(&segment, HUGE, true), at + HUGE);
    assert_null(segment_take(&segment, SIZE, false));
    assert_ptr_equal(segment_take(&segment, 1, false), at + 2 * HUGE);
    assert_int_equal(segment_end(&segment), 0);
    assert_int_equal(segment_size(name), 2 * HUGE + PAGE);
    assert_int_equal(segment.size, 2 * HUGE + PAGE);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_a_process_has_one_mapping_of_a_segment(void **state)
{
    (void) state;
    struct segment first;
    struct segment second;
    bool is_first = true;
    make(&first, 8);
    assert_null(segment_mapping(9));
    segment_unlock(&first);
    assert_int_equal(segment_open(&second, name), 0);
    assert_int_equal(segment_map(&second, 8, SIZE, &is_first), 0);
    assert_false(is_first);
    assert_ptr_equal(second.at, first.at);
    segment_close(&first);
    assert_ptr_equal(segment_mapping(8), second.at);
    second.at[0] = 1; /* it is there still */
    segment_close(&second);
    assert_null(segment_mapping(8));
    assert_int_equal(weir_unlink(name), 0);
}

struct shared {
    _Atomic uint64_t inside, most, entered;
};

static struct shared *shared;

static int open_often(void *arg)
{
    (void) arg;
    for (int i = 0; i < 200; i++) {
        struct segment segment;
        if (segment_open(&segment, name) != 0) {
            return 1;
        }
        const uint64_t inside = add_relaxed(&shared->inside, 1) + 1;
        if (inside > load_relaxed(&shared->most)) {
            store_relaxed(&shared->most, inside);
        }
        (void) add_relaxed(&shared->entered, 1);
        (void) add_relaxed(&shared->inside, (uint64_t) -1);
        if (i % 20 == 0) {
            (void) weir_unlink(name); /* an opener that waits finds that its segment has no name any more */
        }
        segment_close(&segment); /* ends the lock as well, as nobody was forked */
    }
    return 0;
}

static void test_one_process_at_a_time_opens_a_segment(void **state)
{
    (void) state;
    pid_t processes[4];
    memset((void *) shared, 0, sizeof(*shared));
    for (size_t i = 0; i < 4; i++) {
        processes[i] = start_independent(open_often, NULL);
    }
    for (size_t i = 0; i < 4; i++) {
        expect_end(processes[i]);
    }
    assert_int_equal(load_relaxed(&shared->entered), 800);
    assert_int_equal(load_relaxed(&shared->most), 1);
    (void) weir_unlink(name);
}

/* Raises a word when a file is locked: the segment has been opened by then. The linker's --wrap leads the call here. */
static bool tells_lock;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    if (tells_lock) {
        store_release(&shared->entered, 1);
    }
    return __real_flock(fd, operation);
}

static int open_with_a_name(void *arg)
{
    (void) arg;
    struct segment segment;
    struct stat of_the_name;
    tells_lock = true;
    if (segment_open(&segment, name) != 0) {
        return 1;
    }
    const int fd = shm_open(name, O_RDONLY, 0);
    const bool same = fd >= 0 && fstat(fd, &of_the_name) == 0 && of_the_name.st_ino == segment.inode;
    (void) close(fd);
    segment_close(&segment);
    return same ? 0 : 2;
}

/*
 * An opener waits for the lock, and meanwhile the name is removed. It must open the segment that has the name by then,
 * and not the one that lost it.
 */
static void test_an_opener_whose_segment_loses_its_name_opens_the_one_that_has_it(void **state)
{
    (void) state;
    struct segment segment;
    memset((void *) shared, 0, sizeof(*shared));
    make(&segment, 11);
    const pid_t child = start_independent(open_with_a_name, NULL);
    assert_true(wait_for_word(&shared->entered, 1));
    assert_int_equal(weir_unlink(name), 0);
    segment_unlock(&segment);
    expect_end(child);
    segment_close(&segment);
    (void) weir_unlink(name);
}

static int wait_in_lock(void *arg)
{
    const struct segment *segment = arg;
    int lock_fd = -1;
    (void) add_relaxed(&shared->entered, 1);
    if (segment_lock_again(segment, &lock_fd) != 0 || load_relaxed(&shared->inside) != 1) {
        return 1;
    }
    segment_unlock_again(lock_fd);
    return 0;
}

/* A forked child has the descriptor too: it waits all the same, and does not keep the lock. */
static void test_a_forked_child_locks_anew(void **state)
{
    (void) state;
    struct segment segment;
    struct segment next;
    memset((void *) shared, 0, sizeof(*shared));
    make(&segment, 11);
    const pid_t child = start_independent(wait_in_lock, &segment);
    assert_true(wait_for_word(&shared->entered, 1));
    nap_ms(5);
    store_relaxed(&shared->inside, 1);
    segment_unlock(&segment);
    assert_int_equal(segment_open(&next, name), 0);
    segment_unlock(&next);
    expect_end(child);
    segment_close(&next);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_no_more_is_mapped_than_the_parts_take_and_nothing_is_left(void **state)
{
    (void) state;
    struct segment segment;
    struct segment second;
    bool first = true;
    const size_t before = count_mapped_pages();
    assert_int_equal(segment_open(&segment, name), 0);
    segment.fresh = true;
    assert_int_equal(ftruncate(segment.fd, (off_t) SIZE), 0);
    assert_int_equal(segment_map(&segment, 21, 5 * PAGE - 7, &first), 0);
    assert_true(first && segment.id == 21 && segment.taken == 0);
    assert_int_equal(segment.size, 5 * PAGE);
    assert_int_equal(count_mapped_pages(), before + 5);
    /* A part takes whole pages, and the last one ends where the mapping does. */
    assert_null(segment_take(&segment, 5 * PAGE + 1, false));
    assert_ptr_equal(segment_take(&segment, 2 * PAGE + 1, false), segment.at);
    assert_null(segment_take(&segment, 2 * PAGE + 1, false));
    assert_null(segment_take(&segment, 1, true)); /* the next huge page is not there */
    assert_ptr_equal(segment_take(&segment, PAGE, false), segment.at + 3 * PAGE);
    assert_int_equal(segment.taken, 4 * PAGE);
    assert_int_equal(segment_end(&segment), 0);
    assert_int_equal(segment.size, 4 * PAGE);
    assert_int_equal(segment_size(name), 4 * PAGE);
    assert_int_equal(count_mapped_pages(), before + 4);
    /* One more user changes nothing, nor does its end. */
    segment_unlock(&segment);
    assert_int_equal(segment_open(&second, name), 0);
    assert_int_equal(segment_map(&second, 21, 4 * PAGE, &first), 0);
    assert_true(!first && second.id == 21 && second.size == 4 * PAGE);
    segment_close(&second);
    assert_null(second.at);
    assert_int_equal(second.fd, -1);
    assert_int_equal(count_mapped_pages(), before + 4);
    segment_close(&segment);
    segment_close(&segment); /* it is closed */
    assert_int_equal(count_mapped_pages(), before);
    assert_int_equal(weir_unlink(name), 0);
}

/* A process that has closed its standard input gets this descriptor. */
static void test_descriptor_0_is_one_like_any_other(void **state)
{
    (void) state;
    struct segment segment;
    struct stat about;
    const mode_t mask = umask(0377);
    const int kept = take_0_away();
    make(&segment, 23);
    (void) umask(mask);
    assert_int_equal(segment.fd, 0);
    assert_int_equal(fstat(0, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    segment_unlock(&segment);
    struct segment again;
    const int other = dup(0);
    segment_close(&segment);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    assert_int_equal(segment_open(&again, name), 0); /* opens what is there */
    assert_int_equal(again.fd, 0);
    assert_int_equal(fstat(other, &about), 0);
    assert_int_equal(again.inode, about.st_ino);
    segment_unlock(&again);
    segment_close(&again);
    int lock_fd = -1;
    segment = (struct segment){.fd = other};
    assert_int_equal(segment_lock_again(&segment, &lock_fd), 0);
    assert_int_equal(lock_fd, 0);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), -1);
    segment_unlock_again(lock_fd);
    assert_int_equal(flock(other, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    segment_close(&segment);
    assert_int_equal(fcntl(other, F_GETFD), -1);
    give_back_0(kept);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_a_process_has_256_mappings(void **state)
{
    (void) state;
    struct segment segment;
    struct segment more[SEGMENT_MAPPINGS];
    bool first = false;
    make(&segment, 22);
    const size_t before = count_mapped_pages();
    for (size_t i = 0; i < SEGMENT_MAPPINGS; i++) {
        more[i] = (struct segment){.fd = segment.fd};
        const int expected = i < SEGMENT_MAPPINGS - 1 ? 0 : -EMFILE;
        assert_int_equal(segment_map(&more[i], 100 + i, PAGE, &first), expected);
        assert_ptr_equal(segment_mapping(100 + i), more[i].at);
        assert_int_equal(more[i].at != NULL, expected == 0);
    }
    assert_int_equal(count_mapped_pages(), before + SEGMENT_MAPPINGS - 1);
    for (size_t i = 0; i < SEGMENT_MAPPINGS; i++) {
        more[i].fd = -1; /* it is the first one's */
        segment_close(&more[i]);
    }
    assert_int_equal(count_mapped_pages(), before);
    more[0] = (struct segment){.fd = segment.fd};
    assert_int_equal(segment_map(&more[0], 100, PAGE, &first), 0); /* there is room again */
    more[0].fd = -1;
    segment_close(&more[0]);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_a_segment_is_its_owners_alone_and_has_an_id_of_40_bits(void **state)
{
    (void) state;
    struct segment segment;
    struct stat about;
    uint64_t all = 0;
    uint64_t last = 0;
    const mode_t mask = umask(0377);
    assert_int_equal(segment_open(&segment, name), 0);
    (void) umask(mask);
    assert_int_equal(fstat(segment.fd, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_int_equal(segment.inode, about.st_ino);
    assert_true(segment.at == NULL && !segment.fresh && segment.size == 0 && segment.id == 0);
    assert_true((fcntl(segment.fd, F_GETFD) & FD_CLOEXEC) != 0);
    for (int i = 0; i < 64; i++) {
        uint64_t id = 0;
        assert_int_equal(segment_make_id(&id), 0);
        assert_true(id != 0 && id != last && id >> SEGMENT_ID_BITS == 0);
        all |= id;
        last = id;
    }
    assert_int_equal(all, (UINT64_C(1) << SEGMENT_ID_BITS) - 1);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
    assert_int_equal(segment_open(&segment, "/no/name"), -EINVAL);
    assert_int_equal(segment.fd, -1);
    int lock_fd = 0;
    assert_int_equal(segment_lock_again(&segment, &lock_fd), -ENOENT);
    segment_close(&segment);
}

static size_t present_size(const struct segment *segment)
{
    struct stat about;
    assert_int_equal(fstat(segment->fd, &about), 0);
    return (size_t) about.st_blocks * BLOCK;
}

static void test_committed_pages_are_there(void **state)
{
    (void) state;
    struct segment segment;
    make(&segment, 12);
    unsigned char *part = segment_take(&segment, 4 * PAGE, false);
    assert_int_equal(present_size(&segment), 0);
    assert_int_equal(segment_commit(&segment, part + PAGE, PAGE + 1), 0);
    assert_int_equal(present_size(&segment), 2 * PAGE);
    part[PAGE] = 5;
    assert_int_equal(segment_commit(&segment, part, 2 * PAGE), 0);
    assert_int_equal(part[PAGE], 5); /* what is there stays */
    assert_int_equal(present_size(&segment), 3 * PAGE);
    /* Of more than is committed at once nothing is left out. */
    unsigned char *large = segment_take(&segment, 9 * HUGE / 2, false);
    assert_int_equal(segment_commit(&segment, large, 9 * HUGE / 2), 0);
    assert_int_equal(present_size(&segment), 3 * PAGE + 9 * HUGE / 2);
    assert_int_equal(segment_commit(&segment, large, 0), 0);
    /* The host has closed the descriptor, and another file has its number. */
    struct segment other = segment;
    other.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_true(other.fd >= 0);
    assert_int_equal(segment_commit(&other, part, PAGE), -EBADF);
    assert_int_equal(close(other.fd), 0);
    assert_int_equal(segment_commit(&other, part, PAGE), -EBADF);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_an_owner_hands_out_a_segment_or_mappings(void **state)
{
    (void) state;
    struct segment segment;
    struct pages_owner alone = {.use = 0};
    struct pages_owner owner = {.use = PAGES_SHARED, .segment = &segment};
    make(&segment, 13);
    assert_true(pages_are_fresh(&owner) && pages_are_fresh(&alone) && pages_are_fresh(NULL));
    assert_true(pages_come_later(&owner) && !pages_come_later(&alone));
    unsigned char *now = pages_take(&owner, PAGE, PAGES_SPARSE);
    unsigned char *later = pages_take(&owner, PAGE, PAGES_SPARSE | PAGES_LATER);
    assert_int_equal(present_size(&segment), PAGE);
    assert_int_equal(pages_commit(&owner, later, 1), 0);
    assert_int_equal(present_size(&segment), 2 * PAGE);
    assert_null(pages_take(&owner, SIZE, PAGES_LATER));
    assert_int_equal(owner.error, -ENOMEM);
    assert_non_null(pages_take(&owner, PAGE, PAGES_SPARSE)); /* the first error stays */
    assert_int_equal(owner.error, -ENOMEM);
    pages_give(&owner, now, PAGE);
    now[0] = 1; /* it goes with the segment */
    unsigned char *mapped = pages_take(&alone, PAGE, PAGES_LATER);
    mapped[0] = 1;
    assert_int_equal(pages_commit(&alone, mapped, PAGE), 0);
    pages_give(&alone, mapped, PAGE);
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

/* Bytes of the segment that this process reaches without a fault. */
static size_t resident_size(const struct segment *segment)
{
    size_t size = 0;
    for (const unsigned char *at = segment->at; at < segment->at + segment->size;) {
        const struct mapping mapping = mapping_of(at);
        size += mapping.resident;
        at += mapping.end - (uintptr_t) at;
    }
    return size;
}

/* How many bytes from here on are on huge pages, where the kernel has any. */
static size_t huge_size(const unsigned char *at)
{
    const struct mapping mapping = mapping_of(at);
    return mapping.huge ? mapping.end - (uintptr_t) at : 0;
}

static bool madvise_works(int advice)
{
    void *memory = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const bool works = madvise(memory, PAGE, advice) == 0;
    (void) munmap(memory, HUGE);
    return works;
}

/* Parts of one segment, in order: where each begins, and what of it is present then. */
static void test_large_parts_begin_at_huge_pages_and_what_is_fresh_is_present(void **state)
{
    (void) state;
    static const struct {
        bool fresh;
        unsigned use;
        size_t size, at, present, huge;
    } parts[] = {{true, 0, 100, 0, 1, 0},
                 {true, PAGES_SPARSE, 2 * HUGE, 4096, 2 * HUGE, 0},
                 {true, 0, 2 * HUGE - 1, 4096 + 2 * HUGE, 2 * HUGE, 0},
                 {true, 0, 2 * HUGE + 4096, 5 * HUGE, 2 * HUGE + 4096, 2 * HUGE}, /* from 4 MiB on */
                 {true, PAGES_PRESENT, 100, 7 * HUGE + 4096, 1, 0},
                 {true, PAGES_PRESENT, 2 * HUGE, 8 * HUGE, 2 * HUGE, 2 * HUGE},
                 {true, PAGES_LATER, 2 * HUGE, 10 * HUGE, 0, 0},
                 {false, 0, 4096, 12 * HUGE, 0, 0}, /* as the process that made it has left it */
                 {false, PAGES_PRESENT, 4096, 12 * HUGE + 4096, 1, 0}};
#ifdef EMULATED
    const bool populates = false; /* qemu takes MADV_POPULATE_WRITE, and does nothing */
    const bool has_huge = false;
#else
    const bool populates = true;
    const bool has_huge = madvise_works(MADV_HUGEPAGE);
#endif
    /* What is written soon is mapped as well, where the kernel can do that in one call. */
    const bool maps = populates && madvise_works(MADV_POPULATE_WRITE);
    struct segment segment;
    bool first = false;
    assert_int_equal(segment_open(&segment, name), 0);
    assert_int_equal(ftruncate(segment.fd, (off_t) (2 * SIZE)), 0);
    assert_int_equal(segment_map(&segment, 23, 2 * SIZE, &first), 0);
    struct pages_owner owner = {.segment = &segment};
    if (PAGE == 4096) {
        size_t present = 0;
        size_t resident = 0;
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            segment.fresh = parts[i].fresh;
            unsigned char *part = pages_take(&owner, parts[i].size, parts[i].use);
            assert_ptr_equal(part, segment.at + parts[i].at);
            const size_t pages = (parts[i].present + PAGE - 1) / PAGE;
            if ((parts[i].use & PAGES_PRESENT) == 0 || populates) {
                present += pages * PAGE;
                assert_int_equal(present_size(&segment), present);
            }
            resident += maps && (parts[i].use & PAGES_PRESENT) != 0 ? pages * PAGE : 0;
            assert_true(!maps || resident_size(&segment) == resident);
            assert_true(!has_huge || huge_size(part) == parts[i].huge);
        }
        assert_int_equal(owner.error, 0);
        assert_false(pages_are_fresh(&owner));
    }
    segment_close(&segment);
    assert_int_equal(weir_unlink(name), 0);
}

static int follow_handle(void *arg)
{
    const uint64_t *handle = arg;
    struct segment segment;
    bool first = false;
    if (segment_open(&segment, name) != 0 || segment_map(&segment, 14, SIZE, &first) != 0) {
        return 1;
    }
    const uint64_t unit = rate_table_unit(*handle, 3);
    segment_close(&segment);
    /* Without the segment the handle leads nowhere. */
    return unit == 77 && rate_table_unit(*handle, 3) == 0 ? 0 : 2;
}

static void test_a_handle_of_rates_holds_at_any_address(void **state)
{
    (void) state;
    struct segment segment;
    struct rate_table alone = {.units = {0, 5}};
    make(&segment, 14);
    struct rate_table *table = segment_take(&segment, sizeof(*table), false);
    table = segment_take(&segment, sizeof(*table), false); /* not at the beginning */
    table->units[3] = 77;
    uint64_t handle = rate_table_handle(table, 14);
    assert_int_equal(rate_table_unit(handle, 3), 77);
    assert_int_equal(rate_table_unit(handle, 2), 0);
    segment_unlock(&segment);
    /* A forked child would have this process's mapping. */
    const unsigned char *here = segment.at;
    segment_close(&segment);
    expect_end(start_independent(follow_handle, &handle));
    assert_non_null(here);
    assert_int_equal(rate_table_unit(rate_table_handle(&alone, 0), 1), 5);
    assert_int_equal(rate_table_unit(0, 1), 0);
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    segment_name(name, "unit");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_lie_in_order_and_begin_at_pages),
        cmocka_unit_test(test_a_process_has_one_mapping_of_a_segment),
        cmocka_unit_test(test_one_process_at_a_time_opens_a_segment),
        cmocka_unit_test(test_an_opener_whose_segment_loses_its_name_opens_the_one_that_has_it),
        cmocka_unit_test(test_a_forked_child_locks_anew),
        cmocka_unit_test(test_no_more_is_mapped_than_the_parts_take_and_nothing_is_left),
        cmocka_unit_test(test_descriptor_0_is_one_like_any_other),
        cmocka_unit_test(test_a_process_has_256_mappings),
        cmocka_unit_test(test_a_segment_is_its_owners_alone_and_has_an_id_of_40_bits),
        cmocka_unit_test(test_committed_pages_are_there),
        cmocka_unit_test(test_an_owner_hands_out_a_segment_or_mappings),
        cmocka_unit_test(test_large_parts_begin_at_huge_pages_and_what_is_fresh_is_present),
        cmocka_unit_test(test_a_handle_of_rates_holds_at_any_address),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
