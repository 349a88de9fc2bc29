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
    }
    freeifaddrs(all);
    qsort(list, *count, sizeof(*list), compare);
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

void locals_close(struct locals *locals)
{
    free(locals->known);
    *locals = (struct locals){.known = NULL};
}
