/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fleet_process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/support.h"

#define NODE_OPTION     "--fleet-node"
#define WORKERS         4
#define MOVE_NS         (100 * MILLISECOND)
#define STEP_NS         (2 * MILLISECOND)
#define CHECKS_PER_STEP 50 /* of each policy, where no rate is given: some 25,000 a second */
#define ANSWER_LIMIT_MS 90000

struct fleet_shared {
    _Atomic uint64_t admitted[FLEET_POLICIES];
    int64_t second; /* when it was started, of the wall clock: the first of these */
    struct {
        _Atomic uint32_t offered[FLEET_POLICIES], admitted[FLEET_POLICIES], late_ms;
    } seconds[FLEET_SECONDS + 1]; /* the last one for all that come later */
};

enum order_kind { ORDER_WORK, ORDER_CHECK, ORDER_SYNC, ORDER_LOOK, ORDER_CLOSE };

struct order {
    enum order_kind kind;
    uint32_t timeout_ms;
    struct fleet_work work;
    struct fleet_checks checks;
};

/* A node, in its own process. */
struct here {
    struct fleet_config config;
    struct fleet_shared *shared;
    weir *w;
    weir_thread *t; /* for ORDER_CHECK */
    weir_policy_id policies[FLEET_POLICIES];
    struct fleet_work work;
    struct fleet_answer answer;
    _Atomic uint64_t next_key; /* where no key comes twice */
    uint64_t first_key;        /* where they move: of this work */
};

struct worker {
    struct here *here;
    weir_thread *t;
    uint64_t rng;
    uint64_t offset; /* of the keys, now */
    double carry[FLEET_POLICIES];
    uint64_t allowed;
};

static bool read_all(int fd, void *out, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t got = read(fd, (char *) out + at, size - at);
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return false;
        }
        at += got > 0 ? (size_t) got : 0;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t size)
{
    for (size_t at = 0; at < size;) {
        const ssize_t put = write(fd, (const char *) from + at, size - at);
        if (put <= 0 && !(put < 0 && errno == EINTR)) {
            return false;
        }
        at += put > 0 ? (size_t) put : 0;
    }
    return true;
}

int64_t fleet_wall_second(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t) now.tv_sec;
}

static size_t second_now(const struct fleet_shared *shared)
{
    const int64_t at = fleet_wall_second() - shared->second;
    return at >= 0 && at < FLEET_SECONDS ? (size_t) at : FLEET_SECONDS;
}

static void work_once(struct worker *worker, size_t policy)
{
    struct here *here = worker->here;
    const struct fleet_work *work = &here->work;
    const uint64_t number = work->keys == 0 ? here->next_key++
                            : random_below(&worker->rng, 2) == 0
                                ? 0
                                : worker->offset + random_below(&worker->rng, work->keys);
    char text[32];
    const int length = snprintf(text, sizeof(text), "key-%" PRIu64, number);
    const weir_key key = weir_make_key(here->w, here->policies[policy], text, (size_t) length);
    const uint64_t cost = 1 + random_below(&worker->rng, work->max_cost);
    const bool allowed = weir_check(worker->t, &key, cost, NULL);
    const size_t second = second_now(here->shared);
    here->shared->seconds[second].offered[policy] += (uint32_t) cost;
    if (!allowed) {
        return;
    }
    here->shared->seconds[second].admitted[policy] += (uint32_t) cost;
    here->shared->admitted[policy] += cost;
    worker->allowed++;
    if (work->refund_percent != 0 && random_below(&worker->rng, 100) < work->refund_percent) {
        weir_refund(worker->t, &key, cost);
        here->shared->admitted[policy] -= cost;
    }
}

/* Requests come unevenly: 0.3 to 1.7 times the rate in each step, as in the model of the estimate. */
static uint64_t due(struct worker *worker, size_t policy, uint64_t elapsed_ns)
{
    if (worker->here->work.rate == 0) {
        return CHECKS_PER_STEP;
    }
    const double jitter = 0.3 + 1.4 * (double) random_below(&worker->rng, 1000) / 1000;
    worker->carry[policy] += (double) worker->here->work.rate * (double) elapsed_ns / (double) SECOND * jitter;
    const uint64_t whole = (uint64_t) worker->carry[policy];
    worker->carry[policy] -= (double) whole;
    return whole;
}

/* The time since the last step, as far as the work makes up for it. */
static uint64_t step_ns(const struct worker *worker, uint64_t elapsed_ns)
{
    const uint64_t most_ns = worker->here->work.catch_up_ms * MILLISECOND;
    const size_t second = second_now(worker->here->shared);
    _Atomic uint32_t *late_ms = &worker->here->shared->seconds[second].late_ms;
    const uint32_t late = elapsed_ns > STEP_NS ? (uint32_t) ((elapsed_ns - STEP_NS) / MILLISECOND) : 0;
    if (late > *late_ms) {
        *late_ms = late; /* another thread's may be lost: it is for people to read */
    }
    return most_ns != 0 && elapsed_ns > most_ns ? most_ns : elapsed_ns;
}

static void *work_main(void *arg)
{
    struct worker *worker = arg;
    const struct fleet_work *work = &worker->here->work;
    uint64_t last_ns = real_ns();
    const uint64_t from_ns = last_ns;
    const uint64_t until_ns = last_ns + work->for_ms * MILLISECOND;
    worker->t = weir_attach(worker->here->w);
    if (worker->t == NULL) {
        _exit(12);
    }
    for (uint64_t now_ns = last_ns; now_ns < until_ns; now_ns = real_ns()) {
        worker->offset = work->moves ? worker->here->first_key + (now_ns - from_ns) / MOVE_NS * work->keys : 0;
        const uint64_t elapsed_ns = step_ns(worker, now_ns - last_ns);
        for (size_t policy = 0; policy < worker->here->config.policy_count; policy++) {
            if ((work->policies & 1u << policy) == 0) {
                continue;
            }
            for (uint64_t left = due(worker, policy, elapsed_ns); left != 0; left--) {
                work_once(worker, policy);
            }
        }
        last_ns = now_ns;
        const struct timespec pause = {.tv_nsec = STEP_NS};
        (void) nanosleep(&pause, NULL);
    }
    weir_detach(worker->t);
    return NULL;
}

static void node_works(struct here *here)
{
    static struct worker workers[WORKERS];
    pthread_t threads[WORKERS];
    const uint32_t count = here->work.threads;
    here->first_key += 1000000; /* no key of one work is in the next; all nodes get the same orders */
    for (uint32_t i = 0; i < count; i++) {
        memset(&workers[i], 0, sizeof(workers[i]));
        workers[i].here = here;
        workers[i].rng = here->work.seed + i;
        if (pthread_create(&threads[i], NULL, work_main, &workers[i]) != 0) {
            _exit(13);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        (void) pthread_join(threads[i], NULL);
        here->answer.allowed += workers[i].allowed;
    }
}

static void node_checks(struct here *here, const struct fleet_checks *checks)
{
    char text[32];
    const int length = snprintf(text, sizeof(text), "key-%" PRIu32, checks->key);
    const weir_key key = weir_make_key(here->w, here->policies[checks->policy], text, (size_t) length);
    for (uint32_t i = 0; i < checks->times; i++) {
        if (weir_check(here->t, &key, checks->cost, &here->answer.verdict)) {
            here->shared->admitted[checks->policy] += checks->cost;
            here->answer.allowed++;
        }
    }
}

static void node_says(void *arg, weir_log_level level, const char *message)
{
    (void) level;
    (void) fprintf(stderr, "# node %d: %s\n", *(const int *) arg, message);
}

static void node_open(struct here *here)
{
    static int pid;
    pid = (int) getpid();
    weir_policy policies[FLEET_POLICIES];
    for (size_t i = 0; i < here->config.policy_count; i++) {
        const struct fleet_policy *from = &here->config.policies[i];
        policies[i] = (weir_policy){.name = from->name,
                                    .limits = &from->limit,
                                    .limit_count = 1,
                                    .on_outage = from->on_outage,
                                    .outage_grace_ms = here->config.outage_grace_ms};
    }
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = here->config.url;
    options.sync_interval_ms = here->config.interval_ms;
    options.redis_timeout_ms = here->config.timeout_ms;
    options.expected_nodes = here->config.expected_nodes;
    options.max_keys = here->config.max_keys != 0 ? here->config.max_keys : options.max_keys;
    if (getenv("WEIR_TEST_LOG") != NULL) {
        options.log = node_says;
        options.log_arg = &pid;
    }
    weir_error error;
    if (weir_open(&options, &here->w, &error) != 0 ||
        weir_set_policies(here->w, policies, here->config.policy_count, &error) != 0) {
        (void) fprintf(stderr, "# node: %s\n", error.message);
        _exit(10);
    }
    for (size_t i = 0; i < here->config.policy_count; i++) {
        here->policies[i] = weir_find_policy(here->w, here->config.policies[i].name);
    }
    here->t = weir_attach(here->w);
}

static int node_run(int from, int to, int shared)
{
    static struct here here;
    here.shared = mmap(NULL, sizeof(*here.shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (here.shared == MAP_FAILED || !read_all(from, &here.config, sizeof(here.config))) {
        return 11;
    }
    node_open(&here);
    struct order order = {.kind = ORDER_LOOK}; /* the first answer says that it is open */
    do {
        memset(&here.answer, 0, sizeof(here.answer));
        here.work = order.work;
        switch (order.kind) {
        case ORDER_WORK:
            node_works(&here);
            break;
        case ORDER_CHECK:
            node_checks(&here, &order.checks);
            break;
        case ORDER_SYNC:
            here.answer.result = weir_sync(here.w, order.timeout_ms);
            break;
        case ORDER_CLOSE:
            weir_detach(here.t);
            weir_close(here.w);
            return 0;
        case ORDER_LOOK:
        default:
            break;
        }
        weir_get_stats(here.w, &here.answer.stats);
    } while (write_all(to, &here.answer, sizeof(here.answer)) && read_all(from, &order, sizeof(order)));
    return 14; /* the test is gone */
}

bool fleet_node_main(int argc, char **argv, int *exit_code)
{
    if (argc != 5 || strcmp(argv[1], NODE_OPTION) != 0) {
        return false;
    }
    *exit_code = node_run(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    return true;
}

/* From here on: in the test. */

static void node_exec(int from, int to, int shared, pid_t parent, char *const argv[])
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    (void) fcntl(from, F_SETFD, 0);
    (void) fcntl(to, F_SETFD, 0);
    (void) fcntl(shared, F_SETFD, 0);
    (void) execv("/proc/self/exe", argv);
    _exit(127);
}

void fleet_node_start(struct fleet_node *node, const struct fleet_config *config)
{
    int to[2];
    int from[2];
    memset(node, 0, sizeof(*node));
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    const int shared = memfd_create("weir-test-node", MFD_CLOEXEC);
    assert_true(shared >= 0);
    assert_int_equal(ftruncate(shared, (off_t) sizeof(*node->shared)), 0);
    node->shared = mmap(NULL, sizeof(*node->shared), PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    assert_true(node->shared != MAP_FAILED);
    node->shared->second = fleet_wall_second();
    char numbers[3][16];
    (void) snprintf(numbers[0], sizeof(numbers[0]), "%d", to[0]);
    (void) snprintf(numbers[1], sizeof(numbers[1]), "%d", from[1]);
    (void) snprintf(numbers[2], sizeof(numbers[2]), "%d", shared);
    char name[] = "fleet-node";
    char option[] = NODE_OPTION;
    char *const argv[] = {name, option, numbers[0], numbers[1], numbers[2], NULL};
    const pid_t parent = getpid();
    node->pid = fork();
    assert_true(node->pid >= 0);
    if (node->pid == 0) {
        node_exec(to[0], from[1], shared, parent, argv);
    }
    (void) close(to[0]);
    (void) close(from[1]);
    (void) close(shared);
    node->to = to[1];
    node->from = from[0];
    assert_true(write_all(node->to, config, sizeof(*config)));
    struct fleet_answer answer;
    fleet_node_answer(node, &answer);
}

static void order_give(const struct fleet_node *node, const struct order *order)
{
    assert_true(node->pid > 0);
    assert_true(write_all(node->to, order, sizeof(*order)));
}

void fleet_node_work(const struct fleet_node *node, const struct fleet_work *work)
{
    assert_in_range(work->threads, 1, WORKERS);
    order_give(node, &(struct order){.kind = ORDER_WORK, .work = *work});
}

void fleet_node_check(const struct fleet_node *node, const struct fleet_checks *checks)
{
    order_give(node, &(struct order){.kind = ORDER_CHECK, .checks = *checks});
}

void fleet_node_sync(const struct fleet_node *node, uint32_t timeout_ms)
{
    order_give(node, &(struct order){.kind = ORDER_SYNC, .timeout_ms = timeout_ms});
}

void fleet_node_look(const struct fleet_node *node)
{
    order_give(node, &(struct order){.kind = ORDER_LOOK});
}

void fleet_node_answer(const struct fleet_node *node, struct fleet_answer *answer)
{
    struct pollfd fd = {.fd = node->from, .events = POLLIN};
    if (poll(&fd, 1, ANSWER_LIMIT_MS) <= 0) {
        fail_msg("node %d does not answer", (int) node->pid);
    }
    if (!read_all(node->from, answer, sizeof(*answer))) {
        fail_msg("node %d has died", (int) node->pid);
    }
}

uint64_t fleet_node_admitted(const struct fleet_node *node, size_t policy)
{
    return node->shared->admitted[policy];
}

struct fleet_second fleet_node_second(const struct fleet_node *node, int64_t wall_second)
{
    struct fleet_second out = {.late_ms = 0};
    const int64_t at = node->shared != NULL ? wall_second - node->shared->second : -1;
    if (at >= 0 && at < FLEET_SECONDS) {
        for (size_t policy = 0; policy < FLEET_POLICIES; policy++) {
            out.offered[policy] = node->shared->seconds[at].offered[policy];
            out.admitted[policy] = node->shared->seconds[at].admitted[policy];
        }
        out.late_ms = node->shared->seconds[at].late_ms;
    }
    return out;
}

static size_t status_bytes(const struct fleet_node *node, const char *name)
{
    char path[64];
    char line[256];
    size_t kibibytes = 0;
    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) node->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (kibibytes == 0 && fgets(line, sizeof(line), file) != NULL) {
        kibibytes = strncmp(line, name, strlen(name)) == 0 ? strtoull(line + strlen(name), NULL, 10) : 0;
    }
    (void) fclose(file);
    assert_true(kibibytes != 0);
    return kibibytes * 1024;
}

size_t fleet_node_resident(const struct fleet_node *node)
{
    return status_bytes(node, "VmRSS:");
}

size_t fleet_node_peak(const struct fleet_node *node)
{
    return status_bytes(node, "VmHWM:");
}

void fleet_node_signal(const struct fleet_node *node, int signal)
{
    assert_int_equal(kill(node->pid, signal), 0);
}

static void node_gone(struct fleet_node *node)
{
    (void) close(node->to);
    (void) close(node->from);
    node->pid = 0;
}

uint64_t fleet_node_close(struct fleet_node *node)
{
    const uint64_t before_ns = real_ns();
    order_give(node, &(struct order){.kind = ORDER_CLOSE});
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(node->pid, &status, WNOHANG)) == 0) {
        if (real_ns() > before_ns + ANSWER_LIMIT_MS * MILLISECOND) {
            fail_msg("node %d does not end", (int) node->pid);
        }
        const struct timespec pause = {.tv_nsec = 1000000};
        (void) nanosleep(&pause, NULL);
    }
    assert_int_equal(ended, node->pid);
    node_gone(node);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return real_ns() - before_ns;
}

void fleet_node_kill(struct fleet_node *node)
{
    (void) kill(node->pid, SIGKILL);
    (void) waitpid(node->pid, NULL, 0);
    node_gone(node);
}

void fleet_node_drop(struct fleet_node *node)
{
    if (node->pid > 0) {
        fleet_node_kill(node);
    }
    if (node->shared != NULL && node->shared != MAP_FAILED) {
        (void) munmap(node->shared, sizeof(*node->shared));
    }
    node->shared = NULL;
}
