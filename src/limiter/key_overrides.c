/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_set_override and weir_list_overrides. Overrides are compiled against the present policies and published within
 * the set that checks read. A new set is compiled with the overrides before it is published, so that every check sees
 * policies and overrides of the same time.
 */
#include "limiter/key_overrides.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"
#include "fleet/fleet_log.h"
#include "limiter/policy_lock.h"
#include "limiter/policy_readers.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "policy/entry.h"

/* The most bytes of a malformed override that the log quotes. */
#define QUOTED_SIZE 81

int key_overrides_compile(weir *w, struct policy_set *set, struct overrides **out, struct override_faults *faults)
{
    const struct override_context context = {.set = set,
                                             .names = &w->names,
                                             .secret = &w->secret,
                                             .tick_ns = w->limiter.tick_ns,
                                             .now_ns = tick_time(&w->limiter)};
    return overrides_compile(&context, w->overrides, OVERRIDE_LISTS, out, faults);
}

void key_overrides_note(weir *w, const struct overrides *overrides)
{
    const uint64_t until_ns = overrides_until_ns(overrides);
    store_relaxed(&w->shared->override_count, overrides_listed(overrides));
    store_relaxed(&w->shared->override_until_ns, until_ns != UINT64_MAX ? until_ns : 0);
    for (size_t i = 0; i < OVERRIDE_LISTS; i++) {
        for (size_t j = 0; j < w->overrides[i].count; j++) {
            w->overrides[i].texts[j].in_force = w->overrides[i].texts[j].compiled;
        }
    }
}

/* Compiles all overrides and puts them in force. Under the policy lock. Not 0: shared_policies_refuse(); nothing has
 * changed.
 */
static int publish(weir *w, struct override_faults *faults)
{
    struct policy_set *set = shared_policies_in_force(w);
    struct overrides *compiled = NULL;
    int result = set != NULL ? policy_readers_wait(w) : -EUCLEAN;
    result = result != 0 ? result : key_overrides_compile(w, set, &compiled, faults);
    result = result != 0 ? result : shared_policies_prepare(w, set, compiled);
    if (result != 0) {
        overrides_free(compiled);
        return result;
    }
    outage_follow(set, compiled);
    struct overrides *old = policy_set_overrides(set);
    /* Pairs with check_policy; then the epoch, so that no grant by the old ones lives on [S4]. */
    compiled = shared_policies_place_overrides(w->shared_policies, compiled, old);
    w->overrides_in_force = compiled;
    reference_set(&set->overrides, compiled);
    key_overrides_note(w, compiled);
    tick_epoch(&w->limiter);
    shared_policies_commit(w);
    policy_readers_drain(w);
    if (w->shared_policies == NULL) {
        overrides_free(old);
    }
    return 0;
}

/* Logs when overrides are left out, and when all are read again. */
static void tell_left_out(struct fleet *fleet)
{
    const uint64_t left_out = fleet->overrides.left_out;
    const uint64_t before = load_relaxed(&fleet->stats.overrides_left_out);
    if (left_out != 0 && before == 0) {
        fleet_log(fleet, WEIR_LOG_ERROR,
                  "overrides: %" PRIu64 " %s not read, as there may be %d of up to %d bytes each and %d bytes in "
                  "all; take some out of %s:overrides. The others are in force",
                  left_out, plain_number(left_out, "entry is", "entries are"), OVERRIDES_MAX, OVERRIDE_SIZE_MAX,
                  OVERRIDES_SIZE_MAX, fleet->prefix);
    } else if (left_out == 0 && before != 0) {
        fleet_log(fleet, WEIR_LOG_INFO, "overrides: all entries are read again");
    }
    store_relaxed(&fleet->stats.overrides_left_out, left_out);
}

void key_overrides_end(weir *w)
{
    /* Relaxed: the lock orders what is read behind it, and a time that is late is seen at the next turn. */
    const uint64_t until_ns = load_relaxed(&w->shared->override_until_ns);
    if (until_ns == 0 || tick_time(&w->limiter) < until_ns || !policy_lock_try(w)) {
        return;
    }
    struct override_faults faults;
    (void) publish(w, &faults); /* where there is no memory: next time */
    policy_lock_release(w);
}

void key_overrides_take(weir *w)
{
    struct fleet *fleet = w->fleet;
    /* Somebody is changing policies, and may wait long for readers: next time. */
    if (!fleet->overrides.changed || !policy_lock_try(w)) {
        return;
    }
    struct override_list *list = &w->overrides[OVERRIDES_FLEET];
    const struct override_list old = *list;
    struct override_faults faults;
    *list = (struct override_list){fleet->overrides.texts, fleet->overrides.count};
    if (publish(w, &faults) != 0) {
        *list = old; /* next time */
        policy_lock_release(w);
        return;
    }
    overrides_drop(old.texts, old.count);
    fleet->overrides.texts = NULL;
    fleet->overrides.count = 0;
    fleet->overrides.changed = false;
    const uint64_t count = load_relaxed(&w->shared->override_count);
    fleet_log(fleet, WEIR_LOG_INFO, "overrides: %" PRIu64 " %s", count,
              plain_number(count, "key has an entry of its own", "keys have entries of their own"));
    tell_left_out(fleet);
    if (faults.count != 0) {
        char field[QUOTED_SIZE];
        char value[QUOTED_SIZE];
        (void) plain_quoted(field, sizeof(field), faults.first->field);
        (void) plain_quoted(value, sizeof(value), faults.first->value);
        fleet_log(fleet, WEIR_LOG_ERROR, "overrides: %zu %s \"%s\" with \"%s\": %s", faults.count,
                  plain_number(faults.count, "entry is malformed:", "entries are malformed, such as"), field, value,
                  faults.error.message);
    }
    policy_lock_release(w);
}

/* Where an entry of the program's stands; the count of them: nowhere. */
static size_t find_own(const struct override_list *own, const char *field)
{
    size_t at = 0;
    while (at < own->count && strcmp(own->texts[at].field, field) != 0) {
        at++;
    }
    return at;
}

/* Puts `texts` in the place of the entries set here; `left_out` of those is no longer there. Under the policy lock. */
static int replace_own(weir *w, struct override_list next, size_t left_out)
{
    struct override_list *own = &w->overrides[OVERRIDES_OWN];
    const struct override_list old = *own;
    struct override_faults faults;
    *own = next;
    const int result = publish(w, &faults);
    if (result != 0) {
        *own = old;
        return result;
    }
    if (left_out < old.count) {
        free(old.texts[left_out].field);
        free(old.texts[left_out].value);
    }
    free(old.texts);
    return 0;
}

/* Changes the entry that stands there, or (at the end) adds it; value NULL: leaves it out. Under the policy lock. */
static int change_own(weir *w, size_t at, const char *field, const char *value, weir_error *error)
{
    const struct override_list *own = &w->overrides[OVERRIDES_OWN];
    struct override_list next = {calloc(own->count + 1, sizeof(*next.texts)), 0};
    if (next.texts == NULL) {
        return shared_policies_refuse(-ENOMEM, error);
    }
    struct override_text *added = NULL;
    for (size_t i = 0; i <= own->count; i++) {
        if (i != at && i < own->count) {
            next.texts[next.count++] = own->texts[i];
        } else if (i == at && value != NULL) {
            added = &next.texts[next.count++];
            added->field = strdup(field);
            added->value = strdup(value);
        }
    }
    const bool made = added == NULL || (added->field != NULL && added->value != NULL);
    const int result = made ? replace_own(w, next, at) : -ENOMEM;
    if (result != 0) {
        if (added != NULL) {
            free(added->field);
            free(added->value);
        }
        free(next.texts);
        return shared_policies_refuse(result, error);
    }
    return error_clear(error);
}

/* weir_set_override, under the policy lock. */
static int set_override(weir *w, const char *name, const char *value, weir_error *error)
{
    const struct policy_set *set = shared_policies_in_force(w);
    const struct override_list *own = &w->overrides[OVERRIDES_OWN];
    struct entry_name read;
    struct entry_value numbers;
    char field[ENTRY_NAME_SIZE];
    if (set == NULL) {
        return shared_policies_refuse(-EUCLEAN, error);
    }
    int result = entry_name_read(&w->names, name, &read, error);
    if (result != 0) {
        return result;
    }
    entry_name_write(&read, field);
    const size_t at = find_own(own, field);
    const struct policy *policy = policy_set_by_id(set, policy_names_find(&w->names, read.policy));
    if (value == NULL) {
        return at != own->count
                   ? change_own(w, at, field, NULL, error)
                   : error_set(
                         error, -ENOENT,
                         "there is no entry \"%.100s\" set here; only entries of weir_set_override can be removed so",
                         field);
    }
    const bool of_all = entry_name_is_of_all(&read);
    if (policy == NULL && !of_all) {
        return error_set(error, -ENOENT, "there is no policy \"%s\"; give the name of one in force", read.policy);
    }
    const size_t more = of_all ? overrides_wanted(set, w->overrides, OVERRIDE_LISTS) + set->count : own->count;
    if (at == own->count && more >= OVERRIDES_MAX) {
        return error_set(error, -ENOSPC, "there are %d entries; take one back, or use a network", OVERRIDES_MAX);
    }
    result =
        of_all ? entry_value_read_all(value, &numbers, error) : entry_value_compile(policy, value, &numbers, error);
    return result != 0 ? result : change_own(w, at, field, value, error);
}

int weir_set_override(weir *w, const char *name, const char *value, weir_error *error)
{
    if (name == NULL) {
        return error_set(error, -EINVAL, "name is NULL; give policy:key, such as api:198.51.100.7");
    }
    policy_lock_take(w);
    const int result = set_override(w, name, value, error);
    policy_lock_release(w);
    return result;
}

size_t weir_list_overrides(weir *w, weir_override_fn each, void *arg)
{
    size_t count = 0;
    policy_lock_take(w);
    for (size_t i = 0; i < OVERRIDE_LISTS; i++) {
        for (size_t j = 0; j < w->overrides[i].count; j++) {
            const struct override_text *text = &w->overrides[i].texts[j];
            const weir_override entry = {.name = text->field,
                                         .value = text->value,
                                         .from_fleet = i == OVERRIDES_FLEET,
                                         .in_force = text->in_force};
            each(arg, &entry);
            count++;
        }
    }
    policy_lock_release(w);
    return count;
}
