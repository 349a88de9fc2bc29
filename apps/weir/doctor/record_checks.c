/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records in Redis against the policy file: how many there are of each policy, those of no policy of the file, and
 * what they take by the formula of docs/operations.md. There may be more names than are looked at.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "../listed_policies.h"
#include "../policy_probe.h"
#include "base/plain.h"
#include "doctor.h"

#define NAMES_MOST 200000
#define WALK_MS    10000

/* Bytes of a record by docs/operations.md: of one node, and for each further one. */
#define BUCKET_BYTES 208.0
#define WINDOW_BYTES 173.0
#define NODE_BYTES   12.6

static void tell_records(struct doctor *d, const weir_inspected_records *records,
                         const struct listed_policies *policies)
{
    struct sentence words = {.length = 0};
    const char *stranger = NULL; /* a policy that the file does not have */
    uint64_t foreign = 0;
    double bytes = 0;
    for (size_t i = 0; i < records->use_count; i++) {
        const weir_inspected_use *use = &records->uses[i];
        const bool bucket = use->limit[0] == 'b' || use->limit[0] == 'q';
        bytes += (bucket ? BUCKET_BYTES : WINDOW_BYTES) + NODE_BYTES * (double) d->node_count;
        if (listed_policies_find(policies, use->policy, strlen(use->policy)) == NULL) {
            stranger = use->policy;
            foreign++;
        }
    }
    quantity_number(&words, records->use_count);
    sentence_add(&words, " %s%s, some %.1f MB by the formula of docs/operations.md",
                 plain_number(records->use_count, "record", "records"), records->ended ? "" : " among the first names",
                 bytes / 1e6);
    doctor_tell(d, FINDING_OK, "records", &words, NULL);
    if (foreign != 0) {
        char name[WEIR_MAX_NAME + 1];
        words = (struct sentence){.length = 0};
        (void) plain_line(name, sizeof(name), stranger);
        quantity_number(&words, foreign);
        sentence_add(&words, " %s of policies that the file does not have, such as %s",
                     plain_number(foreign, "record is", "records are"), name);
        doctor_tell(d, FINDING_WARN, "records", &words,
                    "see whether all nodes have this file, and whether another fleet has this prefix");
    }
}

/* Whether a key's text is an address, or a network of an address's bits. */
static bool is_address(const char *text)
{
    char address[INET6_ADDRSTRLEN];
    unsigned char bytes[16];
    (void) snprintf(address, sizeof(address), "%.*s", (int) strcspn(text, "/"), text);
    return inet_pton(AF_INET, address, bytes) == 1 || inet_pton(AF_INET6, address, bytes) == 1;
}

/* Whether all records of a policy have keys that are addresses, or hashes. */
static bool has_addresses(const weir_inspected_records *records, const char *base)
{
    bool any = false;
    for (size_t i = 0; i < records->use_count; i++) {
        const weir_inspected_use *use = &records->uses[i];
        if (strcmp(use->policy, base) == 0 && strchr(use->key, '~') == NULL) {
            any = true;
            if (!is_address(use->key)) {
                return false;
            }
        }
    }
    return any;
}

/* Keys that look like addresses are read as such, so that overrides of networks count for them. */
static void set_forms(weir *w, const struct listed_policies *policies, const weir_inspected_records *records)
{
    for (size_t i = 0; i < policies->count; i++) {
        char base[WEIR_MAX_NAME + 1];
        (void) snprintf(base, sizeof(base), "%.*s", (int) strcspn(policies->all[i].name, "/"), policies->all[i].name);
        if (has_addresses(records, base)) {
            (void) weir_set_key_form(w, base, weir_address_form(128), NULL); /* else they are read as bytes */
        }
    }
}

static void look_at_records(struct doctor *d, weir *w, bool of_gateway, const struct listed_policies *policies)
{
    const weir_inspected_records *records;
    struct sentence words = {.length = 0};
    weir_error error;
    if (weir_inspect_records(d->in, NAMES_MOST, WALK_MS, &records, &error) != 0) {
        sentence_add(&words, "%s", error.message);
        doctor_tell(d, FINDING_WARN, "records", &words, doctor_advice(&error));
    } else if (records->refused) {
        sentence_add(&words,
                     "this user may not run SCAN, or not HMGET, HGET and ZCARD, so the records are not looked at");
        doctor_tell(d, FINDING_OK, "records", &words, NULL);
    } else {
        if (!of_gateway) {
            set_forms(w, policies, records);
        }
        tell_records(d, records, policies);
        key_checks(d, w, records);
    }
}

void record_checks(struct doctor *d)
{
    struct listed_policies policies = {.all = NULL};
    weir *w = NULL;
    weir_error error;
    bool of_gateway = false;
    /* doctor.c has read the file before: it cannot be used any more where this fails. */
    if (policy_probe_open(d->prefix, &w, &error) == 0 &&
        policy_probe_load_keys(w, d->policies, PROBE_KEYS_GUESSED, &of_gateway, &error) == 0 &&
        listed_policies_take(&policies, w)) {
        look_at_records(d, w, of_gateway, &policies);
    }
    listed_policies_free(&policies);
    weir_close(w);
}
