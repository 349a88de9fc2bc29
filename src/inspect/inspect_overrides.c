/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of overrides in Redis, page by page: the answers of src/transport/redis/scripts/read_entries.lua. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "inspect/inspector.h"

/* Pages of some 200 entries. Nodes read 10,000 entries; a server that gives ever more of them is none of weir's. */
#define PAGES_MOST 2000

/* The entries so far, in memory that grows. */
struct entries {
    weir_inspected_override *all;
    size_t count, capacity;
};

/* Adds the entries of a page. A name or value with a NUL byte is cut there; it is malformed in any case. False: no
 * memory. */
static bool add_page(weir_inspector *in, const struct inspection *page, struct entries *entries)
{
    const size_t most = entries->count + page->count / 2;
    if (entries->all == NULL || entries->capacity < most) {
        weir_inspected_override *larger = realloc(entries->all, (2 * most + 1) * sizeof(*larger));
        if (larger == NULL) {
            return false;
        }
        entries->all = larger;
        entries->capacity = 2 * most;
    }
    for (size_t i = 2; i < page->count; i += 2) {
        const char *name = shelf_text(&in->of_overrides, page->all[i].text);
        const char *value = shelf_text(&in->of_overrides, page->all[i + 1].text);
        if (name == NULL || value == NULL) {
            return false;
        }
        if (strcmp(name, "version") == 0) {
            in->overrides.version = value;
        } else {
            entries->all[entries->count++] = (weir_inspected_override){name, value};
        }
    }
    return true;
}

/* Whether an answer is a cursor, fields and values. */
static bool is_page(const struct inspection *page)
{
    bool good = page->count >= 2 && page->count % 2 == 0;
    for (size_t i = 1; i < page->count; i++) {
        good = good && page->all[i].text != NULL;
    }
    return good;
}

static int compare_names(const void *left, const void *right)
{
    const weir_inspected_override *a = left;
    const weir_inspected_override *b = right;
    return strcmp(a->name, b->name);
}

/* Sorts the entries into the answer. A walk may give an entry twice while the hash grows. False: no memory. */
static bool sort(weir_inspector *in, const struct entries *entries)
{
    weir_inspected_override *sorted = shelf_take(&in->of_overrides, entries->count + 1, sizeof(*sorted));
    if (sorted == NULL) {
        return false;
    }
    if (entries->count != 0) {
        qsort(entries->all, entries->count, sizeof(*entries->all), compare_names);
    }
    for (size_t i = 0; i < entries->count; i++) {
        const size_t kept = in->overrides.override_count;
        if (kept == 0 || strcmp(sorted[kept - 1].name, entries->all[i].name) != 0) {
            sorted[in->overrides.override_count++] = entries->all[i];
        }
    }
    in->overrides.overrides = sorted;
    return true;
}

/* Asks for one page, and sets `cursor` to the next one. */
static int read_page(weir_inspector *in, char cursor[24], struct entries *entries, weir_error *error)
{
    struct inspection page = {.kind = INSPECT_ENTRIES, .words = {in->overrides.record, cursor}, .key_count = 1};
    int result = inspector_ask(in, &page, error);
    in->overrides.wrong_type = result == 0 && page.count == 1 && page.all[0].number == 1;
    if (in->overrides.wrong_type) {
        memcpy(cursor, "0", sizeof("0"));
    } else if (result == 0 && !is_page(&page)) {
        result = error_set(error, -EPROTO, "%s: Redis gave an answer of an unknown form", in->overrides.record);
    } else if (result == 0) {
        (void) snprintf(cursor, 24, "%s", page.all[1].text);
        result = add_page(in, &page, entries) ? 0 : error_set(error, -ENOMEM, "out of memory");
    }
    inspection_free(&page);
    return result;
}

int weir_inspect_overrides(weir_inspector *in, const weir_inspected_overrides **out, weir_error *error)
{
    char record[INSPECTOR_KEY_SIZE];
    char cursor[24] = "0";
    struct entries entries = {.count = 0};
    (void) snprintf(record, sizeof(record), "%s:overrides", in->prefix);
    shelf_clear(&in->of_overrides);
    in->overrides = (weir_inspected_overrides){.record = shelf_text(&in->of_overrides, record)};
    int result = in->overrides.record != NULL ? 0 : error_set(error, -ENOMEM, "out of memory");
    unsigned pages = 0;
    do {
        result = result != 0 ? result : read_page(in, cursor, &entries, error);
    } while (result == 0 && strcmp(cursor, "0") != 0 && ++pages < PAGES_MOST);
    if (result == 0 && pages == PAGES_MOST) {
        result = error_set(error, -EPROTO, "%s: has too many entries; something else has written it", record);
    }
    if (result == 0 && !sort(in, &entries)) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    free(entries.all);
    *out = result == 0 ? &in->overrides : NULL;
    return result;
}
