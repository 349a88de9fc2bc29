/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged bytes in the memory of a name that nobody has open. Whoever opens it must neither hang nor crash, and a key
 * that comes then has its limit. Each try is a process of its own, which opens the memory, uses all of weir on it, and
 * closes. The memory was closed in order by the process before, or was left by one that was killed.
 *
 * Guards: src/limiter/weir_salvage.c, src/thread/limiter_salvage.c, src/process/process_salvage.c,
 * src/fleet/fleet_salvage.c, src/limiter/weir_open.c, src/named/named.c, src/thread/joined.c,
 * src/process/robust_mutex.c, src/process/top_denied.c, src/base/memory/segment.c, src/base/pages.c
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fleet/state.h"
#include "limiter/weir_private.h"
#include "named/segment_header.h"
#include "support/independent.h"
#include "support/support.h"
#include "thread/slot_account.h"
#include "thread/slot_word.h"

#define TRIES   (SLOWED ? 100 : 500)
#define THREADS 2
#define FILL    120 /* keys of each policy before the damage: more than the table has room for */
#define FEW     20  /* keys of each policy of which none is evicted: what is left of them is exact */
#define KEYS    16  /* that a try uses */
#define PIECES  4096
#define PARTS   40

/* How long a try may take before it counts as one that hangs. */
#define PATIENCE_NS ((SLOWED ? 300 : 60) * SECOND)

static char name[SEGMENT_NAME_SIZE];

static const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 6, .period_ns = 24 * HOUR};
static const weir_limit sliding = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 50, .period_ns = 60 * SECOND};
static const weir_limit bucket = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = HOUR, .burst = 7};
static const weir_limit queue = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = HOUR, .burst = 8};
static const weir_limit history = {.algorithm = WEIR_SLIDING_LOG, .limit = 40, .period_ns = 24 * HOUR};
static const weir_limit month = {
    .algorithm = WEIR_FIXED_WINDOW, .limit = 9, .calendar = WEIR_CALENDAR_MONTH, .name = "monthly"};
static const weir_limit several[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND},
                                     {.algorithm = WEIR_SLIDING_LOG, .limit = 30, .period_ns = HOUR},
                                     {.algorithm = WEIR_SLIDING_WINDOW, .limit = 200, .period_ns = 24 * HOUR},
                                     {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR}};
static const weir_policy policies[] = {
    {.name = "window", .limits = &window, .limit_count = 1},
    {.name = "sliding", .limits = &sliding, .limit_count = 1, .mode = WEIR_SHADOW},
    {.name = "bucket", .limits = &bucket, .limit_count = 1},
    {.name = "bucket/pro", .limits = &sliding, .limit_count = 1},
    {.name = "queue", .limits = &queue, .limit_count = 1},
    {.name = "history", .limits = &history, .limit_count = 1},
    {.name = "month", .limits = &month, .limit_count = 1},
    {.name = "several", .limits = several, .limit_count = 4},
    {.name = "local", .limits = &window, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static weir_options some_options(bool fleet)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.max_keys = 1000;
    options.max_threads = 3;
    options.max_processes = 3;
    options.max_log_units = 20000;
    options.no_thread = true;
    if (fleet) {
        options.redis_url = "redis://127.0.0.1:1"; /* nobody is there */
        options.redis_timeout_ms = 10;
    }
    return options;
}

/* Use: everything that a program does with a weir. */

static weir_key key_of(const weir *w, size_t policy, uint64_t number)
{
    static _Thread_local char texts[4][40];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 4];
    const int length = snprintf(text, sizeof(texts[0]), "%s%llu",
                                number % 3 == 0 ? "a key of more than 16 bytes " : "k", (unsigned long long) number);
    return weir_make_key(w, weir_find_policy(w, policies[policy].name), text, (size_t) length);
}

static void use_key(weir *w, weir_thread *t, size_t policy, uint64_t number)
{
    weir_verdict verdict;
    uint64_t wait_ns;
    const weir_key key = key_of(w, policy, number);
    for (unsigned i = 0; i < 3; i++) {
        (void) weir_check(t, &key, 1 + i % 2, i % 2 != 0 ? &verdict : NULL);
    }
    switch (number % 8) {
    case 0:
        weir_charge(t, &key, 2);
        break;
    case 1:
        weir_refund(t, &key, 1);
        break;
    case 2:
        (void) weir_peek(t, &key, 1, &verdict);
        break;
    case 3:
        (void) weir_reserve(t, &key, 1, HOUR, &wait_ns);
        break;
    case 4:
        weir_count_denied(t, &key, 1, 1);
        break;
    case 5: {
        const weir_key both[] = {key, key_of(w, (policy + 1) % POLICIES, number)};
        (void) weir_check_all(t, both, NULL, 2, &verdict);
        break;
    }
    default:
        break;
    }
    if (number % 50 == 7) {
        (void) weir_reset(w, &key);
    }
}

static void each_policy(void *arg, const weir_policy_info *info)
{
    *(size_t *) arg += strlen(info->policy->name) + info->policy->limit_count;
}

static void each_override(void *arg, const weir_override *entry)
{
    *(size_t *) arg += strlen(entry->name) + strlen(entry->value);
}

/* All that can be read. */
static void read_all(weir *w)
{
    static char text[1 << 18];
    weir_stats stats;
    weir_offender offenders[WEIR_TOP_OFFENDERS];
    size_t sum = 0;
    weir_get_stats(w, &stats);
    (void) weir_write_metrics(w, text, sizeof(text));
    (void) weir_write_status(w, text, sizeof(text));
    (void) weir_list_policies(w, each_policy, &sum);
    (void) weir_list_overrides(w, each_override, &sum);
    for (size_t i = 0; i < POLICIES; i++) {
        (void) weir_top_offenders(w, weir_find_policy(w, policies[i].name), offenders, WEIR_TOP_OFFENDERS);
    }
}

struct user {
    weir *w;
    uint64_t first, end;
    pthread_t thread;
};

/* Keys that were there before, and new ones; the same ones by each thread. */
static void *use_keys(void *arg)
{
    const struct user *user = arg;
    weir_thread *t = weir_attach(user->w);
    for (uint64_t number = user->first; number < user->end; number++) {
        for (size_t policy = 0; policy < POLICIES; policy++) {
            use_key(user->w, t, policy, number);
        }
        if (number % 64 == 0) {
            (void) weir_poll(user->w);
        }
    }
    weir_detach(t);
    return NULL;
}

static void use_from_threads(weir *w, uint64_t first, uint64_t count)
{
    struct user users[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.w = w, .first = first + i * count / 2, .end = first + i * count / 2 + count};
        if (!SANITIZED) { /* a forked process may start none, under the sanitizers */
            (void) pthread_create(&users[i].thread, NULL, use_keys, &users[i]);
        } else {
            (void) use_keys(&users[i]);
        }
    }
    for (size_t i = 0; i < THREADS && !SANITIZED; i++) {
        (void) pthread_join(users[i].thread, NULL);
    }
}

/* How many units of a key that nobody has asked for the policy "window" lets pass. */
static uint64_t admitted_of_new(weir *w, uint64_t number)
{
    weir_thread *t = weir_attach(w);
    const weir_key key = key_of(w, 0, number);
    uint64_t admitted = 0;
    for (unsigned i = 0; i < 4 * window.limit; i++) {
        admitted += weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return admitted;
}

/* The memory as it is before it is damaged. */

struct piece {
    off_t at;
    size_t size;
    unsigned char *bytes;
};

struct part {
    const char *name;
    off_t at;
    size_t size;
};

struct image {
    bool fleet;
    uint64_t keys;                /* of each policy: FILL or FEW */
    uint64_t left[POLICIES][FEW]; /* of each key, where they are few; see read_left() */
    off_t size;
    size_t piece_count, part_count, data_size;
    struct piece pieces[PIECES];
    struct part parts[PARTS];
};

static void add_part(struct image *image, const weir *w, const char *part, const void *at, size_t size)
{
    image->parts[image->part_count++] =
        (struct part){part, (off_t) ((const unsigned char *) at - w->named.segment.at), size};
}

/* What is small beside the arrays, and is drawn as often as they are. */
static void note_parts(struct image *image, const weir *w)
{
    const struct limiter *limiter = &w->limiter;
    const struct process *process = &limiter->process;
    image->part_count = 0;
    add_part(image, w, "header", w->named.header, sizeof(struct segment_header));
    add_part(image, w, "rates", w->names.rates, 64 + 4 * sizeof(struct limit_rates));
    add_part(image, w, "process", process->shared, sizeof(*process->shared));
    add_part(image, w, "evicted ring", process->evicted_ring, 8192);
    add_part(image, w, "cells", process->table.cells, process->table.cell_count * sizeof(struct cell));
    add_part(image, w, "metas", process->table.metas, process->table.cell_count * sizeof(struct cell_meta));
    add_part(image, w, "guards", process->table.guards, process->table.set_count * sizeof(struct set_guard));
    add_part(image, w, "table", process->table.shared, sizeof(*process->table.shared));
    add_part(image, w, "histories", process->histories.shared, sizeof(*process->histories.shared));
    add_part(image, w, "places", process->histories.places, process->table.cell_count * sizeof(struct history_place));
    add_part(image, w, "blocks", process->histories.blocks.region, 1 << 18);
    add_part(image, w, "block cells", process->histories.metas, 4096);
    add_part(image, w, "block orders", process->histories.blocks.orders, 1024);
    add_part(image, w, "sketch", process->sketch.shared, sizeof(*process->sketch.shared));
    add_part(image, w, "sketch words", process->sketch.words, process->sketch.row_count * 64);
    add_part(image, w, "denied", process->top_denied.shared, sizeof(*process->top_denied.shared));
    add_part(image, w, "denied entries", process->top_denied.entries, process->top_denied.entries_size);
    add_part(image, w, "denied lists", process->top_denied.lists, (POLICIES + 2) * sizeof(struct top_k));
    add_part(image, w, "limiter", limiter->shared, sizeof(*limiter->shared));
    add_part(image, w, "joined", limiter->joined, limiter->max_processes * sizeof(struct joined_process));
    add_part(image, w, "lanes", limiter->lanes, limiter->max_processes * RCU_LANES * sizeof(struct rcu_lane));
    add_part(image, w, "handles", limiter->threads[0].shared, 3 * arena_padded(sizeof(struct thread_shared)));
    for (uint32_t i = 0; i < 2; i++) {
        const struct weir_thread *t = &limiter->threads[i];
        add_part(image, w, "slots", t->slots, t->slot_count * sizeof(struct slot));
        add_part(image, w, "accounts", t->accounts, t->slot_count * sizeof(struct slot_account));
        add_part(image, w, "tallies", t->tallies, 64 * sizeof(struct tally));
    }
    add_part(image, w, "fleet", w->fleet, sizeof(*w->fleet));
    add_part(image, w, "weir", w->shared, sizeof(*w->shared));
    add_part(image, w, "set", process_policies(process), process_policies(process)->size);
    if (policy_set_overrides(process_policies(process)) != NULL) {
        const struct overrides *overrides = policy_set_overrides(process_policies(process));
        add_part(image, w, "overrides", overrides, overrides_size(overrides));
    }
    if (image->fleet) {
        const struct sync_states *syncs = &process->syncs;
        add_part(image, w, "syncs", syncs->shared, sizeof(*syncs->shared));
        add_part(image, w, "compacts", syncs->compacts, process->table.cell_count * sizeof(struct sync_compact));
        add_part(image, w, "pool", syncs->pool, syncs->count * sizeof(struct sync_full));
        add_part(image, w, "batch", w->batch, 1 << 16);
    }
}

static void use_much(weir *w, uint64_t keys)
{
    weir_error error;
    if (weir_set_policies(w, policies, POLICIES, &error) != 0 || weir_set_override(w, "window:k1", "9", &error) != 0 ||
        weir_set_override(w, "history:k2", "deny", &error) != 0) {
        fail_msg("%s", error.message);
    }
    weir_thread *more = weir_attach(w); /* a handle that holds grants to the end */
    use_from_threads(w, 0, keys);
    for (size_t policy = 0; policy < POLICIES; policy++) {
        for (uint64_t number = 0; number < KEYS / 2; number++) {
            use_key(w, more, policy, number);
            use_key(w, more, policy, number);
        }
    }
    for (int i = 0; i < 30; i++) {
        (void) weir_poll(w);
        nap_ms(2); /* denied keys are collected */
    }
    for (uint64_t number = 0; number < KEYS / 2; number++) {
        use_key(w, more, 1, number);
        use_key(w, more, 3, number);
    }
}

/* What is left of the keys that were used, of policies whose units do not come back within the test. */
static void read_left(weir *w, uint64_t left[POLICIES][FEW])
{
    static const size_t lasting[] = {0, 5, 6, 8};
    weir_thread *t = weir_attach(w);
    for (size_t i = 0; i < sizeof(lasting) / sizeof(lasting[0]); i++) {
        for (uint64_t number = 0; number < FEW; number++) {
            weir_verdict verdict;
            const weir_key key = key_of(w, lasting[i], number);
            (void) weir_peek(t, &key, 1, &verdict);
            left[lasting[i]][number] = verdict.remaining;
        }
    }
    weir_detach(t);
}

static struct image *made;

/* Uses much of a new weir, notes where its parts lie, and dies or closes. */
static int make_memory(void *arg)
{
    const bool dies = *(const bool *) arg;
    const weir_options options = some_options(made->fleet);
    weir *w = open_named(name, &options);
    use_much(w, made->keys);
    note_parts(made, w);
    if (dies) {
        (void) raise(SIGKILL);
    }
    weir_stats stats;
    read_left(w, made->left);
    weir_get_stats(w, &stats);
    weir_close(w);
    return (stats.evicted_used_count == 0) == (made->keys == FEW) ? 0 : 1;
}

static void read_pieces(struct image *image)
{
    const int fd = shm_open(name, O_RDONLY, 0);
    assert_true(fd >= 0);
    image->size = lseek(fd, 0, SEEK_END);
    image->piece_count = image->data_size = 0;
    off_t at = lseek(fd, 0, SEEK_DATA);
    while (at >= 0 && at < image->size) {
        const off_t end = lseek(fd, at, SEEK_HOLE);
        assert_true(image->piece_count < PIECES);
        struct piece *piece = &image->pieces[image->piece_count++];
        *piece = (struct piece){at, (size_t) (end - at), malloc((size_t) (end - at))};
        assert_int_equal(pread(fd, piece->bytes, piece->size, at), piece->size);
        image->data_size += piece->size;
        at = lseek(fd, end, SEEK_DATA);
    }
    (void) close(fd);
}

static void make_image(struct image *image, bool fleet, bool dies, uint64_t keys)
{
    int status = 0;
    image->fleet = fleet;
    image->keys = keys;
    made = image;
    const pid_t process = start_independent(make_memory, &dies);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(dies ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0);
    read_pieces(image);
    assert_int_equal(weir_unlink(name), 0);
}

static void free_pieces(const struct image *image)
{
    for (size_t i = 0; i < image->piece_count; i++) {
        free(image->pieces[i].bytes);
    }
}

/* Makes the memory anew, as it was. */
static int put_image(const struct image *image)
{
    (void) weir_unlink(name);
    const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, image->size), 0);
    for (size_t i = 0; i < image->piece_count; i++) {
        assert_int_equal(pwrite(fd, image->pieces[i].bytes, image->pieces[i].size, image->pieces[i].at),
                         image->pieces[i].size);
    }
    return fd;
}

/* Damage: a bit, or a word that becomes an extreme one. */

struct damage {
    off_t at;
    size_t size; /* bytes; 0: one bit */
    uint64_t word;
    const char *part;
};

/* Where: a byte of a part, each part as likely; or any byte that is there; or, seldom, one that is not. */
static off_t draw_place(uint64_t *rng, const struct image *image)
{
    const uint64_t how = random_below(rng, 20);
    if (how < 12) {
        const struct part *part = &image->parts[random_below(rng, image->part_count)];
        return part->at + (off_t) random_below(rng, part->size);
    }
    if (how == 12) {
        return (off_t) random_below(rng, (uint64_t) image->size);
    }
    if (how < 16) { /* a page, each as likely, of a small piece as of a large one */
        const struct piece *piece = &image->pieces[random_below(rng, image->piece_count)];
        return piece->at + (off_t) random_below(rng, piece->size);
    }
    uint64_t left = random_below(rng, image->data_size);
    size_t i = 0;
    while (left >= image->pieces[i].size) {
        left -= image->pieces[i++].size;
    }
    return image->pieces[i].at + (off_t) left;
}

static struct damage draw_damage(uint64_t *rng, const struct image *image)
{
    static const uint64_t extremes[] = {0,
                                        1,
                                        2,
                                        3,
                                        255,
                                        256,
                                        0xffff,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        UINT64_MAX / 2,
                                        UINT64_MAX / 2 + 1,
                                        UINT64_MAX - 1,
                                        UINT64_MAX};
    static const size_t sizes[] = {1, 2, 4, 8};
    struct damage damage = {.at = draw_place(rng, image)};
    if (random_below(rng, 2) == 0) {
        damage.word = UINT64_C(1) << random_below(rng, 8);
    } else {
        damage.size = draw_one_of(rng, sizes);
        damage.at -= damage.at % (off_t) damage.size;
        damage.word = random_below(rng, 4) != 0 ? draw_one_of(rng, extremes) : random_next(rng);
    }
    for (size_t i = 0; i < image->part_count; i++) {
        const struct part *part = &image->parts[i];
        damage.part = damage.at >= part->at && damage.at < part->at + (off_t) part->size ? part->name : damage.part;
    }
    return damage;
}

static void do_damage(int fd, const struct damage *damage)
{
    unsigned char byte = 0;
    if (damage->size != 0) {
        assert_int_equal(pwrite(fd, &damage->word, damage->size, damage->at), damage->size);
        return;
    }
    assert_int_equal(pread(fd, &byte, 1, damage->at), 1);
    byte ^= (unsigned char) damage->word;
    assert_int_equal(pwrite(fd, &byte, 1, damage->at), 1);
}

/* Opens what is damaged. 0: all went as it must. */
static int open_damaged(void *arg)
{
    const struct image *image = arg;
    const weir_options options = some_options(image->fleet);
    weir_error error;
    weir *w = NULL;
    const int result = weir_open(&options, &w, &error);
    if (result != 0) {
        /* The header alone is of a form that can be told to be damaged by itself. */
        return result == -EBADMSG || result == -EPROTO || result == -EINVAL || result == -EXDEV ? 0 : 10;
    }
    read_all(w);
    use_from_threads(w, FILL, KEYS); /* before the policies are set again: those in the memory are in force */
    if (weir_set_policies(w, policies, POLICIES, &error) != 0) {
        (void) fprintf(stderr, "# %s\n", error.message);
        return 11;
    }
    read_all(w);
    use_from_threads(w, 0, KEYS);
    if (weir_set_override(w, "bucket:k3", "2", &error) != 0) {
        (void) fprintf(stderr, "# %s\n", error.message);
        return 12;
    }
    for (unsigned i = 0; i < 5; i++) {
        (void) weir_poll(w);
    }
    const uint64_t admitted = admitted_of_new(w, 1000003);
    (void) weir_sync(w, 1);
    read_all(w);
    weir_close(w);
    if (admitted > window.limit) {
        (void) fprintf(stderr, "# %llu of %llu\n", (unsigned long long) admitted, (unsigned long long) window.limit);
        return 13;
    }
    return weir_open(&options, &w, &error) != 0 ? 14 : (weir_close(w), 0);
}

/* Waits for a process; false: it hangs, and was killed. */
static bool wait_for_end(pid_t process, int *status)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    const struct timespec nap = {.tv_nsec = 100000};
    while (waitpid(process, status, WNOHANG) == 0) {
        if (real_ns() > until_ns) {
            kill_independent(process);
            return false;
        }
        (void) nanosleep(&nap, NULL);
    }
    return true;
}

static void tell(const char *what, const struct damage *damage, size_t count, int number)
{
    print_message("# %s %d:", what, number);
    for (size_t i = 0; i < count; i++) {
        print_message(" 0x%llx in %s %s 0x%llx of %zu bytes;", (unsigned long long) damage[i].at,
                      damage[i].part != NULL ? damage[i].part : "other memory",
                      damage[i].size != 0 ? "becomes" : "flips", (unsigned long long) damage[i].word, damage[i].size);
    }
    print_message("\n");
}

static void try_damages(bool fleet, bool dies, unsigned tries)
{
    uint64_t rng = test_seed();
    unsigned failed = 0;
    struct image *image = mmap(NULL, sizeof(*image), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(image, MAP_FAILED);
    make_image(image, fleet, dies, FILL);
    for (unsigned i = 0; i < tries && failed < 50; i++) {
        struct damage damage[8];
        int status = 0;
        const size_t count = draw_once_in(&rng, 4) ? 1 + random_below(&rng, 8) : 1;
        const int fd = put_image(image);
        for (size_t j = 0; j < count; j++) {
            damage[j] = draw_damage(&rng, image);
            do_damage(fd, &damage[j]);
        }
        (void) close(fd);
        if (!wait_for_end(start_independent(open_damaged, image), &status)) {
            tell("hangs", damage, count, 0);
            failed++;
        } else if (status != 0) {
            tell(WIFSIGNALED(status) ? "dies of signal" : "fails at step", damage, count,
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
            failed++;
        }
        (void) weir_unlink(name);
    }
    free_pieces(image);
    (void) munmap(image, sizeof(*image));
    assert_int_equal(failed, 0);
}

/* Without damage: what the keys have left is what they had left. */
static int open_undamaged(void *arg)
{
    static uint64_t left[POLICIES][FEW];
    const struct image *image = arg;
    const weir_options options = some_options(image->fleet);
    weir *w = NULL;
    if (weir_open(&options, &w, NULL) != 0) {
        return 10;
    }
    read_left(w, left);
    weir_close(w);
    return memcmp(left, image->left, sizeof(left)) == 0 ? 0 : 11;
}

static void test_memory_that_is_not_damaged_is_as_it_was(void **state)
{
    (void) state;
    (void) test_seed(); /* printed once, and not by each process */
    struct image *image = mmap(NULL, sizeof(*image), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(image, MAP_FAILED);
    for (unsigned i = 0; i < test_draws(20); i++) {
        make_image(image, false, false, FEW);
        (void) close(put_image(image));
        expect_end(start_independent(open_undamaged, image));
        assert_int_equal(weir_unlink(name), 0);
        free_pieces(image);
    }
    (void) munmap(image, sizeof(*image));
}

static void test_memory_that_was_closed(void **state)
{
    (void) state;
    try_damages(false, false, test_draws(TRIES));
}

static void test_memory_of_a_process_that_was_killed(void **state)
{
    (void) state;
    try_damages(false, true, test_draws(TRIES));
}

static void test_memory_of_a_node_of_a_fleet_that_was_closed(void **state)
{
    (void) state;
    try_damages(true, false, test_draws(TRIES));
}

static void test_memory_of_a_node_of_a_fleet_that_was_killed(void **state)
{
    (void) state;
    try_damages(true, true, test_draws(TRIES));
}

int main(void)
{
    segment_name(name, "damage");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_that_is_not_damaged_is_as_it_was),
        cmocka_unit_test(test_memory_that_was_closed),
        cmocka_unit_test(test_memory_of_a_process_that_was_killed),
        cmocka_unit_test(test_memory_of_a_node_of_a_fleet_that_was_closed),
        cmocka_unit_test(test_memory_of_a_node_of_a_fleet_that_was_killed),
    };
    const int failed = cmocka_run_group_tests_name("stress/named_damage", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
