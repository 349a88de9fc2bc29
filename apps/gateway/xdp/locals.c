/* SPDX-License-Identifier: Apache-2.0 */
/* See locals.h. */
#include "locals.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct drop_key));
}

/* False: it is no address of IP. */
static bool read_address(const struct sockaddr *from, struct drop_key *out)
{
    *out = (struct drop_key){.family = 4};
    if (from != NULL && from->sa_family == AF_INET) {
        memcpy(out->address, &((const struct sockaddr_in *) (const void *) from)->sin_addr, 4);
        return true;
    }
    out->family = 6;
    if (from != NULL && from->sa_family == AF_INET6) {
        memcpy(out->address, &((const struct sockaddr_in6 *) (const void *) from)->sin6_addr, 16);
        return true;
    }
    return false;
}

/*
 * Notes the address that all on the wire of an address of IPv4 listen to: the last one of its network, which the kernel
 * takes for that whatever the interface says. False: there is none.
 */
static bool read_broadcast(const struct ifaddrs *from, struct drop_key *out)
{
    struct drop_key mask;
    if (!read_address(from->ifa_addr, out) || out->family != 4 || !read_address(from->ifa_netmask, &mask) ||
        mask.family != 4 || (mask.address[3] & 2) != 0) {
        return false; /* networks of one address, or of two, have none */
    }
    for (unsigned i = 0; i < 4; i++) {
        out->address[i] |= (unsigned char) ~mask.address[i];
    }
    out->prefix = DROP_BROADCAST;
    return true;
}

/* Leaves one of several that are the same. Returns how many are left. */
static size_t make_unique(struct drop_key *list, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || compare(&list[kept - 1], &list[i]) != 0) {
            list[kept++] = list[i];
        }
    }
    return kept;
}

/* The addresses of now, sorted. NULL: they cannot be had. */
static struct drop_key *list_addresses(size_t *count)
{
    struct ifaddrs *all = NULL;
    struct drop_key *list = calloc(LOCALS_MAX, sizeof(*list));
    *count = 0;
    if (list == NULL || getifaddrs(&all) != 0) {
        free(list);
        return NULL;
    }
    for (const struct ifaddrs *at = all; at != NULL && *count < LOCALS_MAX; at = at->ifa_next) {
        *count += read_address(at->ifa_addr, &list[*count]);
        *count += *count < LOCALS_MAX && read_broadcast(at, &list[*count]);
    }
    freeifaddrs(all);
    qsort(list, *count, sizeof(*list), compare);
    *count = make_unique(list, *count);
    return list;
}

static bool has(const struct drop_key *list, size_t count, const struct drop_key *key)
{
    return count != 0 && bsearch(key, list, count, sizeof(*list), compare) != NULL;
}

void locals_look(struct locals *locals, void (*set)(void *arg, const struct drop_key *address, bool there), void *arg)
{
    size_t count;
    struct drop_key *now = list_addresses(&count);
    if (now == NULL) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!has(locals->known, locals->count, &now[i])) {
            set(arg, &now[i], true);
        }
    }
    for (size_t i = 0; i < locals->count; i++) {
        if (!has(now, count, &locals->known[i])) {
            set(arg, &locals->known[i], false);
        }
    }
    free(locals->known);
    *locals = (struct locals){.known = now, .count = count};
}

bool locals_have(const struct locals *locals, const struct drop_key *address)
{
    return has(locals->known, locals->count, address);
}

void locals_close(struct locals *locals)
{
    free(locals->known);
    *locals = (struct locals){.known = NULL};
}
