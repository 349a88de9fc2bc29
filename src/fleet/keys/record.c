/* SPDX-License-Identifier: Apache-2.0 */
/* See record.h. */
#include "fleet/keys/record.h"

#include <string.h>

#include "base/digits.h"
#include "base/hash.h"
#include "fleet/state.h"
#include "policy/policy_names.h"
#include "process/key_name.h"

/* Hash tags of records, each written as three hexadecimal digits: enough to spread over a cluster. */
#define HASH_TAGS 1024

/* Appends a text; returns its end. */
static char *append(char *to, const char *text)
{
    const size_t length = strlen(text);
    memcpy(to, text, length + 1);
    return to + length;
}

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
    /* All records of a key share a cluster slot: its hash tag is of the policy and the key, not of limit and window. */
    char partition[WEIR_MAX_NAME + sizeof(key) + 2];
    const char *const end = append(append(append(partition, policy->base), ":"), key);
    uint64_t hash[2];
    hash_shared(partition, (size_t) (end - partition), hash);
    const unsigned tag = (unsigned) (hash[0] % HASH_TAGS);
    const char braced[] = {':', '{', hex_digit(tag >> 8), hex_digit(tag >> 4), hex_digit(tag), '}', ':', '\0'};
    /* The name fits: see PREFIX_MAX, WEIR_MAX_NAME and KEY_NAME_TEXT_SIZE. */
    char *to = append(append(append(append(record, fleet->prefix), braced), limit->label), ":");
    return (size_t) (append(to, partition) - record);
}

void record_demand_name(const struct fleet *fleet, const struct policy_limit *limit, const char *record,
                        char demand_record[REPORT_RECORD_SIZE])
{
    static const char braces[] = ":{xxx}:";
    memcpy(demand_record, record, strlen(record) + 1);
    demand_record[strlen(fleet->prefix) + sizeof(braces) - 1 + strlen(limit->label)] = '?';
}

struct report *record_add(struct fleet *fleet, uint32_t cell, const struct sync_full *sync, bool before,
                          struct report_source **source)
{
    const size_t index = fleet->round.report_count++;
    struct report *report = &fleet->batch.reports[index];
    fleet->batch.sources[index] = (struct report_source){
        .cell = cell, .seq = load_relaxed(&sync->allowance.seq), .incarnation = sync->incarnation, .before = before};
    *source = &fleet->batch.sources[index];
    /* All but the record's name, which is long, and written next. */
    memset(report->author, 0, sizeof(*report) - offsetof(struct report, author));
    (void) hex_write_number(append(append(report->author, fleet->node), "."), sync->incarnation);
    return report;
}
