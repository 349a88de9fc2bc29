/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The usage of evicted keys. A usage record (struct usage, rule.h) is two numbers: the most units that a key may have
 * used, and until when they count.
 *
 * It is an elastic sketch (Yang et al.: Elastic Sketch, SIGCOMM 2018): exact while there is room, and a count-min
 * sketch (Cormode and Muthukrishnan: An Improved Data Stream Summary, J. Algorithms 55, 2005) for what has no room. A
 * hash names a row of eight words, a cache line. Seven words hold a record each, with a fingerprint of twelve bits of
 * its hash. When they are full, the record of the least priority gives way:
 *
 * - The record of a key that is back in the table is not needed.
 *
 * - The record of a key that was refused, and has half of its limit used or more, is added to the eighth word, the
 *   overflow. Any hash of the row is then taken to have used as much.
 *
 * - Any other record is dropped, and counted (weir_stats.evicted_unrecorded_count).
 *
 * Why not count-min alone. All keys would share its cells. A flood of keys that use one unit each leaves one unit in
 * every cell. The next keys begin with one unit and leave two, until new keys find nothing left. So keys that did no
 * harm must not be added. But harm shows only by comparing keys, and to be compared they must be told apart. Also,
 * cells shared by limits of a second and of a day would keep the units of the first as long as those of the second.
 *
 * The estimate. A key's usage is an absolute number, not a stream of increments. So a word is raised to the greater of
 * each of its numbers and the record's. (This is the conservative update of Estan and Varghese, New Directions in
 * Traffic Measurement and Accounting, SIGCOMM 2002.) A word that has taken a key's record stays at least that record
 * until it moves to the overflow or is dropped. Hence, while a row has dropped no record,
 *
 *   E1  sketch_find(h).units    >= the units last recorded for h, or all of its limit; if those still count
 *   E2  sketch_find(h).until_ns >= until when they count
 *
 * For refused keys both hold always. The exception: another key of the same row and fingerprint (7 in 4,096) returned
 * to the table, or was reset.
 *
 * What it counts too much:
 *
 * - Units from 128 on are rounded up, by less than one in 128; times by 2.1 ms. Longer windows lose nothing by that, as
 *   they know their own end; a bucket is emptier by so much.
 *
 * - A key without a record finds another key's by the fingerprint: less than seven times in 4,096.
 *
 * - In a row whose overflow is in use, every new key begins with the usage there, at most with all of its limit, until
 *   it no longer counts. Refused keys spread over the rows by Poisson's law; a row of eight or more overflows. With a
 *   third as many refused keys as words these are 0.6% of the rows, with half as many 5%. With a plain count-min of
 *   four rows in the same memory every second new key would be wrong by then.
 *
 * What it drops, while a row has seven records of greater priority: at most the whole limit of keys that were not
 * refused. Of refused keys less than half of the limit.
 *
 * Among records of one priority the record that ends soonest gives way first. So the overflow ends soon too, and a row
 * full of keys of one-second limits keeps those of a day. Records that have ended are free.
 *
 * A word, from the top: priority (2 bits); until when (37 bits, in 2^21 ns: nine years from the origin); units (13
 * bits, three significant digits: decode_units); fingerprint (12 bits). So words compare by what is lost with them.
 *
 * Ordering. All accesses are relaxed: a word stands for itself, and changes by compare-and-swap. evict.c relies on:
 *   [E3] A key's record is put before its cell is vacated, which is a release. A thread that inserts the key again looks
 *        for the record after it has looked for the key with acquire, and not found it.
 */
/* clang-format on */
#include "process/evicted_sketch.h"

#include <errno.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "base/pages.h"

/* 64-bit words of a row: one cache line. */
#define ROW_WORDS     8
#define OVERFLOW_WORD (ROW_WORDS - 1)

/* The fields of a word; see above. */
#define FINGERPRINT_BITS 12
#define UNITS_BITS       13
#define TIME_BITS        37
#define TIME_UNIT_BITS   21
#define FINGERPRINT_MASK ((UINT64_C(1) << FINGERPRINT_BITS) - 1)
#define UNITS_MASK       ((UINT64_C(1) << UNITS_BITS) - 1)
#define TIME_MASK        ((UINT64_C(1) << TIME_BITS) - 1)
#define UNITS_AT         FINGERPRINT_BITS
#define TIME_AT          (UNITS_AT + UNITS_BITS)
#define PRIORITY_AT      (TIME_AT + TIME_BITS)

_Static_assert(PRIORITY_AT + 2 == 64, "the priority is on top");

/* Units are kept as eight significant bits and an exponent. UNITS_MOST: the greatest that UNITS_BITS hold. */
#define MANTISSA_BITS 7
#define UNITS_MOST    (UINT64_C(1) << 50)

static uint64_t encode_units(uint64_t units)
{
    units = min_u64(units, UNITS_MOST);
    if (units >> MANTISSA_BITS == 0) {
        return units;
    }
    uint64_t shift = 0;
    while (units >> shift >> (MANTISSA_BITS + 1) != 0) {
        shift++;
    }
    const uint64_t up = (units + (UINT64_C(1) << shift) - 1) >> shift; /* 128 to 256; 256 is the next exponent */
    return ((shift + 1) << MANTISSA_BITS) + (up - (UINT64_C(1) << MANTISSA_BITS));
}

static uint64_t decode_units(uint64_t code)
{
    const uint64_t exponent = code >> MANTISSA_BITS;
    const uint64_t mantissa = code & ((UINT64_C(1) << MANTISSA_BITS) - 1);
    return exponent == 0 ? mantissa : (mantissa + (UINT64_C(1) << MANTISSA_BITS)) << (exponent - 1);
}

static uint64_t word_fingerprint(uint64_t word)
{
    return word & FINGERPRINT_MASK;
}

static uint64_t word_units(uint64_t word)
{
    return word >> UNITS_AT & UNITS_MASK;
}

static uint64_t word_time(uint64_t word)
{
    return word >> TIME_AT & TIME_MASK;
}

static uint64_t word_priority(uint64_t word)
{
    return word >> PRIORITY_AT;
}

static uint64_t word_make(uint64_t fingerprint, uint64_t units, uint64_t time, uint64_t priority)
{
    return priority << PRIORITY_AT | time << TIME_AT | units << UNITS_AT | fingerprint;
}

/* The conservative update. */
static uint64_t word_join(uint64_t a, uint64_t b)
{
    return word_make(word_fingerprint(a), max_u64(word_units(a), word_units(b)), max_u64(word_time(a), word_time(b)),
                     max_u64(word_priority(a), word_priority(b)));
}

/* A time in a word's unit, rounded up or down. */
static uint64_t time_of(const struct sketch *sketch, uint64_t ns, bool up)
{
    const uint64_t since_ns = saturating_sub(ns, load_relaxed(&sketch->shared->origin_ns));
    const uint64_t time = saturating_add(since_ns, up ? (UINT64_C(1) << TIME_UNIT_BITS) - 1 : 0) >> TIME_UNIT_BITS;
    return min_u64(time, TIME_MASK);
}

static _Atomic uint64_t *row_of(const struct sketch *sketch, uint64_t hash, uint64_t *fingerprint)
{
    const uint64_t mixed = hash_mix(hash);
    *fingerprint = mixed & FINGERPRINT_MASK;
    return &sketch->words[(size_t) (((wide_uint) mixed * sketch->row_count) >> 64) * ROW_WORDS];
}

int sketch_open(struct sketch *sketch, size_t max_keys, uint64_t origin_ns, struct pages_owner *pages)
{
    sketch->row_count = max_keys / ROW_WORDS + 1;
    const size_t words_size = sketch->row_count * ROW_WORDS * sizeof(uint64_t);
    sketch->memory_size = arena_padded(words_size) + arena_padded(sizeof(struct sketch_shared));
    sketch->memory = pages_take(pages, sketch->memory_size, PAGES_PRESENT);
    if (sketch->memory == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = sketch->memory;
    sketch->words = arena_carve(&next, words_size);
    sketch->shared = arena_carve(&next, sizeof(struct sketch_shared));
    if (pages_are_fresh(pages)) {
        store_relaxed(&sketch->shared->origin_ns, origin_ns);
    }
    return 0;
}

void sketch_close(struct sketch *sketch, const struct pages_owner *pages)
{
    pages_give(pages, sketch->memory, sketch->memory_size);
}

/* How the words of a row stand to a new record. */
struct row_state {
    unsigned same, free,
        least; /* indices: of its fingerprint, of no record, of the least priority; OVERFLOW_WORD: none */
    uint64_t words[OVERFLOW_WORD];
};

static struct row_state inspect_row(_Atomic uint64_t *row, uint64_t fingerprint, uint64_t now)
{
    struct row_state state = {.same = OVERFLOW_WORD, .free = OVERFLOW_WORD, .least = OVERFLOW_WORD};
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < OVERFLOW_WORD; i++) {
        const uint64_t word = load_relaxed(&row[i]);
        state.words[i] = word;
        if (word_time(word) <= now) {
            state.free = i;
        } else if (word_fingerprint(word) == fingerprint) {
            state.same = i;
        } else if (word >> FINGERPRINT_BITS < least) {
            least = word >> FINGERPRINT_BITS;
            state.least = i;
        }
    }
    return state;
}

/* Makes room for another record: adds a refused key's to the overflow. False: the record is dropped. */
static bool give_way(_Atomic uint64_t *row, uint64_t word, uint64_t now)
{
    if (word_priority(word) != SKETCH_REFUSED) {
        return word_priority(word) == SKETCH_RETURNED;
    }
    uint64_t overflow = load_relaxed(&row[OVERFLOW_WORD]);
    uint64_t next;
    do {
        next = word_time(overflow) <= now ? word : word_join(overflow, word);
    } while (next != overflow && !cas_relaxed(&row[OVERFLOW_WORD], &overflow, next));
    return true;
}

bool sketch_record(struct sketch *sketch, uint64_t hash, struct usage usage, enum sketch_priority priority,
                   uint64_t now_ns)
{
    if (usage.units == 0) {
        return true;
    }
    if (load_relaxed(&sketch->shared->used) == 0) {
        store_relaxed(&sketch->shared->used, 1); /* [E3] with the word */
    }
    uint64_t fingerprint;
    _Atomic uint64_t *row = row_of(sketch, hash, &fingerprint);
    const uint64_t now = time_of(sketch, now_ns, false);
    const uint64_t word =
        word_make(fingerprint, encode_units(usage.units), time_of(sketch, usage.until_ns, true), priority);
    for (;;) {
        struct row_state state = inspect_row(row, fingerprint, now);
        if (state.same != OVERFLOW_WORD) {
            const uint64_t joined = word_join(state.words[state.same], word);
            if (joined == state.words[state.same] || cas_relaxed(&row[state.same], &state.words[state.same], joined)) {
                return true;
            }
        } else if (state.free != OVERFLOW_WORD) {
            /* Two threads may put one hash into two words; a search takes the greater numbers of both. */
            if (cas_relaxed(&row[state.free], &state.words[state.free], word)) {
                return true;
            }
        } else if (state.words[state.least] >> FINGERPRINT_BITS >= word >> FINGERPRINT_BITS) {
            return give_way(row, word, now); /* of equal records the older one stays */
        } else {
            /* Before the word changes, so that the record is always in one of the two words. */
            const bool kept = give_way(row, state.words[state.least], now);
            if (cas_relaxed(&row[state.least], &state.words[state.least], word)) {
                return kept;
            }
        }
    }
}

/*
 * What is lost with a word, to be compared; `ended`: below this number, without its priority, a word has ended. Of
 * words that have ended the last one to end tells most. Of others the priority counts first. The record of a key that
 * is back gives way to records of evicted keys alone, so its priority, the least one, wraps around to the greatest. The
 * record may be of another key, of the same fingerprint, and first charges are so many that the record would soon be
 * gone.
 */
static inline uint64_t word_value(uint64_t word, uint64_t ended)
{
    const uint64_t value = word & (UINT64_MAX >> (64 - PRIORITY_AT));
    return value < ended ? value : word - ((uint64_t) SKETCH_UNDER_HALF << PRIORITY_AT);
}

_Static_assert(SKETCH_RETURNED == 0 && SKETCH_UNDER_HALF == 1, "the priority of a key that is back wraps around");

/*
 * The word of the least value; OVERFLOW_WORD: the row has a record of the fingerprint, or its overflow is in use. An
 * empty word counts as a record of the fingerprint 0. An index takes the place of the fingerprints, which tell nothing
 * of a value. Writes the words that were read.
 */
static inline unsigned least_unless_known(const _Atomic uint64_t *row, uint64_t fingerprint, uint64_t ended,
                                          uint64_t words[OVERFLOW_WORD])
{
    uint64_t least = UINT64_MAX;
    bool known = (load_relaxed(&row[OVERFLOW_WORD]) & (UINT64_MAX >> (64 - PRIORITY_AT))) >= ended;
    for (unsigned i = 0; i < OVERFLOW_WORD; i++) {
        words[i] = load_relaxed(&row[i]);
        known |= word_fingerprint(words[i]) == fingerprint; /* no branch: mostly false */
        least = min_u64(least, (word_value(words[i], ended) & ~FINGERPRINT_MASK) | i);
    }
    return known ? OVERFLOW_WORD : (unsigned) (least & FINGERPRINT_MASK);
}

enum sketch_first sketch_record_first(struct sketch *sketch, uint64_t hash, struct usage usage,
                                      enum sketch_priority priority, uint64_t now_ns)
{
    if (load_relaxed(&sketch->shared->used) == 0) {
        store_relaxed(&sketch->shared->used, 1); /* [E3] with the word */
    }
    uint64_t fingerprint;
    _Atomic uint64_t *row = row_of(sketch, hash, &fingerprint);
    const uint64_t now = time_of(sketch, now_ns, false);
    const uint64_t word =
        word_make(fingerprint, encode_units(usage.units), time_of(sketch, usage.until_ns, true), priority);
    const uint64_t ended = (now + 1) << TIME_AT;
    for (;;) {
        uint64_t words[OVERFLOW_WORD];
        const unsigned at = least_unless_known(row, fingerprint, ended, words);
        if (at == OVERFLOW_WORD ||
            word_value(words[at], ended) >> FINGERPRINT_BITS > word_value(word, ended) >> FINGERPRINT_BITS) {
            return SKETCH_NOT_RECORDED;
        }
        uint64_t old = words[at];
        if (cas_relaxed(&row[at], &old, word)) {
            return word_time(words[at]) > now ? SKETCH_DROPPED_OTHER : SKETCH_RECORDED;
        }
    }
}

/* Looks for a hash; `returned`: its key is in the table again. */
static struct usage find_usage(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns,
                               bool returned)
{
    struct usage usage = {0, 0};
    if (load_relaxed(&sketch->shared->used) == 0) { /* [E3] */
        return usage;
    }
    uint64_t fingerprint;
    _Atomic uint64_t *row = row_of(sketch, hash, &fingerprint);
    const uint64_t now = time_of(sketch, now_ns, false);
    uint64_t time = 0;
    for (unsigned i = 0; i < ROW_WORDS; i++) {
        const uint64_t word = load_relaxed(&row[i]);
        if (word_time(word) <= now || (i != OVERFLOW_WORD && word_fingerprint(word) != fingerprint)) {
            continue;
        }
        if (returned && i != OVERFLOW_WORD) {
            /* Tried once: a record that was just raised keeps its priority. */
            uint64_t seen = word;
            (void) cas_relaxed(&row[i], &seen,
                               word_make(fingerprint, word_units(word), word_time(word), SKETCH_RETURNED));
        }
        const uint64_t units = decode_units(word_units(word));
        /* The overflow may be of another limit. */
        usage.units = max_u64(usage.units, i != OVERFLOW_WORD ? units : min_u64(units, limit));
        time = max_u64(time, word_time(word));
    }
    usage.until_ns = saturating_add(load_relaxed(&sketch->shared->origin_ns), time << TIME_UNIT_BITS);
    return usage;
}

void sketch_prefetch(const struct sketch *sketch, uint64_t hash)
{
    uint64_t fingerprint;
    if (load_relaxed(&sketch->shared->used) != 0) {
        prefetch_line(row_of(sketch, hash, &fingerprint));
    }
}

struct usage sketch_find(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns)
{
    return find_usage(sketch, hash, limit, now_ns, false);
}

struct usage sketch_find_returned(struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns)
{
    return find_usage(sketch, hash, limit, now_ns, true);
}

void sketch_erase(struct sketch *sketch, uint64_t hash)
{
    uint64_t fingerprint;
    _Atomic uint64_t *row = row_of(sketch, hash, &fingerprint);
    for (unsigned i = 0; i < OVERFLOW_WORD && load_relaxed(&sketch->shared->used) != 0; i++) {
        uint64_t word = load_relaxed(&row[i]);
        while (word_fingerprint(word) == fingerprint && word != 0 && !cas_relaxed(&row[i], &word, 0)) {
        }
    }
}

void sketch_shift(struct sketch *sketch, int64_t delta_ns)
{
    /* All times are kept from the origin. Relaxed: the origin stands for itself. */
    (void) add_relaxed(&sketch->shared->origin_ns, (uint64_t) delta_ns);
}
