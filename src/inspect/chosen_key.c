/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See chosen_key.h. Overrides are looked for in the order of policy/override_set.c: of the key, of its hash, of the
 * smallest network; of two for one of these, that of the program, then that in Redis.
 */
#include "inspect/chosen_key.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "limiter/policy_lock.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "policy/override_set.h"
#include "policy/policy_set.h"

/* Whether the first `bits` bits agree. */
static bool has_prefix(const unsigned char *bytes, const unsigned char *prefix, unsigned bits)
{
    const unsigned rest = bits % 8;
    return memcmp(bytes, prefix, bits / 8) == 0 &&
           (rest == 0 || (bytes[bits / 8] ^ prefix[bits / 8]) >> (8 - rest) == 0);
}

/* The rank of an override of the key among others of its policy. 0: it is none of the key. */
static unsigned rank_own(const weir *w, const struct chosen_key *key, const struct entry_name *name)
{
    unsigned char hash[RECORD_HASH_SIZE];
    const struct entry_name *own = &key->name;
    if (strcmp(name->policy, key->policy.name) != 0) {
        return 0;
    }
    switch (name->kind) {
    case ENTRY_KEY:
        if (own->kind == ENTRY_HASHED) {
            record_hash_of(&w->record_hash, name->bytes, name->length, hash);
            return memcmp(hash, own->bytes, sizeof(hash)) == 0 ? 300 : 0;
        }
        return own->kind == ENTRY_KEY && own->length == name->length &&
                       memcmp(own->bytes, name->bytes, name->length) == 0
                   ? 300
                   : 0;
    case ENTRY_HASHED:
        if (own->kind == ENTRY_NETWORK) {
            return 0;
        }
        memcpy(hash, own->bytes, sizeof(hash));
        if (own->kind == ENTRY_KEY) {
            record_hash_of(&w->record_hash, own->bytes, own->length, hash);
        }
        return memcmp(hash, name->bytes, sizeof(hash)) == 0 ? 299 : 0;
    case ENTRY_NETWORK:
        if (own->kind == ENTRY_NETWORK) {
            return own->network.length == name->network.length && own->network.bits >= name->network.bits &&
                           has_prefix(own->network.bytes, name->network.bytes, name->network.bits)
                       ? name->network.bits + 1
                       : 0;
        }
        return own->kind == ENTRY_KEY && own->length == name->network.length &&
                       has_prefix(own->bytes, name->network.bytes, name->network.bits)
                   ? name->network.bits + 1
                   : 0;
    }
    return 0;
}

/* The same, with overrides of all policies. One of these is as if it were there for the key's, behind one of its own.
 */
static unsigned rank(const weir *w, const struct chosen_key *key, const struct entry_name *name)
{
    struct entry_name in;
    if (!entry_name_is_of_all(name)) {
        return 2 * rank_own(w, key, name);
    }
    const bool is_there = entry_name_in(&w->names, key->policy.name, name, &in);
    const unsigned own = is_there ? rank_own(w, key, &in) : 0;
    return own != 0 ? 2 * own - 1 : 0;
}

/* The override in force, as far as it has been found. */
struct found {
    weir *w;
    const struct policy *policy; /* as it is without an override */
    uint64_t now_ns;             /* fleet time */
    unsigned best;               /* the rank of the override in force; 0: none */
};

/* Puts an override in force if it is the key's, well-formed, and before the one that is. */
static void consider(struct chosen_key *key, struct found *found, const char *typed, const char *text, bool from_fleet)
{
    struct entry_name name;
    struct entry_value value;
    weir *w = found->w;
    if (entry_name_read(&w->names, typed, &name, NULL) != 0) {
        return;
    }
    const unsigned its_rank = rank(w, key, &name);
    const bool good = its_rank > found->best &&
                      (entry_name_is_of_all(&name) ? entry_value_read_all(text, &value, NULL) == 0
                                                   : entry_value_compile(found->policy, text, &value, NULL) == 0);
    if (!good || (value.until_ns != 0 && value.until_ns <= found->now_ns)) {
        return; /* not the key's, malformed, or ended */
    }
    found->best = its_rank;
    key->override_name = typed;
    key->override_value = text;
    key->override_from_fleet = from_fleet;
    policy_override(&key->policy, found->policy, value.override == OVERRIDE_NONE ? value.limits : NULL, value.bursts,
                    &w->names, w->limiter.tick_ns);
    key->policy.override = value.override;
}

static void consider_list(struct chosen_key *key, struct found *found, const struct override_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        consider(key, found, list->texts[i].field, list->texts[i].value, false);
    }
}

/* Finds the override. False: no memory. */
static bool find_override(struct chosen_key *key, struct shelf *shelf, struct found *found,
                          const weir_inspected_overrides *fleet)
{
    consider_list(key, found, &found->w->overrides[OVERRIDES_OWN]);
    for (size_t i = 0; i < fleet->override_count && i < OVERRIDES_MAX; i++) {
        const weir_inspected_override *entry = &fleet->overrides[i];
        if (strlen(entry->name) + strlen(entry->value) <= OVERRIDE_SIZE_MAX) {
            consider(key, found, entry->name, entry->value, true);
        }
    }
    consider_list(key, found, &found->w->overrides[OVERRIDES_FILE]);
    if (key->override_name != NULL) {
        key->override_name = shelf_text(shelf, key->override_name);
        key->override_value = shelf_text(shelf, key->override_value);
        return key->override_name != NULL && key->override_value != NULL;
    }
    return true;
}

/* Sets what the key is called: in records, and by overrides. */
static void name_key(struct chosen_key *key, const weir *w, const char *typed)
{
    struct key_name kept;
    if (key->name.kind == ENTRY_KEY) {
        const weir_key bytes = {.data = key->name.bytes, .length = (uint32_t) key->name.length};
        key_name_make(&kept, &w->record_hash, &key->policy, &bytes);
        (void) key_name_write(key->text, &kept, policy_names_form(&w->names, key->policy.base));
    } else {
        (void) snprintf(key->text, sizeof(key->text), "%s", typed); /* a hash has been read from it */
    }
    entry_name_write(&key->name, key->full_name);
}

/* chosen_key_read, under the policy lock. */
static int read_key(struct chosen_key *out, struct shelf *shelf, weir *w, const char *name,
                    const weir_inspected_overrides *fleet, uint64_t now_ns, weir_error *error)
{
    const struct policy_set *set = shared_policies_in_force(w);
    if (set == NULL) {
        return shared_policies_refuse(-EUCLEAN, error);
    }
    const int result = entry_name_read(&w->names, name, &out->name, error);
    if (result != 0) {
        return result;
    }
    const struct policy *policy = policy_set_by_id(set, policy_names_find(&w->names, out->name.policy));
    if (policy == NULL) {
        return error_set(error, -ENOENT, "there is no policy \"%s\"; give the name of one in force", out->name.policy);
    }
    policy_override(&out->policy, policy, NULL, NULL, &w->names, w->limiter.tick_ns);
    name_key(out, w, strchr(name, ':') + 1);
    struct found found = {.w = w, .policy = policy, .now_ns = now_ns};
    return find_override(out, shelf, &found, fleet) ? error_clear(error) : error_set(error, -ENOMEM, "out of memory");
}

int chosen_key_read(struct chosen_key *out, struct shelf *shelf, weir *w, const char *name,
                    const weir_inspected_overrides *fleet, uint64_t now_ns, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    policy_lock_take(w);
    const int result = read_key(out, shelf, w, name, fleet, now_ns, error);
    policy_lock_release(w);
    return result;
}
