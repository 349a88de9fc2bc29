/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a log of each format. What a reader keeps of the lines before changes nothing: a fresh one reads the same of
 * each line. Times of the Common Log Format are held against the C library's.
 *
 * An input is the number of the format, that of the key, two bits (sizes; own names of JSON), the prefix and the depth,
 * each a digit; then lines.
 */
#include <time.h>

#include "../../apps/weir/trace/formats.h"
#include "fuzz.h"

#define COST_MOST    UINT64_C(4398046511103)
#define TIME_MOST_MS UINT64_C(253402387200000) /* the end of the year 9999, in the westernmost zone */
#define EPOCH_MOST   UINT64_C(100000000000000) /* of the digits that a time since the epoch may have */

static const line_fn readers[] = {clf_read, json_read, haproxy_read, csv_read, alb_read, w3c_read};
static const unsigned prefixes[] = {128, 64, 56, 48};

static struct selection read_selection(struct input *in, unsigned format)
{
    static const char *const names[] = {"user-agent", "session", "2", "key", "user-agent", "key"};
    struct selection s = {.key_name = names[format]};
    s.key = (enum key_field) input_choice(in, KEY_FIELD + 1);
    const unsigned bits = input_choice(in, 4);
    s.bytes = (bits & 1) != 0;
    s.names[FIELD_ADDRESS] = (bits & 2) != 0 ? "who" : NULL;
    s.names[FIELD_TIME] = (bits & 2) != 0 ? "when" : NULL;
    s.prefix = prefixes[input_choice(in, COUNT_OF(prefixes))];
    s.depth = 1 + input_choice(in, 4);
    return s;
}

static void check_record(const struct record *r, const struct selection *s)
{
    CHECK(r->length <= KEY_MOST && r->cost <= COST_MOST);
    CHECK(r->time_ms <= (TIME_MOST_MS > EPOCH_MOST ? TIME_MOST_MS : EPOCH_MOST));
    CHECK(!r->whole || r->time_ms % 1000 == 0);
    CHECK(!r->address || r->length == 4 || r->length == s->prefix / 8);
}

/* The time that a reader has kept, as the C library reads its text. */
static void check_time(const struct time_cache *cache)
{
    char text[CLF_TIME_SIZE + 1] = "";
    struct tm tm = {.tm_sec = 0};
    memcpy(text, cache->text, CLF_TIME_SIZE);
    const char *end = strptime(text, "%d/%b/%Y:%H:%M:%S %z", &tm);
    if (text[0] != '\0' && end != NULL && *end == '\0') { /* it knows fewer zones */
        const long zone = tm.tm_gmtoff;
        tm.tm_gmtoff = 0;
        CHECK(cache->time_ms == (uint64_t) (timegm(&tm) - zone) * 1000);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    const unsigned format = input_choice(&in, COUNT_OF(readers));
    const struct selection selection = read_selection(&in, format);
    struct line_reader kept = {.selection = &selection};
    while (in.at < in.end) {
        size_t length;
        char *line = input_part(&in, "\n", &length);
        struct line_reader fresh = {.selection = &selection};
        memcpy(fresh.columns, kept.columns, sizeof(fresh.columns)); /* a line of names is for those behind it */
        struct record record = {.key = NULL};
        struct record again = {.key = NULL};
        const enum line result = readers[format](&kept, line, line + length, &record);
        CHECK(result == readers[format](&fresh, line, line + length, &again));
        if (result == LINE_RECORD) {
            CHECK(kept.cache.text[0] != '\0' || readers[format] == json_read || readers[format] == csv_read ||
                  readers[format] == alb_read || readers[format] == w3c_read);
            check_record(&record, &selection);
            CHECK(record.time_ms == again.time_ms && record.cost == again.cost && record.length == again.length);
            CHECK(record.address == again.address && record.whole == again.whole);
            CHECK(memcmp(record.key, again.key, record.length) == 0);
        }
        check_time(&kept.cache);
        input_free(line);
    }
    return 0;
}
