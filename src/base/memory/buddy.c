/* SPDX-License-Identifier: Apache-2.0 */
/* See buddy.h. */
#include "base/memory/buddy.h"

#include <string.h>

#define BUDDY_FREE 0x80 /* a flag of struct buddy.orders; orders stay below it */

/* A free block begins with its neighbours in the list. */
struct links {
    uint32_t next, previous;
};

static struct links *links_of(const struct buddy *buddy, uint32_t block)
{
    return buddy_at(buddy, block);
}

size_t buddy_overhead(size_t size)
{
    return size / BUDDY_SMALLEST;
}

void buddy_init(struct buddy *buddy, struct buddy_shared *shared, void *region, size_t size, void *orders)
{
    *buddy = (struct buddy){.shared = shared, .region = region, .size = size, .orders = orders};
}

static void list_add(struct buddy *buddy, uint32_t block, unsigned order)
{
    const uint32_t next = buddy->shared->free[order];
    *links_of(buddy, block) = (struct links){.next = next, .previous = 0};
    if (next != 0) {
        links_of(buddy, next)->previous = block;
    }
    buddy->shared->free[order] = block;
    buddy->orders[block - 1] = (uint8_t) ((order + 1) | BUDDY_FREE);
}

static void list_remove(struct buddy *buddy, uint32_t block, unsigned order)
{
    const struct links links = *links_of(buddy, block);
    if (links.previous != 0) {
        links_of(buddy, links.previous)->next = links.next;
    } else {
        buddy->shared->free[order] = links.next;
    }
    if (links.next != 0) {
        links_of(buddy, links.next)->previous = links.previous;
    }
    buddy->orders[block - 1] = 0;
}

/* Takes the smallest free block of at least this order off its list; 0: there is none. */
static uint32_t take_free(struct buddy *buddy, unsigned order, unsigned *found)
{
    for (unsigned o = order; o < BUDDY_ORDERS; o++) {
        const uint32_t block = buddy->shared->free[o];
        if (block != 0) {
            list_remove(buddy, block, o);
            *found = o;
            return block;
        }
    }
    if (buddy->shared->present - buddy->shared->fresh < BUDDY_LARGEST) {
        return 0;
    }
    const uint32_t block = (uint32_t) (buddy->shared->fresh / BUDDY_SMALLEST) + 1;
    buddy->shared->fresh += BUDDY_LARGEST;
    *found = BUDDY_ORDERS - 1;
    return block;
}

static unsigned order_for(size_t size)
{
    unsigned order = 0;
    while (((size_t) BUDDY_SMALLEST << order) < size) {
        order++;
    }
    return order;
}

uint32_t buddy_take(struct buddy *buddy, size_t size)
{
    const unsigned order = order_for(size);
    if (order >= BUDDY_ORDERS) {
        return 0;
    }
    unsigned found = 0;
    const uint32_t block = take_free(buddy, order, &found);
    if (block == 0) {
        return 0;
    }
    while (found > order) {
        found--;
        list_add(buddy, block + (UINT32_C(1) << found), found);
    }
    buddy->orders[block - 1] = (uint8_t) (order + 1);
    buddy->shared->used += (size_t) BUDDY_SMALLEST << order;
    return block;
}

void buddy_give(struct buddy *buddy, uint32_t block)
{
    unsigned order = buddy->orders[block - 1] - 1U;
    buddy->shared->used -= (size_t) BUDDY_SMALLEST << order;
    buddy->orders[block - 1] = 0;
    while (order + 1 < BUDDY_ORDERS) {
        const uint32_t other = ((block - 1) ^ (UINT32_C(1) << order)) + 1;
        if (buddy->orders[other - 1] != ((order + 1) | BUDDY_FREE)) {
            break;
        }
        list_remove(buddy, other, order);
        block = block < other ? block : other;
        order++;
    }
    list_add(buddy, block, order);
}

uint32_t buddy_next(const struct buddy *buddy, uint32_t block)
{
    const size_t end = buddy->shared->fresh / BUDDY_SMALLEST;
    while (block != 0 && block <= end) {
        const uint8_t order = buddy->orders[block - 1];
        if ((order & BUDDY_FREE) == 0 && order != 0) {
            return block;
        }
        block += order == 0 ? 1 : UINT32_C(1) << ((order & ~BUDDY_FREE) - 1);
    }
    return 0;
}

void buddy_clear(struct buddy *buddy)
{
    /* Memory that was never handed out stays untouched. */
    memset(buddy->orders, 0, buddy->shared->fresh / BUDDY_SMALLEST);
    memset(buddy->shared->free, 0, sizeof(buddy->shared->free));
    buddy->shared->used = 0;
}

void buddy_restore(struct buddy *buddy, uint32_t block, size_t size)
{
    const unsigned order = order_for(size);
    buddy->orders[block - 1] = (uint8_t) (order + 1);
    buddy->shared->used += (size_t) BUDDY_SMALLEST << order;
}

/* Whether a block is in use within `count` smallest blocks from this one on. */
static bool any_in_use(const struct buddy *buddy, uint32_t block, uint32_t count)
{
    bool any = false;
    for (uint32_t i = 0; i < count && !any; i++) {
        any = buddy->orders[block - 1 + i] != 0;
    }
    return any;
}

bool buddy_may_restore(const struct buddy *buddy, uint32_t block, size_t size)
{
    const unsigned order = order_for(size);
    const size_t count = (size_t) 1 << order;
    const size_t end = buddy->shared->fresh / BUDDY_SMALLEST;
    if (order >= BUDDY_ORDERS || block == 0 || (block - 1) % count != 0 || block - 1 + count > end) {
        return false;
    }
    bool free = !any_in_use(buddy, block, (uint32_t) count);
    for (unsigned above = order + 1; above < BUDDY_ORDERS && free; above++) {
        const uint32_t around =
            (block - 1) & ~((UINT32_C(1) << above) - 1); /* that begins there and has this one within */
        free = buddy->orders[around] != above + 1;
    }
    return free;
}

void buddy_restore_free(struct buddy *buddy)
{
    const uint32_t end = (uint32_t) (buddy->shared->fresh / BUDDY_SMALLEST);
    uint32_t at = 0;
    while (at < end) {
        const uint8_t used = buddy->orders[at];
        unsigned order = used != 0 ? used - 1U : BUDDY_ORDERS - 1;
        if (used == 0) {
            /* The largest block that begins here, by its number, and has no other within. */
            while (order > 0 && (at % (UINT32_C(1) << order) != 0 || any_in_use(buddy, at + 1, UINT32_C(1) << order))) {
                order--;
            }
            list_add(buddy, at + 1, order);
        }
        at += UINT32_C(1) << order;
    }
}
