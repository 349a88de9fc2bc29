/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol of src/thread/settling.c and src/thread/repair.c: processes that share a cell, each of which may die
 * between any two of its steps, and a repair, whose process may die as well.
 * docs/decisions/022-joined-processes.md has it in words; the names are those of the code.
 *
 * WORKERS processes of one thread each make CHECKS checks of cost 1 on one key of LIMIT units. Up to DEATHS of them die.
 * A process that lives, outside of all calls, repairs; that process dies up to REPAIR_DEATHS times, and the repair is
 * then begun anew.
 *
 * Claims
 *   E  each unit that passed is charged once: count == admitted          (at the end, all settled)
 *   F  nothing stays held, locked or marked: held == 0 ...               (at the end)
 *   G  admitted <= LIMIT + WORKERS                                       (at the end)
 *   H  nobody waits for ever for what a dead process has             (no invalid end state)
 *
 * One of these leaves a safeguard out, and a claim must fail: NO_MARK, NO_NOTE, NO_COUNT, NO_HALT, NO_RESOLVE,
 * KEEP_LOCKS.
 *
 * A step is one access to what processes share, as in grant.pml. The orderings are grant.pml's matter, as are renewals
 * and refunds: stores are seen at once here, as a dead process leaves what its instructions stored up to one of them.
 *
 * Guards: src/thread/settling.c, src/thread/repair.c, src/thread/rcu_halt.c, src/process/mend.c
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CHECKS
#define CHECKS 2
#endif
#ifndef OTHER_CHECKS
#define OTHER_CHECKS CHECKS
#endif
#ifndef LIMIT
#define LIMIT 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef REPAIR_DEATHS
#define REPAIR_DEATHS 1
#endif
#ifndef EXTRA
#define EXTRA 1 /* units in a grant beside the request's own */
#endif

#define NOBODY   255
#define REPAIRER WORKERS /* its bit and its word; where it settles it is the one process at the table */

/* The cell: what is charged and held, the slot whose settler has left a mark, and who has read this very state. */
byte count, held;
byte mark = NOBODY;
byte fresh;

/* The slots. */
byte locked_by[WORKERS] = NOBODY;
byte left[WORKERS]; /* of the grant */
byte used[WORKERS]; /* and not accounted */
byte granted[WORKERS];
byte step[WORKERS]; /* of the settling: 0 none, 1 begun, 2 charged */
byte noted[WORKERS]; /* what the settling charges */

/* The processes. */
bool dead[WORKERS], repaired[WORKERS], inside[WORKERS], ended[WORKERS];
bool halted, begun, repairer_dies;

/* Ghosts. */
byte admitted, done, deaths, repair_deaths;

#define BIT(w)        (1 << (w))
#define BEYOND(a, b)  ((a) > (b) -> (a) - (b) : 0)
#define MUST_REPAIR   (begun || (dead[0] && !repaired[0]) || (dead[1] && !repaired[1]) || MUST_REPAIR_THIRD)
#if WORKERS > 2
#define MUST_REPAIR_THIRD (dead[2] && !repaired[2])
#else
#define MUST_REPAIR_THIRD false
#endif
/* A slot of a dead thread, or one that a dead process had locked. */
#define IS_LEFT(w)    (dead[w] || (locked_by[w] < WORKERS && dead[locked_by[w]]))

/*
 * Charges a slot that `self` has locked, and takes its grant back. `calls`: a call gives up when another process wants to
 * be alone; `gave_up` says so.
 */
inline settle(self, slot, calls)
{
    left[slot] = 0;
    /* What an earlier settler has begun, this one ends. What is noted counts from step 1 on. */
    d_step {
        if
        :: step[slot] == 0 -> noted[slot] = used[slot]
        :: else
        fi;
#ifndef NO_NOTE
        if
        :: step[slot] == 0 && noted[slot] != 0 -> step[slot] = 1
        :: else
        fi
#endif
    };
    do
    :: step[slot] == 2 || noted[slot] == 0 -> break
    :: else ->
        atomic { fresh = fresh | BIT(self); at_mark = mark };
        if
        :: at_mark != NOBODY && calls && halted -> gave_up = 1; break
        :: at_mark != NOBODY && !(calls && halted) -> mark == NOBODY || (calls && halted)
        :: at_mark == NOBODY ->
            d_step {
                swapped = (fresh & BIT(self)) != 0 && mark == NOBODY;
                if
                :: swapped ->
                    count = count + noted[slot];
#ifndef NO_MARK
                    mark = slot;
#endif
                    fresh = 0
                :: else
                fi
            };
            if
            :: swapped ->
                step[slot] = 2;
                d_step { mark = NOBODY; fresh = 0 };
                break
            :: else
            fi
        fi
    od;
    if
    :: !gave_up ->
        d_step { used[slot] = used[slot] - noted[slot]; noted[slot] = 0 };
        step[slot] = 0;
        held = held - granted[slot];
        granted[slot] = 0
    :: else
    fi
}

inline try_lock(self, slot, had)
{
    atomic {
        if
        :: locked_by[slot] == NOBODY -> locked_by[slot] = self; had = 1
        :: else -> had = 0
        fi
    }
}

proctype worker(byte me)
{
    byte checks = (me == 0 -> CHECKS : OTHER_CHECKS), sum, other, at_mark;
    bool own, swapped, gave_up, asked;
    {
        do
        :: checks == 0 -> break
        /* A hit: load the grant, then store used. In between anything may happen. */
        :: checks != 0 && left[me] != 0 ->
            d_step { used[me]++; left[me] = BEYOND(left[me], 1); admitted++; checks-- }
        /* Slow: in a section, with the slot if its lock is to be had. */
        :: checks != 0 && left[me] == 0 ->
            do
            :: inside[me] = 1;
                if
                :: halted -> inside[me] = 0; !halted
                :: else -> break
                fi
            od;
            try_lock(me, me, own);
            if
            :: own -> settle(me, me, true)
            :: else
            fi;
            if
            :: gave_up -> goto leave
            :: else
            fi;
decide:
            atomic { sum = count; fresh = fresh | BIT(me) };
            atomic {
                sum = sum + held;
                if
                :: sum >= LIMIT -> sum = 0; goto no_room
                :: sum < LIMIT && own && sum + EXTRA < LIMIT -> sum = 0; goto grant
                :: sum < LIMIT -> sum = 0
                fi
            };
            /* Without a grant: one swap, which keeps a mark. */
            d_step {
                swapped = (fresh & BIT(me)) != 0;
                if
                :: swapped -> count++; fresh = 0; admitted++
                :: else
                fi
            };
            if
            :: swapped -> goto answered
            :: else -> goto decide
            fi;
grant:
            held = held + 1 + EXTRA;
look:
            atomic { sum = count; fresh = fresh | BIT(me); at_mark = mark };
            atomic {
                sum = sum + held;
                if
                :: sum > LIMIT || (at_mark != NOBODY && halted) -> sum = 0; goto let_go
                :: sum <= LIMIT && at_mark == NOBODY -> sum = 0
                :: sum <= LIMIT && at_mark != NOBODY && !halted -> sum = 0; mark == NOBODY || halted; goto look
                fi
            };
            d_step {
                swapped = (fresh & BIT(me)) != 0 && mark == NOBODY;
                if
                :: swapped -> count++; fresh = 0; admitted++
                :: else
                fi
            };
            if
            :: swapped -> skip
            :: else -> goto look
            fi;
            held = held - 1;
            granted[me] = EXTRA;
            left[me] = EXTRA;
            goto answered;
let_go:
            held = held - 1 - EXTRA;
            if
            :: halted -> goto leave
            :: else -> goto decide
            fi;
no_room:
            /* Others hold units: back they come, once, as far as the locks are to be had. */
            if
            :: asked -> goto answered
            :: else -> asked = 1
            fi;
            do
            :: other == WORKERS -> other = 0; goto decide
            :: other == me -> other++
            :: other < WORKERS && other != me ->
                try_lock(me, other, swapped);
                if
                :: swapped && granted[other] != 0 -> settle(me, other, true); locked_by[other] = NOBODY
                :: swapped && granted[other] == 0 -> locked_by[other] = NOBODY
                :: else
                fi;
                swapped = 0;
                if
                :: gave_up -> goto leave
                :: else
                fi;
                other++
            od;
answered:
            checks--;
leave:
            if
            :: own -> locked_by[me] = NOBODY
            :: else
            fi;
            inside[me] = 0;
            d_step { own = 0; swapped = 0; gave_up = 0; asked = 0; other = 0; at_mark = 0 }
        od
    } unless { dead[me] };
    skip;
    d_step { ended[me] = 1; done++ }
}

/* Sums up what the slots account for. Nobody else is at the table, and hits do not change it. */
inline count_slots()
{
    d_step {
        sum = 0;
        w = 0;
        do
        :: w == WORKERS -> break
        :: w < WORKERS -> sum = sum + granted[w]; w++
        od;
        w = 0
    }
}

proctype repairer()
{
    byte w, sum, at_mark;
    bool swapped, gave_up;
anew:
    {
        do
        :: done == WORKERS && !MUST_REPAIR -> goto over
        :: MUST_REPAIR ->
            begun = 1;
            halted = 1;
#ifndef NO_HALT
            w = 0;
            do
            :: w == WORKERS -> break
            :: w < WORKERS && (!inside[w] || dead[w]) -> w++
            od;
#endif
            /* How far did settlings come? */
            w = 0;
            do
            :: w == WORKERS -> break
            :: w < WORKERS && IS_LEFT(w) && step[w] != 0 && mark == w ->
#ifndef NO_RESOLVE
                step[w] = 2;
#endif
                d_step { mark = NOBODY; fresh = 0 };
                w++
            :: w < WORKERS && !(IS_LEFT(w) && step[w] != 0 && mark == w) -> w++
            od;
            /* They are ended, alone; `held` stays as it is. */
            w = 0;
            do
            :: w == WORKERS -> break
            :: w < WORKERS && IS_LEFT(w) ->
                left[w] = 0;
                granted[w] = 0;
                settle(REPAIRER, w, false);
#ifndef KEEP_LOCKS
                locked_by[w] = NOBODY;
#endif
                w++
            :: w < WORKERS && !IS_LEFT(w) -> w++
            od;
            skip;
            count_slots();
#ifndef NO_COUNT
            held = sum;
#endif
            mark = NOBODY;
            w = 0;
            do
            :: w == WORKERS -> break
            :: w < WORKERS && dead[w] -> inside[w] = 0; repaired[w] = 1; w++
            :: w < WORKERS && !dead[w] -> w++
            od;
            halted = 0;
            d_step { begun = 0; w = 0; sum = 0; at_mark = 0; swapped = 0 }
        od
    } unless { repairer_dies };
    skip;
    d_step { repairer_dies = 0; w = 0; sum = 0; at_mark = 0; swapped = 0; gave_up = 0 };
    goto anew;
over:
    /* Everybody is gone: settle all there is. */
    atomic {
        w = 0;
        do
        :: w == WORKERS -> break
        :: w < WORKERS -> assert(locked_by[w] == NOBODY && step[w] != 2); settle(REPAIRER, w, false); w++
        od;
        assert(count == admitted);
        assert(held == 0 && mark == NOBODY);
        assert(admitted <= LIMIT + WORKERS)
    }
}

proctype killer()
{
    byte w;
    do
    :: deaths < DEATHS ->
        select(w : 0 .. WORKERS - 1);
        skip;
        d_step {
            if
            :: !ended[w] && !dead[w] -> dead[w] = 1; deaths++
            :: else
            fi
        }
    :: repair_deaths < REPAIR_DEATHS && begun -> d_step { repair_deaths++; repairer_dies = 1 }
    :: break
    od
}

init {
    byte w = 0;
    atomic {
        run repairer();
        run killer();
        do
        :: w == WORKERS -> break
        :: w < WORKERS -> run worker(w); w++
        od
    }
}
