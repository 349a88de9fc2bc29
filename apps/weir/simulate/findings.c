/* SPDX-License-Identifier: Apache-2.0 */
/* See findings.h. */
#include "findings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "candidates.h"

const unsigned peak_ppm[PEAK_COUNT] = {500000, 900000, 990000, 999000, 1000000};

/* What rounding adds to a level: see candidates.c. */
#define LEVEL_ROUNDING 1e-3

/* A key that comes so often at most comes once or twice. */
#define RARE 2

unsigned findings_ppm(uint64_t part, uint64_t whole)
{
    return whole != 0 ? (unsigned) ((double) part / (double) whole * PPM) : 0;
}

/* Most denials first; of equal ones the busier key; then by the bytes of the key. */
static int compare_denied(const void *a, const void *b)
{
    const struct client *x = *(const struct client *const *) a;
    const struct client *y = *(const struct client *const *) b;
    const uint64_t x_denied = x->denied > x->denied_old ? x->denied : x->denied_old;
    const uint64_t y_denied = y->denied > y->denied_old ? y->denied : y->denied_old;
    if (x_denied != y_denied) {
        return x_denied < y_denied ? 1 : -1;
    }
    if (x->requests != y->requests) {
        return x->requests < y->requests ? 1 : -1;
    }
    const size_t length = x->length < y->length ? x->length : y->length;
    const int order = memcmp(client_key_text(x), client_key_text(y), length);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static int compare_numbers(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

static int compare_levels(const void *a, const void *b)
{
    const float x = *(const float *) a, y = *(const float *) b;
    return (x > y) - (x < y);
}

/* The place of a share of `count` sorted values: at most the rest is above it. */
static size_t place_of(unsigned ppm, size_t count)
{
    const double exact = ceil((double) ppm / PPM * (double) count);
    return exact < 1 ? 0 : (size_t) exact - 1;
}

static bool find_top(struct findings *out, const struct replay *r)
{
    const size_t size = sizeof(*out->top); /* NOLINT(bugprone-sizeof-expression): pointers are listed */
    out->top = (const struct client **) calloc(r->clients.count + 1, size);
    for (size_t i = 0; out->top != NULL && i < r->clients.count; i++) {
        const struct client *client = &r->clients.all[i];
        if (client->denied != 0 || client->denied_old != 0) {
            out->top[out->top_count++] = client;
        }
    }
    if (out->top != NULL) {
        qsort((void *) out->top, out->top_count, size, compare_denied);
        out->top_count = out->top_count < r->choices->top ? out->top_count : r->choices->top;
    }
    return out->top != NULL;
}

static void count_keys(struct findings *out, const struct replay *r)
{
    const struct clients *c = &r->clients;
    for (size_t i = 0; i < c->count; i++) {
        const struct client *client = &c->all[i];
        if (clients_sampled(c, client)) {
            out->known++;
            out->known_requests += client->requests;
            out->rare += client->requests <= RARE;
            out->rare_requests += client->requests <= RARE ? client->requests : 0;
            out->limited += client->denied != 0;
            out->limited_old += client->denied_old != 0;
            out->only_new += client->denied != 0 && client->denied_old == 0;
            out->only_old += client->denied == 0 && client->denied_old != 0;
        }
    }
    out->sampled = c->halvings != 0;
    out->keys = out->known << c->halvings;
    out->limited <<= c->halvings;
    out->limited_old <<= c->halvings;
    out->only_new <<= c->halvings;
    out->only_old <<= c->halvings;
}

static bool find_peaks(struct findings *out, const struct replay *r)
{
    const struct clients *c = &r->clients;
    uint32_t *peaks = calloc(c->count + 1, sizeof(*peaks));
    size_t count = 0;
    for (size_t i = 0; peaks != NULL && i < c->count; i++) {
        if (clients_sampled(c, &c->all[i])) {
            peaks[count++] = c->all[i].peak;
        }
    }
    if (peaks != NULL) {
        qsort(peaks, count, sizeof(*peaks), compare_numbers);
        for (size_t i = 0; count != 0 && i < PEAK_COUNT; i++) {
            out->peaks[i] = peaks[place_of(peak_ppm[i], count)];
        }
    }
    free(peaks);
    return peaks != NULL;
}

/* The burst at the present rate, of a bucket. */
static bool find_burst(struct limit_finding *out, const struct replay *r, size_t limit)
{
    const struct clients *c = &r->clients;
    float *levels = calloc(c->count + 1, sizeof(*levels));
    size_t count = 0;
    for (size_t i = 0; levels != NULL && i < c->count; i++) {
        if (clients_sampled(c, &c->all[i])) {
            levels[count++] = clients_rows(c, &c->all[i])[limit].most;
        }
    }
    if (levels != NULL && count != 0) {
        qsort(levels, count, sizeof(*levels), compare_levels);
        const double burst = ceil((double) levels[place_of(r->choices->through_ppm, count)] - LEVEL_ROUNDING);
        out->burst = burst > 1 ? (uint64_t) burst : 1;
    }
    free(levels);
    return levels != NULL;
}

static bool find_limit(struct limit_finding *out, const struct replay *r, const struct findings *f, size_t limit)
{
    const struct candidates *tried = &r->candidates[limit];
    const struct clients *c = &r->clients;
    uint64_t limited[CANDIDATES] = {0};
    for (size_t i = 0; i < c->count; i++) {
        const uint32_t denied = clients_sampled(c, &c->all[i]) ? clients_rows(c, &c->all[i])[limit].denied : 0;
        for (int k = 0; denied != 0 && k < CANDIDATES; k++) {
            limited[k] += denied >> k & 1;
        }
    }
    out->for_keys = out->for_requests = -1;
    for (int k = CANDIDATES - 1; k >= 0; k--) {
        out->keys_ppm[k] = findings_ppm(f->known - limited[k], f->known);
        out->requests_ppm[k] = findings_ppm(tried->offered - tried->denied[k], tried->offered);
    }
    for (int k = CANDIDATES - 1; k >= 0 && out->keys_ppm[k] >= r->choices->through_ppm; k--) {
        out->for_keys = k;
    }
    for (int k = CANDIDATES - 1; k >= 0 && out->requests_ppm[k] >= r->choices->through_ppm; k--) {
        out->for_requests = k;
    }
    return !tried->bucket || find_burst(out, r, limit);
}

bool findings_make(struct findings *out, const struct replay *r)
{
    *out = (struct findings){NULL};
    bool good = find_top(out, r) && find_peaks(out, r);
    count_keys(out, r);
    for (size_t i = 0; good && i < r->clients.row_count; i++) {
        good = find_limit(&out->limits[i], r, out, i);
    }
    return good;
}

void findings_free(struct findings *f)
{
    free((void *) f->top);
    f->top = NULL;
}
