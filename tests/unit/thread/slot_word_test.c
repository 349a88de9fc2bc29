/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packed words of a slot: unpacking gives what was packed, and a verdict's first 8 bytes have the fields of the
 * word.
 *
 * Guards: src/thread/slot_word.h
 */
#include "support/support.h"

#include "thread/slot_word.h"

#define ROUNDS 100000

static struct slot_meta random_meta(uint64_t *rng)
{
    return (struct slot_meta){
        .policy_id = (uint32_t) random_below(rng, WEIR_MAX_POLICIES + 1),
        .limit_index = (uint8_t) random_below(rng, WEIR_MAX_LIMITS),
        .shadow = random_below(rng, 2) != 0,
        .set_is_odd = random_below(rng, 2) != 0,
        .plain_denial = random_below(rng, 2) != 0,
        .had_room = random_below(rng, 2) != 0,
        .basis = (uint8_t) random_below(rng, WEIR_BASIS_OUTAGE + 1),
        .denies_from = random_below(rng, 4) == 0 ? META_DENIES_MOST : random_below(rng, META_DENIES_MOST + 1),
    };
}

static void assert_meta_equal(struct slot_meta a, struct slot_meta b)
{
    assert_int_equal(a.policy_id, b.policy_id);
    assert_int_equal(a.limit_index, b.limit_index);
    assert_int_equal(a.shadow, b.shadow);
    assert_int_equal(a.set_is_odd, b.set_is_odd);
    assert_int_equal(a.plain_denial, b.plain_denial);
    assert_int_equal(a.had_room, b.had_room);
    assert_int_equal(a.basis, b.basis);
    assert_int_equal(a.denies_from, b.denies_from);
}

static void test_a_meta_word_unpacks_to_what_was_packed(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        const struct slot_meta meta = random_meta(&rng);
        assert_meta_equal(slot_meta_unpack(slot_meta_pack(meta)), meta);
    }
    assert_int_equal(slot_meta_pack((struct slot_meta){.policy_id = 0}), 0);
}

static void test_each_field_has_bits_of_its_own(void **state)
{
    (void) state;
    const struct slot_meta most[] = {
        {.policy_id = WEIR_MAX_POLICIES},
        {.limit_index = WEIR_MAX_LIMITS - 1},
        {.shadow = true},
        {.set_is_odd = true},
        {.plain_denial = true},
        {.basis = WEIR_BASIS_OUTAGE},
        {.denies_from = META_DENIES_MOST},
    };
    const size_t count = sizeof(most) / sizeof(most[0]);
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = slot_meta_pack(most[i]);
        assert_int_not_equal(word, 0);
        assert_int_equal(word & seen, 0);
        seen |= word;
    }
}

static void test_grants_of_one_set_are_told_from_those_of_the_other(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        const struct slot_meta a = random_meta(&rng);
        const struct slot_meta b = random_meta(&rng);
        assert_int_equal(slot_meta_same_set(slot_meta_pack(a), slot_meta_pack(b)), a.set_is_odd == b.set_is_odd);
    }
}

static void test_the_tally_of_a_meta_word_is_its_policy_s(void **state)
{
    (void) state;
    static struct tally tallies[WEIR_MAX_POLICIES + 1];
    static struct weir_thread t;
    t.tallies = tallies;
    for (uint32_t id = 0; id <= WEIR_MAX_POLICIES; id++) {
        const struct slot_meta meta = {
            .policy_id = id, .limit_index = 3, .plain_denial = true, .denies_from = META_DENIES_MOST};
        assert_ptr_equal(slot_tally(&t, slot_meta_pack(meta)), &tallies[id]);
    }
}

static void test_a_verdict_s_first_8_bytes_are_the_meta_word_s_fields(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static struct slot slot = {.limit = 77};
    for (int i = 0; i < ROUNDS; i++) {
        const struct slot_meta meta = random_meta(&rng);
        const bool allowed = random_below(&rng, 2) != 0;
        const bool would_deny = random_below(&rng, 2) != 0;
        weir_verdict verdict = {.key_index = 5};
        slot_verdict_head(&verdict, &slot, slot_meta_pack(meta), allowed, would_deny);
        assert_int_equal(verdict.allowed, allowed);
        assert_int_equal(verdict.would_deny, would_deny);
        assert_int_equal(verdict.limit_index, meta.limit_index);
        assert_int_equal(verdict.key_index, 0);
        assert_int_equal(verdict.basis, meta.basis);
        assert_int_equal(verdict.limit, 77);
    }
}

static void test_a_grant_word_has_its_epoch_and_the_low_half_of_its_end(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        const uint32_t epoch = (uint32_t) random_next(&rng);
        const uint64_t end = random_next(&rng);
        const uint64_t grant = grant_make(epoch, end);
        assert_int_equal(grant_epoch(grant), epoch);
        assert_int_equal(grant_end(grant), end & UINT32_MAX);
    }
}

static void test_a_grant_covers_what_is_left_of_it_and_no_more(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < ROUNDS; i++) {
        /* Also near the point where the low 32 bits begin anew. */
        const uint64_t used =
            random_below(&rng, 2) != 0 ? random_next(&rng) >> 1 : (random_next(&rng) | UINT32_MAX) >> 1;
        const uint64_t left = random_below(&rng, GRANT_MAX + 1);
        const uint64_t grant = grant_make(1, used + left);
        assert_int_equal(grant_covers(grant, used, left), left != 0); /* a cost of 0 asks for a unit */
        assert_int_equal(grant_covers(grant, used, 0), left != 0);
        assert_false(grant_covers(grant, used, left + 1));
        assert_false(grant_covers(grant, used, UINT64_C(1) << 32));
        assert_false(grant_covers(grant, used, UINT64_MAX));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_meta_word_unpacks_to_what_was_packed),
        cmocka_unit_test(test_each_field_has_bits_of_its_own),
        cmocka_unit_test(test_grants_of_one_set_are_told_from_those_of_the_other),
        cmocka_unit_test(test_the_tally_of_a_meta_word_is_its_policy_s),
        cmocka_unit_test(test_a_verdict_s_first_8_bytes_are_the_meta_word_s_fields),
        cmocka_unit_test(test_a_grant_word_has_its_epoch_and_the_low_half_of_its_end),
        cmocka_unit_test(test_a_grant_covers_what_is_left_of_it_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
