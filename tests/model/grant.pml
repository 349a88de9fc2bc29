/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread tier's protocol: grants that are spent without a fence, taken back at any time, settled late.
 * docs/decisions/001-grants.md has it in words; the names are those of src/tier/.
 *
 * WORKERS threads make CHECKS checks of cost 1 each on one key of LIMIT units. A background process settles any slot at
 * any time. `used` goes through a store buffer of BUFFER entries that drains whenever it likes; a locked instruction of
 * its owner, and the barrier, drain it.
 *
 * Claims
 *   A  count + what is committed in held <= LIMIT + late units charged        (at every admission)
 *      a slot has at most one unit that passed and that nobody can see coming (the late one)
 *      admitted <= LIMIT + WORKERS                                            (at the end)
 *   B  count == admitted and held == 0                                        (at the end, all settled)
 *   C  WORKERS * CHECKS == LIMIT: nobody is denied
 *   D  every end is a proper end: nobody waits for a slot's lock
 *
 * One of these leaves a safeguard out, and a claim must fail: NO_BARRIER, NO_LATE_CHARGE, NO_RECLAIM, NO_GENERATION,
 * RELEASE_FIRST.
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
#define EXTRA 2 /* most units in a grant beside the request's own */

/* The cell. */
byte count, generation;
byte held, version;

/* The slots. */
bool locked[WORKERS];
byte end_of_grant[WORKERS]; /* 0: no grant */
byte used[WORKERS];         /* as others see it */
byte buffered[WORKERS];     /* stores of the owner that nobody else sees yet, each of them one unit more */
byte accounted[WORKERS], granted[WORKERS];

/* Ghosts. */
byte admitted, denied, late_charged, committed, done;

inline drain(w)
{
    used[w] = used[w] + buffered[w];
    buffered[w] = 0
}

/* What a settler does with the lock and the grant taken back. */
inline settle(w)
{
    d_step {
        passed = used[w] - accounted[w];
        given = granted[w]
    }
#ifdef RELEASE_FIRST
    d_step { held = held - given; version = (version + 1) % 4; committed = committed - given };
#endif
    d_step {
#ifdef NO_LATE_CHARGE
        count = count + (passed <= given -> passed : given);
#else
        count = count + passed;
#endif
        late_charged = late_charged + (passed > given -> passed - given : 0);
        accounted[w] = accounted[w] + passed;
        committed = committed - (passed < given -> passed : given)
    }
#ifndef RELEASE_FIRST
    d_step {
        held = held - given;
        version = (version + 1) % 4;
        committed = committed - (passed < given -> given - passed : 0)
    }
#endif
    granted[w] = 0
}

/* Another thread's slot: back it comes, and everything its owner has stored becomes visible. */
inline settle_other(w)
{
    end_of_grant[w] = 0;
#ifndef NO_BARRIER
    atomic { drain(w) };
#endif
    settle(w)
}

proctype worker(byte me)
{
    byte mine, seen_end, seen_count, seen_generation, seen_version, seen_held, passed, given, other, extra;
    bool own;
    byte i = 0;
    do
    :: i == CHECKS -> break
    :: i < CHECKS ->
        i++;
        /* A hit: load the grant, then store used. In between anything may happen. */
        seen_end = end_of_grant[me];
        if
        :: seen_end != 0 && used[me] + buffered[me] < seen_end ->
            atomic {
                buffered[me] < BUFFER -> buffered[me]++;
                admitted++;
                /* No more than one check can have passed on a grant that is gone. */
                assert(used[me] + buffered[me] - accounted[me] <= granted[me] + 1)
            };
            goto next
        :: else
        fi;
        /* Slow: with the slot, if its lock is to be had. */
        atomic {
            drain(me);
            own = !locked[me];
            locked[me] = 1
        };
        if
        :: own -> end_of_grant[me] = 0; settle(me)
        :: else
        fi;
decide:
        seen_version = version;
        atomic { seen_count = count; seen_generation = generation };
        seen_held = held;
        if
        :: seen_count + seen_held < LIMIT ->
            if
            :: own && seen_count + seen_held + EXTRA < LIMIT ->
                /* With a grant: hold, look again, charge, keep the rest. */
                extra = EXTRA;
                mine = 1 + extra;
                atomic { held = held + mine; version = (version + 1) % 4 };
look:
                atomic { seen_count = count; seen_generation = generation };
                seen_held = held;
                if
                :: seen_count + seen_held - mine + mine <= LIMIT ->
#ifndef NO_GENERATION
                    atomic {
                        if
                        :: count == seen_count && generation == seen_generation ->
                            generation = (generation + 1) % 4; committed = committed + mine
                        :: else -> goto look
                        fi
                    };
#else
                    committed = committed + mine;
#endif
                    atomic { count++; committed--; admitted++; assert(count + committed <= LIMIT + late_charged) };
                    atomic { held--; version = (version + 1) % 4 };
                    atomic { granted[me] = extra; end_of_grant[me] = used[me] + extra }
                :: else ->
                    atomic { held = held - mine; version = (version + 1) % 4 };
                    goto decide
                fi
            :: else ->
                /* Without: one compare-and-swap. */
                atomic {
                    if
#ifndef NO_GENERATION
                    :: count == seen_count && generation == seen_generation ->
#else
                    :: count == seen_count ->
#endif
                        count++; admitted++; assert(count + committed <= LIMIT + late_charged)
                    :: else -> goto decide
                    fi
                }
            fi
        :: else ->
#ifndef NO_RECLAIM
            if
            :: seen_held == 0 && version == seen_version && held == 0 -> denied++
            :: else ->
                /* Others hold units: back they come, as far as the locks are to be had; and once more. */
                other = 0;
                do
                :: other == WORKERS -> break
                :: other < WORKERS ->
                    if
                    :: other != me ->
                        atomic { passed = !locked[other]; locked[other] = 1 };
                        if
                        :: passed -> settle_other(other); locked[other] = 0
                        :: else
                        fi
                    :: else
                    fi;
                    other++
                od;
                goto decide
            fi
#else
            denied++
#endif
        fi;
        if
        :: own -> locked[me] = 0
        :: else
        fi;
next:   skip;
        /* What a check leaves behind in its locals is no part of the state. */
        d_step {
            seen_end = 0; seen_count = 0; seen_generation = 0; seen_version = 0; seen_held = 0;
            passed = 0; given = 0; other = 0; extra = 0; mine = 0; own = 0
        }
    od;
    atomic { drain(me); done++ }
}

/* Stores become visible sooner or later. */
active proctype memory()
{
end:
    do
    :: atomic { buffered[0] > 0 -> used[0]++; buffered[0]-- }
    :: atomic { buffered[1] > 0 -> used[1]++; buffered[1]-- }
#if WORKERS > 2
    :: atomic { buffered[2] > 0 -> used[2]++; buffered[2]-- }
#endif
    od
}

proctype background()
{
    byte passed, given, w, times;
    do
    :: times == SETTLES -> break
    :: times < SETTLES ->
        times++;
        select(w : 0 .. WORKERS - 1);
        atomic { passed = !locked[w]; locked[w] = 1 };
        if
        :: passed -> settle_other(w); locked[w] = 0
        :: else
        fi;
        d_step { passed = 0; given = 0; w = 0 }
    od;
    done == WORKERS;
    /* Everybody is gone: settle all there is. */
    w = 0;
    do
    :: w == WORKERS -> break
    :: w < WORKERS -> assert(!locked[w]); settle_other(w); w++
    od;
    assert(count == admitted);
    assert(held == 0 && committed == 0);
    assert(admitted <= LIMIT + WORKERS);
    assert(admitted + denied == WORKERS * CHECKS);
    assert(WORKERS * CHECKS > LIMIT || denied == 0)
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
