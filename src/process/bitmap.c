/* SPDX-License-Identifier: Apache-2.0 */
/* See bitmap.h. */
#include "process/bitmap.h"

#include "base/atomics.h"
#include "base/numbers.h"

static size_t words_for(size_t bits)
{
    return (bits + 63) / 64;
}

size_t bitmap_size(size_t cell_count)
{
    return words_for(cell_count) + words_for(words_for(cell_count));
}

void bitmap_init(struct bitmap *bitmap, _Atomic uint64_t *memory, size_t cell_count)
{
    bitmap->word_count = words_for(cell_count);
    bitmap->words = memory;
    bitmap->summary = memory + bitmap->word_count;
}

void bitmap_set(struct bitmap *bitmap, uint32_t cell)
{
    const size_t word = cell / 64;
    const uint64_t bit = UINT64_C(1) << (cell % 64);
    /* [T4] The change before it was a full barrier, so this load is not earlier. */
    if ((load_seq_cst(&bitmap->words[word]) & bit) != 0) {
        return;
    }
    (void) or_seq_cst(&bitmap->words[word], bit);
    const uint64_t word_bit = UINT64_C(1) << (word % 64);
    if ((load_seq_cst(&bitmap->summary[word / 64]) & word_bit) == 0) {
        (void) or_seq_cst(&bitmap->summary[word / 64], word_bit);
    }
}

void bitmap_clear(struct bitmap *bitmap, uint32_t cell)
{
    const uint64_t bit = UINT64_C(1) << (cell % 64);
    if ((load_relaxed(&bitmap->words[cell / 64]) & bit) != 0) {
        (void) and_seq_cst(&bitmap->words[cell / 64], ~bit); /* [T4] */
    }
}

size_t bitmap_count(const struct bitmap *bitmap)
{
    size_t count = 0;
    for (size_t i = 0; i * 64 < bitmap->word_count; i++) {
        for (uint64_t some = load_relaxed(&bitmap->summary[i]); some != 0; some &= some - 1) {
            const size_t word = i * 64 + (size_t) __builtin_ctzll(some);
            count += (size_t) __builtin_popcountll(load_relaxed(&bitmap->words[word]));
        }
    }
    return count;
}

/* The bits of a word that lie below `end`. */
static uint64_t below(size_t word, uint32_t end)
{
    const uint64_t bits = saturating_sub(end, (uint64_t) word * 64);
    return bits >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << bits) - 1;
}

uint32_t bitmap_next(struct bitmap *bitmap, uint32_t *cursor, uint32_t end)
{
    size_t word = *cursor / 64;
    uint64_t mask = ~UINT64_C(0) << (*cursor % 64);
    for (; word * 64 < end; word++, mask = ~UINT64_C(0)) {
        if (word % 64 == 0 && load_relaxed(&bitmap->summary[word / 64]) == 0) {
            word += 63;
            continue;
        }
        mask &= below(word, end);
        const uint64_t word_bit = UINT64_C(1) << (word % 64);
        if ((load_relaxed(&bitmap->summary[word / 64]) & word_bit) == 0) {
            continue;
        }
        if (mask == ~UINT64_C(0)) {
            (void) and_seq_cst(&bitmap->summary[word / 64], ~word_bit); /* [T4] */
        }
        const uint64_t all = load_seq_cst(&bitmap->words[word]);
        const uint64_t bits = all & mask;
        if (bits != 0) {
            const unsigned at = (unsigned) __builtin_ctzll(bits);
            (void) and_seq_cst(&bitmap->words[word], ~(UINT64_C(1) << at)); /* [T4] */
            if ((bits & (bits - 1)) != 0) {
                /* Other bits of this word stay: so does its summary bit, for a cursor that ends here. */
                (void) or_seq_cst(&bitmap->summary[word / 64], word_bit);
            }
            *cursor = (uint32_t) (word * 64 + at + 1);
            return (uint32_t) (word * 64 + at);
        }
    }
    *cursor = end;
    return BITMAP_NONE;
}

uint32_t bitmap_ahead(const struct bitmap *bitmap, uint32_t cursor)
{
    uint64_t mask = ~UINT64_C(0) << (cursor % 64);
    const size_t first = cursor / 64;
    for (size_t word = first; word < bitmap->word_count && word <= first + 1; word++, mask = ~UINT64_C(0)) {
        const uint64_t bits = load_relaxed(&bitmap->words[word]) & mask; /* a guess */
        if (bits != 0) {
            return (uint32_t) (word * 64 + (unsigned) __builtin_ctzll(bits));
        }
    }
    return BITMAP_NONE;
}

void bitmap_mend(struct bitmap *bitmap)
{
    for (size_t word = 0; word < bitmap->word_count; word++) {
        const uint64_t word_bit = UINT64_C(1) << (word % 64);
        if (load_relaxed(&bitmap->words[word]) != 0 && (load_relaxed(&bitmap->summary[word / 64]) & word_bit) == 0) {
            (void) or_seq_cst(&bitmap->summary[word / 64], word_bit);
        }
    }
}

void bitmap_salvage(struct bitmap *bitmap, size_t cell_count)
{
    if (cell_count % 64 != 0) {
        (void) and_seq_cst(&bitmap->words[bitmap->word_count - 1],
                           below(bitmap->word_count - 1, (uint32_t) cell_count));
    }
    for (size_t i = 0; i < words_for(bitmap->word_count); i++) {
        store_relaxed(&bitmap->summary[i], 0);
    }
    bitmap_mend(bitmap);
}
