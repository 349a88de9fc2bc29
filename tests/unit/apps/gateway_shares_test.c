/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which session makes way, against the plainest thing that must give the same answer: a list of all sessions in which
 * everything is counted anew.
 *
 * Guards: apps/gateway/shares.c
 */
#include <string.h>

#include "../apps/gateway/shares.h"
#include "support/support.h"

#define CAPACITY_MOST 256

/* A session as the list has it. */
struct entry {
    bool is_there;
    enum session_use use;
    struct session_holders holders;
    uint64_t seen;
};

static struct {
    struct shares *shares;
    uint32_t capacity;
    struct entry entries[CAPACITY_MOST];
    uint64_t now;
} t;

static void begin_with(uint32_t capacity)
{
    memset(&t, 0, sizeof(t));
    t.capacity = capacity;
    t.shares = shares_open(capacity);
    assert_non_null(t.shares);
}

static void add_used(uint32_t session, uint64_t source, uint64_t network, enum session_use use)
{
    const struct session_holders holders = {source, network};
    shares_add(t.shares, session, &holders, use);
    t.entries[session] = (struct entry){true, use, holders, ++t.now};
}

static void add(uint32_t session, uint64_t source, uint64_t network)
{
    add_used(session, source, network, USE_WAITING);
}

static void remove_one(uint32_t session)
{
    shares_remove(t.shares, session);
    t.entries[session].is_there = false;
}

static void send_one(uint32_t session)
{
    shares_sent(t.shares, session);
    t.entries[session].use = USE_USED;
    t.entries[session].seen = ++t.now;
}

static void answer_one(uint32_t session)
{
    struct entry *entry = &t.entries[session];
    shares_answered(t.shares, session);
    entry->use = entry->use == USE_WAITING ? USE_ANSWERED : entry->use;
    entry->seen = ++t.now;
}

static bool is_of(const struct entry *entry, enum session_use use)
{
    return entry->is_there && entry->use == use;
}

static uint32_t count_of(enum session_use use)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < t.capacity; i++) {
        count += is_of(&t.entries[i], use);
    }
    return count;
}

/* log2 of what a session's source, or an eighth of what its network holds of the same use. */
static unsigned level(const struct entry *entry, bool network)
{
    unsigned held = 0;
    for (uint32_t i = 0; i < t.capacity; i++) {
        const struct entry *other = &t.entries[i];
        held += is_of(other, entry->use) && (network ? other->holders.network == entry->holders.network
                                                     : other->holders.source == entry->holders.source);
    }
    held = network ? held / 8 : held;
    unsigned log2 = 0;
    for (; held > 1; held /= 2) {
        log2++;
    }
    return log2;
}

static uint32_t oldest_of(enum session_use use, const struct entry *like, bool network)
{
    uint32_t oldest = SHARES_NONE;
    for (uint32_t i = 0; i < t.capacity; i++) {
        const struct entry *entry = &t.entries[i];
        const bool alike = like == NULL || (network ? entry->holders.network == like->holders.network
                                                    : entry->holders.source == like->holders.source);
        if (is_of(entry, use) && alike && (oldest == SHARES_NONE || entry->seen < t.entries[oldest].seen)) {
            oldest = i;
        }
    }
    return oldest;
}

static enum session_use use_that_makes_way(void)
{
    if (count_of(USE_ANSWERED) != 0) {
        return USE_ANSWERED;
    }
    return count_of(USE_WAITING) != 0 && count_of(USE_USED) <= t.capacity - t.capacity / 4 ? USE_WAITING : USE_USED;
}

/* Whether the session may make way: the oldest of a holder than which none holds twice as much. */
static void expect_victim(uint32_t victim)
{
    const enum session_use use = use_that_makes_way();
    unsigned top = 0;
    for (uint32_t i = 0; i < t.capacity; i++) {
        for (int network = 0; network < 2 && is_of(&t.entries[i], use); network++) {
            const unsigned held = level(&t.entries[i], network != 0);
            top = held > top ? held : top;
        }
    }
    if (top == 0) {
        assert_int_equal(victim, oldest_of(use, NULL, false));
        return;
    }
    assert_true(victim < t.capacity);
    const struct entry *entry = &t.entries[victim];
    assert_true(is_of(entry, use));
    const bool by_source = level(entry, false) == top && victim == oldest_of(use, entry, false);
    const bool by_network = level(entry, true) == top && victim == oldest_of(use, entry, true);
    assert_true(by_source || by_network);
}

static void expect_all(void)
{
    for (enum session_use use = 0; use < USE_COUNT; use++) {
        assert_int_equal(shares_oldest(t.shares, use), oldest_of(use, NULL, false));
    }
    for (uint32_t i = 0; i < t.capacity; i++) {
        assert_true(!t.entries[i].is_there || shares_use(t.shares, i) == t.entries[i].use);
    }
    expect_victim(shares_victim(t.shares));
}

static uint32_t free_place(void)
{
    for (uint32_t i = 0; i < t.capacity; i++) {
        if (!t.entries[i].is_there) {
            return i;
        }
    }
    return SHARES_NONE;
}

/* Sources of few networks, or each of its own; some of them with nearly all of the sessions. */
static void play(uint64_t *rng)
{
    const uint64_t sources = random_below(rng, 2) == 0 ? draw_between(rng, 1, 20) : 10000;
    const uint64_t per_network = draw_between(rng, 1, 40);
    const uint64_t sent = random_below(rng, 4);
    const uint64_t answered = random_below(rng, 4);
    begin_with((uint32_t) draw_between(rng, 16, CAPACITY_MOST));
    for (int times = 0; times < 1200; times++) {
        const uint32_t any = (uint32_t) random_below(rng, t.capacity);
        const uint64_t what = random_below(rng, 10);
        if (t.entries[any].is_there && what < sent) {
            send_one(any);
        } else if (t.entries[any].is_there && what < sent + answered) {
            answer_one(any);
        } else if (t.entries[any].is_there && what == 9 && random_below(rng, 4) == 0) {
            remove_one(any);
        } else {
            const uint64_t source = random_below(rng, 3) == 0 ? 0 : random_below(rng, sources);
            uint32_t place = free_place();
            if (place == SHARES_NONE) {
                place = shares_victim(t.shares);
                expect_victim(place);
                remove_one(place);
            }
            add_used(place, source, source / per_network, random_below(rng, 8) == 0 ? USE_USED : USE_WAITING);
        }
        if (times % 50 == 0) {
            expect_all();
        }
    }
    shares_close(t.shares);
}

static void test_the_victim_is_that_of_a_plain_list(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < 40; times++) {
        play(&rng);
    }
}

static void test_an_empty_table_has_no_victim(void **state)
{
    (void) state;
    begin_with(16);
    assert_int_equal(shares_victim(t.shares), SHARES_NONE);
    add(3, 1, 1);
    assert_int_equal(shares_victim(t.shares), 3);
    remove_one(3);
    assert_int_equal(shares_victim(t.shares), SHARES_NONE);
    shares_close(t.shares);
    shares_close(NULL);
}

/* Fills what is free with sessions of new sources, `each` of one source, that have come back. */
static void fill(uint32_t each, uint64_t network)
{
    uint32_t count = 0;
    for (uint32_t place = free_place(); place != SHARES_NONE; place = free_place()) {
        add(place, 1000 + count / each, network != 0 ? network : 1000 + count / each);
        send_one(place);
        count++;
    }
}

/* A player who is silent for long beside attackers who come back with each of their sessions. */
static void test_no_number_of_sessions_of_others_ends_that_of_a_player(void **state)
{
    (void) state;
    begin_with(200);
    add(77, 1, 1);
    send_one(77);
    fill(8, 0);
    for (uint64_t n = 0; n < 5000; n++) {
        const uint32_t victim = shares_victim(t.shares);
        assert_int_not_equal(victim, 77);
        remove_one(victim);
        add(victim, 1000 + n % 25, 1000 + n % 25);
        send_one(victim);
    }
    shares_close(t.shares);
}

/* The same from all addresses of one network, each with a session or two. */
static void test_no_number_of_sources_of_a_network_ends_the_session_of_another(void **state)
{
    (void) state;
    begin_with(200);
    add(77, 1, 1);
    send_one(77);
    fill(1, 2);
    for (uint64_t n = 0; n < 5000; n++) {
        const uint32_t victim = shares_victim(t.shares);
        assert_int_not_equal(victim, 77);
        remove_one(victim);
        add(victim, 100000 + n, 2);
        send_one(victim);
    }
    shares_close(t.shares);
}

/* Forged sources, each of which sends once: they end one another's sessions. */
static void test_sessions_of_one_packet_make_way_for_one_another(void **state)
{
    (void) state;
    begin_with(200);
    for (uint32_t i = 0; i < 150; i++) { /* of one source, as players behind one address */
        add(i, 1, 1);
        send_one(i);
    }
    for (uint64_t n = 0; n < 5000; n++) {
        uint32_t place = free_place();
        if (place == SHARES_NONE) {
            place = shares_victim(t.shares);
            assert_true(place >= 150);
            remove_one(place);
        }
        add(place, 1000 + n, 1000 + n);
    }
    shares_close(t.shares);
}

/* Queries that wait for long beside those that are answered at once, and then beside ones that come back. */
static void test_a_session_that_waits_stays_while_others_were_answered_or_fill_their_share(void **state)
{
    (void) state;
    begin_with(200);
    for (uint32_t i = 0; i < 40; i++) {
        add(i, 1, 1);
    }
    fill(1, 0);
    for (uint64_t n = 0; n < 5000; n++) {
        const uint32_t victim = shares_victim(t.shares);
        assert_true(victim >= 40);
        remove_one(victim);
        add(victim, 10000 + n, 10000 + n);
        if (n % 2 == 0) {
            answer_one(victim);
        } else {
            send_one(victim);
        }
    }
    shares_close(t.shares);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_victim_is_that_of_a_plain_list),
        cmocka_unit_test(test_an_empty_table_has_no_victim),
        cmocka_unit_test(test_no_number_of_sessions_of_others_ends_that_of_a_player),
        cmocka_unit_test(test_no_number_of_sources_of_a_network_ends_the_session_of_another),
        cmocka_unit_test(test_sessions_of_one_packet_make_way_for_one_another),
        cmocka_unit_test(test_a_session_that_waits_stays_while_others_were_answered_or_fill_their_share),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_shares", tests, NULL, NULL);
}
