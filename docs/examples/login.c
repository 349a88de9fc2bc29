/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logins: five wrong passwords for a user from an address in 15 minutes, exactly (a sliding log), and 50 from an
 * address for whichever users. By the pair, so that whoever guesses is locked out and not the user. An attempt is
 * counted before the password is looked at, and given back when it was right.
 */
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define MINUTE (60 * UINT64_C(1000000000))

static uint64_t read_clock(void *now_ns)
{
    return *(const uint64_t *) now_ns;
}

static void login(weir *w, weir_thread *thread, const char *user, const char *address, bool right)
{
    char pair[128]; /* a byte that neither can contain keeps "ab" + "c" from being "a" + "bc" */
    const int size = snprintf(pair, sizeof pair, "%s%c%s", user, '\0', address);
    if (size < 0 || (size_t) size >= sizeof pair) {
        return; /* no such user */
    }
    const weir_key keys[] = {weir_make_key(w, weir_find_policy(w, "login"), pair, (size_t) size),
                             weir_make_key(w, weir_find_policy(w, "login-address"), address, strlen(address))};
    weir_verdict v;
    if (!weir_check_all(thread, keys, NULL, 2, &v)) {
        printf("%s from %s: refused, again in %.0f s\n", user, address, (double) v.retry_after_ns / 1e9);
        return;
    }
    printf("%s from %s: %s\n", user, address, right ? "welcome" : "wrong password");
    if (right) {
        weir_refund(thread, &keys[0], 1);
        weir_refund(thread, &keys[1], 1);
    }
}

int main(void)
{
    uint64_t now_ns = 29453760 * MINUTE; /* 2026-01-01: the program's own clock */
    const weir_clock clock = {.monotonic_ns = read_clock, .wall_ns = read_clock, .arg = &now_ns};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock;
    weir_limit limits[] = {WEIR_LIMIT_INIT, WEIR_LIMIT_INIT};
    limits[0].algorithm = WEIR_SLIDING_LOG;
    limits[0].limit = 5;
    limits[1].algorithm = WEIR_SLIDING_WINDOW;
    limits[1].limit = 50;
    limits[0].period_ns = limits[1].period_ns = 15 * MINUTE;
    weir_policy policies[] = {WEIR_POLICY_INIT, WEIR_POLICY_INIT};
    policies[0].name = "login";
    policies[0].limits = &limits[0];
    policies[1].name = "login-address";
    policies[1].limits = &limits[1];
    policies[0].limit_count = policies[1].limit_count = 1;
    weir *w = NULL;
    weir_error error;
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, 2, &error) != 0) {
        return fprintf(stderr, "%s\n", error.message), 1;
    }
    weir_thread *thread = weir_attach(w);
    for (int minute = 0; thread != NULL && minute <= 16 && weir_poll(w) >= 0; minute++, now_ns += MINUTE) {
        if (minute < 6 || minute > 14) { /* the first guess is forgotten 15 minutes after it, and so on */
            login(w, thread, "alice", "203.0.113.9", false);
        }
        if (minute == 6) {
            login(w, thread, "alice", "198.51.100.7", true);
        }
    }
    weir_detach(thread);
    weir_close(w);
    return thread == NULL;
}
