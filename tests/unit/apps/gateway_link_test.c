/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link to the program in the kernel, with a libbpf and a kernel that the test plays: what is loaded for which
 * options, how it is attached, what is told of each refusal, and what is written to which map.
 *
 * Guards: apps/gateway/xdp/link.c
 */
#include <errno.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "../apps/gateway/xdp/link.h"
#include "drop.skel.h"
#include "support/support.h"

#define MAPS     8
#define PROGRAMS 3
#define LINK_FD  990 /* is none that can be closed */

static struct {
    const char *maps[MAPS], *programs[PROGRAMS];
    bool creates[MAPS], loads[PROGRAMS];
    uint32_t flows;
    int lines_fd, sessions_fd, map_count;
    int load_error, open_error, modes_tried[8], attach_errors[2]; /* attach_errors: of native, of generic */
    unsigned attaches, destroyed, written, deleted;
    const char *attached, *map; /* the program; where something was written last */
    unsigned char key[64];
    uint64_t value, flags;
    int write_error, steered, steer_error;
    unsigned named, linked;    /* the interface's index by its name, and by the link; named 0: as it is */
    int info_error, linked_to; /* linked_to: what it was attached to last */
    struct drop_bpf__bss bss;
} kernel;

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
unsigned __real_if_nametoindex(const char *name);
unsigned __wrap_if_nametoindex(const char *name);

unsigned __wrap_if_nametoindex(const char *name)
{
    return kernel.named == 0 ? __real_if_nametoindex(name) : kernel.named == UINT32_MAX ? 0 : kernel.named;
}

int bpf_obj_get_info_by_fd(int fd, void *out, __u32 *size)
{
    struct bpf_link_info *info = out;
    assert_true(fd == LINK_FD && *size == sizeof(*info));
    info->xdp.ifindex = kernel.linked;
    return -kernel.info_error;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    assert_true(level == SOL_SOCKET && name == SO_ATTACH_REUSEPORT_EBPF && size == sizeof(int));
    assert_string_equal(kernel.programs[*(const int *) value - 800], "steer");
    kernel.steered = fd;
    errno = kernel.steer_error;
    return kernel.steer_error != 0 ? -1 : 0;
}

libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t print)
{
    va_list none;
    memset(&none, 0, sizeof(none));
    assert_int_equal(print(LIBBPF_WARN, "", none), 0);
    return NULL;
}

static int number_of(const char *const *names, int count, const void *object)
{
    for (int i = 0; i < count; i++) {
        if (object == (const void *) &names[i]) {
            return i;
        }
    }
    fail();
    return 0;
}

int bpf_object__open_skeleton(struct bpf_object_skeleton *s, const struct bpf_object_open_opts *options)
{
    assert_true(options == NULL && s->map_cnt <= MAPS && s->prog_cnt == PROGRAMS);
    kernel.map_count = s->map_cnt;
    for (int i = 0; i < s->map_cnt; i++) {
        kernel.maps[i] = s->maps[i].name;
        kernel.creates[i] = true;
        *s->maps[i].map = (struct bpf_map *) (void *) &kernel.maps[i];
        if (strstr(s->maps[i].name, ".bss") != NULL) {
            *s->maps[i].mmaped = &kernel.bss;
        }
    }
    for (int i = 0; i < PROGRAMS; i++) {
        kernel.programs[i] = s->progs[i].name;
        kernel.loads[i] = true;
        *s->progs[i].prog = (struct bpf_program *) (void *) &kernel.programs[i];
    }
    return -kernel.open_error;
}

int bpf_object__load_skeleton(struct bpf_object_skeleton *s)
{
    (void) s;
    return -kernel.load_error;
}

void bpf_object__destroy_skeleton(struct bpf_object_skeleton *s)
{
    free(s->maps);
    free(s->progs);
    free(s);
    kernel.destroyed++;
}

int bpf_program__set_autoload(struct bpf_program *program, bool loads)
{
    kernel.loads[number_of(kernel.programs, PROGRAMS, program)] = loads;
    return 0;
}

int bpf_map__set_autocreate(struct bpf_map *map, bool creates)
{
    kernel.creates[number_of(kernel.maps, kernel.map_count, map)] = creates;
    return 0;
}

int bpf_map__set_max_entries(struct bpf_map *map, __u32 entries)
{
    assert_string_equal(kernel.maps[number_of(kernel.maps, kernel.map_count, map)], "flows");
    kernel.flows = entries;
    return 0;
}

int bpf_map__fd(const struct bpf_map *map)
{
    const int number = number_of(kernel.maps, kernel.map_count, map);
    return strcmp(kernel.maps[number], "lines") == 0      ? kernel.lines_fd
           : strcmp(kernel.maps[number], "sessions") == 0 ? kernel.sessions_fd
                                                          : 700 + number;
}

int bpf_program__fd(const struct bpf_program *program)
{
    return 800 + number_of(kernel.programs, PROGRAMS, program);
}

int bpf_link_create(int program, int interface, enum bpf_attach_type type, const struct bpf_link_create_opts *options)
{
    assert_true(interface == (int) if_nametoindex("lo") && type == BPF_XDP && options->sz == sizeof(*options));
    kernel.linked_to = interface;
    const bool native = options->flags == XDP_FLAGS_DRV_MODE;
    assert_true(native || options->flags == XDP_FLAGS_SKB_MODE);
    kernel.modes_tried[kernel.attaches++] = native ? LINK_NATIVE : LINK_GENERIC;
    kernel.attached = kernel.programs[program - 800];
    errno = kernel.attach_errors[!native];
    return errno != 0 ? -1 : LINK_FD;
}

static int note(int map, const void *key)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {
        {"flows", sizeof(struct drop_flow)}, {"sockets", 4}, {"queues", 4}, {"locals", sizeof(struct drop_key)}};
    kernel.map = kernel.maps[map - 700];
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(sizes[i].name, kernel.map) == 0) {
            memcpy(kernel.key, key, sizes[i].size);
        }
    }
    errno = kernel.write_error;
    return kernel.write_error != 0 ? -1 : 0;
}

int bpf_map_update_elem(int map, const void *key, const void *value, __u64 flags)
{
    assert_int_equal(flags, BPF_ANY);
    kernel.written++;
    kernel.value = 0;
    memcpy(&kernel.value, value, strcmp(kernel.maps[map - 700], "sockets") == 0 ? 8 : 4);
    return note(map, key);
}

int bpf_map_delete_elem(int map, const void *key)
{
    kernel.deleted++;
    return note(map, key);
}

/* Descriptors of memory in the place of the two maps that are arrays. */
static void begin(void)
{
    if (kernel.lines_fd > 0) {
        (void) close(kernel.lines_fd);
        (void) close(kernel.sessions_fd);
    }
    memset(&kernel, 0, sizeof(kernel));
    kernel.lines_fd = memfd_create("lines", MFD_CLOEXEC);
    kernel.sessions_fd = memfd_create("sessions", MFD_CLOEXEC);
    assert_true(kernel.lines_fd > 0 && kernel.sessions_fd > 0);
    assert_int_equal(ftruncate(kernel.lines_fd, (off_t) (DROP_LINES * sizeof(struct drop_line))), 0);
    assert_int_equal(ftruncate(kernel.sessions_fd, (off_t) (65536 * sizeof(struct drop_session))), 0);
}

static bool is(const char *const *names, const bool *flags, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return flags[i];
        }
    }
    fail();
    return false;
}

#define LOADS(name)   is(kernel.programs, kernel.loads, PROGRAMS, (name))
#define CREATES(name) is(kernel.maps, kernel.creates, kernel.map_count, (name))

static void test_what_is_loaded_is_what_the_options_need(void **state)
{
    (void) state;
    for (unsigned with = 0; with < 3; with++) {
        char problem[200] = "";
        struct xdp_link_options options = {.interface = "lo", .forward = with > 0, .flows = with > 1 ? 500 : 0};
        begin();
        const size_t pages = count_mapped_pages();
        struct xdp_link *link = xdp_link_open(&options, problem, sizeof(problem));
        assert_non_null(link);
        assert_string_equal(problem, "");
        assert_int_equal(LOADS("drop_denied"), with == 0);
        assert_int_equal(LOADS("drop_or_forward"), with > 0);
        assert_int_equal(LOADS("steer"), with > 1);
        assert_true(CREATES("lines") && CREATES("locals"));
        assert_int_equal(CREATES("queues"), with > 0);
        assert_int_equal(CREATES("sessions"), with > 0);
        assert_int_equal(CREATES("flows"), with > 0);
        assert_int_equal(CREATES("sockets"), with > 1);
        assert_int_equal(kernel.flows, with > 1 ? 500 : 1);
        assert_string_equal(kernel.attached, with > 0 ? "drop_or_forward" : "drop_denied");
        /* All of the arrays can be read and written; they are the kernel's. */
        struct drop_line *lines = xdp_link_lines(link);
        lines[DROP_LINES - 1].packets = 7;
        uint64_t packets = 0;
        assert_int_equal(pread(kernel.lines_fd, &packets, 8,
                               (off_t) ((DROP_LINES - 1) * sizeof(*lines) + offsetof(struct drop_line, packets))),
                         8);
        assert_int_equal(packets, 7);
        struct drop_session *sessions = xdp_link_sessions(link);
        assert_int_equal(sessions != NULL, with > 0);
        if (sessions != NULL) {
            sessions[65535].session = 9;
            assert_int_equal(sessions[65535].session, 9);
        }
        assert_ptr_equal(xdp_link_target(link), &kernel.bss.target);
        xdp_link_close(link);
        assert_int_equal(kernel.destroyed, 1);
        assert_true(count_mapped_pages() < pages + 100);
    }
}

static void test_a_refusal_is_told_in_one_sentence(void **state)
{
    (void) state;
    static const struct {
        const char *interface;
        enum link_mode mode;
        int open, load, native, generic;
        int tried[2], tries;
        const char *problem; /* NULL: it is attached, in the mode that was tried last */
    } rows[] = {
        {"lo", LINK_ANY, 0, 0, 0, 0, {LINK_NATIVE}, 1, NULL},
        {"lo", LINK_NATIVE, 0, 0, 0, 0, {LINK_NATIVE}, 1, NULL},
        {"lo", LINK_GENERIC, 0, 0, 0, 0, {LINK_GENERIC}, 1, NULL},
        {"lo", LINK_ANY, 0, 0, EOPNOTSUPP, 0, {LINK_NATIVE, LINK_GENERIC}, 2, NULL},
        {"lo", LINK_ANY, 0, 0, EINVAL, 0, {LINK_NATIVE, LINK_GENERIC}, 2, NULL},
        {"lo",
         LINK_ANY,
         0,
         0,
         EINVAL,
         ENODEV,
         {LINK_NATIVE, LINK_GENERIC},
         2,
         "the program cannot be attached to lo: No such device"},
        {"lo",
         LINK_ANY,
         0,
         0,
         EBUSY,
         0,
         {LINK_NATIVE},
         1,
         "another XDP program is on lo; take it off, or give another interface"},
        {"lo",
         LINK_GENERIC,
         0,
         0,
         0,
         EEXIST,
         {LINK_GENERIC},
         1,
         "another XDP program is on lo; take it off, or give another interface"},
        {"lo",
         LINK_ANY,
         0,
         0,
         EPERM,
         0,
         {LINK_NATIVE},
         1,
         "this user may not attach a program to lo; CAP_NET_ADMIN is needed"},
        {"lo", LINK_NATIVE, 0, 0, EOPNOTSUPP, 0, {LINK_NATIVE}, 1, "the driver of lo has no XDP; give mode=generic"},
        {"lo",
         LINK_GENERIC,
         0,
         0,
         0,
         EOPNOTSUPP,
         {LINK_GENERIC},
         1,
         "the program cannot be attached to lo: Operation not supported"},
        {"lo",
         LINK_ANY,
         0,
         EPERM,
         0,
         0,
         {0},
         0,
         "the kernel loads no program for this user; CAP_BPF and CAP_NET_ADMIN are needed"},
        {"lo",
         LINK_ANY,
         0,
         EACCES,
         0,
         0,
         {0},
         0,
         "the kernel loads no program for this user; CAP_BPF and CAP_NET_ADMIN are needed"},
        {"lo",
         LINK_ANY,
         0,
         ENOSYS,
         0,
         0,
         {0},
         0,
         "this kernel cannot take the program; Linux 5.9 or later with CONFIG_BPF_SYSCALL is needed"},
        {"lo",
         LINK_ANY,
         0,
         EINVAL,
         0,
         0,
         {0},
         0,
         "this kernel cannot take the program; Linux 5.9 or later with CONFIG_BPF_SYSCALL is needed"},
        {"lo", LINK_ANY, 0, E2BIG, 0, 0, {0}, 0, "the program cannot be loaded: Argument list too long"},
        {"lo", LINK_ANY, ENOMEM, 0, 0, 0, {0}, 0, "the program cannot be loaded: Cannot allocate memory"},
        {"no-such-one", LINK_ANY, 0, 0, 0, 0, {0}, 0, "there is no interface no-such-one"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char problem[200] = "";
        struct xdp_link_options options = {.mode = rows[i].mode};
        (void) strncpy(options.interface, rows[i].interface, sizeof(options.interface) - 1);
        begin();
        kernel.open_error = rows[i].open;
        kernel.load_error = rows[i].load;
        kernel.attach_errors[0] = rows[i].native;
        kernel.attach_errors[1] = rows[i].generic;
        struct xdp_link *link = xdp_link_open(&options, problem, sizeof(problem));
        assert_string_equal(problem, rows[i].problem != NULL ? rows[i].problem : "");
        assert_int_equal(kernel.attaches, rows[i].tries);
        for (int n = 0; n < rows[i].tries; n++) {
            assert_int_equal(kernel.modes_tried[n], rows[i].tried[n]);
        }
        assert_int_equal(link != NULL, rows[i].problem == NULL);
        if (link != NULL) {
            assert_int_equal(xdp_link_mode(link), rows[i].tried[rows[i].tries - 1]);
            xdp_link_close(link);
        }
        assert_int_equal(kernel.destroyed, strcmp(rows[i].interface, "lo") == 0);
    }
}

static void test_a_program_is_found_on_its_interface_and_attached_anew_to_another_one(void **state)
{
    (void) state;
    char problem[200] = "";
    const struct xdp_link_options options = {.interface = "lo"};
    begin();
    kernel.named = kernel.linked = 7;
    struct xdp_link *link = xdp_link_open(&options, problem, sizeof(problem));
    assert_non_null(link);
    assert_true(kernel.linked_to == 7 && xdp_link_find(link) == 7);
    kernel.info_error = EPERM; /* then the name alone tells */
    kernel.linked = 0;
    assert_int_equal(xdp_link_find(link), 7);
    kernel.info_error = 0;
    assert_int_equal(xdp_link_find(link), 0); /* the interface is gone, and the next one has its index */
    kernel.linked = 7;
    kernel.named = 9; /* another one has its name */
    assert_int_equal(xdp_link_find(link), 0);
    kernel.named = UINT32_MAX;
    assert_int_equal(xdp_link_find(link), 0);
    assert_int_equal(xdp_link_attach(link, problem, sizeof(problem)), 0);
    assert_string_equal(problem, "there is no interface lo");
    assert_int_equal(kernel.attaches, 1);
    assert_int_equal(xdp_link_find(link), 0);
    kernel.named = 7;
    assert_int_equal(xdp_link_find(link), 0); /* it is on none */
    kernel.attach_errors[0] = EBUSY;
    assert_int_equal(xdp_link_attach(link, problem, sizeof(problem)), 0);
    assert_string_equal(problem, "another XDP program is on lo; take it off, or give another interface");
    kernel.attach_errors[0] = EOPNOTSUPP; /* a driver without XDP */
    kernel.named = kernel.linked = 12;
    assert_int_equal(xdp_link_attach(link, problem, sizeof(problem)), 12);
    assert_int_equal(xdp_link_mode(link), LINK_GENERIC);
    assert_int_equal(xdp_link_find(link), 12);
    xdp_link_close(link);
}

static void test_what_is_told_is_in_its_map(void **state)
{
    (void) state;
    char problem[200];
    const struct xdp_link_options options = {.interface = "lo", .forward = true, .flows = 10};
    const struct drop_flow flow = {.client = {1, 2, 3, 4}, .client_port = 5, .listen_port = 6, .family = 6};
    const struct drop_key address = {.family = 4, .prefix = 7};
    const uint32_t queue = 3, number = 2 * 64 + 1;
    const int sockets[] = {60, 61};
    begin();
    struct xdp_link *link = xdp_link_open(&options, problem, sizeof(problem));
    assert_non_null(link);
    assert_true(xdp_link_set_queue(link, queue, 55) && kernel.value == 55);
    assert_true(strcmp(kernel.map, "queues") == 0 && memcmp(kernel.key, &queue, 4) == 0);
    xdp_link_set_flow(link, &flow, 77);
    assert_true(strcmp(kernel.map, "flows") == 0 && memcmp(kernel.key, &flow, sizeof(flow)) == 0);
    assert_int_equal(kernel.value, 77);
    assert_true(kernel.written == 2 && kernel.deleted == 0);
    xdp_link_remove_flow(link, &flow);
    assert_true(strcmp(kernel.map, "flows") == 0 && kernel.written == 2 && kernel.deleted == 1);
    xdp_link_set_local(link, &address, true);
    assert_true(strcmp(kernel.map, "locals") == 0 && memcmp(kernel.key, &address, sizeof(address)) == 0);
    assert_true(kernel.value == 1 && kernel.written == 3 && kernel.deleted == 1);
    xdp_link_set_local(link, &address, false);
    assert_true(strcmp(kernel.map, "locals") == 0 && kernel.written == 3 && kernel.deleted == 2);
    assert_int_equal(xdp_link_steer(link, 2, sockets, 2), 0);
    assert_true(strcmp(kernel.map, "sockets") == 0 && memcmp(kernel.key, &number, 4) == 0);
    assert_true(kernel.value == 61 && kernel.written == 5 && kernel.steered == 60);
    kernel.steer_error = EPERM;
    assert_int_equal(xdp_link_steer(link, 2, sockets, 2), -EPERM);
    kernel.write_error = ENOSPC;
    assert_int_equal(xdp_link_steer(link, 2, sockets, 2), -ENOSPC);
    assert_false(xdp_link_set_queue(link, queue, 55));
    xdp_link_close(link);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_loaded_is_what_the_options_need),
        cmocka_unit_test(test_a_refusal_is_told_in_one_sentence),
        cmocka_unit_test(test_a_program_is_found_on_its_interface_and_attached_anew_to_another_one),
        cmocka_unit_test(test_what_is_told_is_in_its_map),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_link", tests, NULL, NULL);
}
