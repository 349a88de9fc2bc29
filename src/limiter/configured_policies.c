/* SPDX-License-Identifier: Apache-2.0 */
/* See configured_policies.h. */
#include "limiter/configured_policies.h"

#include <stdlib.h>
#include <string.h>

struct configured_policies {
    size_t count;
    struct {
        weir_policy policy;
        char name[WEIR_MAX_NAME + 1];
        weir_limit limits[WEIR_MAX_LIMITS];
        char limit_names[WEIR_MAX_LIMITS][WEIR_MAX_NAME + 1];
    } of[];
};

/* What is valid fits. */
static const char *copy_name(char to[WEIR_MAX_NAME + 1], const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    (void) strncpy(to, name, WEIR_MAX_NAME);
    return to;
}

struct configured_policies *configured_policies_copy(const weir_policy *policies, size_t count)
{
    struct configured_policies *configured = calloc(1, sizeof(*configured) + count * sizeof(configured->of[0]));
    if (configured == NULL) {
        return NULL;
    }
    configured->count = count;
    for (size_t i = 0; i < count; i++) {
        configured->of[i].policy = policies[i];
        configured->of[i].policy.name = copy_name(configured->of[i].name, policies[i].name);
        configured->of[i].policy.limits = configured->of[i].limits;
        for (size_t j = 0; j < policies[i].limit_count; j++) {
            configured->of[i].limits[j] = policies[i].limits[j];
            configured->of[i].limits[j].name = copy_name(configured->of[i].limit_names[j], policies[i].limits[j].name);
        }
    }
    return configured;
}

const void *configured_policies_bytes(const struct configured_policies *configured, size_t *size)
{
    *size = configured != NULL ? sizeof(*configured) + configured->count * sizeof(configured->of[0]) : 0;
    return configured;
}

struct configured_policies *configured_policies_from_bytes(const void *bytes, size_t size)
{
    struct configured_policies *configured = size != 0 ? malloc(size) : NULL;
    if (configured == NULL) {
        return NULL;
    }
    memcpy(configured, bytes, size);
    for (size_t i = 0; i < configured->count; i++) {
        configured->of[i].policy.name = configured->of[i].name;
        configured->of[i].policy.limits = configured->of[i].limits;
        for (size_t j = 0; j < configured->of[i].policy.limit_count; j++) {
            weir_limit *limit = &configured->of[i].limits[j];
            limit->name = limit->name != NULL ? configured->of[i].limit_names[j] : NULL;
        }
    }
    return configured;
}

void configured_policies_free(struct configured_policies *configured)
{
    free(configured);
}

size_t configured_policies_count(const struct configured_policies *configured)
{
    return configured != NULL ? configured->count : 0;
}

const weir_policy *configured_policies_at(const struct configured_policies *configured, size_t index)
{
    return configured != NULL && index < configured->count ? &configured->of[index].policy : NULL;
}
