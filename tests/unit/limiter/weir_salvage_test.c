/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener that is alone takes from what others have written: policies that can be read are those that can have
 * been set, a time that cannot be right is not gone by, and no lock, lead or handle is a dead process's.
 *
 * Guards: src/limiter/weir_salvage.c, src/thread/limiter_salvage.c, src/limiter/configured_policies.c,
 * src/policy/policy_names.c, src/policy/policy_set.c, src/limiter/set_policies.c, src/limiter/shared_policies.c
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/pages.h"
#include "fleet/state.h"
#include "limiter/configured_policies.h"
#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "policy/validate.h"
#include "support/draw.h"
#include "support/independent.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define WALL_NS (UINT64_C(1760000000) * SECOND)
#define YEAR_NS (366 * 24 * HOUR)
#define MONO_NS (UINT64_C(1000) * SECOND)

static char name[SEGMENT_NAME_SIZE];

static const weir_limit limits[] = {
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND, .name = "a name"},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = HOUR},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 30, .calendar = WEIR_CALENDAR_MONTH},
};
static const weir_policy policies[] = {
    {.name = "a", .limits = limits, .limit_count = 3, .mode = WEIR_SHADOW},
    {.name = "a/tier", .limits = limits, .limit_count = 1, .hash_keys = true},
    {.name = "c", .limits = limits + 1, .limit_count = 2, .scope = WEIR_SCOPE_PROCESS},
};

static void test_policies_that_cannot_have_been_set_are_not_read(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct configured_policies *whole = configured_policies_copy(policies, COUNT_OF(policies));
    size_t size = 0;
    const void *bytes = configured_policies_bytes(whole, &size);
    unsigned refused = 0;
    for (unsigned round = 0; round < test_draws(5000); round++) {
        /* On the heap, to its last byte: a sanitizer sees a read past the end. */
        const size_t cut = round % 5 == 0 ? (size_t) random_below(&rng, size) : size;
        unsigned char *damaged = malloc(cut + 1);
        struct configured_policies *read = NULL;
        assert_non_null(damaged);
        memcpy(damaged, bytes, cut);
        const bool sound = round == 1 || round % 10 == 0; /* no byte of it is damaged; but it may be cut off */
        for (unsigned i = 0; i < 1 + round % 3 && cut != 0 && !sound; i++) {
            damaged[random_below(&rng, cut)] = (unsigned char) random_next(&rng);
        }
        const int result = configured_policies_from_bytes(damaged, cut, &read);
        free(damaged);
        assert_true(result == 0 || result == -EUCLEAN);
        assert_true(cut == size || cut == 0 || !sound || result == -EUCLEAN);
        refused += result != 0;
        const size_t count = configured_policies_count(read);
        weir_policy *list = configured_policies_list(read);
        assert_int_equal(validate_policies(list, count, NULL, NULL), 0);
        assert_true(round != 1 || count == COUNT_OF(policies));
        free(list);
        configured_policies_free(read);
    }
    assert_int_not_equal(refused, 0);
    configured_policies_free(whole);
}

static void test_names_are_those_of_policies_and_their_groups(void **state)
{
    (void) state;
    static struct policy_names names;
    static const struct {
        const char *names[3];
        bool sound;
    } rows[] = {
        {{"a", "a/b", "c"}, true}, {{"a/b", "a", "c"}, true},  {{"a", "a", "c"}, false},     {{"a", "b/c", "d"}, false},
        {{"a", "", "c"}, false},   {{"a", "b c", "d"}, false}, {{"a", "b\x1b", "d"}, false}, {{"/a", "b", "c"}, true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        names.count = 3;
        for (size_t j = 0; j < 3; j++) {
            (void) snprintf(names.names[j + 1], sizeof(names.names[0]), "%s", rows[i].names[j]);
        }
        assert_int_equal(policy_names_are_sound(&names), rows[i].sound);
    }
    names.count = 1;
    memset(names.names[1], 'x', sizeof(names.names[1])); /* without an end */
    assert_false(policy_names_are_sound(&names));
    names.names[1][WEIR_MAX_NAME] = '\0';
    assert_true(policy_names_are_sound(&names));
    names.count = WEIR_MAX_POLICIES + 1;
    assert_false(policy_names_are_sound(&names));
    names.count = 0;
    assert_true(policy_names_are_sound(&names));
}

/* The set in force, which others may write to: a copy leads to no other memory. */
static void test_of_a_damaged_set_there_is_a_copy_that_can_be_followed_or_none(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    const struct policy_set *set = process_policies(&w->limiter.process);
    const size_t room = sizeof(*set) + WEIR_MAX_POLICIES * sizeof(struct policy); /* as a place has */
    struct policy_set *damaged = calloc(1, room);
    unsigned copies = 0;
    assert_non_null(damaged);
    for (unsigned round = 0; round < test_draws(3000); round++) {
        memcpy((void *) damaged, (const void *) set, set->size);
        if (round != 0) {
            const size_t at =
                (size_t) random_below(&rng, round % 2 == 0 ? set->size : offsetof(struct policy_set, policies));
            ((unsigned char *) damaged)[at] = (unsigned char) random_next(&rng);
        }
        struct policy_set *copy;
        assert_int_equal(policy_set_copy(damaged, &copy), 0);
        assert_true(round != 0 || copy != NULL);
        copies += copy != NULL;
        for (size_t id = 0; copy != NULL && id <= WEIR_MAX_POLICIES; id++) {
            const struct policy *policy = policy_set_by_id(copy, (weir_policy_id) id);
            assert_true(policy == NULL || (policy >= copy->policies && policy < copy->policies + copy->count));
        }
        for (size_t i = 0; copy != NULL && i < copy->count; i++) {
            assert_in_range(copy->policies[i].limit_count, 0, WEIR_MAX_LIMITS);
            assert_in_range(copy->policies[i].group, 0, WEIR_MAX_POLICIES);
            assert_in_range(load_relaxed(&copy->policies[i].outage_mode), 0, OUTAGE_MODE_CLOSED);
            assert_in_range(load_relaxed(&copy->policies[i].basis), 0, WEIR_BASIS_OUTAGE);
        }
        assert_true(copy == NULL || policy_set_overrides(copy) == NULL);
        policy_set_free(copy);
    }
    assert_in_range(copies, 1, test_draws(3000));
    free(damaged);
    weir_close(w);
}

static weir_options options_of(struct fake_clock *fake)
{
    weir_options options = WEIR_OPTIONS_INIT;
    fake_clock_init(fake, WALL_NS);
    fake->monotonic_ns = MONO_NS;
    options.clock = &fake->clock;
    options.shared_name = name;
    options.max_keys = 1000;
    options.no_thread = true;
    return options;
}

static weir_verdict peek(weir *w, uint64_t cost)
{
    weir_verdict verdict;
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    (void) weir_peek(t, &key, cost, &verdict);
    weir_detach(t);
    return verdict;
}

/* A named weir with a policy "p", of whose key "k" 7 of 10 units of a day are used. */
static weir *open_used(const weir_options *options)
{
    static const weir_limit daily = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = 24 * HOUR};
    weir *w = open_named(name, options);
    const weir_policy_id id = set_one_policy(w, &daily, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, id, "k", 1);
    assert_true(weir_check(t, &key, 7, NULL));
    weir_detach(t);
    return w;
}

/* Where a part lies in the memory of a weir, so that it can be damaged when nobody has that memory open. */
static off_t place_of(const weir *w, const void *part)
{
    return (const unsigned char *) part - w->named.segment.at;
}

static void write_at(off_t place, const void *bytes, size_t size)
{
    const int fd = shm_open(name, O_RDWR, 0);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, place), size);
    (void) close(fd);
}

static void write_word(off_t place, uint64_t word)
{
    write_at(place, &word, sizeof(word));
}

static void write_half(off_t place, uint32_t word)
{
    write_at(place, &word, sizeof(word));
}

/* A weir is opened again after half a day, and the wall clock was stepped meanwhile. */
#define NOW_NS    (WALL_NS + 12 * HOUR)
#define STEP_NS   (3 * SECOND)
#define WALL_2_NS (NOW_NS + STEP_NS)
#define ORIGIN_NS (WALL_NS - YEAR_NS)
#define ANEW_NS   (WALL_2_NS - YEAR_NS)
#define OFFSET_NS (WALL_NS - MONO_NS)
#define MOST_NS   (UINT64_C(1) << 57)
#define ANY       UINT64_MAX

/* Fleet time goes on, whatever one of the numbers that it follows from has become. */
static void test_a_time_that_cannot_be_right_is_not_gone_by(void **state)
{
    (void) state;
    static const struct {
        uint64_t origin_ns, sketch_ns, offset_ns;    /* as an opener finds them */
        uint64_t now_ns, origin_after, sketch_after; /* what it makes of them */
        uint64_t left;                               /* of the key: 3 units where no time has gone by */
    } rows[] = {
        {ORIGIN_NS, ORIGIN_NS, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        /* One of the origins. */
        {NOW_NS + 1, ORIGIN_NS, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {NOW_NS, ORIGIN_NS, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {NOW_NS - SECOND + 1, ORIGIN_NS, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {NOW_NS - SECOND, ORIGIN_NS, OFFSET_NS, NOW_NS, NOW_NS - SECOND, ORIGIN_NS, ANY},
        {NOW_NS - MOST_NS - 1, ORIGIN_NS, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {NOW_NS - MOST_NS, ORIGIN_NS, OFFSET_NS, NOW_NS, NOW_NS - MOST_NS, ORIGIN_NS, ANY},
        {UINT64_MAX, ORIGIN_NS - 7, OFFSET_NS, NOW_NS, ORIGIN_NS - 7, ORIGIN_NS - 7, 8},
        {ORIGIN_NS, 0, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {ORIGIN_NS, NOW_NS + 1, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {ORIGIN_NS, ORIGIN_NS + 7, OFFSET_NS, NOW_NS, ORIGIN_NS, ORIGIN_NS + 7, 8},
        /* The offset: the wall clock says what time it is. */
        {ORIGIN_NS, ORIGIN_NS, UINT64_C(1) << 60, WALL_2_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {ORIGIN_NS, 1, UINT64_C(1) << 60, WALL_2_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {1, ORIGIN_NS, UINT64_C(1) << 60, WALL_2_NS, ORIGIN_NS, ORIGIN_NS, 8},
        {ORIGIN_NS, ORIGIN_NS, 0, WALL_2_NS, ORIGIN_NS, ORIGIN_NS, 8},
        /* Both origins: all times begin anew. */
        {1, UINT64_MAX, OFFSET_NS, WALL_2_NS, ANEW_NS, ANEW_NS, 3},
        {UINT64_MAX, UINT64_MAX, (UINT64_C(1) << 56) - MONO_NS - 12 * HOUR, WALL_2_NS, ANEW_NS, ANEW_NS, 3},
    };
    static const struct usage usage = {.units = 6, .until_ns = NOW_NS + 24 * HOUR};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fake_clock fake;
        const weir_options options = options_of(&fake);
        weir *w = open_used(&options);
        struct process *process = &w->limiter.process;
        assert_int_equal(process->shared->origin_ns, ORIGIN_NS);
        assert_int_equal(load_relaxed(&w->limiter.shared->line.offset_ns), OFFSET_NS);
        assert_true(sketch_record(&process->sketch, 77, usage, SKETCH_HALF, WALL_NS));
        const struct usage evicted = sketch_find(&process->sketch, 77, 10, NOW_NS);
        assert_in_range(evicted.units, 6, 10);
        const off_t origin = place_of(w, &process->shared->origin_ns);
        const off_t sketch = place_of(w, &process->sketch.shared->origin_ns);
        const off_t offset = place_of(w, &w->limiter.shared->line.offset_ns);
        weir_close(w);
        write_word(origin, rows[i].origin_ns);
        write_word(sketch, rows[i].sketch_ns);
        write_word(offset, rows[i].offset_ns);
        fake_clock_advance(&fake, 12 * HOUR);
        fake.wall_ns += STEP_NS;
        w = open_named(name, &options);
        process = &w->limiter.process;
        const struct tick_line *line = &w->limiter.shared->line;
        assert_int_equal(tick_time(&w->limiter), rows[i].now_ns);
        assert_int_equal(load_relaxed(&line->offset_ns), rows[i].now_ns - fake.monotonic_ns);
        assert_int_equal(load_relaxed(&line->next_ns), fake.monotonic_ns + w->limiter.tick_ns);
        assert_int_equal(process->shared->origin_ns, rows[i].origin_after);
        assert_int_equal(load_relaxed(&process->sketch.shared->origin_ns), rows[i].sketch_after);
        assert_true(rows[i].left == ANY || peek(w, 1).remaining == rows[i].left);
        if (rows[i].sketch_after == ORIGIN_NS && rows[i].now_ns == NOW_NS) {
            const struct usage found = sketch_find(&process->sketch, 77, 10, NOW_NS);
            assert_memory_equal(&found, &evicted, sizeof(found));
        }
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

static void test_the_clock_line_and_the_last_news_are_as_after_an_opening(void **state)
{
    (void) state;
    for (int ahead = 0; ahead < 2; ahead++) {
        struct fake_clock fake;
        const weir_options options = options_of(&fake);
        weir *w = open_used(&options);
        struct tick_line *line = &w->limiter.shared->line;
        const off_t news = place_of(w, &w->limiter.process.shared->news_ns);
        const off_t at = place_of(w, line);
        weir_close(w);
        write_word(at + (off_t) offsetof(struct tick_line, now_ns), UINT64_MAX);
        write_word(at + (off_t) offsetof(struct tick_line, next_ns), UINT64_MAX);
        write_half(at + (off_t) offsetof(struct tick_line, last_epoch), EPOCH_ASLEEP);
        write_half(at + (off_t) offsetof(struct tick_line, epoch), EPOCH_ASLEEP);
        write_word(news, ahead != 0 ? UINT64_MAX : WALL_NS - SECOND);
        w = open_named(name, &options);
        line = &w->limiter.shared->line;
        assert_int_equal(tick_time(&w->limiter), WALL_NS);
        assert_int_equal(load_relaxed(&line->next_ns), MONO_NS + w->limiter.tick_ns);
        assert_int_equal(load_relaxed(&line->epoch), 1);
        assert_int_equal(load_relaxed(&line->last_epoch), 1);
        assert_int_equal(load_relaxed(&w->limiter.process.shared->news_ns), ahead != 0 ? WALL_NS : WALL_NS - SECOND);
        assert_int_equal(peek(w, 1).fleet_age_ns, ahead != 0 ? 0 : SECOND);
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

/* Locks and the lead are dead processes', though the leader has worked at this very moment. */
static void test_no_lock_is_held_and_the_opener_leads_at_its_first_step(void **state)
{
    (void) state;
    struct fake_clock fake;
    const weir_options options = options_of(&fake);
    weir *w = open_used(&options);
    const struct weir_shared *shared = w->shared;
    const off_t policy_lock = place_of(w, &shared->policy_lock);
    const off_t work_lock = place_of(w, &shared->work_lock);
    const off_t half_changed = place_of(w, &shared->half_changed);
    const off_t leader = place_of(w, &shared->leader);
    const off_t worked = place_of(w, &shared->worked_ns);
    weir_close(w);
    write_word(policy_lock, 77);
    write_word(work_lock, 77);
    write_half(half_changed, 1);
    write_half(leader, 2);
    write_word(worked, MONO_NS);
    w = open_named(name, &options);
    assert_int_equal(load_relaxed(&w->shared->policy_lock.word) | load_relaxed(&w->shared->work_lock.word), 0);
    assert_int_equal(load_relaxed(&w->shared->half_changed), 0);
    assert_int_equal(load_relaxed(&w->shared->leader), JOINED_NONE);
    assert_int_equal(load_relaxed(&w->shared->worked_ns), 0);
    assert_false(process_is_halted(&w->limiter.process));
    assert_true(weir_poll(w) >= 0);
    assert_int_equal(load_relaxed(&w->shared->leader), w->limiter.joined_as);
    assert_int_equal(load_relaxed(&w->shared->worked_ns), MONO_NS);
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* More rates than there can be are none. All that are counted are present, so that no write finds a page missing. */
static void test_the_list_of_rates_can_be_added_to(void **state)
{
    (void) state;
    static const struct {
        uint64_t count, after; /* the policies have one bucket */
    } rows[] = {{1, 1}, {RATE_LISTS, RATE_LISTS}, {RATE_LISTS + 1, 1}, {UINT64_MAX, 1}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fake_clock fake;
        const weir_options options = options_of(&fake);
        weir *w = open_used(&options);
        assert_int_equal(w->names.rates->count, 1);
        const off_t count = place_of(w, &w->names.rates->count);
        const off_t segment = place_of(w, &w->names.rates->segment);
        const off_t hash = place_of(w, &w->names.rates->limits[0].limit_hash);
        weir_close(w);
        write_word(count, rows[i].count);
        if (rows[i].count > RATE_LISTS) {
            write_word(hash, 77); /* the list begins anew, whatever is in it */
        }
        write_word(segment, 77);
        w = open_named(name, &options);
        const struct rate_list *rates = w->names.rates;
        assert_int_equal(rates->count, rows[i].after);
        assert_int_equal(rates->segment, w->named.segment.id);
        assert_true(pages_have_data(&w->pages, &rates->limits[rates->count - 1], sizeof(rates->limits[0])));
        assert_int_equal(peek(w, 1).remaining, 3);
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

/* Without a fleet: what is shown of one is what a new weir shows, but for the time when the first process opened. */
static void test_without_a_fleet_there_is_one_node_that_has_heard_nothing(void **state)
{
    (void) state;
    static char status[1 << 16];
    for (int damaged = 0; damaged < 2; damaged++) {
        struct fake_clock fake;
        weir_options options = options_of(&fake);
        options.node_name = "first";
        weir *w = open_used(&options);
        const off_t nodes = place_of(w, &w->limiter.process.shared->nodes);
        const off_t fleet = place_of(w, w->fleet);
        weir_close(w);
        if (damaged != 0) {
            unsigned char bytes[sizeof(struct fleet)];
            memset(bytes, 0xff, sizeof(bytes));
            write_at(fleet, bytes, sizeof(bytes));
            write_half(nodes, 5);
        }
        fake_clock_advance(&fake, HOUR);
        options.node_name = "second";
        w = open_named(name, &options);
        weir_stats stats;
        weir_get_stats(w, &stats);
        assert_int_equal(load_relaxed(&w->limiter.process.shared->nodes), 1);
        assert_int_equal(stats.link, WEIR_LINK_NONE);
        assert_int_equal(stats.live_nodes | stats.sync_count | stats.report_count | stats.connection_count, 0);
        assert_int_equal(stats.process_count, 1);
        assert_int_equal(w->fleet->opened_ns, damaged != 0 ? MONO_NS + HOUR : MONO_NS);
        assert_string_equal(w->fleet->name, "second");
        (void) weir_write_status(w, status, sizeof(status));
        assert_non_null(strstr(status, "\"second\""));
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

/* Of a fleet the node stays who it was, and its times are those of the fleet and of the host, each in its place. */
static void test_a_node_of_a_fleet_goes_on(void **state)
{
    (void) state;
    struct fake_clock fake;
    weir_options options = options_of(&fake);
    options.redis_url = "redis://127.0.0.1:1"; /* nobody is there */
    options.redis_timeout_ms = 10;
    options.node_name = "first";
    weir *w = open_used(&options);
    char node[NODE_ID_SIZE];
    memcpy(node, w->fleet->node, sizeof(node));
    w->fleet->part = 4;
    const off_t gathered = place_of(w, &w->fleet->gather.now_ns);
    const off_t opened = place_of(w, &w->fleet->opened_ns);
    const off_t nodes = place_of(w, &w->limiter.process.shared->nodes);
    weir_close(w);
    write_word(gathered, WALL_NS - 5);
    write_word(opened, UINT64_MAX);
    write_half(nodes, 5);
    fake_clock_advance(&fake, HOUR);
    w = open_named(name, &options);
    assert_string_equal(w->fleet->node, node);
    assert_int_equal(w->fleet->part, 4); /* its counts are there */
    assert_string_equal(w->fleet->name, "first");
    assert_int_equal(w->fleet->gather.now_ns, WALL_NS - 5);
    assert_int_equal(w->fleet->opened_ns, MONO_NS + HOUR);
    assert_int_equal(load_relaxed(&w->limiter.process.shared->nodes), 1);
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* Whether a handle's memory is there is told by the memory, whatever its number says, and where the handles end. */
static void test_handles_are_there_whose_memory_is(void **state)
{
    (void) state;
    enum { WITH_MEMORY = 2, HANDLES = 3 };
    struct fake_clock fake;
    weir_options options = options_of(&fake);
    options.max_threads = HANDLES;
    weir_close(open_named(name, &options));
    weir *w = open_named(name, &options);
    assert_int_equal(load_relaxed(&w->limiter.shared->thread_high), 0);
    weir_close(w);
    w = open_used(&options);
    weir_thread *threads[HANDLES] = {weir_attach(w), weir_attach(w)};
    off_t present[HANDLES];
    for (size_t i = 0; i < HANDLES; i++) {
        present[i] = place_of(w, &w->limiter.threads[i].shared->present);
    }
    const off_t high = place_of(w, &w->limiter.shared->thread_high);
    weir_close(w);
    write_half(high, UINT32_MAX);
    for (uint32_t value = 0; value < 3; value++) {
        for (size_t i = 0; i < HANDLES; i++) {
            write_half(present[i], value);
        }
        w = open_named(name, &options);
        for (size_t i = 0; i < HANDLES; i++) {
            assert_int_equal(load_relaxed(&w->limiter.threads[i].shared->present), i < WITH_MEMORY);
        }
        assert_int_equal(load_relaxed(&w->limiter.shared->thread_high), WITH_MEMORY);
        assert_int_equal(peek(w, 1).remaining, 3);
        weir_close(w);
    }
    w = open_named(name, &options);
    for (size_t i = 0; i < HANDLES; i++) {
        threads[i] = weir_attach(w);
        assert_non_null(threads[i]);
    }
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* The commitment that the system refuses, by where it begins. */
static off_t refused_at;
static int refusal;

int __real_segment_commit(const struct segment *segment, const void *at, size_t size);
int __wrap_segment_commit(const struct segment *segment, const void *at, size_t size);

int __wrap_segment_commit(const struct segment *segment, const void *at, size_t size)
{
    const bool refused = refusal != 0 && (const unsigned char *) at - segment->at == refused_at;
    return refused ? refusal : __real_segment_commit(segment, at, size);
}

/* As another process: alone with what the one that failed has left. */
static int open_alone(void *arg)
{
    weir *w = NULL;
    weir_stats stats;
    if (weir_open(arg, &w, NULL) != 0) {
        return 1;
    }
    weir_get_stats(w, &stats);
    const uint64_t left = peek(w, 1).remaining;
    weir_close(w);
    return stats.process_count != 1 ? 2 : left != 3 ? 3 : 0;
}

/* An opener that the system refuses something says what to do, and has changed nothing for the next one. */
static void test_an_opener_that_fails_says_why_and_leaves_all_to_the_next(void **state)
{
    (void) state;
    struct fake_clock fake;
    weir_options options = options_of(&fake);
    weir *w = open_used(&options);
    const off_t rates = place_of(w, w->names.rates);
    const off_t set = place_of(w, process_policies(&w->limiter.process));
    const off_t slots = place_of(w, w->limiter.threads[0].slots);
    weir_close(w);
    const struct {
        off_t at;
        int result;
        const char *sentence; /* behind the name; without one, the whole */
        bool named;
    } rows[] = {
        {rates, -ENOSPC, ": there is no room in /dev/shm; make that file system larger", true},
        {rates, -EIO, " cannot be repaired: Input/output error", true},
        {set, -ENOSPC, "there is no room in /dev/shm for the policies; make that file system larger", false},
        {slots, -ENOSPC, ": there is no room in /dev/shm; make that file system larger", true},
        {slots, -EIO, " cannot be repaired: Input/output error", true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char sentence[200];
        weir_error error;
        refused_at = rows[i].at;
        refusal = rows[i].result;
        assert_int_equal(weir_open(&options, &w, &error), rows[i].result);
        assert_int_equal(error.code, rows[i].result);
        (void) snprintf(sentence, sizeof(sentence), rows[i].named ? "\"%s\"%s" : "%.0s%s", name, rows[i].sentence);
        assert_string_equal(error.message, sentence);
        refusal = 0;
        expect_end(start_independent(open_alone, &options));
    }
    assert_int_equal(weir_unlink(name), 0);
}

static void nothing_is_listed(void *arg, const weir_policy_info *info)
{
    (void) arg;
    fail_msg("policy \"%s\" is listed", info->policy->name);
}

/* Where what is named as the set in force is none, each call says so, or has nothing to tell. A new set mends that. */
static void test_a_set_in_force_that_is_none_is_not_followed(void **state)
{
    (void) state;
    static const uint64_t distances[] = {0, 1, 8, UINT64_C(1) << 47, UINT64_MAX};
    struct fake_clock fake;
    const weir_options options = options_of(&fake);
    weir *w = open_named(name, &options);
    for (size_t i = 0; i < COUNT_OF(distances); i++) {
        weir_error error;
        weir_offender offender;
        assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
        const weir_policy_id id = weir_find_policy(w, "a");
        _Atomic uint64_t *distance = &w->limiter.process.shared->policies.distance;
        const uint64_t in_force = load_relaxed(distance);
        store_relaxed(distance, i % 2 == 0 ? distances[i] : in_force + distances[i]);
        static const char *const names[] = {"a:k", "*:k", "none:k"};
        for (size_t j = 0; j < COUNT_OF(names); j++) {
            assert_int_equal(weir_set_override(w, names[j], "deny", &error), -EUCLEAN);
            assert_non_null(strstr(error.message, "the policies in shared memory are damaged; end all processes"));
        }
        assert_int_equal(weir_find_policy(w, "a"), WEIR_NO_POLICY);
        assert_int_equal(weir_list_policies(w, nothing_is_listed, NULL), 0);
        assert_int_equal(weir_top_offenders(w, id, &offender, 1), 0);
        assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
        assert_int_equal(weir_set_override(w, "a:k", "deny", NULL), 0);
        assert_int_equal(weir_find_policy(w, "a"), id);
    }
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
    segment_name(name, "salvage");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policies_that_cannot_have_been_set_are_not_read),
        cmocka_unit_test(test_names_are_those_of_policies_and_their_groups),
        cmocka_unit_test(test_of_a_damaged_set_there_is_a_copy_that_can_be_followed_or_none),
        cmocka_unit_test(test_a_set_in_force_that_is_none_is_not_followed),
        cmocka_unit_test(test_a_time_that_cannot_be_right_is_not_gone_by),
        cmocka_unit_test(test_the_clock_line_and_the_last_news_are_as_after_an_opening),
        cmocka_unit_test(test_no_lock_is_held_and_the_opener_leads_at_its_first_step),
        cmocka_unit_test(test_the_list_of_rates_can_be_added_to),
        cmocka_unit_test(test_without_a_fleet_there_is_one_node_that_has_heard_nothing),
        cmocka_unit_test(test_a_node_of_a_fleet_goes_on),
        cmocka_unit_test(test_handles_are_there_whose_memory_is),
        cmocka_unit_test(test_an_opener_that_fails_says_why_and_leaves_all_to_the_next),
    };
    const int failed = cmocka_run_group_tests_name("unit/limiter/weir_salvage", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
