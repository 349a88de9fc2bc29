/* SPDX-License-Identifier: Apache-2.0 */
/* See link.h. */
#include "link.h"

#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "drop.skel.h"

struct xdp_link {
    struct drop_bpf *program;
    int fd; /* of the link; the kernel detaches the program with it */
    enum link_mode mode;
    struct drop_slot *slots;
    size_t slots_size;
};

/* libbpf prints nothing: the host's log has one sentence of ours. */
static int keep_quiet(enum libbpf_print_level level, const char *format, va_list arguments)
{
    (void) level;
    (void) format;
    (void) arguments;
    return 0;
}

static void say_load(char *problem, size_t size, int error)
{
    if (error == EPERM || error == EACCES) {
        (void) snprintf(problem, size,
                        "the kernel loads no program for this user; CAP_BPF and CAP_NET_ADMIN are needed");
    } else if (error == ENOSYS || error == EINVAL) {
        (void) snprintf(problem, size,
                        "this kernel cannot take the program; Linux 5.9 or later with CONFIG_BPF_SYSCALL is needed");
    } else {
        (void) snprintf(problem, size, "the program cannot be loaded: %s", strerror(error));
    }
}

static void say_attach(char *problem, size_t size, const char *interface, enum link_mode mode, int error)
{
    if (error == EBUSY || error == EEXIST) {
        (void) snprintf(problem, size, "another XDP program is on %s; take it off, or give another interface",
                        interface);
    } else if (error == EOPNOTSUPP && mode == LINK_NATIVE) {
        (void) snprintf(problem, size, "the driver of %s has no XDP; give mode=generic", interface);
    } else if (error == EPERM) {
        (void) snprintf(problem, size, "this user may not attach a program to %s; CAP_NET_ADMIN is needed", interface);
    } else {
        (void) snprintf(problem, size, "the program cannot be attached to %s: %s", interface, strerror(error));
    }
}

static int attach(int program, int interface, enum link_mode mode)
{
    const struct bpf_link_create_opts options = {
        .sz = sizeof(options), .flags = mode == LINK_NATIVE ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE};
    return bpf_link_create(program, interface, BPF_XDP, &options);
}

/* 0, or a positive errno value. */
static int attach_any(struct xdp_link *link, int interface, enum link_mode mode)
{
    const int program = bpf_program__fd(link->program->progs.drop_denied);
    link->mode = mode == LINK_GENERIC ? LINK_GENERIC : LINK_NATIVE;
    link->fd = attach(program, interface, link->mode);
    if (link->fd < 0 && mode == LINK_ANY && errno != EBUSY && errno != EPERM) {
        link->mode = LINK_GENERIC;
        link->fd = attach(program, interface, LINK_GENERIC);
    }
    return link->fd < 0 ? errno : 0;
}

static int load(struct xdp_link *link, uint32_t capacity)
{
    link->program = drop_bpf__open();
    if (link->program == NULL) {
        return errno;
    }
    (void) bpf_map__set_max_entries(link->program->maps.denied, capacity);
    (void) bpf_map__set_max_entries(link->program->maps.slots, capacity);
    const int result = drop_bpf__load(link->program);
    if (result != 0) {
        return -result;
    }
    link->slots_size = capacity * sizeof(*link->slots);
    void *slots =
        mmap(NULL, link->slots_size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(link->program->maps.slots), 0);
    if (slots == MAP_FAILED) {
        return errno;
    }
    link->slots = slots;
    return 0;
}

struct xdp_link *xdp_link_open(const char *interface, enum link_mode mode, uint32_t capacity, char *problem,
                               size_t size)
{
    struct xdp_link *link = calloc(1, sizeof(*link));
    const unsigned index = if_nametoindex(interface);
    if (link == NULL || index == 0) {
        (void) snprintf(problem, size, "%s%s", link == NULL ? "out of memory" : "there is no interface ",
                        link == NULL ? "" : interface);
        free(link);
        return NULL;
    }
    link->fd = -1;
    (void) libbpf_set_print(keep_quiet);
    int error = load(link, capacity);
    if (error != 0) {
        say_load(problem, size, error);
    } else if ((error = attach_any(link, (int) index, mode)) != 0) {
        say_attach(problem, size, interface, mode, error);
    }
    if (error != 0) {
        xdp_link_close(link);
        return NULL;
    }
    return link;
}

void xdp_link_close(struct xdp_link *link)
{
    if (link->fd >= 0) {
        (void) close(link->fd);
    }
    if (link->slots != NULL) {
        (void) munmap(link->slots, link->slots_size);
    }
    drop_bpf__destroy(link->program);
    free(link);
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    return link->mode;
}

struct drop_slot *xdp_link_slots(struct xdp_link *link)
{
    return link->slots;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    return &link->program->bss->target;
}

bool xdp_link_add(struct xdp_link *link, const struct drop_key *key, uint32_t number)
{
    return bpf_map_update_elem(bpf_map__fd(link->program->maps.denied), key, &number, BPF_ANY) == 0;
}

void xdp_link_remove(struct xdp_link *link, const struct drop_key *key)
{
    (void) bpf_map_delete_elem(bpf_map__fd(link->program->maps.denied), key);
}

void xdp_link_set_local(struct xdp_link *link, const struct drop_key *address, bool there)
{
    const int map = bpf_map__fd(link->program->maps.locals);
    const uint32_t one = 1;
    if (there) {
        (void) bpf_map_update_elem(map, address, &one, BPF_ANY);
    } else {
        (void) bpf_map_delete_elem(map, address);
    }
}
