/* SPDX-License-Identifier: Apache-2.0 */
/* See configured_policies.h. */
#include "limiter/configured_policies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/numbers.h"
#include "policy/validate.h"

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

/* Has the pointers of one policy lead to its own memory. False: a number or a name is none that there can be. */
static bool adopt(struct configured_policies *configured, size_t index)
{
    weir_policy *policy = &configured->of[index].policy;
    policy->name = configured->of[index].name;
    policy->limits = configured->of[index].limits;
    policy->hash_keys = bool_of_byte(&policy->hash_keys);
    bool sound = policy->limit_count <= WEIR_MAX_LIMITS && memchr(policy->name, '\0', WEIR_MAX_NAME + 1) != NULL;
    for (size_t i = 0; i < WEIR_MAX_LIMITS && sound; i++) {
        weir_limit *limit = &configured->of[index].limits[i];
        const char *name = configured->of[index].limit_names[i];
        limit->name = limit->name != NULL ? name : NULL;
        sound = memchr(name, '\0', WEIR_MAX_NAME + 1) != NULL;
    }
    return sound;
}

weir_policy *configured_policies_list(const struct configured_policies *configured)
{
    const size_t count = configured_policies_count(configured);
    weir_policy *policies = calloc(count + 1, sizeof(*policies));
    for (size_t i = 0; i < count && policies != NULL; i++) {
        policies[i] = configured->of[i].policy;
    }
    return policies;
}

/* Whether these can have been configured. */
static int check(const struct configured_policies *configured)
{
    weir_policy *policies = configured_policies_list(configured);
    if (policies == NULL) {
        return -ENOMEM;
    }
    const int result = validate_policies(policies, configured->count, NULL, NULL);
    free(policies);
    return result == 0 ? 0 : -EUCLEAN;
}

int configured_policies_from_bytes(const void *bytes, size_t size, struct configured_policies **out)
{
    *out = NULL;
    if (size == 0) {
        return 0;
    }
    struct configured_policies *configured = size >= sizeof(*configured) ? malloc(size) : NULL;
    if (configured == NULL) {
        return size >= sizeof(*configured) ? -ENOMEM : -EUCLEAN;
    }
    memcpy(configured, bytes, size);
    int result = configured->count <= WEIR_MAX_POLICIES &&
                         size == sizeof(*configured) + configured->count * sizeof(configured->of[0])
                     ? 0
                     : -EUCLEAN;
    for (size_t i = 0; result == 0 && i < configured->count; i++) {
        result = adopt(configured, i) ? 0 : -EUCLEAN;
    }
    result = result != 0 ? result : check(configured);
    if (result != 0) {
        free(configured);
        return result;
    }
    *out = configured;
    return 0;
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
