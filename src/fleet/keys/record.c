/* SPDX-License-Identifier: Apache-2.0 */
/* See record.h. */
#include "fleet/keys/record.h"

#include <string.h>

#include "fleet/keys/record_text.h"
#include "fleet/state.h"
#include "policy/policy_names.h"
#include "process/key_name.h"
#include "transport/author.h"

/* Of keys that are bytes. */
static const weir_key_form no_form;

/* What `of` has of a group. */
static const weir_key_form *known_form(const struct record_forms *forms, const char *group_name)
{
    const weir_key_form *form = policy_names_form(forms->names, group_name);
    return form != NULL ? form : &no_form;
}

void record_form_changed(struct record_forms *forms, weir_policy_id group)
{
    /* Pairs with form_of(): the form is the caller's memory. */
    store_release(&forms->of[group], known_form(forms, forms->names->names[group]));
}

/* The form of a policy's keys; NULL: bytes. */
static const weir_key_form *form_of(struct record_forms *forms, const struct policy *policy)
{
    const weir_key_form *form = load_acquire(&forms->of[policy->group]); /* pairs with record_form_changed() */
    if (form == NULL) {
        const weir_key_form *found = known_form(forms, policy->base);
        if (cas_acquire(&forms->of[policy->group], &form, found)) {
            form = found; /* else `form` is what has been set meanwhile */
        }
    }
    return form != &no_form ? form : NULL;
}

size_t record_name(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                   const struct policy_limit *limit, const struct key_name *kept)
{
    char key[KEY_NAME_TEXT_SIZE];
    (void) key_name_write(key, kept, form_of(fleet->forms, policy));
    return record_text_write(record, fleet->prefix, policy, limit, key);
}

void record_demand_name(const struct fleet *fleet, const struct policy_limit *limit, const char *record,
                        char demand_record[REPORT_RECORD_SIZE])
{
    record_text_write_demand(demand_record, fleet->prefix, limit, record);
}

struct report *record_add(struct fleet *fleet, uint32_t cell, const struct sync_full *sync, bool before,
                          struct report_source **source)
{
    const size_t index = fleet->round.report_count++;
    struct report *report = &fleet->batch.reports[index];
    fleet->batch.sources[index] = (struct report_source){.cell = cell,
                                                         .evicted = (uint32_t) fleet->batch.evicted_sent,
                                                         .seq = load_relaxed(&sync->allowance.seq),
                                                         .incarnation = sync->incarnation,
                                                         .before = before};
    *source = &fleet->batch.sources[index];
    /* All but the record's name, which is long, and written next. */
    memset(report->author, 0, sizeof(*report) - offsetof(struct report, author));
    author_write(report->author, fleet->node, sync->incarnation);
    return report;
}
