/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays requests through the library as an embedding program would, for tests of weir simulate:
 *
 *     decision_player POLICIES POLICY PREFIX QUEUES
 *
 * PREFIX is that of weir_address_form, or 0: keys have no form. QUEUES is 1 where the policy has a leaky bucket.
 * Standard input has a line "TIME_MS KEY_IN_HEX COST" for each request, in the order of time. A line of standard output
 * says denied, admitted or delayed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

#define NS_PER_MS UINT64_C(1000000)

static uint64_t now_ms;

static uint64_t clock_ns(void *arg)
{
    (void) arg;
    return now_ms * NS_PER_MS;
}

static size_t read_hex(const char *text, unsigned char *out)
{
    size_t length = 0;
    unsigned byte;
    for (; sscanf(text, "%2x", &byte) == 1; text += 2) {
        out[length++] = (unsigned char) byte;
    }
    return length;
}

static weir *open_weir(char **words)
{
    static const weir_clock clock = {clock_ns, clock_ns, NULL};
    weir_options options = WEIR_OPTIONS_INIT;
    weir_error error;
    weir *w = NULL;
    const unsigned prefix = (unsigned) strtoul(words[2], NULL, 10);
    options.clock = &clock;
    options.no_denial_log = true;
    if (weir_open(&options, &w, &error) != 0 ||
        (prefix != 0 && weir_set_key_form(w, words[1], weir_address_form(prefix), &error) != 0) ||
        weir_load_policies(w, words[0], &error) != 0) {
        (void) fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return w;
}

int main(int argc, char **argv)
{
    char hex[1024];
    unsigned char key_bytes[512];
    uint64_t time_ms, cost;
    weir *w = NULL;
    weir_thread *t = NULL;
    if (argc != 5) {
        return 2;
    }
    while (scanf("%" SCNu64 " %1023s %" SCNu64, &time_ms, hex, &cost) == 3) {
        bool moved = time_ms != now_ms;
        now_ms = time_ms;
        if (w == NULL) {
            w = open_weir(argv + 1);
            t = weir_attach(w);
            moved = true;
        }
        if (moved) {
            (void) weir_poll(w);
        }
        const size_t length = strcmp(hex, "-") == 0 ? 0 : read_hex(hex, key_bytes);
        const weir_key key = weir_make_key(w, weir_find_policy(w, argv[2]), key_bytes, length);
        uint64_t wait_ns = 0;
        const bool pass =
            argv[4][0] == '1' ? weir_reserve(t, &key, cost, UINT64_MAX, &wait_ns) : weir_check(t, &key, cost, NULL);
        (void) puts(!pass ? "denied" : wait_ns != 0 ? "delayed" : "admitted");
    }
    weir_detach(t);
    weir_close(w);
    return 0;
}
