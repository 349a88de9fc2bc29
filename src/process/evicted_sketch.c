/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forgotten keys. A trace (rule.h) is two numbers: how many units a key had used at most, and until when that matters.
 *
 * It is an elastic sketch (Yang et al.: Elastic Sketch, SIGCOMM 2018): exact where there is room, a count-min sketch
 * (Cormode and Muthukrishnan: An Improved Data Stream Summary, J. Algorithms 55, 2005) for what there is none for. A
 * hash names a line, of eight words. Seven hold a trace each, with twelve more bits of its hash. When they are full,
 * the one with the least weight gives way:
 *
 * - A key that is back in the table has no need of a trace.
 *
 * - One that was refused, and has half of its limit used or more, is added to the eighth word, the rest, which any hash
 *   of the line is then taken to have used.
 *
 * - Any other is forgiven: there is no trace of it any more.
 *
 * Why not count-min alone. Its cells are shared by all keys there are, and a flood of keys that used one unit each
 * leaves one unit in every cell: whoever comes next begins with one, leaves two, and so on until new keys find nothing
 * left. So it must not be told of those who have done no harm; but who that is can only be said by comparing them, and
 * for that they must be told apart. And cells shared by limits of a second and of a day keep the units of the first as
 * long as the second's.
 *
 * The estimate. A key's trace is an absolute number, not a stream of increments; so what Estan and Varghese (New
 * Directions in Traffic Measurement and Accounting, SIGCOMM 2002) call the conservative update is here to raise a word
 * to the greater of each of its numbers and the trace's. A word that a key's trace went to is from then on at least
 * that trace, until it gives way to the rest or is forgiven. Hence, while a line has forgiven nobody,
 *
 *   E1  sketch_find(h).units    >= the units put last for h, or all of its limit; if those are not over
 *   E2  sketch_find(h).until_ns >= until when they matter
 *
 * and for those that were refused always; but when another key has the same line and print (seven in 4,096), and is
 * back in the table, or was reset.
 *
 * What it over-counts:
 *
 * - Units from 128 on are rounded up, by less than one in 128; times by 2.1 ms. Windows longer than
 *   that lose nothing by it (they know when they end), a bucket begins so much emptier.
 *
 * - A key that is in no word of its line finds another's by its twelve bits: less than seven times in 4,096.
 *
 * - In a line from which a key that was refused had to give way, every new key begins with what that one had used, at
 *   most with all of its limit, until that is over. Of n refused keys n / lines come to a line, so this is the part of
 *   lines with eight or more (Poisson): with as many refused keys as a third of the words 0.6%, a half 5%. A plain
 *   count-min of four rows in the same memory would have every second new key wrong by then.
 *
 * What it forgives, while a line has seven of greater weight: at most the whole limit, of keys that were not refused,
 * and less than half of it of those that were. Each time is counted (weir_stats.evicted_unrecorded_count).
 *
 * Among traces of one weight those that are over soonest give way first: the rest is soon over, too, and a line full of
 * keys of one-second limits keeps those of a day. Traces that are over are free.
 *
 * A word, from the top: weight (2 bits), until when (37: in 2^21 ns, so for nine years from the origin), units (13:
 * three significant digits, as in decode_units), a print of the hash (12). So words compare as what is lost with them.
 *
 * Ordering. All relaxed: a word stands for itself, and changes by compare-and-swap. What insert.c relies on:
 *   [K2] A key's record is put before its cell is vacated, which is a release. A thread that inserts the key again
 * looks for the record after it has looked for the key with acquire, and not found it.
 */
#include "process/evicted_sketch.h"

#include <errno.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "base/pages.h"

#define LINE_WORDS 8
#define REST       (LINE_WORDS - 1)

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

_Static_assert(PRIORITY_AT + 2 == 64, "the weight is on top");

/* Units are kept as a number of eight significant bits and an exponent. */
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
    const uint64_t up = (units + (UINT64_C(1) << shift) - 1) >> shift; /* 128 to 256, and that is the next exponent */
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

static uint64_t word_make(uint64_t print, uint64_t units, uint64_t time, uint64_t weight)
{
    return weight << PRIORITY_AT | time << TIME_AT | units << UNITS_AT | print;
}

/* The conservative update. */
static uint64_t word_join(uint64_t a, uint64_t b)
{
    return word_make(word_fingerprint(a), max_u64(word_units(a), word_units(b)), max_u64(word_time(a), word_time(b)),
                     max_u64(word_priority(a), word_priority(b)));
}

/* What a time is kept as: of something that is over then, `up`. */
static uint64_t time_of(const struct sketch *sketch, uint64_t ns, bool up)
{
    const uint64_t since_ns = saturating_sub(ns, load_relaxed(&sketch->origin_ns));
    const uint64_t time = saturating_add(since_ns, up ? (UINT64_C(1) << TIME_UNIT_BITS) - 1 : 0) >> TIME_UNIT_BITS;
    return min_u64(time, TIME_MASK);
}

static _Atomic uint64_t *line_of(const struct sketch *sketch, uint64_t hash, uint64_t *print)
{
    const uint64_t mixed = hash_mix(hash);
    *print = mixed & FINGERPRINT_MASK;
    return &sketch->words[(size_t) (((wide_uint) mixed * sketch->line_count) >> 64) * LINE_WORDS];
}

int sketch_open(struct sketch *sketch, size_t max_keys, uint64_t origin_ns)
{
    sketch->line_count = max_keys / LINE_WORDS + 1;
    sketch->memory_size = sketch->line_count * LINE_WORDS * sizeof(uint64_t);
    sketch->memory = pages_reserve(sketch->memory_size, true);
    sketch->words = sketch->memory;
    store_relaxed(&sketch->origin_ns, origin_ns);
    return sketch->memory != NULL ? 0 : -ENOMEM;
}

void sketch_close(struct sketch *sketch)
{
    pages_release(sketch->memory, sketch->memory_size);
    sketch->memory = NULL;
}

/* What the words of a line are to one that is put there. */
struct look {
    unsigned same, free, least; /* REST: none */
    uint64_t words[REST];
};

static struct look look_at(_Atomic uint64_t *line, uint64_t print, uint64_t now)
{
    struct look look = {.same = REST, .free = REST, .least = REST};
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < REST; i++) {
        const uint64_t word = load_relaxed(&line[i]);
        look.words[i] = word;
        if (word_time(word) <= now) {
            look.free = i;
        } else if (word_fingerprint(word) == print) {
            look.same = i;
        } else if (word >> FINGERPRINT_BITS < least) {
            least = word >> FINGERPRINT_BITS;
            look.least = i;
        }
    }
    return look;
}

/* One that was refused goes to the rest. False: it is forgiven. */
static bool give_way(_Atomic uint64_t *line, uint64_t word, uint64_t now)
{
    if (word_priority(word) != SKETCH_REFUSED) {
        return word_priority(word) == SKETCH_RETURNED;
    }
    uint64_t rest = load_relaxed(&line[REST]);
    uint64_t next;
    do {
        next = word_time(rest) <= now ? word : word_join(rest, word);
    } while (next != rest && !cas_relaxed(&line[REST], &rest, next));
    return true;
}

bool sketch_record(struct sketch *sketch, uint64_t hash, struct usage usage, enum sketch_priority weight,
                   uint64_t now_ns)
{
    if (usage.units == 0) {
        return true;
    }
    if (load_relaxed(&sketch->used) == 0) {
        store_relaxed(&sketch->used, 1); /* [K2] with the word */
    }
    uint64_t print;
    _Atomic uint64_t *line = line_of(sketch, hash, &print);
    const uint64_t now = time_of(sketch, now_ns, false);
    const uint64_t word = word_make(print, encode_units(usage.units), time_of(sketch, usage.until_ns, true), weight);
    for (;;) {
        struct look look = look_at(line, print, now);
        if (look.same != REST) {
            const uint64_t joined = word_join(look.words[look.same], word);
            if (joined == look.words[look.same] || cas_relaxed(&line[look.same], &look.words[look.same], joined)) {
                return true;
            }
        } else if (look.free != REST) {
            /* Two threads may put one hash into two words; who looks takes both. */
            if (cas_relaxed(&line[look.free], &look.words[look.free], word)) {
                return true;
            }
        } else if (look.words[look.least] >> FINGERPRINT_BITS >= word >> FINGERPRINT_BITS) {
            return give_way(line, word, now); /* of equals the one that was there stays */
        } else {
            /* Before it is gone, so that it is always in one of the two. */
            const bool kept = give_way(line, look.words[look.least], now);
            if (cas_relaxed(&line[look.least], &look.words[look.least], word)) {
                return kept;
            }
        }
    }
}

/* Looks for a hash; `back`: its key is in the table again. */
static struct usage find(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns, bool refunds)
{
    struct usage usage = {0, 0};
    if (load_relaxed(&sketch->used) == 0) { /* [K2] */
        return usage;
    }
    uint64_t print;
    _Atomic uint64_t *line = line_of(sketch, hash, &print);
    const uint64_t now = time_of(sketch, now_ns, false);
    uint64_t time = 0;
    for (unsigned i = 0; i < LINE_WORDS; i++) {
        const uint64_t word = load_relaxed(&line[i]);
        if (word_time(word) <= now || (i != REST && word_fingerprint(word) != print)) {
            continue;
        }
        if (refunds && i != REST) {
            /* Once: where it was just raised, it stays as it is. */
            uint64_t seen = word;
            (void) cas_relaxed(&line[i], &seen, word_make(print, word_units(word), word_time(word), SKETCH_RETURNED));
        }
        const uint64_t units = decode_units(word_units(word));
        /* The rest may be of a limit of other numbers. */
        usage.units = max_u64(usage.units, i != REST ? units : min_u64(units, limit));
        time = max_u64(time, word_time(word));
    }
    usage.until_ns = saturating_add(load_relaxed(&sketch->origin_ns), time << TIME_UNIT_BITS);
    return usage;
}

void sketch_prefetch(const struct sketch *sketch, uint64_t hash)
{
    uint64_t print;
    if (load_relaxed(&sketch->used) != 0) {
        __builtin_prefetch(line_of(sketch, hash, &print), 1);
    }
}

struct usage sketch_find(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns)
{
    return find(sketch, hash, limit, now_ns, false);
}

struct usage sketch_find_returned(struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns)
{
    return find(sketch, hash, limit, now_ns, true);
}

void sketch_erase(struct sketch *sketch, uint64_t hash)
{
    uint64_t print;
    _Atomic uint64_t *line = line_of(sketch, hash, &print);
    for (unsigned i = 0; i < REST && load_relaxed(&sketch->used) != 0; i++) {
        uint64_t word = load_relaxed(&line[i]);
        while (word_fingerprint(word) == print && word != 0 && !cas_relaxed(&line[i], &word, 0)) {
        }
    }
}

void sketch_shift(struct sketch *sketch, int64_t delta_ns)
{
    /* All times move with the one that they are kept from. Relaxed: it stands for itself. */
    (void) add_relaxed(&sketch->origin_ns, (uint64_t) delta_ns);
}
