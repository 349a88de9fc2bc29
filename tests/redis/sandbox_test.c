/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls that weir needs: programs run under a seccomp filter that allows the list of docs/security.md and
 * nothing else, and each does what it does without one. Any other call ends the program, and the test names the call.
 *
 * Guards: docs/security.md, src/base/barrier.c, src/base/hash.c, src/base/memory/segment.c, src/base/pages.c,
 * src/limiter/background.c, src/limiter/poll_set.c, src/named/named.c, src/transport/redis/socket.c
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/independent.h"
#include "support/server.h"
#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define PATIENT_MS 60000

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

struct call {
    const char *name;
    unsigned number;
};

#define CALL(name)                                                                                                     \
    {                                                                                                                  \
#name, __NR_##name                                                                                             \
    }

/* The list of docs/security.md, by its rows. A processor without a call has another one in its place, of the row. */
static const struct call always[] = {
    CALL(brk),          CALL(clock_gettime), CALL(clock_nanosleep),
    CALL(clone),        CALL(clone3),        CALL(close),
    CALL(eventfd2),     CALL(exit),          CALL(exit_group),
    CALL(fstat),        CALL(lseek),         CALL(newfstatat),
    CALL(openat),       CALL(fcntl),         CALL(futex),
    CALL(getpid),       CALL(getrandom),     CALL(gettid),
    CALL(madvise),      CALL(membarrier),    CALL(mmap),
    CALL(mprotect),     CALL(munmap),        CALL(nanosleep),
    CALL(ppoll),        CALL(prctl),         CALL(read),
    CALL(rseq),         CALL(rt_sigaction),  CALL(rt_sigprocmask),
    CALL(rt_sigreturn), CALL(sched_yield),   CALL(set_robust_list),
    CALL(uname),        CALL(write),
#ifdef __NR_poll
    CALL(poll),
#endif
};
static const struct call loops[] = {
    CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(timerfd_create), CALL(timerfd_settime),
#ifdef __NR_epoll_wait
    CALL(epoll_wait),
#endif
};
static const struct call sockets[] = {CALL(bind),       CALL(connect),    CALL(getpeername), CALL(getsockname),
                                      CALL(getsockopt), CALL(recvfrom),   CALL(recvmsg),     CALL(sendmmsg),
                                      CALL(sendto),     CALL(setsockopt), CALL(socket),      CALL(ioctl)};
static const struct call memories[] = {
    CALL(fallocate), CALL(fchmod),  CALL(flock),     CALL(fstatfs),  CALL(ftruncate),  CALL(getuid),
    CALL(geteuid),   CALL(pread64), CALL(prlimit64), CALL(pwrite64), CALL(readlinkat), CALL(unlinkat),
#ifdef __NR_unlink
    CALL(unlink),
#endif
};

static const struct row {
    const char *title; /* as the page has it */
    const struct call *calls;
    size_t count;
} rows[] = {{"always", always, COUNT_OF(always)},
            {"`weir_poll_fd`", loops, COUNT_OF(loops)},
            {"`redis_url`", sockets, COUNT_OF(sockets)},
            {"`shared_name`", memories, COUNT_OF(memories)}};
enum { ALWAYS = 1, LOOPS = 2, SOCKETS = 4, MEMORIES = 8 };

/* The call that ended the program, with the reason in memory that its parent reads. */
static volatile int *trapped;

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void) number;
    (void) context;
    *trapped = info->si_syscall;
    _exit(9);
}

/* Allows the calls of these rows from here on. */
static void enter_sandbox(unsigned which)
{
    static struct sock_filter code[4 + 2 * 128];
    size_t length = 0;
    code[length++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
    code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[length++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t row = 0; row < COUNT_OF(rows); row++) {
        for (size_t i = 0; (which >> row & 1) != 0 && i < rows[row].count; i++) {
            code[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rows[row].calls[i].number, 0, 1);
            code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        }
    }
    code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    const struct sock_fprog program = {.len = (unsigned short) length, .filter = code};
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO;
    if (sigaction(SIGSYS, &action, NULL) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) {
        _exit(8);
    }
}

/* What a program is to do. */
struct scene {
    unsigned rows;
    const char *redis_url, *shared_name, *policies;
    bool no_thread;
};

struct crowd {
    weir *w;
    weir_key key;
    _Atomic int passed;
};

/* Two threads on one key, so that one has to take grants of the other back: by membarrier. */
static void *ask(void *arg)
{
    struct crowd *crowd = arg;
    weir_thread *t = weir_attach(crowd->w);
    for (int i = 0; i < 2000; i++) {
        crowd->passed += weir_check(t, &crowd->key, 1, NULL);
        if (i % 100 == 0) {
            (void) nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
    weir_refund(t, &crowd->key, 1);
    weir_detach(t);
    return NULL;
}

/* The program: 0 where it did all that it should, else the number of what failed. */
static int run(const struct scene *scene)
{
    static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = HOUR};
    static const weir_policy policy = {.name = "api", .limits = &limit, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = scene->redis_url;
    options.shared_name = scene->shared_name;
    options.no_thread = scene->no_thread;
    options.max_keys = 1000;
    weir *w = NULL;
    if (weir_open(&options, &w, NULL) != 0) {
        return 1;
    }
    if (scene->policies != NULL ? weir_load_policies(w, scene->policies, NULL) != 0
                                : weir_set_policies(w, &policy, 1, NULL) != 0) {
        return 2;
    }
    if (scene->no_thread && (weir_poll_fd(w) < 0 || weir_poll(w) < 0)) {
        return 3;
    }
    if (scene->redis_url != NULL && weir_sync(w, PATIENT_MS) != 0) {
        return 4;
    }
    struct crowd crowd = {.w = w, .key = weir_make_key(w, weir_find_policy(w, "api"), "key", 3)};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, ask, &crowd) != 0) {
            return 5;
        }
    }
    for (size_t i = 0; i < 2; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    if (crowd.passed < 1000 || crowd.passed > 1010) {
        return 6;
    }
    if (scene->redis_url != NULL && (weir_sync(w, PATIENT_MS) != 0 || weir_reset(w, &crowd.key) != 0)) {
        return 7;
    }
    char text[1 << 16];
    weir_stats stats;
    weir_get_stats(w, &stats);
    if (weir_write_metrics(w, text, sizeof(text)) <= 0 || weir_write_status(w, text, sizeof(text)) <= 0) {
        return 10;
    }
    weir_close(w);
    return scene->shared_name == NULL || weir_unlink(scene->shared_name) == 0 ? 0 : 11;
}

static void expect_run(const struct scene *scene)
{
    trapped = mmap(NULL, sizeof(*trapped), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *trapped = -1;
    const pid_t child = fork();
    if (child == 0) {
        if (!SLOWED) { /* a sanitizer makes calls of its own, and an emulator knows no filters */
            enter_sandbox(scene->rows | ALWAYS);
        }
        _exit(run(scene));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) {
        fail_msg("rows 0x%x: the program ended with status 0x%x, at system call %d", scene->rows, (unsigned) status,
                 *trapped);
    }
    (void) munmap((void *) trapped, sizeof(*trapped));
}

static void test_a_program_without_redis_makes_these_calls_alone(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-sandbox-XXXXXX";
    const int fd = mkstemp(path);
    static const char text[] =
        "policies: [{name: api, limits: [{algorithm: fixed_window, limit: 1000, period: 1h}]}]\n";
    assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
    assert_int_equal(close(fd), 0);
    expect_run(&(struct scene){.rows = 0});
    expect_run(&(struct scene){.rows = 0, .policies = path});
    expect_run(&(struct scene){.rows = LOOPS, .no_thread = true});
    assert_int_equal(remove(path), 0);
}

static void test_a_program_with_shared_memory_makes_these_calls_alone(void **state)
{
    (void) state;
    char name[SEGMENT_NAME_SIZE];
    segment_name(name, "sandbox");
    expect_run(&(struct scene){.rows = MEMORIES, .shared_name = name});
}

static void test_a_program_with_redis_makes_these_calls_alone(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    char url[200];
    server_start(&server);
    for (int tcp = 0; tcp < 3; tcp++) {
        server_url(&server, tcp != 0, url, sizeof(url));
        if (tcp == 2) {
            (void) snprintf(url, sizeof(url), "redis://localhost:%d", server.port); /* a name is looked up */
        }
        expect_run(&(struct scene){.rows = SOCKETS, .redis_url = url});
        expect_run(&(struct scene){.rows = SOCKETS | LOOPS, .redis_url = url, .no_thread = true});
    }
    server_stop(&server);
}

/* The calls of the page's row, each in its quotes, are those of the filter. */
static void expect_row(const char *page, const struct row *row)
{
    char begin[64];
    (void) snprintf(begin, sizeof(begin), "\n| %s | `", row->title);
    const char *line = strstr(page, begin);
    assert_non_null(line);
    line += strlen(begin) - 1;
    const size_t length = strcspn(line, "\n");
    size_t listed = 0;
    for (size_t i = 0; i < length; i++) {
        listed += line[i] == '`';
    }
    for (size_t i = 0; i < row->count; i++) {
        char quoted[64];
        (void) snprintf(quoted, sizeof(quoted), "`%s`", row->calls[i].name);
        const char *found = strstr(line, quoted);
        if (found == NULL || found >= line + length) {
            fail_msg("the row \"%s\" of docs/security.md has no %s", row->title, row->calls[i].name);
        }
    }
    assert_true(listed == 2 * row->count || ARCHITECTURE != AUDIT_ARCH_X86_64);
}

static void test_the_list_is_that_of_the_page(void **state)
{
    (void) state;
    static char page[1 << 17];
    FILE *file = fopen(SOURCE_ROOT "/docs/security.md", "r");
    assert_non_null(file);
    const size_t size = fread(page, 1, sizeof(page) - 1, file);
    assert_true(size > 0 && size < sizeof(page) - 1);
    (void) fclose(file);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        expect_row(page, &rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_without_redis_makes_these_calls_alone),
        cmocka_unit_test(test_a_program_with_shared_memory_makes_these_calls_alone),
        cmocka_unit_test(test_a_program_with_redis_makes_these_calls_alone),
        cmocka_unit_test(test_the_list_is_that_of_the_page),
    };
    return cmocka_run_group_tests_name("redis/sandbox", tests, NULL, NULL);
}
