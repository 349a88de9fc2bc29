/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of logs as requests: every form of a time, and of each format what is read of a line and which lines are
 * malformed. Whatever stands before and behind a text is not looked at.
 *
 * Guards: apps/weir/trace/text_time.c, apps/weir/trace/fields.c, apps/weir/trace/clf.c, apps/weir/trace/haproxy.c,
 * apps/weir/trace/csv.c, apps/weir/trace/json.c
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../apps/weir/trace/fields.h"
#include "../apps/weir/trace/formats.h"
#include "../apps/weir/trace/text_time.h"
#include "support/support.h"

#define NONE UINT64_MAX

/* A text with other bytes on both sides, which would be read as a part of it. */
struct placed {
    char bytes[1200];
    const char *at;
    size_t length;
};

static void place(struct placed *out, const char *text, size_t length, const char *beside)
{
    assert_true(length + 2 * strlen(beside) < sizeof(out->bytes));
    (void) snprintf(out->bytes, sizeof(out->bytes), "%s%.*s%s", beside, (int) length, text, beside);
    out->at = out->bytes + strlen(beside);
    out->length = length;
}

/* The milliseconds of a text, whatever stands beside it; NONE: it is no time. */
static uint64_t read_time(const char *text, size_t length, bool *whole)
{
    static const char *const besides[] = {"9999", " +0130", ".5", "Z", "::::"};
    uint64_t first = 0;
    for (size_t i = 0; i < 5; i++) {
        struct placed placed;
        struct time_cache cache = {.text = ""};
        uint64_t ms = 0;
        bool is_whole = false;
        place(&placed, text, length, besides[i]);
        const uint64_t got = time_read_any(&cache, placed.at, placed.length, &ms, &is_whole) ? ms : NONE;
        if (i != 0 && got != first) {
            fail_msg("%.*s beside %s: %llu, not %llu", (int) length, text, besides[i], (unsigned long long) got,
                     (unsigned long long) first);
        }
        first = got;
        *whole = is_whole;
    }
    return first;
}

static void test_a_time_of_any_form_is_read_to_the_millisecond(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned draw = 0; draw < test_draws(20000); draw++) {
        const uint64_t most_s = draw_once_in(&rng, 2) ? UINT64_C(4102444800) : UINT64_C(99999999999);
        const uint64_t ms = 100000000 + random_below(&rng, most_s * 1000 - 200000000);
        const unsigned ms_of = (unsigned) (ms % 1000);
        const int zone = (int) random_below(&rng, 24 * 60 + 24 * 60 - 1) - (24 * 60 - 1);
        const unsigned hours = (unsigned) abs(zone) / 60, minutes = (unsigned) abs(zone) % 60;
        const char sign = zone < 0 ? '-' : '+';
        const time_t at_s = (time_t) (ms / 1000), there_s = at_s + (time_t) zone * 60;
        struct tm utc, there;
        char texts[14][64], day[40], clf[40], clf_utc[40];
        bool whole;
        assert_true(gmtime_r(&at_s, &utc) != NULL && gmtime_r(&there_s, &there) != NULL);
        assert_true(strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &there) == 19);
        assert_true(strftime(clf, sizeof(clf), "%d/%b/%Y:%H:%M:%S", &there) == 20);
        assert_true(strftime(clf_utc, sizeof(clf_utc), "%d/%b/%Y:%H:%M:%S", &utc) == 20);
        (void) snprintf(texts[0], 64, "%s%c%02u:%02u", day, sign, hours, minutes);
        (void) snprintf(texts[1], 64, "%s %c%02u%02u", day, sign, hours, minutes);
        (void) snprintf(texts[2], 64, "%s %c%02u%02u", clf, sign, hours, minutes);
        (void) snprintf(texts[3], 64, "%llu", (unsigned long long) ms / 1000);
        (void) snprintf(texts[4], 64, "%s.%03u%c%02u%02u", day, ms_of, sign, hours, minutes);
        (void) snprintf(texts[5], 64, "%s,%03u%c%02u:%02u", day, ms_of, sign, hours, minutes);
        (void) snprintf(texts[6], 64, "%s.%03u999 %c%02u:%02u", day, ms_of, sign, hours, minutes);
        (void) snprintf(texts[7], 64, "%llu.%03u", (unsigned long long) ms / 1000, ms_of);
        (void) snprintf(texts[8], 64, "%llu.%03u999", (unsigned long long) ms / 1000, ms_of);
        for (unsigned i = 0; i < 9; i++) {
            const uint64_t got = read_time(texts[i], strlen(texts[i]), &whole);
            if (got != (i < 4 ? ms - ms_of : ms) || whole != (i < 4)) {
                fail_msg("%s: %llu", texts[i], (unsigned long long) got);
            }
        }
        /* Of so many digits since the epoch it is milliseconds, microseconds or nanoseconds. */
        (void) snprintf(texts[9], 64, "%llu", (unsigned long long) ms);
        (void) snprintf(texts[10], 64, "%llu%03u", (unsigned long long) ms, draw % 1000);
        (void) snprintf(texts[11], 64, "%llu%06u", (unsigned long long) ms, draw % 1000000);
        for (unsigned i = 9; i < 12 && ms >= UINT64_C(100000000000); i++) {
            const size_t digits = strlen(texts[i]);
            const bool in_range = i == 9    ? digits <= 14
                                  : i == 10 ? digits <= 17 && digits >= 15
                                            : digits >= 18 && digits <= 19;
            if (in_range) {
                assert_int_equal(read_time(texts[i], digits, &whole), ms);
                assert_false(whole);
            }
        }
        /* HAProxy's is of UTC, and never whole. */
        struct placed placed;
        struct time_cache cache = {.text = ""};
        uint64_t got = 0;
        (void) snprintf(texts[12], 64, "%s.%03u", clf_utc, ms_of);
        place(&placed, texts[12], strlen(texts[12]), "7");
        assert_true(time_read_haproxy(&cache, placed.at, placed.length, &got) && got == ms);
        assert_true(time_read_haproxy(&cache, placed.at, placed.length - 1, &got) && got == ms - ms % 10);
        assert_false(time_read_haproxy(&cache, placed.at, 21, &got));
        assert_false(time_read_haproxy(&cache, placed.at, 20, &got));
        assert_false(time_read_haproxy(&cache, placed.at, 0, &got));
        placed.bytes[1 + 22] = 'x';
        assert_false(time_read_haproxy(&cache, placed.at, placed.length, &got));
    }
}

static void test_what_is_no_time_is_none(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        uint64_t ms;
    } rows[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01t00:00:00z", 0},
        {"1970-01-01T00:00:00.5", 500},
        {"1970-01-01T00:00:00.05", 50},
        {"1970-01-01T00:00:00.0059", 5},
        {"1970-01-01T00:00:60Z", 60000}, /* a leap second is the second after it */
        {"1970-01-01T23:59:59-23:59", UINT64_C(86399000) + 23 * 3600000 + 59 * 60000},
        {"1970-01-02T00:00:00+24:00", NONE},
        {"1970-01-02T00:00:00+23:60", NONE},
        {"1970-01-02T00:00:00+23:59", 60000},
        {"1970-01-01T00:00:00+00:01", NONE},
        {"1969-12-31T23:59:59Z", NONE},
        {"1970-02-29T00:00:00Z", 59 * UINT64_C(86400000)}, /* the day after the 28th */
        {"1970-02-30T00:00:00Z", NONE},
        {"1970-04-31T00:00:00Z", NONE},
        {"1970-01-32T00:00:00Z", NONE},
        {"1970-01-00T00:00:00Z", NONE},
        {"1970-00-01T00:00:00Z", NONE},
        {"1970-13-01T00:00:00Z", NONE},
        {"1970-01-01T24:00:00Z", NONE},
        {"1970-01-01T23:60:00Z", NONE},
        {"1970-01-01T23:59:61Z", NONE},
        {"1970-01-01T00:00:00.", NONE},
        {"1970-01-01T00:00:00.Z", NONE},
        {"1970-01-01T00:00:00+1", NONE},
        {"1970-01-01T00:00:00+010", NONE},
        {"1970-01-01T00:00:00+01000", NONE},
        {"1970-01-01T00:00:00*0100", NONE},
        {"1970-01-01T00:00:00ZZ", NONE},
        {"1970-01-01T00:00:0", NONE},
        {"1970-01-01X00:00:00", NONE},
        {"0", 0},
        {"1.", NONE},
        {"1.5x", NONE},
        {"1x", NONE},
        {"", NONE},
        {"x", NONE},
        {"99999999999", UINT64_C(99999999999000)},
        {"100000000000", UINT64_C(100000000000)},
        {"99999999999999", UINT64_C(99999999999999)},
        {"100000000000000", UINT64_C(100000000000)},
        {"99999999999999999", UINT64_C(99999999999999)},
        {"100000000000000000", UINT64_C(100000000000)},
        {"9999999999999999999", UINT64_C(9999999999999)},
        {"10000000000000000000", NONE},
        {"100000000000.5", UINT64_C(100000000000)},
        {"1764064800123.4567", UINT64_C(1764064800123)},
        {"100000000000000.5", NONE},
        {"01/Jan/1970:00:00:00 +0000", 0},
        {"01/Jan/1970:00:00:00 +000", NONE},
        {"01/Jax/1970:00:00:00 +0000", NONE},
        {"32/Jan/1970:00:00:00 +0000", NONE},
        {"01/Jan/1970:00:00:00 -0100", 3600000},
        {"01/Jan/1970:00:00:00+00000", NONE},
    };
    bool whole;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const uint64_t got = read_time(rows[i].text, strlen(rows[i].text), &whole);
        if (got != rows[i].ms) {
            fail_msg("%s: %llu", rows[i].text, (unsigned long long) got);
        }
    }
    /* Each byte of a time counts. */
    static const char *const good[] = {"2026-11-25T10:20:30+01:00", "25/Nov/2026:10:20:30 +0100"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(read_time(good[i], strlen(good[i]), &whole), UINT64_C(1795598430000));
        for (size_t at = 0; at < strlen(good[i]); at++) {
            char text[40];
            (void) snprintf(text, sizeof(text), "%s", good[i]);
            text[at] = '~';
            assert_true(read_time(text, strlen(text), &whole) == NONE);
        }
    }
    /* A text that is no time is not kept as one. */
    struct time_cache cache = {.text = ""};
    uint64_t ms = 1;
    assert_true(time_read_clf(&cache, "25/Nov/2026:10:20:30 +0100", &ms));
    const uint64_t right = ms;
    for (unsigned i = 0; i < 2; i++) {
        assert_false(time_read_clf(&cache, "25/Nov/2026:10:20:30 +9900", &ms));
        assert_false(time_read_clf(&cache,
                                   "\0"
                                   "5/Nov/2026:10:20:30 +0100",
                                   &ms)); /* of the kept time all but one byte */
    }
    assert_true(time_read_clf(&cache, "25/Nov/2026:10:20:31 +0100", &ms) && ms == right + 1000);
    assert_true(time_read_clf(&cache, "25/Nov/2026:10:20:31 +0100", &ms) && ms == right + 1000);
    assert_true(time_read_clf(&cache, "25/Nov/2026:10:20:30 +0100", &ms) && ms == right);
}

static const line_fn readers[] = {clf_read, haproxy_read, csv_read, json_read};

enum { CLF, HAPROXY, CSV, JSON };

#define CLF_HEAD  "192.0.2.1 - al [ic] e [25/Nov/2025:10:00:00 +0000] "
#define HA_HEAD   "Nov 25 10:00:00 lb [x] haproxy[1]: 2001:db8::1:40000 [25/Nov/2025:10:00:00.123] "
#define HA_MIDDLE "web app/s1 1/0/3/6/10 200 +2750 - - ---- 1/1/1/1/0 0/0 {one|two} {x|y} "
#define START_MS  UINT64_C(1764064800000)

struct row {
    int reader;
    enum key_field key;
    const char *key_name; /* of a header or field; of a path the number of segments; "bytes": costs are bytes */
    const char *line;
    const char *wanted; /* "key cost", or NULL: the line is malformed; "": it is empty */
};

static const struct row rows[] = {
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", "192.0.2.1 1"},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", "192.0.2.1 5"},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 5 \"-\" \"-\"", "192.0.2.1 5"},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 -", "192.0.2.1 0"},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 5x", NULL},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 --", NULL},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200 ", NULL},
    {CLF, KEY_ADDRESS, "bytes", CLF_HEAD "\"GET / HTTP/1.1\" 200", NULL},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\" 200", "192.0.2.1 1"},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\" 20", NULL},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\" x00", NULL},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\"-200", NULL},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "\"GET / HTTP/1.1\\\" 200", NULL},
    {CLF, KEY_ADDRESS, "", CLF_HEAD "GET / HTTP/1.1 200 5", NULL},
    {CLF, KEY_ADDRESS, "", "192.0.2.1 - - [25/Nov/2025:10:00:00 +0000]", NULL},
    {CLF, KEY_ADDRESS, "", "192.0.2.1 - -[25/Nov/2025:10:00:00 +0000] \"GET /\" 200 5", NULL},
    {CLF, KEY_ADDRESS, "", " - - [25/Nov/2025:10:00:00 +0000] \"GET /\" 200 5", NULL},
    {CLF, KEY_ADDRESS, "", "192.0.2.1", NULL},
    {CLF, KEY_ADDRESS, "", "", ""},
    {CLF, KEY_ADDRESS, "", "::ffff:192.0.2.9 [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "192.0.2.9 1"},
    {CLF, KEY_ADDRESS, "", "[::1]:8 [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "::1 1"},
    {CLF, KEY_ADDRESS, "", "shop:443 192.0.2.9:8 - - [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "192.0.2.9 1"},
    {CLF, KEY_ADDRESS, "", "- 192.0.2.9 - - [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "192.0.2.9 1"},
    {CLF, KEY_ADDRESS, "", "\"192.0.2.9, ::2\" - - [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "192.0.2.9 1"},
    {CLF, KEY_ADDRESS, "", "192.0.2.9, ::2 - - [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "192.0.2.9 1"},
    {CLF, KEY_ADDRESS, "", "hostname - 192.0.2.9 [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "hostname 1"},
    {CLF, KEY_USER, "", "192.0.2.9, ::2, ::3 - al [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "al 1"},
    {CLF, KEY_USER, "", "shop:443 192.0.2.9 - al [25/Nov/2025:10:00:00 +0000] \"\" 200 5", "al 1"},
    {CLF, KEY_ALL, "", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", "all 1"},
    {CLF, KEY_USER, "", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", "al [ic] e 1"},
    {CLF, KEY_USER, "", "192.0.2.1 [25/Nov/2025:10:00:00 +0000] \"GET /\" 200 5", " 1"},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"GET /a/b?c HTTP/1.1\" 200 5", "/a 1"},
    {CLF, KEY_PATH, "2", CLF_HEAD "\"GET /a/b?c HTTP/1.1\" 200 5", "/a/b 1"},
    {CLF, KEY_PATH, "3", CLF_HEAD "\"GET /a/b#c/d HTTP/1.1\" 200 5", "/a/b 1"},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"/a/b\" 200 5", "/a 1"},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"GET /a/b\" 200 5", "/a 1"},
    {CLF, KEY_PATH, "2", CLF_HEAD "\"GET http://host/a/b/c HTTP/1.1\" 200 5", "/a/b 1"},
    {CLF, KEY_PATH, "2", CLF_HEAD "\"GET http://host HTTP/1.1\" 200 5", "/ 1"},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"GET /a://b/c HTTP/1.1\" 200 5", "/a: 1"},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"OPTIONS * HTTP/1.1\" 200 5", NULL},
    {CLF, KEY_PATH, "1", CLF_HEAD "\"\" 200 5", NULL},
    {CLF, KEY_HEADER, "referer", CLF_HEAD "\"GET / HTTP/1.1\" 200 5 \"f\\\"rom\" \"who\"", "f\\\"rom 1"},
    {CLF, KEY_HEADER, "User-Agent", CLF_HEAD "\"GET / HTTP/1.1\" 200 5 \"from\" \"w h o\"", "w h o 1"},
    {CLF, KEY_HEADER, "User-Agent", CLF_HEAD "\"GET / HTTP/1.1\" 200 5 \"from\" \"who", NULL},
    {CLF, KEY_HEADER, "User-Agent", CLF_HEAD "\"GET / HTTP/1.1\" 200 5 \"from\"", NULL},
    {CLF, KEY_HEADER, "Referer", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", NULL},
    {CLF, KEY_FIELD, "x", CLF_HEAD "\"GET / HTTP/1.1\" 200 5", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", "2001:db8::1 1"},
    {HAPROXY, KEY_ADDRESS, "bytes", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", "2001:db8::1 2750"},
    {HAPROXY, KEY_ADDRESS, "bytes", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a b c d 17 \"GET /\"", "192.0.2.1 17"},
    {HAPROXY, KEY_ADDRESS, "bytes", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a b c d x \"GET /\"", NULL},
    {HAPROXY, KEY_ADDRESS, "bytes", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a b c d + \"GET /\"", NULL},
    {HAPROXY, KEY_ADDRESS, "bytes", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a b c 5 \"GET\"", NULL},
    {HAPROXY, KEY_ADDRESS, "bytes", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a \"GET\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] \"\"", "192.0.2.1 1"},
    {HAPROXY, KEY_ADDRESS, "", "1 [25/Nov/2025:10:00:00.123] \"\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", ":1 [25/Nov/2025:10:00:00.123] \"\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", "lb: :1 [25/Nov/2025:10:00:00.123] \"\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1[25/Nov/2025:10:00:00.123] \"\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123]x\"\"", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] ", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123]", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] \"GET", NULL},
    {HAPROXY, KEY_ADDRESS, "", "192.0.2.1:1 [25/Nov/2025:10:00:00.123] a b", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD "f b/s 0/-1/+5007 212 -- 0/0/0/0/3 0/0", "2001:db8::1 1"},
    {HAPROXY, KEY_ADDRESS, "bytes", HA_HEAD "f b/s 0/0/5007 212 -- 0/0/0/0/3 0/0", "2001:db8::1 212"},
    {HAPROXY, KEY_ADDRESS, "bytes", HA_HEAD "f b/s 0/0/5007 +212 -- 0/0/0/0/3 0/0", "2001:db8::1 212"},
    {HAPROXY, KEY_ALL, "", HA_HEAD "f b/s 0/0/5007 212 -- 0/0/0/0/3 0/0", "all 1"},
    {HAPROXY, KEY_PATH, "1", HA_HEAD "f b/s 0/0/5007 212 -- 0/0/0/0/3 0/0", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD "f b/s 0/5007 212 -- 0/0/0/0/3 0/0", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD "f b/s 0/x/5007 212 -- 0/0/0/0/3 0/0", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD "f b/s 0/0/5007 -- -- 0/0/0/0/3 0/0", NULL},
    {HAPROXY, KEY_ADDRESS, "", HA_HEAD "f b/s 0/0/5007 212", NULL},
    {HAPROXY, KEY_ADDRESS, "", "", ""},
    {HAPROXY, KEY_PATH, "1", HA_HEAD HA_MIDDLE "\"GET /a/b HTTP/1.1\"", "/a 1"},
    {HAPROXY, KEY_PATH, "1", HA_HEAD HA_MIDDLE "\"<BADREQ>\"", NULL},
    {HAPROXY, KEY_HEADER, "1", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", "one 1"},
    {HAPROXY, KEY_HEADER, "2", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", "two 1"},
    {HAPROXY, KEY_HEADER, "3", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", NULL},
    {HAPROXY, KEY_HEADER, "1", HA_HEAD "web 0/0 {} \"GET / HTTP/1.1\"", " 1"},
    {HAPROXY, KEY_HEADER, "1", HA_HEAD "web 0/0 \"GET /{x} HTTP/1.1\"", NULL},
    {HAPROXY, KEY_HEADER, "1", HA_HEAD "web 0/0 {one \"GET / HTTP/1.1\"", NULL},
    {HAPROXY, KEY_USER, "", HA_HEAD HA_MIDDLE "\"GET / HTTP/1.1\"", NULL},
    {CSV, KEY_FIELD, "", "1764064800,key", "key 1"},
    {CSV, KEY_FIELD, "", "1764064800,key,7", "key 7"},
    {CSV, KEY_FIELD, "", "1764064800,key,7,more", "key 7"},
    {CSV, KEY_FIELD, "", "1764064800,,", NULL},
    {CSV, KEY_FIELD, "", "1764064800,", " 1"},
    {CSV, KEY_FIELD, "", "1764064800", NULL},
    {CSV, KEY_FIELD, "", "1764064800,key,x", NULL},
    {CSV, KEY_FIELD, "", "1764064800,key,4398046511103", "key 4398046511103"},
    {CSV, KEY_FIELD, "", "1764064800,key,4398046511104", NULL},
    {CSV, KEY_FIELD, "", "1764064800,key,43980465111030", NULL},
    {CSV, KEY_FIELD, "", "1764064800,\"a,\"\"b\"\"\",7", "a,\"b\" 7"},
    {CSV, KEY_FIELD, "", "\"1764064800\",\"a\"", "a 1"},
    {CSV, KEY_FIELD, "", "1764064800,\"a\",\"7\"", "a 7"},
    {CSV, KEY_FIELD, "", "1764064800,\"a\"b,7", NULL},
    {CSV, KEY_FIELD, "", "1764064800,\"a", NULL},
    {CSV, KEY_FIELD, "", "1764064800,\"a\"\"", NULL},
    {CSV, KEY_FIELD, "", "x,key", NULL},
    {CSV, KEY_FIELD, "", "Time,key", ""},
    {CSV, KEY_FIELD, "", "times,key", NULL},
    {CSV, KEY_FIELD, "", "# 1764064800,key", ""},
    {CSV, KEY_FIELD, "", "", ""},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\"}", "192.0.2.1 1"},
    {JSON, KEY_ADDRESS, "", " \t{ \"ts\" : 1764064800 , \"ip\" : \"192.0.2.1\" } \r", "192.0.2.1 1"},
    {JSON, KEY_ADDRESS, "bytes", "{\"ts\":1764064800,\"size\":9,\"ip\":\"192.0.2.1\",\"bytes_sent\":8}", "192.0.2.1 8"},
    {JSON, KEY_ADDRESS, "bytes", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\",\"bytes\":\"8\"}", "192.0.2.1 8"},
    {JSON, KEY_ADDRESS, "bytes", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\",\"bytes\":-1}", NULL},
    {JSON, KEY_ADDRESS, "bytes", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":\"x\",\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"a\":{\"ip\":[\"}\"]},\"b\":[{}],\"ip\":\"::1\"}", "::1 1"},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"a\":{\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"a\":[1,\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\"", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\":\"192.0.2.1\"}}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\":\"192.0.2.1}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800 \"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\" 1764064800,\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{ts:1764064800,\"ip\":\"192.0.2.1\"}", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip", NULL},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\"", NULL},
    {JSON, KEY_ADDRESS, "", "{", NULL},
    {JSON, KEY_ADDRESS, "", "[]", NULL},
    {JSON, KEY_ADDRESS, "", " \t", ""},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"ip\":\"::1\",\"client\":\"::2\",\"remote_addr\":\"::3\"}", "::3 1"},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1764064800,\"remote_addr\":\"::3\",\"client\":\"::2\",\"remote_addr\":\"::4\"}",
     "::3 1"},
    {JSON, KEY_ADDRESS, "", "{\"ts\":1,\"msec\":1764064800,\"time\":2,\"ip\":\"::1\"}", "::1 1"},
    {JSON, KEY_USER, "", "{\"ts\":1764064800,\"user\":\"b\",\"remote_user\":\"a\"}", "a 1"},
    {JSON, KEY_PATH, "1", "{\"ts\":1764064800,\"request\":\"GET /a/b HTTP/1.1\"}", "/a 1"},
    {JSON, KEY_PATH, "1", "{\"ts\":1764064800,\"uri\":\"/a/b c\"}", "/a 1"},
    {JSON, KEY_PATH, "1", "{\"ts\":1764064800,\"uri\":\"\"}", NULL},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":\"one\",\"k\":\"two\"}", "two 1"},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":true}", "true 1"},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":[1, {\"a\":\"]\"}]}", "[1, {\"a\":\"]\"}] 1"},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":\"\\b\\f\\n\\r\\t\\/\\\\\\\"\\q\"}", "\b\f\n\r\t/\\\"q 1"},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":\"\\u0041\\u007f\\u0080\\u07ff\\u0800\\uFFFD\\uabcd\"}",
     "A\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbd\xea\xaf\x8d 1"},
    {JSON, KEY_FIELD, "k", "{\"ts\":1764064800,\"k\":\"\\u004\"}", "u004 1"},
    {JSON, KEY_FIELD, "none", "{\"ts\":1764064800,\"k\":1}", NULL},
    {JSON, KEY_HEADER, "k", "{\"ts\":1764064800,\"k\":1}", NULL},
};

static void test_of_each_format_a_line_is_a_request_or_malformed(void **state)
{
    (void) state;
    static const char *const besides[] = {"9", "\"", " ", ",", "x\"} ]|1764064800 200 5"};
    for (size_t i = 0; i < 5 * sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i / 5];
        struct placed placed;
        struct record record = {.cost = 0};
        struct selection selection = {.key = row->key,
                                      .prefix = 128,
                                      .depth = (unsigned) strtoul(row->key_name, NULL, 10),
                                      .key_name = row->key_name,
                                      .bytes = strcmp(row->key_name, "bytes") == 0};
        struct line_reader reader = {.selection = &selection};
        place(&placed, row->line, strlen(row->line), besides[i % 5]);
        for (unsigned again = 0; again < 2; again++) { /* what is kept of the line before makes no difference */
            const enum line line = readers[row->reader](&reader, placed.at, placed.at + placed.length, &record);
            char text[400] = "", told[500] = "";
            if (line == LINE_RECORD) {
                if (record.address && (record.length == 4 || record.length == 16)) {
                    assert_non_null(inet_ntop(record.length == 4 ? AF_INET : AF_INET6, record.key, text, sizeof(text)));
                } else {
                    (void) snprintf(text, sizeof(text), "%.*s", (int) record.length, record.key);
                }
                (void) snprintf(told, sizeof(told), "%s %llu", text, (unsigned long long) record.cost);
                assert_int_equal(record.time_ms, START_MS + (row->reader == HAPROXY ? 123 : 0));
                assert_int_equal(record.whole, row->reader != HAPROXY);
            }
            const enum line wanted = row->wanted == NULL      ? LINE_MALFORMED
                                     : row->wanted[0] == '\0' ? LINE_EMPTY
                                                              : LINE_RECORD;
            if (line != wanted || (line == LINE_RECORD && strcmp(told, row->wanted) != 0)) {
                fail_msg("%s beside %s: %d \"%s\"", row->line, besides[i % 5], (int) line, told);
            }
        }
    }
}

static void test_addresses_are_keys_of_their_bytes_and_other_texts_differ_from_all_of_them(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        unsigned prefix;
        size_t length;
        bool is_text;
    } cases[] = {
        {"0.0.0.0", 64, 4, false},
        {"255.255.255.255", 64, 4, false},
        {"256.0.0.1", 64, 9, true},
        {"1.2.3", 64, 5, true},
        {"1.2.3.4.5", 64, 9, true},
        {"01.2.3.4", 128, 8, true},
        {"1.2.3.", 64, 6, true},
        {"1..2.3", 64, 6, true},
        {"1.2.3.4x", 128, 8, true},
        {"2001:db8::1", 64, 8, false},
        {"2001:db8::1", 128, 16, false},
        {"2001:db8::1", 48, 6, false},
        {"::ffff:1.2.3.4", 64, 4, false},
        {"abcd", 64, 5, true},
        {"12345678", 64, 9, true},
        {"123456", 48, 7, true},
        {"1234567", 48, 7, true},
        {"0123456789abcdef", 64, 17, true},
        {"0123456789abcdeg:", 64, 17, true},
        {"", 64, 0, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct placed placed;
        struct record record;
        char scratch[KEY_MOST + 1];
        unsigned char bytes[16];
        place(&placed, cases[i].text, strlen(cases[i].text), "1");
        const struct selection selection = {.key = KEY_ADDRESS, .prefix = cases[i].prefix};
        const bool client = fields_address(&record, (struct span){placed.at, placed.length}, &selection, scratch);
        assert_int_equal(client, cases[i].text[0] != '\0');
        if (record.length != cases[i].length || record.address == cases[i].is_text) {
            fail_msg("%s: %zu", cases[i].text, record.length);
        }
        if (cases[i].is_text) {
            assert_memory_equal(record.key, cases[i].text, strlen(cases[i].text));
            assert_true(record.length == strlen(cases[i].text) || record.key[record.length - 1] == '.');
        } else {
            const char *text = strncmp(cases[i].text, "::ffff:", 7) == 0 ? cases[i].text + 7 : cases[i].text;
            assert_int_equal(inet_pton(strchr(text, ':') != NULL ? AF_INET6 : AF_INET, text, bytes), 1);
            assert_memory_equal(record.key, bytes, record.length);
        }
    }
    /* A long text is cut. */
    char text[400];
    struct record record;
    memset(text, 'a', sizeof(text));
    fields_text(&record, (struct span){text, 254});
    assert_int_equal(record.length, 254);
    fields_text(&record, (struct span){text, 256});
    assert_int_equal(record.length, KEY_MOST);
    /* A quoted text of CSV and an escaped one of JSON are cut as well. */
    for (unsigned i = 0; i < 2; i++) {
        char line[500];
        struct selection selection = {.key = KEY_FIELD, .key_name = "k"};
        struct line_reader reader = {.selection = &selection};
        const int length =
            snprintf(line, sizeof(line), i == 0 ? "1,\"\"\"%.*s\"" : "{\"ts\":1,\"k\":\"\\n%.*s\"}", 300, text);
        const enum line got =
            i == 0 ? csv_read(&reader, line, line + length, &record) : json_read(&reader, line, line + length, &record);
        assert_int_equal(got, LINE_RECORD);
        assert_true(record.length >= KEY_MOST - 4 && record.length <= KEY_MOST);
        assert_memory_equal(record.key + 1, text, record.length - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_time_of_any_form_is_read_to_the_millisecond),
        cmocka_unit_test(test_what_is_no_time_is_none),
        cmocka_unit_test(test_of_each_format_a_line_is_a_request_or_malformed),
        cmocka_unit_test(test_addresses_are_keys_of_their_bytes_and_other_texts_differ_from_all_of_them),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_trace", tests, NULL, NULL);
}
