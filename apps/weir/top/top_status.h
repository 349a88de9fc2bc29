/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of a node: the JSON of weir_write_status, as weir top uses it. Texts are made plain. */
#ifndef WEIR_TOP_STATUS_H
#define WEIR_TOP_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weir/weir.h>

#define TOP_NAME_SIZE 128
#define TOP_WORD_SIZE 16

struct top_policy {
    char name[TOP_NAME_SIZE], group[TOP_NAME_SIZE];
    char mode[TOP_WORD_SIZE], outage_mode[TOP_WORD_SIZE], basis[TOP_WORD_SIZE];
    uint64_t allowed, denied, would_deny;
};

struct top_key {
    char policy[TOP_NAME_SIZE]; /* the group's name */
    char key[WEIR_OFFENDER_KEY_SIZE];
    uint64_t denied_units, error_units;
    unsigned nodes; /* that list the key */
};

struct top_status {
    char version[TOP_WORD_SIZE * 2], node[TOP_NAME_SIZE], name[TOP_NAME_SIZE], link[TOP_WORD_SIZE];
    uint64_t allowed, denied; /* requests: one of several policies counts once */
    uint64_t uptime_ms, live_nodes, suspect_nodes, syncs, sync_errors, key_count, key_capacity;
    int64_t fleet_age_ms; /* -1: there has been no good sync */
    struct top_policy *policies;
    size_t policy_count;
    struct top_key *keys;
    size_t key_count_listed;
};

/* False: the text is no status, and `why`, of `size` bytes, says so. The caller calls top_status_free in both cases. */
bool top_status_read(struct top_status *out, const char *text, size_t length, char *why, size_t size);
void top_status_free(struct top_status *status);

/* The policy of a name; NULL: there is none. */
const struct top_policy *top_status_policy(const struct top_status *status, const char *name);

#endif
