/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See hops.h.
 *
 * A hop is two words, `hop` and `hop ^ name`: the name is that of the backend that it leads to. The thread writes them
 * one after the other, and a reader that finds words of two hops, or of another backend that had the place before,
 * finds another name than the one it asks for. So no order of the two is needed.
 */
#include "hops.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../mix.h"
#include "route.h"

#define LOOK_MS  500
#define PAUSE_MS 50

/* A hop: an address of Ethernet in 48 bits, and the largest packet in 16, which is not 0. */
#define MAC_BITS 48
#define MTU_MOST UINT16_MAX

/* Of the interface; what is beyond counts as an address of another one. */
#define OWN_MOST 256

struct own {
    uint16_t family; /* 4 or 6 */
    unsigned char address[16];
};

struct hops {
    struct backends *backends;
    struct route_asker asker;
    _Atomic unsigned interface; /* its index */
    char name[IF_NAMESIZE];
    pthread_t thread;
    _Atomic bool stopping;
    _Atomic uint32_t mtu; /* of the interface */
    struct {
        _Atomic uint64_t hop, named;
    } of[BACKEND_PLACES];
    pthread_mutex_t mutex; /* of what follows */
    size_t own_count;
    struct own own[OWN_MOST];
};

void hops_set_interface(struct hops *hops, unsigned index)
{
    atomic_store_explicit(&hops->interface, index, memory_order_relaxed);
}

uint64_t hops_name(const struct address *backend)
{
    uint64_t words[3] = {0, 0, 0};
    if (backend->u.any.sa_family == AF_INET) {
        words[0] = backend->u.v4.sin_addr.s_addr;
        words[2] = UINT64_C(4) << 32 | backend->u.v4.sin_port;
    } else {
        memcpy(words, &backend->u.v6.sin6_addr, 16);
        words[2] = UINT64_C(6) << 32 | backend->u.v6.sin6_port;
    }
    /* Odd words in between: the product of anything and 0 is 0. */
    const uint64_t first = mix(words[0] ^ UINT64_C(0x9e3779b97f4a7c15), words[1] ^ UINT64_C(0xbf58476d1ce4e5b9));
    return mix(first ^ words[2], UINT64_C(0x94d049bb133111eb)) | 1;
}

static uint32_t read_mtu(const struct hops *hops)
{
    struct ifreq request = {.ifr_mtu = 0};
    memcpy(request.ifr_name, hops->name, sizeof(request.ifr_name));
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool good = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0 && request.ifr_mtu > 0;
    if (fd >= 0) {
        (void) close(fd);
    }
    return good && request.ifr_mtu < MTU_MOST ? (uint32_t) request.ifr_mtu : good ? MTU_MOST : 0;
}

/* Reads the interface's addresses. Where they cannot be had, those of before stay. */
static void read_own(struct hops *hops)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    (void) pthread_mutex_lock(&hops->mutex);
    hops->own_count = 0;
    for (const struct ifaddrs *at = all; at != NULL && hops->own_count < OWN_MOST; at = at->ifa_next) {
        struct own *own = &hops->own[hops->own_count];
        *own = (struct own){.family = 0};
        if (at->ifa_addr == NULL || strcmp(at->ifa_name, hops->name) != 0) {
            continue;
        }
        if (at->ifa_addr->sa_family == AF_INET) {
            own->family = 4;
            memcpy(own->address, &((const struct sockaddr_in *) (const void *) at->ifa_addr)->sin_addr, 4);
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            own->family = 6;
            memcpy(own->address, &((const struct sockaddr_in6 *) (const void *) at->ifa_addr)->sin6_addr, 16);
        }
        hops->own_count += own->family != 0;
    }
    (void) pthread_mutex_unlock(&hops->mutex);
    freeifaddrs(all);
}

bool hops_is_own(struct hops *hops, uint16_t family, const unsigned char address[16])
{
    bool found = false;
    (void) pthread_mutex_lock(&hops->mutex);
    for (size_t i = 0; i < hops->own_count && !found; i++) {
        found = hops->own[i].family == family && memcmp(hops->own[i].address, address, 16) == 0;
    }
    (void) pthread_mutex_unlock(&hops->mutex);
    return found;
}

static void set_hop(struct hops *hops, unsigned place, uint64_t hop, uint64_t name)
{
    atomic_store_explicit(&hops->of[place].hop, hop, memory_order_relaxed);
    atomic_store_explicit(&hops->of[place].named, hop ^ name, memory_order_relaxed);
}

/* Asks for the hop to one backend. */
static void look_at(struct hops *hops, unsigned place, const struct address *backend)
{
    struct route_hop found;
    uint64_t hop = 0;
    const uint32_t own = atomic_load_explicit(&hops->mtu, memory_order_relaxed);
    if (own != 0 &&
        route_find(&hops->asker, backend, atomic_load_explicit(&hops->interface, memory_order_relaxed), &found)) {
        const uint32_t mtu = found.mtu != 0 && found.mtu < own ? found.mtu : own;
        for (unsigned i = 0; i < FRAME_MAC_SIZE; i++) {
            hop = hop << 8 | found.mac[i];
        }
        hop |= (uint64_t) mtu << MAC_BITS;
    }
    set_hop(hops, place, hop, hop != 0 ? hops_name(backend) : 0);
}

static void look(struct hops *hops)
{
    atomic_store_explicit(&hops->mtu, read_mtu(hops), memory_order_relaxed);
    read_own(hops);
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        struct backend *backend = &hops->backends->places[place];
        (void) pthread_mutex_lock(&hops->backends->lock);
        const bool is_there = backend_role(backend) != BACKEND_ABSENT;
        const struct address address = backend->address;
        (void) pthread_mutex_unlock(&hops->backends->lock);
        if (is_there) {
            look_at(hops, place, &address);
        } else {
            set_hop(hops, place, 0, 0);
        }
    }
}

static void *look_main(void *arg)
{
    struct hops *hops = arg;
    while (!atomic_load_explicit(&hops->stopping, memory_order_relaxed)) {
        look(hops);
        for (unsigned ms = 0; ms < LOOK_MS && !atomic_load_explicit(&hops->stopping, memory_order_relaxed);
             ms += PAUSE_MS) {
            const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
            (void) nanosleep(&pause, NULL);
        }
    }
    return NULL;
}

struct hops *hops_start(struct backends *backends, const char *interface)
{
    struct hops *hops = calloc(1, sizeof(*hops));
    if (hops == NULL) {
        return NULL;
    }
    hops->backends = backends;
    hops_set_interface(hops, if_nametoindex(interface));
    memcpy(hops->name, interface, strnlen(interface, sizeof(hops->name) - 1));
    int result = route_open(&hops->asker);
    if (result == 0) {
        atomic_store_explicit(&hops->mtu, read_mtu(hops), memory_order_relaxed);
        (void) pthread_mutex_init(&hops->mutex, NULL);
        read_own(hops);
        result = -pthread_create(&hops->thread, NULL, look_main, hops);
        if (result != 0) {
            (void) pthread_mutex_destroy(&hops->mutex);
        }
    }
    if (result != 0) {
        route_close(&hops->asker);
        free(hops);
        errno = -result;
        return NULL;
    }
    return hops;
}

void hops_stop(struct hops *hops)
{
    if (hops == NULL) {
        return;
    }
    atomic_store_explicit(&hops->stopping, true, memory_order_relaxed);
    (void) pthread_join(hops->thread, NULL);
    (void) pthread_mutex_destroy(&hops->mutex);
    route_close(&hops->asker);
    free(hops);
}

uint32_t hops_find(const struct hops *hops, uint8_t place, uint64_t name, unsigned char mac[FRAME_MAC_SIZE])
{
    const uint64_t hop = atomic_load_explicit(&hops->of[place].hop, memory_order_relaxed);
    const uint64_t named = atomic_load_explicit(&hops->of[place].named, memory_order_relaxed);
    if (hop == 0 || (hop ^ named) != name) {
        return 0;
    }
    for (unsigned i = 0; i < FRAME_MAC_SIZE; i++) {
        mac[i] = (unsigned char) (hop >> (MAC_BITS - 8 - 8 * i));
    }
    return (uint32_t) (hop >> MAC_BITS);
}

uint32_t hops_mtu(const struct hops *hops)
{
    return atomic_load_explicit(&hops->mtu, memory_order_relaxed);
}
