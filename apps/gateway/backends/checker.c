/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See checker.h. One round a TICK_MS, and whenever something was read: first what the sockets have, then each backend.
 * A round holds the lock of the backends, and waits for nothing while it does.
 */
#include "checker.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../clock.h"
#include "../log.h"
#include "../refusal.h"

#define TICK_MS  100
#define TRIAL_MS 1000

/* What the thread knows of the backend at a place. */
struct checked {
    int fd; /* -1: none */
    struct address address;
    uint64_t next_ns;       /* of its next probe or trial; 0: at once */
    bool is_asked;          /* a probe has been sent, and no answer seen since */
    unsigned good, bad;     /* probes in a row with an answer, and without */
    uint32_t refused_at;    /* second of the last refusal, as it was seen last */
    uint32_t trial_start;   /* second of the first of the trials since the last error; 0: none */
    uint64_t sent, replies; /* at the last look */
    uint32_t waits_since;   /* second of the first packet since the last reply or pause; 0: none */
    uint32_t sent_at;       /* second in which packets were last seen to be sent */
    uint32_t silent_at;     /* second in which it was found silent */
};

struct checker {
    struct backends *backends;
    struct checker_options options;
    pthread_t thread;
    int stop_fd;
    bool has_probes;
    bool all_down; /* as told last */
    struct checked places[BACKEND_PLACES];
};

static void lower(const struct checker *checker, struct backend *backend, enum backend_reason reason, const char *why)
{
    if (health_lower(&backend->health, reason, backend->text, why)) {
        backends_changed(checker->backends);
    }
}

static void raise_up(const struct checker *checker, struct backend *backend, enum backend_reason reason,
                     const char *why)
{
    if (health_raise(&backend->health, reason, backend->text, why)) {
        backends_changed(checker->backends);
    }
}

static void forget(struct checked *checked)
{
    if (checked->fd >= 0) {
        (void) close(checked->fd);
    }
    *checked = (struct checked){.fd = -1};
}

static void note_refusal(const struct checker *checker, struct backend *backend, struct checked *checked, int error)
{
    checked->good = 0;
    checked->trial_start = 0;
    if (health_refused(&backend->health, backend->text, error, health_now())) {
        backends_changed(checker->backends);
    }
}

/* An answer to the probe that is out, or to a trial. */
static void note_answer(const struct checker *checker, struct backend *backend, struct checked *checked)
{
    char why[64];
    if (checker->has_probes) {
        checked->good += checked->is_asked;
        checked->is_asked = false;
        checked->bad = 0;
        if (checked->good < checker->options.rise) {
            return;
        }
        (void) snprintf(why, sizeof(why), "it answers probes");
        raise_up(checker, backend, BACKEND_HAS_NO_ANSWER, why);
    }
    if (health_replied_slow(&backend->health, backend->text, health_now())) {
        backends_changed(checker->backends);
    }
}

static void note_news(const struct checker *checker, struct backend *backend, struct checked *checked,
                      enum probe_news news, int error)
{
    if (news == PROBE_ANSWERED) {
        note_answer(checker, backend, checked);
    } else if (news == PROBE_REFUSED) {
        note_refusal(checker, backend, checked, error);
    }
}

/*
 * Sends a probe or a trial from a backend's socket, which is opened where there is none. False: none could be sent, for
 * a reason of this host.
 */
static bool ask(const struct checker *checker, struct backend *backend, struct checked *checked)
{
    int error = 0;
    if (checked->fd < 0) {
        checked->fd = probe_open(&backend->address);
    }
    if (checked->fd < 0) {
        if (is_refusal(errno)) {
            note_refusal(checker, backend, checked, errno);
            return true;
        }
        return false;
    }
    const enum probe_news news = probe_send(checked->fd, &checker->options.payload, &error);
    note_news(checker, backend, checked, news, error);
    return true;
}

/* The last probe has had its time; the next one goes out. */
static void probe(const struct checker *checker, struct backend *backend, struct checked *checked)
{
    char why[64];
    if (checked->is_asked) {
        checked->good = 0;
        checked->bad++;
        if (checked->bad >= checker->options.fall) {
            (void) snprintf(why, sizeof(why), "%u probes in a row had no answer", checked->bad);
            lower(checker, backend, BACKEND_HAS_NO_ANSWER, why);
        }
    }
    checked->is_asked = true;
    checked->is_asked = ask(checker, backend, checked) && checked->is_asked;
}

/* Whether it is for this thread to try a backend: others are up, so clients do not. */
static bool is_spared(const struct checker *checker, const struct backend *backend)
{
    return health_reasons(&backend->health) != 0 && !backends_all_down(checker->backends);
}

/* Whether a backend that refused packets has taken some since, of clients' or of trials. Without probes. */
static void look_at_refusals(const struct checker *checker, struct backend *backend, const struct checked *checked,
                             uint32_t now)
{
    const uint32_t tried_at = atomic_load_explicit(&backend->health.tried_at, memory_order_relaxed);
    const uint32_t since = tried_at != 0 ? tried_at : checked->trial_start;
    /* A worker's second may have begun since `now` was read. */
    if (since != 0 && now >= since + BACKEND_TRIED_SECONDS) {
        raise_up(checker, backend, BACKEND_REFUSES, "it accepts packets again");
    }
}

/* Whether a backend has been silent. */
static void look_at_silence(const struct checker *checker, struct backend *backend, struct checked *checked,
                            unsigned place, uint32_t now)
{
    char why[96];
    const struct backend_sums sums = backends_sums(checker->backends, place);
    if (sums.replies != checked->replies) {
        checked->waits_since = 0;
        raise_up(checker, backend, BACKEND_IS_SILENT, "it replies");
    } else if (sums.sent != checked->sent) {
        if (checked->waits_since == 0 || now - checked->sent_at > 1) {
            checked->waits_since = now;
        }
        checked->sent_at = now;
        if (now - checked->waits_since >= checker->options.silence_seconds) {
            (void) snprintf(why, sizeof(why), "clients sent it packets for %u seconds, and it replied to none",
                            checker->options.silence_seconds);
            checked->silent_at = now;
            lower(checker, backend, BACKEND_IS_SILENT, why);
        }
    }
    checked->sent = sums.sent;
    checked->replies = sums.replies;
    if ((health_reasons(&backend->health) & BACKEND_IS_SILENT) != 0 &&
        now - checked->silent_at >= CHECKER_RETRY_SECONDS && is_spared(checker, backend)) {
        checked->waits_since = 0;
        raise_up(checker, backend, BACKEND_IS_SILENT, "it gets clients again, to see whether it replies");
    }
}

static void check(const struct checker *checker, struct backend *backend, struct checked *checked, unsigned place)
{
    const uint64_t now_ns = clock_ns();
    const uint32_t now = health_now();
    const bool refuses = (health_reasons(&backend->health) & BACKEND_REFUSES) != 0;
    const bool is_due = now_ns >= checked->next_ns;
    const uint32_t refused_at = atomic_load_explicit(&backend->health.refused_at, memory_order_relaxed);
    if (refused_at != checked->refused_at) {
        checked->refused_at = refused_at; /* of clients' packets too: answers count from here on */
        checked->good = 0;
    }
    if (checker->has_probes && is_due) {
        checked->next_ns = now_ns + checker->options.interval_ms * UINT64_C(1000000);
        probe(checker, backend, checked);
    } else if (!checker->has_probes && refuses) {
        if (is_due && is_spared(checker, backend)) {
            checked->next_ns = now_ns + TRIAL_MS * UINT64_C(1000000);
            /* A trial that is refused itself begins no time of trial. */
            if (ask(checker, backend, checked) && checked->trial_start == 0 &&
                now > atomic_load_explicit(&backend->health.refused_at, memory_order_relaxed)) {
                checked->trial_start = now;
            }
        }
        look_at_refusals(checker, backend, checked, now);
    } else if (!checker->has_probes) {
        checked->trial_start = 0;
    }
    if (checker->options.silence_seconds != 0) {
        look_at_silence(checker, backend, checked, place, now);
    }
}

/* Tells when there is no backend left that is up, and when there is one again. */
static void tell_all_down(struct checker *checker)
{
    const bool all_down = backends_all_down(checker->backends);
    unsigned serving = 0;
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        serving += backend_role(&checker->backends->places[place]) == BACKEND_SERVES;
    }
    if (all_down && !checker->all_down && serving > 1) {
        log_line(WEIR_LOG_ERROR, "all %u backends are down: packets go on to them as if all were up", serving);
    } else if (!all_down && checker->all_down) {
        log_line(WEIR_LOG_INFO, "packets go to the backends that are up");
    }
    checker->all_down = all_down && (serving > 1 || checker->all_down);
}

/* Reads what has come. `ready`: of the sockets in `polled`, which belong to `places`. */
static void read_news(struct checker *checker, const struct pollfd *polled, const unsigned *places, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct backend *backend = &checker->backends->places[places[i]];
        if (polled[i].revents != 0 && checker->places[places[i]].fd == polled[i].fd) {
            int error = 0;
            const enum probe_news news = probe_read(polled[i].fd, &error);
            note_news(checker, backend, &checker->places[places[i]], news, error);
        }
    }
}

static void round_of(struct checker *checker, const struct pollfd *polled, const unsigned *places, unsigned count)
{
    struct backends *backends = checker->backends;
    (void) pthread_mutex_lock(&backends->lock);
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        const struct backend *backend = &backends->places[place];
        struct checked *checked = &checker->places[place];
        if (backend_role(backend) == BACKEND_ABSENT || !address_is_same(&checked->address, &backend->address)) {
            forget(checked);
            checked->address = backend->address;
        }
    }
    read_news(checker, polled, places, count);
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        if (backend_role(&backends->places[place]) != BACKEND_ABSENT) {
            check(checker, &backends->places[place], &checker->places[place], place);
        }
    }
    tell_all_down(checker);
    (void) pthread_mutex_unlock(&backends->lock);
}

static void *checker_main(void *arg)
{
    struct checker *checker = arg;
    struct pollfd polled[BACKEND_PLACES + 1];
    unsigned places[BACKEND_PLACES];
    for (;;) {
        unsigned count = 0;
        for (unsigned place = 0; place < BACKEND_PLACES; place++) {
            if (checker->places[place].fd >= 0) {
                places[count] = place;
                polled[count++] = (struct pollfd){.fd = checker->places[place].fd, .events = POLLIN};
            }
        }
        polled[count] = (struct pollfd){.fd = checker->stop_fd, .events = POLLIN};
        if (poll(polled, count + 1, TICK_MS) < 0 && errno != EINTR) {
            (void) poll(NULL, 0, TICK_MS); /* no memory: sockets are read by the next round */
        }
        if (polled[count].revents != 0) {
            return NULL;
        }
        round_of(checker, polled, places, count);
    }
}

struct checker *checker_start(struct backends *backends, const struct checker_options *options)
{
    struct checker *checker = calloc(1, sizeof(*checker));
    if (checker == NULL) {
        return NULL;
    }
    checker->backends = backends;
    checker->options = *options;
    checker->has_probes = options->payload.size != 0;
    backends->has_probes = checker->has_probes;
    if (options->introduces) {
        probe_introduce(&checker->options.payload);
    }
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        checker->places[place].fd = -1;
    }
    checker->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = checker->stop_fd < 0 ? errno : 0;
    if (error == 0) {
        error = pthread_create(&checker->thread, NULL, checker_main, checker);
    }
    if (error != 0) {
        (void) close(checker->stop_fd);
        free(checker);
        errno = error;
        return NULL;
    }
    return checker;
}

void checker_stop(struct checker *checker)
{
    if (checker == NULL) {
        return;
    }
    (void) eventfd_write(checker->stop_fd, 1);
    (void) pthread_join(checker->thread, NULL);
    for (unsigned place = 0; place < BACKEND_PLACES; place++) {
        forget(&checker->places[place]);
    }
    (void) close(checker->stop_fd);
    free(checker);
}
