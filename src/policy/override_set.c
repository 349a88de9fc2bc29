/* SPDX-License-Identifier: Apache-2.0 */
/* See override_set.h. */
#include "policy/override_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "base/record_hash.h"
#include "policy/entry.h"
#include "policy/policy_set.h"

struct entry {
    uint64_t hash, more; /* of what it is found by; `more` of a hashed key alone */
    enum entry_kind kind;
    struct policy policy;
};

/* Entries that a key of some policy is looked for by in one way: by its hash, or in networks of one size. */
struct way {
    weir_policy_id policy;
    enum entry_kind kind;
    size_t length; /* of a network's keys */
    unsigned bits;
};

/* One block: the entries, then the ways, then the slots, each at its offset from the block's start. */
struct overrides {
    size_t size; /* bytes of the block */
    size_t count, way_count, listed;
    bool has_all;      /* there are entries of all policies, whose policy is WEIR_NO_POLICY */
    uint64_t until_ns; /* overrides_until_ns() */
    size_t slot_count; /* a power of two, more than twice the count */
    size_t ways_at, slots_at;
    struct entry entries[];
};

_Static_assert(sizeof(struct entry) % _Alignof(struct way) == 0 && sizeof(struct way) % _Alignof(uint32_t) == 0,
               "what lies behind the entries is aligned");

/* In the order in which they are tried. */
static const struct way *ways_of(const struct overrides *all)
{
    return (const struct way *) (const void *) ((const unsigned char *) all + all->ways_at);
}

/* Each has the index + 1 of an entry; 0: free. */
static const uint32_t *slots_of(const struct overrides *all)
{
    return (const uint32_t *) (const void *) ((const unsigned char *) all + all->slots_at);
}

/* The ways and the slots of a block that is being filled. */
static struct way *ways_to_fill(struct overrides *all)
{
    return (struct way *) (void *) ((unsigned char *) all + all->ways_at);
}

static uint32_t *slots_to_fill(struct overrides *all)
{
    return (uint32_t *) (void *) ((unsigned char *) all + all->slots_at);
}

void overrides_drop(struct override_text *texts, size_t count)
{
    for (size_t i = 0; i < count && texts != NULL; i++) {
        free(texts[i].field);
        free(texts[i].value);
    }
    free(texts);
}

static uint64_t network_hash(const struct hash_secret *secret, const struct way *way, const unsigned char *bytes)
{
    unsigned char masked[sizeof(((struct key_network *) NULL)->bytes)] = {0};
    const size_t whole = way->bits / 8;
    memcpy(masked, bytes, whole);
    if (way->bits % 8 != 0) {
        masked[whole] = (unsigned char) (bytes[whole] & (0xff00U >> way->bits % 8));
    }
    return hash_keyed(secret, masked, way->length) ^ hash_mix(way->bits + 1);
}

static const struct entry *find(const struct overrides *all, enum entry_kind kind, weir_policy_id policy, uint64_t hash,
                                uint64_t more)
{
    const uint32_t *slots = slots_of(all);
    size_t slot = (size_t) hash & (all->slot_count - 1);
    for (; slots[slot] != 0; slot = (slot + 1) & (all->slot_count - 1)) {
        const struct entry *entry = &all->entries[slots[slot] - 1];
        if (entry->hash == hash && entry->more == more && entry->kind == kind && entry->policy.id == policy) {
            return entry;
        }
    }
    return NULL;
}

const struct policy *overrides_find(const struct overrides *overrides, const weir_key *key,
                                    const struct hash_secret *secret, const struct record_hash *record_hash)
{
    const struct entry *entry = find(overrides, ENTRY_KEY, key->policy, key->hash, 0);
    for (size_t i = 0; i < overrides->way_count && entry == NULL; i++) {
        const struct way *way = &ways_of(overrides)[i];
        if (way->policy != key->policy) {
            continue;
        }
        if (way->kind == ENTRY_HASHED) {
            uint64_t hash[RECORD_HASH_SIZE / sizeof(uint64_t)];
            record_hash_of(record_hash, key->data, key->length, (unsigned char *) hash);
            entry = find(overrides, ENTRY_HASHED, key->policy, hash[0], hash[1]);
        } else if (key->length == way->length) {
            entry = find(overrides, ENTRY_NETWORK, key->policy, network_hash(secret, way, key->data), 0);
        }
    }
    return entry != NULL ? &entry->policy : NULL;
}

/* Where a key of this entry is looked for. */
static void way_add(struct overrides *all, const struct way *way)
{
    for (size_t i = 0; i < all->way_count; i++) {
        const struct way *at = &ways_of(all)[i];
        if (at->policy == way->policy && at->kind == way->kind && at->length == way->length && at->bits == way->bits) {
            return;
        }
    }
    ways_to_fill(all)[all->way_count++] = *way;
}

/* By kind, and the smallest networks first. */
static int way_compare(const void *left, const void *right)
{
    const struct way *a = left;
    const struct way *b = right;
    return a->kind != b->kind ? (int) a->kind - (int) b->kind : (int) b->bits - (int) a->bits;
}

/* What an entry is found by. */
static void entry_place(const struct override_context *context, const struct entry_name *name, struct entry *entry,
                        struct way *way)
{
    *way = (struct way){.policy = entry->policy.id, .kind = name->kind};
    entry->kind = name->kind;
    entry->more = 0;
    if (name->kind == ENTRY_KEY) {
        entry->hash =
            hash_keyed(context->secret, name->bytes, name->length) ^ context->names->key_masks[entry->policy.id];
        entry->hash = entry->hash != 0 ? entry->hash : 1; /* as weir_make_key */
    } else if (name->kind == ENTRY_HASHED) {
        memcpy(&entry->hash, name->bytes, sizeof(entry->hash));
        memcpy(&entry->more, name->bytes + sizeof(entry->hash), sizeof(entry->more));
    } else {
        way->length = name->network.length;
        way->bits = name->network.bits;
        entry->hash = network_hash(context->secret, way, name->network.bytes);
    }
}

/* Adds an entry of a policy; NULL: of all policies, for itself. False: there is one of that name already. */
static bool add_entry(struct overrides *all, const struct override_context *context, const struct policy *policy,
                      const struct entry_name *name, const struct entry_value *value)
{
    struct entry *entry = &all->entries[all->count];
    struct way way;
    memset(&entry->policy, 0, sizeof(entry->policy));
    entry->policy.id = policy != NULL ? policy->id : WEIR_NO_POLICY;
    entry_place(context, name, entry, &way);
    if (find(all, entry->kind, entry->policy.id, entry->hash, entry->more) != NULL) {
        return false;
    }
    if (policy != NULL) {
        policy_override(&entry->policy, policy, value->override == OVERRIDE_NONE ? value->limits : NULL, value->bursts,
                        context->names, context->tick_ns);
    }
    entry->policy.override = value->override;
    for (size_t i = 0; policy != NULL && i < policy->limit_count; i++) {
        const struct policy_limit *limit = &entry->policy.limits[i];
        policy_set_raise_history_max(context->set, policy->group, limit->limit_hash, limit->rule.limit);
    }
    if (entry->kind != ENTRY_KEY) {
        way_add(all, &way);
    }
    size_t slot = (size_t) entry->hash & (all->slot_count - 1);
    uint32_t *slots = slots_to_fill(all);
    while (slots[slot] != 0) {
        slot = (slot + 1) & (all->slot_count - 1);
    }
    slots[slot] = (uint32_t) ++all->count;
    all->until_ns = value->until_ns != 0 ? min_u64(all->until_ns, value->until_ns) : all->until_ns;
    return true;
}

/* What overrides_compile works with. */
struct compiler {
    struct overrides *all;
    const struct override_context *context;
    size_t room; /* of `all`, in entries */
};

/* Adds an override of all policies for itself, and to each policy of the set that has keys of its network. */
static int add_of_all(const struct compiler *c, struct override_text *text, const struct entry_name *name,
                      const struct entry_value *value, weir_error *error)
{
    const struct policy_set *set = c->context->set;
    if (c->all->count + 1 + set->count > c->room) {
        return error_set(error, -EINVAL, "there is no room for it in all policies; give fewer entries, or networks");
    }
    text->compiled = add_entry(c->all, c->context, NULL, name, value);
    c->all->has_all = true;
    for (size_t i = 0; text->compiled && i < set->count; i++) {
        struct entry_name in;
        if (entry_name_in(c->context->names, set->policies[i].name, name, &in)) {
            (void) add_entry(c->all, c->context, &set->policies[i], &in, value);
        }
    }
    return 0;
}

/* Adds an override. 0, also where its policy is not there, or there is one already; -EINVAL with a sentence. */
static int add(const struct compiler *c, struct override_text *text, weir_error *error)
{
    struct entry_name name;
    struct entry_value value;
    int result = entry_name_read(c->context->names, text->field, &name, error);
    const bool of_all = result == 0 && entry_name_is_of_all(&name);
    const weir_policy_id id = result == 0 ? policy_names_find(c->context->names, name.policy) : WEIR_NO_POLICY;
    const struct policy *policy = policy_set_by_id(c->context->set, id);
    if (policy == NULL && !of_all) {
        return result;
    }
    result = of_all ? entry_value_read_all(text->value, &value, error)
                    : entry_value_compile(policy, text->value, &value, error);
    if (result != 0 || (value.until_ns != 0 && value.until_ns <= c->context->now_ns)) {
        return result;
    }
    if (of_all) {
        return add_of_all(c, text, &name, &value, error);
    }
    text->compiled = c->all->count < c->room && add_entry(c->all, c->context, policy, &name, &value);
    return 0;
}

/* The offsets and sizes of a block with room for so many entries. */
static void lay_out(struct overrides *all, size_t count)
{
    *all = (struct overrides){.slot_count = 16, .until_ns = UINT64_MAX};
    while (all->slot_count <= 2 * count) {
        all->slot_count *= 2;
    }
    all->ways_at = sizeof(struct overrides) + count * sizeof(struct entry);
    all->slots_at = all->ways_at + count * sizeof(struct way);
    all->size = all->slots_at + all->slot_count * sizeof(uint32_t);
}

size_t overrides_size_most(void)
{
    struct overrides largest;
    lay_out(&largest, OVERRIDES_MAX);
    return largest.size;
}

/* A block with room for so many entries. NULL: out of memory. */
static struct overrides *overrides_make(size_t count)
{
    struct overrides layout;
    lay_out(&layout, count);
    struct overrides *all = calloc(1, layout.size);
    if (all != NULL) {
        lay_out(all, count);
    }
    return all;
}

static bool is_of_all(const struct override_text *text)
{
    return strncmp(text->field, ENTRY_ALL ":", sizeof(ENTRY_ALL ":") - 1) == 0;
}

size_t overrides_wanted(const struct policy_set *set, const struct override_list *lists, size_t list_count)
{
    size_t wanted = 0;
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < lists[i].count; j++) {
            wanted += 1 + (is_of_all(&lists[i].texts[j]) ? set->count : 0);
        }
    }
    return wanted;
}

/* Adds the overrides of single policies, or those of all. */
static void add_lists(const struct compiler *c, const struct override_list *lists, size_t list_count, bool of_all,
                      struct override_faults *faults)
{
    size_t seen = 0;
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < lists[i].count && seen < OVERRIDES_MAX; j++, seen++) {
            struct override_text *text = &lists[i].texts[j];
            weir_error error;
            if (is_of_all(text) != of_all) {
                continue;
            }
            if (add(c, text, &error) != 0 && faults->count++ == 0) {
                faults->first = text;
                faults->error = error;
            }
            c->all->listed += text->compiled;
        }
    }
}

int overrides_compile(const struct override_context *context, const struct override_list *lists, size_t list_count,
                      struct overrides **out, struct override_faults *faults)
{
    const size_t wanted = overrides_wanted(context->set, lists, list_count);
    memset(faults, 0, sizeof(*faults));
    *out = NULL;
    for (size_t i = 0; i < list_count; i++) {
        for (size_t j = 0; j < lists[i].count; j++) {
            lists[i].texts[j].compiled = false;
        }
    }
    if (wanted == 0) {
        return 0;
    }
    const size_t room = wanted <= OVERRIDES_MAX ? wanted : OVERRIDES_MAX;
    struct overrides *all = overrides_make(room);
    if (all == NULL) {
        return -ENOMEM;
    }
    const struct compiler c = {.all = all, .context = context, .room = room};
    add_lists(&c, lists, list_count, false, faults); /* first: these stand above */
    add_lists(&c, lists, list_count, true, faults);
    qsort(ways_to_fill(all), all->way_count, sizeof(struct way), way_compare);
    *out = all;
    return 0;
}

void overrides_free(struct overrides *overrides)
{
    free(overrides);
}

uint64_t overrides_until_ns(const struct overrides *overrides)
{
    return overrides != NULL ? overrides->until_ns : UINT64_MAX;
}

size_t overrides_size(const struct overrides *overrides)
{
    return overrides->size;
}

size_t overrides_listed(const struct overrides *overrides)
{
    return overrides != NULL ? overrides->listed : 0;
}

enum override overrides_find_all(const struct overrides *overrides, const void *address, size_t length,
                                 const struct hash_secret *secret, unsigned *bits)
{
    for (size_t i = 0; overrides != NULL && overrides->has_all && i < overrides->way_count; i++) {
        const struct way *way = &ways_of(overrides)[i];
        if (way->policy != WEIR_NO_POLICY || way->length != length) {
            continue;
        }
        const struct entry *entry =
            find(overrides, ENTRY_NETWORK, WEIR_NO_POLICY, network_hash(secret, way, address), 0);
        if (entry != NULL) {
            *bits = way->bits;
            return entry->policy.override;
        }
    }
    return OVERRIDE_NONE;
}

size_t overrides_count(const struct overrides *overrides)
{
    return overrides != NULL ? overrides->count : 0;
}

struct policy *overrides_at(struct overrides *overrides, size_t index)
{
    return &overrides->entries[index].policy;
}
