/* SPDX-License-Identifier: Apache-2.0 */
/* See link.h. */
#include "link.h"

#include <errno.h>
#include <linux/if_link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "drop.skel.h"

struct xdp_link {
    struct xdp_link_options options;
    struct drop_bpf *program;
    int fd;         /* of the link; the kernel detaches the program with it. -1: there is none */
    unsigned index; /* of the interface that it was attached to */
    enum link_mode mode;
    struct drop_line *lines;
    struct drop_session *sessions; /* NULL: the program does not forward */
};

#define LINES_SIZE    (DROP_LINES * sizeof(struct drop_line))
#define SESSIONS_SIZE (65536 * sizeof(struct drop_session))

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
static int attach_any(struct xdp_link *link, int interface)
{
    const int program = bpf_program__fd(link->options.forward ? link->program->progs.drop_or_forward
                                                              : link->program->progs.drop_denied);
    const enum link_mode mode = link->options.mode;
    link->mode = mode == LINK_GENERIC ? LINK_GENERIC : LINK_NATIVE;
    link->fd = attach(program, interface, link->mode);
    if (link->fd < 0 && mode == LINK_ANY && errno != EBUSY && errno != EPERM) {
        link->mode = LINK_GENERIC;
        link->fd = attach(program, interface, LINK_GENERIC);
    }
    return link->fd < 0 ? errno : 0;
}

/* Maps an array of the program; NULL: errno says why not. */
static void *map_array(const struct bpf_map *map, size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);
    /* cppcheck-suppress memleak ; the caller has it */
    return at != MAP_FAILED ? at : NULL;
}

unsigned xdp_link_find(const struct xdp_link *link)
{
    struct bpf_link_info info = {.type = 0};
    __u32 size = sizeof(info);
    const unsigned named = if_nametoindex(link->options.interface);
    if (link->fd < 0 || named != link->index) {
        return 0;
    }
    /* Of a link whose interface has gone the kernel says that it has none. */
    return bpf_obj_get_info_by_fd(link->fd, &info, &size) != 0 || info.xdp.ifindex == named ? named : 0;
}

unsigned xdp_link_attach(struct xdp_link *link, char *problem, size_t size)
{
    const unsigned named = if_nametoindex(link->options.interface);
    if (link->fd >= 0) {
        (void) close(link->fd);
        link->fd = -1;
    }
    link->index = 0;
    if (named == 0) {
        (void) snprintf(problem, size, "there is no interface %s", link->options.interface);
        return 0;
    }
    const int error = attach_any(link, (int) named);
    if (error != 0) {
        say_attach(problem, size, link->options.interface, link->options.mode, error);
        return 0;
    }
    link->index = named;
    return named;
}

static int load(struct xdp_link *link, const struct xdp_link_options *options)
{
    link->program = drop_bpf__open();
    if (link->program == NULL) {
        return errno;
    }
    /* The kernel may lack AF_XDP, and need not have it for the drops alone. */
    (void) bpf_program__set_autoload(link->program->progs.drop_denied, !options->forward);
    (void) bpf_program__set_autoload(link->program->progs.drop_or_forward, options->forward);
    (void) bpf_map__set_autocreate(link->program->maps.queues, options->forward);
    (void) bpf_map__set_autocreate(link->program->maps.sessions, options->forward);
    (void) bpf_program__set_autoload(link->program->progs.steer, options->flows != 0);
    (void) bpf_map__set_autocreate(link->program->maps.flows, options->forward);
    (void) bpf_map__set_autocreate(link->program->maps.sockets, options->flows != 0);
    (void) bpf_map__set_max_entries(link->program->maps.flows, options->flows != 0 ? options->flows : 1);
    const int result = drop_bpf__load(link->program);
    if (result != 0) {
        return -result;
    }
    link->lines = map_array(link->program->maps.lines, LINES_SIZE);
    if (link->lines != NULL && options->forward) {
        link->sessions = map_array(link->program->maps.sessions, SESSIONS_SIZE);
    }
    return link->lines == NULL || (options->forward && link->sessions == NULL) ? errno : 0;
}

struct xdp_link *xdp_link_open(const struct xdp_link_options *options, char *problem, size_t size)
{
    struct xdp_link *link = calloc(1, sizeof(*link));
    if (link == NULL || if_nametoindex(options->interface) == 0) {
        (void) snprintf(problem, size, "%s%s", link == NULL ? "out of memory" : "there is no interface ",
                        link == NULL ? "" : options->interface);
        free(link);
        return NULL;
    }
    link->options = *options;
    link->fd = -1;
    (void) libbpf_set_print(keep_quiet);
    const int error = load(link, options);
    if (error != 0) {
        say_load(problem, size, error);
    }
    if (error != 0 || xdp_link_attach(link, problem, size) == 0) {
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
    if (link->lines != NULL) {
        (void) munmap(link->lines, LINES_SIZE);
    }
    if (link->sessions != NULL) {
        (void) munmap(link->sessions, SESSIONS_SIZE);
    }
    drop_bpf__destroy(link->program);
    free(link);
}

enum link_mode xdp_link_mode(const struct xdp_link *link)
{
    return link->mode;
}

struct drop_line *xdp_link_lines(struct xdp_link *link)
{
    return link->lines;
}

struct drop_target *xdp_link_target(struct xdp_link *link)
{
    return &link->program->bss->target;
}

struct drop_session *xdp_link_sessions(struct xdp_link *link)
{
    return link->sessions;
}

uint64_t xdp_link_invalid_sources(const struct xdp_link *link)
{
    return __atomic_load_n(&link->program->bss->invalid_sources, __ATOMIC_RELAXED);
}

bool xdp_link_set_queue(struct xdp_link *link, uint32_t queue, int fd)
{
    return bpf_map_update_elem(bpf_map__fd(link->program->maps.queues), &queue, &fd, BPF_ANY) == 0;
}

int xdp_link_steer(struct xdp_link *link, unsigned listener, const int *sockets, unsigned count)
{
    const int program = bpf_program__fd(link->program->progs.steer);
    for (unsigned i = 0; i < count; i++) {
        const uint32_t number = DROP_SOCKET(listener, i);
        const uint64_t socket = (uint64_t) sockets[i];
        if (bpf_map_update_elem(bpf_map__fd(link->program->maps.sockets), &number, &socket, BPF_ANY) != 0) {
            return -errno;
        }
    }
    return setsockopt(sockets[0], SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)) == 0 ? 0 : -errno;
}

void xdp_link_set_flow(struct xdp_link *link, const struct drop_flow *flow, uint32_t number)
{
    (void) bpf_map_update_elem(bpf_map__fd(link->program->maps.flows), flow, &number, BPF_ANY);
}

void xdp_link_remove_flow(struct xdp_link *link, const struct drop_flow *flow)
{
    (void) bpf_map_delete_elem(bpf_map__fd(link->program->maps.flows), flow);
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
