/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of src/thread/ and src/check/: grants that are spent without a fence, taken back at any time, and
 * settled late.
 * docs/decisions/001-grants.md has it in words; the names are those of the code.
 *
 * WORKERS threads make CHECKS checks of cost 1 each on one key of LIMIT units. A background process settles any slot at
 * any time, SETTLES times. `used` goes through a store buffer of BUFFER entries that drains whenever it likes; a locked
 * instruction of its owner, and the barrier, drain it.
 *
 * Claims
 *   A  count + what is committed in held <= LIMIT + late units charged        (at every admission)
 *      a slot has at most one unit that passed and that nobody can see coming (the late one)
 *      admitted <= LIMIT + WORKERS                                            (at the end)
 *   B  held == what slots are granted + what requests under way have raised   (whenever a grant begins or is settled)
 *      count == admitted and held == 0                                        (at the end, all settled)
 *   C  WORKERS * CHECKS == LIMIT: nobody is denied
 *   D  every end is a proper end: nobody waits for a slot's lock
 *
 * Each thread may give back REFUNDS units to its grant, under the lock of its slot; a refund that finds the lock taken or
 * the grant gone is left out, as it goes the ordinary way.
 *
 * One of these leaves a safeguard out, and a claim must fail: NO_BARRIER, NO_LATE_CHARGE, NO_RECLAIM, NO_GENERATION,
 * RELEASE_FIRST; of renewing alone: RENEW_LATE_HOLD, RENEW_OVERLOOKS, RENEW_FORGETS, RENEW_KEEPS; of refunds alone:
 * REFUND_UNLOCKED.
 *
 * A step is one access to what threads share, with what its thread does by itself around it: what it reads that is its
 * own, or is written under a lock that it has, and what it chooses by values read before. This keeps the model small as
 * well:
 *
 *   - of `used` and `accounted` only the difference counts, and of a grant how much of it is left;
 *   - of generation and version only whether they have changed since a thread looked. (That they come back, after 4,096
 *     and 256 changes between two of its steps, is no part of the model.)
 *   - only a settler sees what is in another's store buffer: how much of it has drained is chosen when he looks;
 *   - what a thread no longer needs is made 0.
 *
 * Guards: src/thread/settle.c, src/thread/slot.h, src/check/renew_grant.c, src/check/decide.c, src/base/barrier.c
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CHECKS
#define CHECKS 3
#endif
#ifndef LIMIT
#define LIMIT 4
#endif
#ifndef BUFFER
#define BUFFER 2
#endif
#ifndef SETTLES
#define SETTLES 2
#endif
#ifndef REFUNDS
#define REFUNDS 0 /* by each thread, of a unit that passed on its grant */
#endif
#ifndef EXTRA
#define EXTRA 2 /* units in a grant beside the request's own */
#endif

/* The cell, and a bit per thread of what it knows about it. */
byte count, held;
byte fresh; /* the state is as it was when the thread read it: a swap succeeds */
byte sure;  /* held counted nothing when the thread read it, and is the same word */

/* The slots. */
bool locked[WORKERS];
byte left[WORKERS];     /* of the grant */
byte used[WORKERS];     /* and not accounted, as others see it */
byte buffered[WORKERS]; /* stores of the owner to `used` that nobody else sees yet, each of them one unit more */
byte granted[WORKERS];

/* Ghosts. */
byte admitted, denied, late_charged, committed, done;
byte refunded; /* units that passed and came back; admitted does not count them */
byte under_way; /* what requests have raised held by, and not yet let go or made a grant of */

#define BIT(w)         (1 << (w))
#define FEWER(a, b)    ((a) < (b) -> (a) : (b))
#define BEYOND(a, b)   ((a) > (b) -> (a) - (b) : 0)
#define CHARGE(units)  count = count + (units); fresh = ((units) != 0 -> 0 : fresh)
#define HOLD(units)    held = held + (units); sure = ((units) != 0 -> 0 : sure)
#define RELEASE(units) held = held - (units); sure = ((units) != 0 -> 0 : sure)
#if WORKERS > 2
#define GRANTED (granted[0] + granted[1] + granted[2])
#else
#define GRANTED (granted[0] + granted[1])
#endif
#define CLAIM_COUNT()  assert(count + committed <= LIMIT + late_charged)
#ifndef RELEASE_FIRST
#define CLAIM_HELD()   assert(held == GRANTED + under_way)
#else
#define CLAIM_HELD()   skip /* it is not meant to fail by this */
#endif

inline drain(w)
{
    used[w] = used[w] + buffered[w];
    buffered[w] = 0
}

/* What a settler does with the lock, the grant taken back, and `passed` and `given` read. */
inline settle(w)
{
#ifdef RELEASE_FIRST
    d_step { RELEASE(given); committed = committed - BEYOND(given, passed) };
#endif
    d_step {
#ifdef NO_LATE_CHARGE
        CHARGE(FEWER(passed, given));
#else
        CHARGE(passed);
#endif
        late_charged = late_charged + BEYOND(passed, given);
        used[w] = used[w] - passed;
        committed = committed - FEWER(passed, given)
    };
    d_step {
#ifndef RELEASE_FIRST
        /* What did not pass on the grant cannot pass any more. */
        RELEASE(given);
        committed = committed - BEYOND(given, passed);
#endif
        granted[w] = 0;
        CLAIM_HELD();
        passed = 0;
        given = 0
    }
}

/*
 * Another thread's slot: back it comes, and everything its owner has stored becomes visible. Of what he stores after
 * that, some may be.
 */
inline settle_other(w)
{
    left[w] = 0;
#ifndef NO_BARRIER
    d_step { drain(w) };
#endif
    atomic {
        do
        :: buffered[w] != 0 -> used[w]++; buffered[w]--
        :: break
        od;
        passed = used[w];
        given = granted[w]
    };
    settle(w)
}

/* Takes a slot's lock, if it is to be had. */
inline try_lock(w, had)
{
    had = !locked[w];
    locked[w] = 1
}

proctype worker(byte me)
{
    byte checks = CHECKS, passed, given, sum, extra, raised, other;
#if REFUNDS > 0
    byte refunds = REFUNDS;
#endif
    bool own;
again:
    do
    :: checks == 0 -> break
    /* A hit: load the grant, then store used. In between anything may happen. */
    :: checks != 0 && left[me] != 0 ->
        d_step {
            if
            :: buffered[me] == BUFFER -> used[me]++ /* the oldest store makes room */
            :: else -> buffered[me]++
            fi;
            left[me] = BEYOND(left[me], 1);
            admitted++;
            /* No more than one check can have passed on a grant that is gone. */
            assert(used[me] + buffered[me] <= granted[me] + 1);
            checks--
        }
#if REFUNDS > 0
    /*
     * A refund to the grant: take the lock, see that the grant is there and that a unit passed on it, lower used. The
     * lock drains what the owner has stored. Others read used under the lock alone, so the store needs no buffer.
     */
#ifdef REFUND_UNLOCKED
    :: atomic {
            checks != 0 && refunds != 0 && left[me] != 0 && used[me] + buffered[me] != 0 ->
            refunds--;
            drain(me)
        };
#else
    :: atomic {
            checks != 0 && refunds != 0 ->
            refunds--;
            try_lock(me, own);
            if
            :: own -> drain(me)
            :: else -> goto again
            fi
        };
#endif
        atomic {
            if
#ifdef REFUND_UNLOCKED
            :: true ->
#else
            :: granted[me] != 0 && used[me] != 0 ->
#endif
                assert(used[me] != 0); /* used - accounted never gets negative */
                used[me]--;
                left[me]++;
                admitted--;
                refunded++
            :: else
            fi
        };
#ifndef REFUND_UNLOCKED
        atomic { locked[me] = 0; own = 0 };
#endif
#endif
    /* Slow: with the slot, if its lock is to be had. */
    :: atomic {
            checks != 0 && left[me] == 0 ->
            try_lock(me, own);
            if
            :: own ->
                drain(me);
                passed = used[me];
                given = granted[me];
                left[me] = 0;
                if
                :: goto renew
                :: skip
                fi
            :: else -> goto decide
            fi
        };
        settle(me);
decide:
        /* The denial rule wants held before the state. */
        sure = (held == 0 -> sure | BIT(me) : sure & ~BIT(me));
        atomic { sum = count; fresh = fresh | BIT(me) };
        atomic {
            sum = sum + held;
            if
            :: sum >= LIMIT -> sum = 0; fresh = fresh & ~BIT(me); goto no_room
            :: own && sum + EXTRA < LIMIT -> sum = 0; sure = sure & ~BIT(me); fresh = fresh & ~BIT(me); goto grant
            :: sum < LIMIT -> sum = 0; sure = sure & ~BIT(me)
            fi
        };
        /*
         * Without a grant: one swap. The short ways (direct_charge, and renew_direct by it) are this as well: they read
         * the state, then held, then swap that state; where there is no room or the swap fails, an ordinary check
         * begins. Their two words of the state may be of two moments, but then it is another state, and the swap
         * fails. They take no lock; but a slot whose owner goes that way has nothing to settle, so nobody else can tell
         * whether it is locked.
         */
        atomic {
            drain(me);
            if
            :: fresh & BIT(me) -> CHARGE(1); admitted++; CLAIM_COUNT(); goto answered
            :: else -> goto decide
            fi
        };
grant:
        /* With a grant: hold, look again, charge, keep the rest. */
        atomic { HOLD(1 + EXTRA); under_way = under_way + 1 + EXTRA };
look:
        atomic { sum = count; fresh = fresh | BIT(me) };
        atomic {
            sum = sum + held;
            if
            :: sum <= LIMIT -> sum = 0
            :: else -> sum = 0; fresh = fresh & ~BIT(me); goto let_go
            fi
        };
#ifdef NO_GENERATION
        d_step { committed = committed + 1 + EXTRA; fresh = fresh & ~BIT(me) };
#else
        atomic {
            if
            :: fresh & BIT(me) -> fresh = 0; committed = committed + 1 + EXTRA
            :: else -> goto look
            fi
        };
#endif
        d_step { CHARGE(1); committed--; admitted++; CLAIM_COUNT() };
        d_step {
            RELEASE(1);
            under_way = under_way - 1 - EXTRA;
            granted[me] = EXTRA;
            left[me] = EXTRA;
            CLAIM_HELD()
        };
        goto answered;
let_go:
        atomic { RELEASE(1 + EXTRA); under_way = under_way - 1 - EXTRA };
        goto decide;
renew:
        /*
         * Settle and grant in one. A first look finds how much is granted. Here it is any, as the second look decides;
         * or nothing, and then nothing is raised.
         */
        if
        :: extra = EXTRA; raised = 1 + EXTRA
        :: skip
        fi;
#ifndef RENEW_LATE_HOLD
        d_step { HOLD(raised); under_way = under_way + raised };
#endif
        atomic {
#ifdef RENEW_OVERLOOKS
            sum = count;
#else
            sum = count + passed;
#endif
            fresh = fresh | BIT(me)
        };
        atomic {
#ifdef RENEW_LATE_HOLD
            sum = sum + held - given;
#else
            sum = sum + held - given - raised;
#endif
            if
            :: sum + 1 + extra <= LIMIT -> sum = 0
            :: else -> sum = 0; fresh = fresh & ~BIT(me); goto renew_not
            fi
        };
        atomic {
            if
            :: fresh & BIT(me) ->
                CHARGE(passed + 1);
                late_charged = late_charged + BEYOND(passed, given);
                /* The owner took the last grant back himself: what is left of that cannot pass any more. */
                committed = committed - given + extra;
                admitted++;
                CLAIM_COUNT()
            :: else -> goto renew_not
            fi
        };
#ifdef RENEW_LATE_HOLD
        d_step { HOLD(raised); under_way = under_way + raised };
#endif
        d_step {
#ifdef RENEW_KEEPS
            RELEASE(raised - extra);
#else
            RELEASE(raised - extra + given);
#endif
#ifndef RENEW_FORGETS
            used[me] = used[me] - passed;
#endif
            under_way = under_way - raised;
            granted[me] = extra;
            left[me] = extra;
            CLAIM_HELD();
            passed = 0; given = 0; extra = 0; raised = 0
        };
        goto answered;
renew_not:
#ifndef RENEW_LATE_HOLD
        atomic { RELEASE(raised); under_way = under_way - raised };
#endif
        atomic { passed = 0; given = 0; extra = 0; raised = 0 };
        atomic { locked[me] = 0; own = 0 };
        goto again;
no_room:
        atomic {
            if
#ifdef NO_RECLAIM
            :: true ->
#else
            :: sure & BIT(me) ->
#endif
                denied++; sure = sure & ~BIT(me); goto answered
            :: else
            fi
        };
        /* Others hold units: back they come, as far as the locks are to be had; and once more. */
        do
        :: other == WORKERS -> other = 0; goto decide
        :: other == me -> other++
        :: other < WORKERS && other != me ->
            atomic {
                if
                :: locked[other] -> goto next
                :: else -> locked[other] = 1; drain(me)
                fi;
                if
                :: granted[other] == 0 -> goto unlock
                :: else
                fi
            };
            settle_other(other);
unlock:
            locked[other] = 0;
next:
            other++
        od;
answered:
        atomic {
            if
            :: own -> locked[me] = 0; own = 0
            :: else
            fi;
            checks--
        }
    od;
    atomic { drain(me); done++ }
}

proctype background()
{
    byte passed, given, w, times;
    bool had;
    do
    :: done == WORKERS -> break
    :: done < WORKERS && times < SETTLES ->
        times++;
        select(w : 0 .. WORKERS - 1);
        atomic { try_lock(w, had) };
        if
        :: had -> settle_other(w); locked[w] = 0
        :: else
        fi;
        d_step { had = 0; w = 0 }
    od;
    /* Everybody is gone: settle all there is. */
    atomic {
        w = 0;
        do
        :: w == WORKERS -> break
        :: w < WORKERS -> assert(!locked[w]); settle_other(w); w++
        od;
        assert(count == admitted);
        assert(held == 0 && committed == 0);
        assert(admitted <= LIMIT + WORKERS);
        assert(admitted + refunded + denied == WORKERS * CHECKS);
        assert(WORKERS * CHECKS > LIMIT || denied == 0)
    }
}

init {
    byte w = 0;
    atomic {
        run background();
        do
        :: w == WORKERS -> break
        :: w < WORKERS -> run worker(w); w++
        od
    }
}
