/* SPDX-License-Identifier: Apache-2.0 */
#include "process/sync_state.h"

#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/minifloat.h"
#include "base/pages.h"
#include "process/process.h"

/*
 * Notes there are at least, and where there are fewer cells a note for each; else one for so many cells. What needs one
 * is near its limit, or has not been told of for long: of a million keys by Zipf's law one in a hundred is.
 */
#define NOTES_LEAST   16384
#define NOTES_DIVISOR 64

/* Of so many notes the one that was looked at least lately is taken away; looked for so often. */
#define SAMPLE   8
#define SEARCHES 4

/* A stub's tag stands below its incarnation. */
#define STAY_TAG_MASK WINDOW_TAG_MASK
#define STAY_SHIFT    WINDOW_TAG_BITS

/*
 * A window's word has own units told in their short form above the others'. The bit above says that all had been told,
 * as many as there were: of a window that is over it says how many.
 */
#define SHORT_SHIFT WINDOW_COUNT_BITS
#define SHORT_ALL   (UINT64_C(1) << SHORT_FORM_BITS)

void told_clear(struct told *told)
{
    told->reported = told->reported_back = told->deficit = 0;
    told->own = told->asked = told->others_asked = 0;
    store_relaxed(&told->others, 0);
    store_relaxed(&told->others_back, 0);
    store_relaxed(&told->remembered, 0);
}

void told_copy(struct told *to, const struct told *from)
{
    to->reported = from->reported;
    to->reported_back = from->reported_back;
    to->deficit = from->deficit;
    to->own = from->own;
    to->asked = from->asked;
    to->others_asked = from->others_asked;
    store_relaxed(&to->others, load_relaxed(&from->others));
    store_relaxed(&to->others_back, load_relaxed(&from->others_back));
    store_relaxed(&to->remembered, load_relaxed(&from->remembered));
}

void note_clear_fleet(struct note *note)
{
    note->lesson = (struct lesson){.learned_ns = 0};
    store_relaxed(&note->mirror.others_rate, 0);
    store_relaxed(&note->mirror.others_part, 0);
    store_relaxed(&note->mirror.since_ns, 0);
    store_relaxed(&note->mirror.looked_ns, 0);
    store_relaxed(&note->mirror.seen, 0);
    store_relaxed(&note->mirror.alarm, UINT64_MAX);
    store_relaxed(&note->mirror.part, 0);
    store_relaxed(&note->mirror.dither, 0);
    store_relaxed(&note->mirror.tag, TAG_NONE);
    store_relaxed(&note->mirror.quota_untold, 0);
    store_relaxed(&note->mirror.level, 0);
    store_relaxed(&note->mirror.flags, MIRROR_NO_DEMAND);
    store_relaxed(&note->log_end, 0);
}

/* All but whose it is. */
static void note_copy(struct note *to, const struct note *from)
{
    store_relaxed(&to->mirror.others_rate, load_relaxed(&from->mirror.others_rate));
    store_relaxed(&to->mirror.others_part, load_relaxed(&from->mirror.others_part));
    store_relaxed(&to->mirror.since_ns, load_relaxed(&from->mirror.since_ns));
    store_relaxed(&to->mirror.looked_ns, load_relaxed(&from->mirror.looked_ns));
    store_relaxed(&to->mirror.seen, load_relaxed(&from->mirror.seen));
    store_relaxed(&to->mirror.alarm, load_relaxed(&from->mirror.alarm));
    store_relaxed(&to->mirror.part, load_relaxed(&from->mirror.part));
    store_relaxed(&to->mirror.dither, load_relaxed(&from->mirror.dither));
    store_relaxed(&to->mirror.tag, load_relaxed(&from->mirror.tag));
    store_relaxed(&to->mirror.quota_untold, load_relaxed(&from->mirror.quota_untold));
    store_relaxed(&to->mirror.level, load_relaxed(&from->mirror.level));
    store_relaxed(&to->mirror.flags, load_relaxed(&from->mirror.flags));
    store_relaxed(&to->denied, load_relaxed(&from->denied));
    to->incarnation = from->incarnation;
    told_copy(&to->now, &from->now);
    told_copy(&to->before, &from->before);
    to->lesson = from->lesson;
    store_relaxed(&to->log_end, load_relaxed(&from->log_end));
    to->given = from->given;
    to->round = from->round;
}

enum { PART_STUBS, PART_POOL, PARTS };

static size_t pool_count(size_t cell_count)
{
    const size_t some = max_u64(cell_count / NOTES_DIVISOR, NOTES_LEAST);
    return min_u64(some, cell_count);
}

static size_t part_sizes(size_t cell_count, size_t sizes[PARTS])
{
    sizes[PART_STUBS] = (cell_count * sizeof(struct stub) + 63) / 64 * 64;
    sizes[PART_POOL] = pool_count(cell_count) * sizeof(struct note);
    return sizes[PART_STUBS] + sizes[PART_POOL];
}

size_t notes_size(size_t cell_count)
{
    size_t sizes[PARTS];
    return part_sizes(cell_count, sizes);
}

int notes_open(struct notes *notes, size_t cell_count)
{
    size_t sizes[PARTS];
    notes->memory_size = part_sizes(cell_count, sizes);
    notes->count = (uint32_t) pool_count(cell_count);
    notes->all = notes->count == cell_count;
    notes->asides_size = cell_count * sizeof(*notes->asides);
    notes->tails_size = cell_count * sizeof(*notes->tails);
    notes->memory = pages_reserve(notes->memory_size, true);
    notes->asides = pages_reserve_sparse(notes->asides_size);
    notes->tails = pages_reserve_sparse(notes->tails_size);
    if (notes->memory == NULL || notes->asides == NULL || notes->tails == NULL) {
        return -ENOMEM;
    }
    notes->stubs = notes->memory;
    notes->pool = (struct note *) (void *) ((unsigned char *) notes->memory + sizes[PART_STUBS]);
    for (uint32_t i = 0; i < notes->count; i++) {
        store_relaxed(&notes->pool[i].cell, notes->all ? i : TABLE_NONE);
        store_relaxed(&notes->pool[i].mirror.tag, TAG_NONE);
    }
    return 0;
}

void notes_close(struct notes *notes)
{
    pages_release(notes->memory, notes->memory_size);
    pages_release(notes->asides, notes->asides_size);
    pages_release(notes->tails, notes->tails_size);
    notes->memory = NULL;
    notes->asides = NULL;
    notes->tails = NULL;
}

struct kept_key note_key(const struct process *process, uint32_t cell)
{
    const struct stub *stub = &process->notes.stubs[cell];
    struct kept_key key = {.flags = load_relaxed(&stub->flags) >> STUB_KEY_SHIFT, .length = stub->key_length};
    memcpy(key.bytes, stub->key, STUB_KEY);
    if (key.length > STUB_KEY) {
        memcpy(key.bytes + STUB_KEY, process->notes.tails[cell], KEPT_SIZE - STUB_KEY);
    }
    return key;
}

/* Own units of the window before that the fleet has had, where it has had all there were. */
static uint64_t all_before(const struct process *process, uint32_t cell, const struct told *before)
{
    const struct state state = cell_state(pair_read(&process->table.cells[cell].state));
    const bool its = window_tag(state) == stub_tag(&process->notes.stubs[cell]);
    return its ? saturating_sub(window_previous(state), told_folded(before)) : 0;
}

/* A stub's two words as what was told. */
static void told_read(const struct process *process, uint32_t cell, struct told *now, struct told *before)
{
    const struct stub *stub = &process->notes.stubs[cell];
    const struct owner *owner = &process->table.owners[cell];
    const uint64_t words[2] = {load_relaxed(&stub->now), load_relaxed(&stub->before)};
    struct told *const told[2] = {now, before};
    if (stub_is(stub, STUB_ASIDE)) {
        told_copy(now, &process->notes.asides[cell].now);
        told_copy(before, &process->notes.asides[cell].before);
        return;
    }
    const bool word_each = owner_is(owner, OWNER_BUCKET) || owner_is(owner, OWNER_LOG);
    for (unsigned i = 0; i < 2; i++) {
        told_clear(told[i]);
        const bool remembers = stub_is(stub, i == 0 ? STUB_REMEMBERS_NOW : STUB_REMEMBERS_BEFORE);
        const uint64_t units = word_each ? words[i] : words[i] & WINDOW_COUNT_MASK;
        if (!owner_is(owner, OWNER_BUCKET) || i == 0) {
            store_relaxed(remembers ? &told[i]->remembered : &told[i]->others, units);
        }
        if (!word_each) {
            told[i]->reported = short_form_value(words[i] >> SHORT_SHIFT);
            if (i == 1 && (words[i] >> SHORT_SHIFT & SHORT_ALL) != 0) {
                told[i]->reported = max_u64(told[i]->reported, all_before(process, cell, told[i]));
            }
        } else if (owner_is(owner, OWNER_BUCKET) && i == 0) {
            now->reported = words[1];
        }
        /* What was asked beyond that is forgotten: the fleet keeps the most it was ever told. */
        told[i]->own = told[i]->asked = told[i]->reported;
        told[i]->others_asked = load_relaxed(&told[i]->others);
    }
}

struct folded note_folded(const struct process *process, uint32_t cell)
{
    const struct note *note = note_of(&process->notes, cell);
    struct told room[2];
    if (note == NULL) {
        told_read(process, cell, &room[0], &room[1]);
    }
    const struct told *now = note != NULL ? &note->now : &room[0];
    const struct told *before = note != NULL ? &note->before : &room[1];
    return (struct folded){.tag =
                               note != NULL ? load_relaxed(&note->mirror.tag) : stub_tag(&process->notes.stubs[cell]),
                           .now = saturating_sub(told_folded(now), load_relaxed(&now->others_back)),
                           .before = saturating_sub(told_folded(before), load_relaxed(&before->others_back)),
                           .reported = note == NULL ? now->reported : 0};
}

/*
 * A bucket without a note that is served in part: what its state would be without that, if all it was charged since
 * the fleet was told came one behind the other; else less, which does no harm: of two times the fleet takes the later.
 */
static void know(const struct process *process, uint32_t cell, const struct rule *whole, uint64_t now_ns,
                 struct note *note)
{
    const struct state state = cell_state(pair_read(&process->table.cells[cell].state));
    const uint64_t since = (bucket_total(state) - note->now.reported) & BUCKET_TOTAL_MASK;
    const struct rule rule = mirror_part_rule(whole, load_relaxed(&note->mirror.part), 1);
    note->lesson.known_total = note->now.reported & BUCKET_TOTAL_MASK;
    note->lesson.known_time = saturating_sub(state.a, saturating_mul(since, rule.unit));
    note->lesson.known_back = load_relaxed(&note->given->back[0]);
    note->lesson.known_scale = whole->scale;
    note->lesson.part_ns = now_ns;
}

/* A stub in the form of a note. */
static void expand(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                   struct note *note)
{
    const struct stub *stub = &process->notes.stubs[cell];
    const bool told = stub_is(stub, STUB_TOLD);
    const uint32_t denied = load_relaxed(&stub->note);
    store_relaxed(&note->denied, (denied & STUB_NOTE) == 0 ? denied : 0);
    note->incarnation = load_relaxed(&stub->stay) >> STAY_SHIFT;
    note->given = given_of(process, cell);
    note_clear_fleet(note);
    told_read(process, cell, &note->now, &note->before);
    store_relaxed(&note->mirror.tag, stub_tag(stub));
    note->lesson.again = stub_is(stub, STUB_AGAIN);
    note->lesson.own = note->lesson.own_seen = note->now.reported;
    const bool bucket = rule_is_bucket(rule);
    if (!rule_is_log(rule)) {
        const uint64_t folded = saturating_sub(told_folded(&note->now), load_relaxed(&note->now.others_back));
        store_relaxed(&note->mirror.seen,
                      bucket ? note->now.reported & BUCKET_TOTAL_MASK : folded + note->now.reported);
    }
    store_relaxed(&note->mirror.part, mirror_stub_part(process, rule, told));
    store_relaxed(&note->mirror.quota_untold, !told && rule->calendar != WEIR_CALENDAR_NONE);
    if (told) {
        note->lesson.learned_ns = max_u64(saturating_sub(now_ns, stub_age_ns(stub, now_ns)), 1);
        store_relaxed(&note->mirror.since_ns, 1); /* it is old */
    }
    if (bucket && load_relaxed(&note->mirror.part) != 0 && (told || note->now.reported != 0)) {
        know(process, cell, rule, now_ns, note);
    }
}

/* One window's worth as a word, without what its flag says. False: it does not fit. */
static bool window_word(const struct told *told, uint64_t *word, bool *remembers)
{
    const uint64_t others = load_relaxed(&told->others);
    const uint64_t folded = told_folded(told);
    *remembers = others == 0;
    *word = folded | (short_form(told->reported) | (told->own == told->reported ? SHORT_ALL : 0)) << SHORT_SHIFT;
    return (others == 0 || load_relaxed(&told->remembered) == 0) && folded <= WINDOW_COUNT_MASK &&
           told->reported <= WINDOW_COUNT_MASK;
}

static bool told_is_plain(const struct told *told)
{
    return told->reported_back == 0 && told->deficit == 0 && load_relaxed(&told->others_back) == 0;
}

/* What was told as a stub's two words. False: it has to lie aside. */
static bool told_words(const struct owner *owner, const struct told *now, const struct told *before, uint64_t words[2],
                       bool remembers[2])
{
    const uint64_t others = load_relaxed(&now->others);
    const uint64_t remembered = load_relaxed(&now->remembered);
    if (owner_is(owner, OWNER_LOG)) {
        remembers[0] = remembers[1] = true;
        words[0] = remembered;
        words[1] = load_relaxed(&before->remembered);
        return true;
    }
    if (!told_is_plain(now) || !told_is_plain(before)) {
        return false;
    }
    if (owner_is(owner, OWNER_BUCKET)) {
        remembers[0] = remembered != 0;
        remembers[1] = false;
        words[0] = remembered != 0 ? remembered : others;
        words[1] = now->reported;
        return (remembered == 0 || others == 0) && before->reported <= now->reported;
    }
    return window_word(now, &words[0], &remembers[0]) && window_word(before, &words[1], &remembers[1]);
}

/* A note in the form of a stub, and what lies aside. */
static void put_back(struct process *process, uint32_t cell, const struct note *note)
{
    struct stub *stub = &process->notes.stubs[cell];
    const uint32_t tag = load_relaxed(&note->mirror.tag);
    const uint64_t none[2] = {0, 0};
    uint64_t words[2] = {0, 0};
    bool remembers[2] = {false, false};
    unsigned flags = load_relaxed(&stub->flags) & (3U << STUB_KEY_SHIFT);
    if (!told_words(&process->table.owners[cell], &note->now, &note->before, words, remembers)) {
        struct aside *aside = &process->notes.asides[cell];
        told_copy(&aside->now, &note->now);
        told_copy(&aside->before, &note->before);
        memcpy(words, none, sizeof(words));
        remembers[0] = remembers[1] = false;
        flags |= STUB_ASIDE;
    }
    flags |= load_relaxed(&note->mirror.since_ns) != 0 ? STUB_TOLD : 0;
    flags |= note->lesson.again ? STUB_AGAIN : 0;
    flags |= (remembers[0] ? STUB_REMEMBERS_NOW : 0U) | (remembers[1] ? STUB_REMEMBERS_BEFORE : 0U);
    flags |= tag != TAG_NONE ? STUB_TAGGED : 0;
    /* Relaxed: to whoever does not pin the cell they are guesses. */
    store_relaxed(&stub->now, words[0]);
    store_relaxed(&stub->before, words[1]);
    store_relaxed(&stub->stay, note->incarnation << STAY_SHIFT | (tag != TAG_NONE ? tag & STAY_TAG_MASK : 0));
    store_relaxed(&stub->told_at, (uint16_t) (note->lesson.learned_ns >> TOLD_AT_SHIFT));
    store_relaxed(&stub->flags, (uint8_t) flags);
}

void note_shut(struct process *process, uint32_t cell, const struct note *note)
{
    if (note != note_of(&process->notes, cell)) {
        put_back(process, cell, note);
        note_denied(&process->notes, cell, load_relaxed(&note->denied));
    }
}

void note_denied(const struct notes *notes, uint32_t cell, uint64_t units)
{
    _Atomic uint32_t *word = &notes->stubs[cell].note;
    uint32_t was = load_acquire(word); /* [N4] */
    while ((was & STUB_NOTE) == 0) {
        if (cas_acquire(word, &was, (uint32_t) min_u64(saturating_add(was, units), STUB_NOTE - 1))) {
            return;
        }
    }
    (void) add_relaxed(&notes->pool[was & ~STUB_NOTE].denied, units);
}

/* The note is this cell's from now on. */
static void attach(struct notes *notes, struct note *note, uint32_t cell)
{
    store_relaxed(&note->cell, cell);
    const uint32_t index = (uint32_t) (note - notes->pool);
    (void) add_relaxed(&note->denied, exchange_release(&notes->stubs[cell].note, index | STUB_NOTE)); /* [N4] */
}

/* Takes a cell's note off it; `denied`: units that it has not counted. */
static void detach(struct notes *notes, uint32_t cell, uint64_t denied)
{
    store_relaxed(&notes->stubs[cell].note, (uint32_t) min_u64(denied, STUB_NOTE - 1));
}

void note_begin(struct process *process, uint32_t cell, const struct policy *policy, const weir_key *key)
{
    struct notes *notes = &process->notes;
    struct stub *stub = &notes->stubs[cell];
    struct kept_key kept;
    key_keep(&kept, policy, key);
    memcpy(stub->key, kept.bytes, min_u64(kept.length, STUB_KEY));
    if (kept.length > STUB_KEY) {
        memcpy(notes->tails[cell], kept.bytes + STUB_KEY, kept.length - (size_t) STUB_KEY);
    }
    stub->key_length = kept.length;
    detach(notes, cell, 0);
    /* Relaxed: any other number will do. */
    store_relaxed(&stub->stay, (add_relaxed(&notes->incarnations, 1) + 1) << STAY_SHIFT);
    store_relaxed(&stub->now, 0);
    store_relaxed(&stub->before, 0);
    store_relaxed(&stub->told_at, 0);
    store_relaxed(&stub->flags, (uint8_t) (kept.flags << STUB_KEY_SHIFT));
}

void note_remember(struct process *process, uint32_t cell, const struct rule *rule, struct state state)
{
    struct stub *stub = &process->notes.stubs[cell];
    unsigned flags = load_relaxed(&stub->flags) | STUB_REMEMBERS_NOW;
    if (rule_is_bucket(rule)) {
        store_relaxed(&stub->now, state.a);
    } else if (rule_is_log(rule)) {
        flags |= STUB_REMEMBERS_BEFORE;
        store_relaxed(&stub->now, log_state_count(state));
        store_relaxed(&stub->before, state.a);
    } else {
        flags |= STUB_REMEMBERS_BEFORE | STUB_TAGGED;
        store_relaxed(&stub->now, window_count(state));
        store_relaxed(&stub->before, window_previous(state));
        store_relaxed(&stub->stay, load_relaxed(&stub->stay) | window_tag(state));
    }
    store_relaxed(&stub->flags, (uint8_t) flags);
}

void note_settle(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns)
{
    struct notes *notes = &process->notes;
    if (notes->all) {
        struct note *note = &notes->pool[cell];
        expand(process, cell, rule, now_ns, note);
        note->round = 0;
        attach(notes, note, cell);
    }
}

void note_leave(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns, struct note *out)
{
    struct notes *notes = &process->notes;
    struct note *note = note_of(notes, cell);
    if (out != NULL && note != NULL) {
        note_copy(out, note);
    } else if (out != NULL) {
        expand(process, cell, rule, now_ns, out);
    }
    if (note != NULL) {
        detach(notes, cell, 0);
        if (!notes->all) {
            store_release(&note->cell, TABLE_NONE); /* [N5] */
        }
    }
}

void note_clear(struct process *process, uint32_t cell)
{
    /* Relaxed: the cell is claimed. */
    if ((load_relaxed(&process->table.owners[cell].marks) & MARK_GIVEN) != 0) {
        struct given *given = &process->notes.asides[cell].given;
        store_relaxed(&given->back[0], 0);
        store_relaxed(&given->back[1], 0);
        store_relaxed(&given->reset, 0);
        store_relaxed(&given->reset_emptied, 0);
    }
}

void note_move(struct process *process, uint32_t from, uint32_t to)
{
    struct notes *notes = &process->notes;
    const struct stub *old = &notes->stubs[from];
    struct stub *new = &notes->stubs[to];
    struct note *note = note_of(notes, from);
    store_relaxed(&new->told_at, load_relaxed(&old->told_at));
    store_relaxed(&new->flags, load_relaxed(&old->flags));
    new->key_length = old->key_length;
    store_relaxed(&new->stay, load_relaxed(&old->stay));
    store_relaxed(&new->now, load_relaxed(&old->now));
    store_relaxed(&new->before, load_relaxed(&old->before));
    memcpy(new->key, old->key, STUB_KEY);
    if (old->key_length > STUB_KEY) {
        memcpy(notes->tails[to], notes->tails[from], sizeof(notes->tails[to]));
    }
    if ((load_relaxed(&process->table.owners[from].marks) & MARK_GIVEN) != 0) {
        const struct given *was = &notes->asides[from].given;
        struct given *is = &notes->asides[to].given;
        store_relaxed(&is->back[0], load_relaxed(&was->back[0]));
        store_relaxed(&is->back[1], load_relaxed(&was->back[1]));
        store_relaxed(&is->reset, load_relaxed(&was->reset));
        store_relaxed(&is->reset_emptied, load_relaxed(&was->reset_emptied));
    }
    if (stub_is(old, STUB_ASIDE)) {
        told_copy(&notes->asides[to].now, &notes->asides[from].now);
        told_copy(&notes->asides[to].before, &notes->asides[from].before);
    }
    if (note == NULL) {
        detach(notes, to, load_relaxed(&old->note));
        return;
    }
    detach(notes, from, 0);
    detach(notes, to, 0);
    if (notes->all) {
        note_copy(&notes->pool[to], note);
        note = &notes->pool[to];
    }
    attach(notes, note, to);
}

struct note *note_open(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                       struct note *room)
{
    struct note *note = note_of(&process->notes, cell);
    if (note != NULL) {
        note->given = given_of(process, cell);
        return note;
    }
    expand(process, cell, rule, now_ns, room);
    /* Acquire, for nothing: it has no weaker name. */
    store_relaxed(&room->denied, exchange_acquire(&process->notes.stubs[cell].note, 0));
    return room;
}

bool note_take(struct process *process, uint32_t index)
{
    struct notes *notes = &process->notes;
    struct note *note = &notes->pool[index];
    const uint32_t at = load_acquire(&note->cell); /* [N5] */
    if (at == TABLE_NONE) {
        return true;
    }
    struct cell *cell = &process->table.cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return false;
    }
    /* A reset is told by what the note knows of the bucket, and soon confirmed. */
    const bool busy = load_relaxed(&given_of(process, at)->reset) != 0;
    const bool its =
        !busy && load_relaxed(&notes->stubs[at].note) == (index | STUB_NOTE); /* else it has just moved, or gone (N1) */
    if (its) {
        put_back(process, at, note);
        detach(notes, at, load_relaxed(&note->denied));
        store_relaxed(&note->cell, TABLE_NONE);
    }
    cell_unpin(cell);
    return its;
}

/* Of some notes the one that was looked at least lately, of those that no report of this round is about; `count`: none.
 */
static uint32_t oldest_note(struct notes *notes, uint32_t round)
{
    uint32_t oldest = notes->count;
    uint32_t oldest_age = 0;
    for (unsigned i = 0; i < SAMPLE; i++) {
        const uint32_t index = notes->hand;
        const struct note *note = &notes->pool[index];
        notes->hand = index + 1 < notes->count ? index + 1 : 0;
        const uint32_t age = load_relaxed(&note->cell) == TABLE_NONE ? UINT32_MAX : round - note->round;
        if (age > oldest_age) {
            oldest = index;
            oldest_age = age;
        }
    }
    /* The next search is near. */
    for (uint32_t i = 0; i < SAMPLE; i++) {
        const uint32_t next = notes->hand + i;
        __builtin_prefetch(&notes->pool[next < notes->count ? next : next - notes->count].cell);
    }
    return oldest;
}

struct note *note_give(struct process *process, uint32_t cell, const struct note *room, uint32_t round)
{
    struct notes *notes = &process->notes;
    for (unsigned i = 0; i < SEARCHES; i++) {
        const uint32_t index = oldest_note(notes, round);
        if (index < notes->count && note_take(process, index)) {
            struct note *note = &notes->pool[index];
            note_copy(note, room);
            note->round = round;
            attach(notes, note, cell);
            return note;
        }
    }
    return NULL;
}
