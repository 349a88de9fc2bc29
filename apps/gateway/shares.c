/* SPDX-License-Identifier: Apache-2.0 */
/* See shares.h. */
#include "shares.h"

#include <stdlib.h>
#include <string.h>

/* log2 of how many times a source's share a network may hold. */
#define NETWORK_SHARE_BITS 3

#define LEVELS 32

/* The lists that a session is in. */
enum { OF_SOURCE, OF_NETWORK, OF_ALL, LISTS };

struct links {
    uint32_t newer, older;
};

struct list {
    uint32_t newest, oldest, count;
};

struct member {
    struct links links[LISTS];
    uint32_t holders[OF_ALL];
    enum session_use use;
};

/* A source or a network. */
struct holder {
    uint64_t hash;
    uint32_t next;  /* in its chain, or in the list of free ones */
    uint32_t count; /* sessions of all uses */
    bool is_network;
    struct list sessions[USE_COUNT];
    struct links links[USE_COUNT]; /* in the list of its level */
};

struct shares {
    struct member *members;
    struct holder *holders;
    uint32_t *chains;
    uint32_t chain_mask, free;
    uint32_t used_most; /* sessions that are used, while others wait */
    struct list all[USE_COUNT];
    struct list levels[USE_COUNT][LEVELS]; /* holders */
    uint32_t taken[USE_COUNT];             /* a bit for each level that has a holder */
};

static const struct list empty = {SHARES_NONE, SHARES_NONE, 0};

struct shares *shares_open(uint32_t capacity)
{
    struct shares *shares = calloc(1, sizeof(*shares));
    uint32_t chain_count = 64;
    while (chain_count < capacity) {
        chain_count *= 2;
    }
    if (shares == NULL) {
        return NULL;
    }
    shares->chain_mask = chain_count - 1;
    shares->used_most = capacity - capacity / 4;
    shares->members = calloc(capacity, sizeof(*shares->members));
    shares->holders = calloc(capacity, OF_ALL * sizeof(*shares->holders)); /* a source and a network each */
    shares->chains = malloc(chain_count * sizeof(*shares->chains));
    if (shares->members == NULL || shares->holders == NULL || shares->chains == NULL) {
        shares_close(shares);
        return NULL;
    }
    memset(shares->chains, 0xff, chain_count * sizeof(*shares->chains));
    shares->free = SHARES_NONE;
    for (uint32_t i = OF_ALL * capacity; i-- > 0;) {
        shares->holders[i].next = shares->free;
        shares->free = i;
    }
    for (int use = 0; use < USE_COUNT; use++) {
        shares->all[use] = empty;
        for (int level = 0; level < LEVELS; level++) {
            shares->levels[use][level] = empty;
        }
    }
    return shares;
}

void shares_close(struct shares *shares)
{
    if (shares != NULL) {
        free(shares->members);
        free(shares->holders);
        free(shares->chains);
        free(shares);
    }
}

/* The links of a session in one of its lists. */
static struct links *session_links(struct shares *shares, uint32_t session, int list)
{
    return &shares->members[session].links[list];
}

static struct list *session_list(struct shares *shares, uint32_t session, int list)
{
    const struct member *member = &shares->members[session];
    return list == OF_ALL ? &shares->all[member->use] : &shares->holders[member->holders[list]].sessions[member->use];
}

static void add_session(struct shares *shares, uint32_t session, int of)
{
    struct list *list = session_list(shares, session, of);
    *session_links(shares, session, of) = (struct links){SHARES_NONE, list->newest};
    *(list->newest != SHARES_NONE ? &session_links(shares, list->newest, of)->newer : &list->oldest) = session;
    list->newest = session;
    list->count++;
}

static void remove_session(struct shares *shares, uint32_t session, int of)
{
    struct list *list = session_list(shares, session, of);
    const struct links at = *session_links(shares, session, of);
    *(at.newer != SHARES_NONE ? &session_links(shares, at.newer, of)->older : &list->newest) = at.older;
    *(at.older != SHARES_NONE ? &session_links(shares, at.older, of)->newer : &list->oldest) = at.newer;
    list->count--;
}

/* The level of a holder of `count` sessions, one at least: a power of two. */
static unsigned level_of(const struct holder *holder, uint32_t count)
{
    const unsigned log2 = 31 - (unsigned) __builtin_clz(count);
    const unsigned less = holder->is_network ? NETWORK_SHARE_BITS : 0;
    return log2 > less ? log2 - less : 0;
}

static void enter_level(struct shares *shares, uint32_t number, enum session_use use, unsigned level)
{
    struct list *list = &shares->levels[use][level];
    shares->holders[number].links[use] = (struct links){SHARES_NONE, list->newest};
    *(list->newest != SHARES_NONE ? &shares->holders[list->newest].links[use].newer : &list->oldest) = number;
    list->newest = number;
    shares->taken[use] |= UINT32_C(1) << level;
}

static void leave_level(struct shares *shares, uint32_t number, enum session_use use, unsigned level)
{
    struct list *list = &shares->levels[use][level];
    const struct links at = shares->holders[number].links[use];
    *(at.newer != SHARES_NONE ? &shares->holders[at.newer].links[use].older : &list->newest) = at.older;
    *(at.older != SHARES_NONE ? &shares->holders[at.older].links[use].newer : &list->oldest) = at.newer;
    shares->taken[use] &= ~((uint32_t) (list->newest == SHARES_NONE) << level);
}

/* A holder's sessions of a use were `before`: it moves to the level that it belongs to now. */
static void move_level(struct shares *shares, uint32_t number, enum session_use use, uint32_t before)
{
    const struct holder *holder = &shares->holders[number];
    const uint32_t now = holder->sessions[use].count;
    if (before != 0 && now != 0 && level_of(holder, before) == level_of(holder, now)) {
        return;
    }
    if (before != 0) {
        leave_level(shares, number, use, level_of(holder, before));
    }
    if (now != 0) {
        enter_level(shares, number, use, level_of(holder, now));
    }
}

/* Into the lists of its use, or out of them. */
static void list_session(struct shares *shares, uint32_t session, bool enters)
{
    const struct member *member = &shares->members[session];
    for (int of = 0; of < LISTS; of++) {
        const uint32_t before = session_list(shares, session, of)->count;
        if (enters) {
            add_session(shares, session, of);
        } else {
            remove_session(shares, session, of);
        }
        if (of != OF_ALL) {
            move_level(shares, member->holders[of], member->use, before);
        }
    }
}

/* The holder of a hash, new where there is none. */
static uint32_t find_holder(struct shares *shares, uint64_t hash, bool is_network)
{
    uint32_t *chain = &shares->chains[(uint32_t) hash & shares->chain_mask];
    for (uint32_t i = *chain; i != SHARES_NONE; i = shares->holders[i].next) {
        if (shares->holders[i].hash == hash && shares->holders[i].is_network == is_network) {
            return i;
        }
    }
    const uint32_t number = shares->free;
    struct holder *holder = &shares->holders[number];
    shares->free = holder->next;
    *holder =
        (struct holder){.hash = hash, .next = *chain, .is_network = is_network, .sessions = {empty, empty, empty}};
    *chain = number;
    return number;
}

static void drop_holder(struct shares *shares, uint32_t number)
{
    struct holder *holder = &shares->holders[number];
    uint32_t *link = &shares->chains[(uint32_t) holder->hash & shares->chain_mask];
    while (*link != number) {
        link = &shares->holders[*link].next;
    }
    *link = holder->next;
    holder->next = shares->free;
    shares->free = number;
}

void shares_add(struct shares *shares, uint32_t session, const struct session_holders *holders, enum session_use use)
{
    struct member *member = &shares->members[session];
    member->use = use;
    member->holders[OF_SOURCE] = find_holder(shares, holders->source, false);
    member->holders[OF_NETWORK] = find_holder(shares, holders->network, true);
    for (int of = 0; of < OF_ALL; of++) {
        shares->holders[member->holders[of]].count++;
    }
    list_session(shares, session, true);
}

void shares_remove(struct shares *shares, uint32_t session)
{
    const struct member *member = &shares->members[session];
    list_session(shares, session, false);
    for (int of = 0; of < OF_ALL; of++) {
        if (--shares->holders[member->holders[of]].count == 0) {
            drop_holder(shares, member->holders[of]);
        }
    }
}

/* The session is the newest of its use, which may be another one from now on. */
static void note(struct shares *shares, uint32_t session, enum session_use use)
{
    struct member *member = &shares->members[session];
    if (member->use != use) {
        list_session(shares, session, false);
        member->use = use;
        list_session(shares, session, true);
        return;
    }
    for (int of = 0; of < LISTS; of++) {
        if (session_list(shares, session, of)->newest != session) {
            remove_session(shares, session, of);
            add_session(shares, session, of);
        }
    }
}

void shares_sent(struct shares *shares, uint32_t session)
{
    note(shares, session, USE_USED);
}

void shares_answered(struct shares *shares, uint32_t session)
{
    const enum session_use use = shares_use(shares, session);
    note(shares, session, use == USE_WAITING ? USE_ANSWERED : use);
}

enum session_use shares_use(const struct shares *shares, uint32_t session)
{
    return shares->members[session].use;
}

uint32_t shares_oldest(const struct shares *shares, enum session_use use)
{
    return shares->all[use].oldest;
}

/* The use whose sessions make way. */
static enum session_use use_to_end(const struct shares *shares)
{
    if (shares->all[USE_ANSWERED].count != 0) {
        return USE_ANSWERED;
    }
    const bool waits = shares->all[USE_WAITING].count != 0;
    return waits && shares->all[USE_USED].count <= shares->used_most ? USE_WAITING : USE_USED;
}

uint32_t shares_victim(const struct shares *shares)
{
    const enum session_use use = use_to_end(shares);
    const uint32_t above = shares->taken[use] & ~UINT32_C(1);
    if (above == 0) {
        return shares->all[use].oldest;
    }
    const unsigned level = 31 - (unsigned) __builtin_clz(above);
    return shares->holders[shares->levels[use][level].oldest].sessions[use].oldest;
}
