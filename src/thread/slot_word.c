/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a verdict says of the time at which a key will be as if it had never been used, where a grant has not passed any
 * unit yet. The words of the slot give this time for a key from which units have passed (for a window, its end), so
 * until then the time is in the slot's account.
 */
#include "thread/slot_word.h"

#include "process/process.h"
#include "thread/slot.h"
#include "thread/slot_account.h"

void slot_correct_reset(const struct weir_thread *t, const struct slot *slot, weir_verdict *verdict)
{
    const struct slot_account *account = &t->accounts[slot - t->slots];
    if (slot_passed(slot, account) == 0) {
        verdict->reset_after_ns = saturating_sub(account->asked_reset_ns, verdict->decided_ns);
    }
}

void slot_note_reset(const struct weir_thread *t, struct slot *slot, uint64_t now_ns)
{
    struct slot_account *account = &t->accounts[slot - t->slots];
    const uint64_t meta = load_relaxed(&slot->meta);
    const size_t limit = slot_meta_unpack(meta).limit_index;
    const struct state state = cell_state(dwcas_read(&t->process->table.cells[account->cells[limit]].state));
    account->asked_reset_ns = now_ns + rule_reset_after(&account->rules[limit], state, now_ns);
    store_relaxed(&slot->meta, meta | META_ASKED);
}
