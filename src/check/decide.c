/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Deciding a request in the table.
 *
 * A request has one or more claims, each a key of a policy. A claim has a cell for every limit of its policy. The
 * request reads all its cells, and passes when all have room.
 *
 * With one cell and no grant the cell is charged in one step, by a compare-and-swap that fails if the room is gone.
 * Else the request reserves, verifies, commits and releases (reserved_charge.c).
 *
 * The denial rule. Units that another thread was granted and has not used are no reason to deny. So a request is
 * denied only by a limit that had no room for it, and whose cell's `held` counted no units. `held` must also be the
 * same word before the state was read and after it (the word has a version). Then no grant was live, made or given
 * back in between, and all that is charged has been used. Otherwise what the other threads hold is taken back
 * (settle_key), and the request tries again.
 *
 * The exception. Units cannot be taken back while their thread is between raising `held` and publishing its grant, or
 * while another thread settles its slot. That takes some ten nanoseconds, or one barrier; but the thread may be
 * preempted just there. The request then yields the processor, at last naps, so that the thread runs, and is denied
 * all the same after some 10 ms (settle_wait).
 *
 * A queue (leaky bucket) has room for a request when its turn has come, not for a number of units. So while another
 * request holds units the queue has no room, and the two decide one after the other.
 *
 * Ordering
 *   [P1] A charge reads the state, then held (acquire), then swaps that state. Partner: [P2].
 *   [P2] A reservation raises held (seq_cst), then reads the state and swaps it for one of a new generation (full
 *        barrier). So of a charge and a reservation, either the charge sees the units held, or its swap fails on the
 *        new generation. Partner: [P1].
 *
 * Also [T3] of cell.h, for the denial rule.
 *
 * Progress: with one cell lock-free, but for logs: a retry means that another thread has charged, settled or been
 * granted. With several cells, two requests for the last units can make each other release; they yield the processor
 * and try again.
 */
/* clang-format on */
#include "check/decide.h"

#include <sched.h>

#include "base/numbers.h"
#include "check/claim.h"
#include "check/denial.h"
#include "check/reserved_charge.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"

/* A cell that is lost so often may be locked by a dead process. */
#define TRIES_BEFORE_HALT 4

static bool any_takes_units(const struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        if (claim_takes_units(&r->claims[c])) {
            return true;
        }
    }
    return false;
}

/* The limit of a claim with the least left. */
static size_t tightest(const struct claim *claim)
{
    size_t least = 0;
    for (size_t i = 1; i < claim->policy->limit_count; i++) {
        if (claim->readings[i].left < claim->readings[least].left) {
            least = i;
        }
    }
    return least;
}

/* The denial rule: no live grant can change the answer. */
static bool denial_is_final(const struct request *r, const struct claim *claim)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        const uint64_t held = claim->readings[i].held;
        /* [T3] after the state, which was read with acquire. */
        if (claim->readings[i].left < claim_asked(claim) && (held & HELD_UNITS) == 0 &&
            load_acquire(&claim_cell(r, claim, i)->held) == held) {
            return true;
        }
    }
    return false;
}

/* Fills in a denial: by the limit that will be the last to let the request pass. */
static void write_denial(struct request *r)
{
    struct decision strictest = {.allowed = false};
    for (size_t c = 0; c < r->count; c++) {
        struct decision one;
        if (r->claims[c].status == CLAIM_HAS_ROOM || r->claims[c].optional) {
            continue;
        }
        denial_of_claim(r, &r->claims[c], &one);
        if (one.retry_after_ns > strictest.retry_after_ns) {
            strictest = one;
            strictest.key_index = (uint8_t) c;
        }
    }
    *r->out = strictest;
}

/* Charges all cells or none. */
static enum charge charge_all(struct request *r)
{
    struct claim *first = &r->claims[0];
    const bool one_step = r->count == 1 && first->granted == 0 && first->policy->limit_count == 1;
    return one_step ? claim_charge_cell(r, first, 0) : reserved_charge(r);
}

/* Has the fleet told of the keys: also of those that are only asked for, as other nodes may have used them. */
static void set_dirty(const struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        if (!claim_is_left_out(&r->claims[c])) {
            claim_set_dirty(r, &r->claims[c]);
        }
    }
}

/* Units of a cell that this request was granted: its caller can spend them. */
static uint64_t granted_in(const struct request *r, uint32_t cell)
{
    uint64_t units = 0;
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        for (size_t i = 0; claim->status == CLAIM_HAS_ROOM && i < claim->policy->limit_count; i++) {
            units += claim->cells[i] == cell ? claim->granted : 0;
        }
    }
    return units;
}

/* Fills in what is left: of the limit with the least. */
static void write_allowed(struct request *r)
{
    struct decision *out = r->out;
    *out = (struct decision){.allowed = true, .remaining = UINT64_MAX};
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim_is_left_out(claim)) {
            out->left_out = true;
            continue;
        }
        const size_t least = tightest(claim);
        const uint64_t limit = claim->policy->limits[least].rule.limit;
        const uint64_t left = min_u64(claim->readings[least].left + granted_in(r, claim->cells[least]), limit);
        if (left < out->remaining || out->limit == 0) {
            out->key_index = (uint8_t) c;
            out->limit_index = (uint8_t) least;
            out->limit = limit;
            out->remaining = left;
            out->reset_after_ns = rule_reset_after(&claim->rules[least], claim->readings[least].level, r->now_ns);
        }
    }
    if (out->limit == 0) {
        out->limit = r->claims[0].policy->limits[0].rule.limit; /* all were left out */
        out->remaining = 0;
    }
    out->remaining = min_u64(out->remaining, out->limit);
}

/* Denies by the first claim that is not optional; where all are, they are left out. */
static void write_untracked(struct request *r)
{
    size_t c = 0;
    while (c < r->count && r->claims[c].optional) {
        c++;
    }
    const bool allowed = c == r->count;
    c = allowed ? 0 : c;
    *r->out = (struct decision){.allowed = allowed,
                                .untracked = true,
                                .left_out = allowed,
                                .key_index = (uint8_t) c,
                                .limit = r->claims[c].rules[0].limit,
                                .retry_after_ns = allowed ? 0 : NS_PER_S};
}

bool decide_wait(struct request *r, const struct claim *claim, unsigned *stalled_tries)
{
    /* Settlers that give up leave the grant: it would be taken back again and again. */
    return !process_is_halted(r->t->process) && (settle_key(r->t->limiter, r->t, r->set, claim->policy, claim->key) ||
                                                 settle_wait(r->t->limiter, stalled_tries));
}

/* Counts what earlier claims of a request take from the cells of this one. */
static void count_before(struct request *r, size_t c)
{
    struct claim *claim = &r->claims[c];
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        claim->before[i] = 0;
        for (size_t other = 0; other < c; other++) {
            const struct claim *earlier = &r->claims[other];
            for (size_t j = 0; claim_takes_units(earlier) && j < earlier->policy->limit_count; j++) {
                claim->before[i] += earlier->cells[j] == claim->cells[i] ? earlier->cost : 0;
            }
        }
    }
}

/* What reading all limits comes to. READ_AGAIN: units were given back meanwhile. READ_LOST: as CHARGE_LOST. */
enum read { READ_ROOM, READ_DENIED, READ_AGAIN, READ_LOST };

/* Reads one claim, and sizes its grant. */
static enum read read_claim(struct request *r, size_t c, unsigned *stalled_tries)
{
    struct claim *claim = &r->claims[c];
    count_before(r, c);
    if (!claim_read_limits(r, claim, 0)) {
        return READ_LOST;
    }
    const size_t least = tightest(claim);
    const bool denied = claim->readings[least].left < claim_asked(claim);
    claim->status = denied ? CLAIM_NO_ROOM : CLAIM_HAS_ROOM;
    claim->granted = 0;
    if (denied) {
        const bool final = denial_is_final(r, claim);
        claim->stalled = !final && !decide_wait(r, claim, stalled_tries);
        return final || claim->stalled ? READ_DENIED : READ_AGAIN;
    }
    if (claim->grant_wanted != 0 && claim->policy->grants) {
        const uint64_t left = claim->readings[least].left;
        claim->granted = min_u64(claim->grant_wanted, decide_grant_share(r->t, left - claim->cost));
    }
    return READ_ROOM;
}

static enum read read_claims(struct request *r, unsigned *stalled_tries)
{
    enum read answer = READ_ROOM;
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim->status == CLAIM_NO_MEMORY || claim->status == CLAIM_NO_CELL) {
            continue;
        }
        const enum read one = read_claim(r, c, stalled_tries);
        if (one == READ_LOST || one == READ_AGAIN) {
            return one;
        }
        if (one == READ_DENIED && !claim->optional) {
            answer = READ_DENIED;
        }
    }
    return answer;
}

/* After a conflict with another request: from here on only what is needed is taken. */
static void want_no_grants(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        r->claims[c].grant_wanted = 0;
    }
}

/*
 * Whether a denial is to be read again, at a later time. The time of a thread that was interrupted, or goes by the
 * tick, may be before another thread's last charge of a bucket. Then what has refilled in between is missing, and may
 * be all that is missing. No charge is later than the last tick by more than a tick, so a denial for longer stays.
 */
static bool renew_time(struct request *r)
{
    const struct decision *out = r->out;
    const struct claim *claim = &r->claims[out->key_index];
    const struct limiter *limiter = r->t->limiter;
    /* Relaxed: a hint, which saves a look at the clock. */
    const uint64_t since_ns = saturating_sub(load_relaxed(&r->t->line->now_ns), r->now_ns);
    if (!rule_is_bucket(&claim->rules[out->limit_index]) || out->retry_after_ns > since_ns + limiter->tick_ns) {
        return false;
    }
    const uint64_t now_ns = tick_time(limiter);
    const bool later = now_ns > r->now_ns;
    r->now_ns = later ? now_ns : r->now_ns;
    return later;
}

/* Reads and charges until the request is decided. False: a cell became another key's on the way. */
static bool decide_claims(struct request *r)
{
    const bool several = r->count > 1 || r->claims[0].policy->limit_count > 1;
    unsigned stalled_tries = 0;
    unsigned conflicts = 0;
    bool renewed = false;
    for (;;) {
        const enum read answer = read_claims(r, &stalled_tries);
        if (answer == READ_LOST) {
            return false;
        }
        if (answer == READ_AGAIN) {
            want_no_grants(r);
            continue;
        }
        if (answer == READ_DENIED) {
            write_denial(r);
            if (!renewed && renew_time(r)) {
                renewed = true; /* once: else the request would wait for what refills while it is decided */
                continue;
            }
            if (!r->peeks) {
                denial_note(r);
            }
            return true;
        }
        if (r->peeks) {
            write_allowed(r);
            return true;
        }
        switch (any_takes_units(r) ? charge_all(r) : CHARGE_DONE) {
        case CHARGE_DONE:
            set_dirty(r);
            write_allowed(r);
            return true;
        case CHARGE_LOST:
            return false;
        case CHARGE_NO_MEMORY:
            write_untracked(r);
            return true;
        case CHARGE_NO_ROOM:
            if (process_is_halted(r->t->process)) {
                write_untracked(r); /* what holds the room may be a dead process's */
                return true;
            }
            if (conflicts++ != 0 && several) {
                (void) sched_yield(); /* let the holder run */
            }
            want_no_grants(r);
            break;
        }
    }
}

/* Unpins the cells of the first `count` claims that were pinned here. */
static void unpin_claims(struct request *r, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        const struct claim *claim = &r->claims[c];
        if (!claim->pinned && claim->status != CLAIM_NO_CELL) {
            insert_unpin(r->t->process, claim->policy, claim->cells);
        }
    }
}

/* Finds the cells of claims that no slot pins, and pins the cells if asked to. False: a claim gets no cell. */
static bool find_cells(struct request *r, bool pin)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        if (claim->pinned || claim->status == CLAIM_NO_CELL) {
            continue;
        }
        const bool found = pin ? insert_pin(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells)
                               : insert_locate(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells);
        if (found) {
            continue;
        }
        if (!claim->optional) {
            if (pin) {
                unpin_claims(r, c);
            }
            return false;
        }
        claim->status = CLAIM_NO_CELL;
    }
    return true;
}

static void begin_claims(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        claim->status = CLAIM_HAS_ROOM;
        claim->granted = 0;
        for (size_t i = 0; i < claim->policy->limit_count; i++) {
            claim->rules[i] = policy_rule(&claim->policy->limits[i]);
        }
    }
}

void decide_request(struct request *r)
{
    begin_claims(r);
    /* One cell is charged in one step. Several must all be there until the last is charged, so they are pinned. */
    const bool pin = r->count > 1 || r->claims[0].policy->limit_count > 1;
    bool done = false;
    for (unsigned tries = 0; !done; tries++) {
        if ((tries >= TRIES_BEFORE_HALT && process_is_halted(r->t->process)) || !find_cells(r, pin)) {
            for (size_t c = 0; c < r->count; c++) {
                r->claims[c].status = CLAIM_HAS_ROOM; /* none was read */
            }
            write_untracked(r);
            return;
        }
        done = decide_claims(r);
        if (pin) {
            unpin_claims(r, r->count);
        }
    }
}
