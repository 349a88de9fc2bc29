/* SPDX-License-Identifier: Apache-2.0 */
/* See known_policies.h. The memory is the process's own, as the instance's is. */
#include "known_policies.h"

#include <string.h>

#include "policies.h"
#include "rate.h"

/* Those of a file have no limit here. */
struct known_policy {
    char name[WEIR_MAX_NAME + 1];
    bool of_file;
    const weir_key_form *form; /* of its keys, in this process */
    weir_limit limit;
    weir_scope scope;
};

/* A walk over the policies in force. */
struct adoption {
    struct known_policies *known;
    size_t room;
};

void known_policies_free(struct known_policies *known)
{
    ngx_free(known->all);
    *known = (struct known_policies){NULL, 0};
}

static struct known_policy *find(const struct known_policies *known, const char *name)
{
    for (size_t i = 0; i < known->count; i++) {
        if (strcmp(known->all[i].name, name) == 0) {
            return &known->all[i];
        }
    }
    return NULL;
}

bool known_policies_have_room(const struct known_policies *known, const struct own_policy *own, size_t own_count,
                              const struct policy_file *file)
{
    size_t count = known->count;
    const struct policy *policies = file->policies.elts;
    for (size_t i = 0; i < own_count; i++) {
        count += find(known, own[i].name) == NULL;
    }
    for (size_t i = 0; i < file->policies.nelts; i++) {
        count += find(known, (const char *) policies[i].name.data) == NULL;
    }
    return count <= WEIR_MAX_POLICIES;
}

/* Room for so many more names. */
static bool grow(struct known_policies *known, size_t count, ngx_log_t *log)
{
    struct known_policy *grown = ngx_alloc((known->count + count + 1) * sizeof(*grown), log);
    if (grown == NULL) {
        return false;
    }
    if (known->count != 0) {
        (void) memcpy(grown, known->all, known->count * sizeof(*grown));
    }
    ngx_free(known->all);
    known->all = grown;
    return true;
}

/* The policy of this name; there is room for one more. */
static struct known_policy *know(struct known_policies *known, const char *name)
{
    struct known_policy *policy = find(known, name);
    if (policy == NULL) {
        policy = &known->all[known->count++];
        *policy = (struct known_policy){.of_file = true};
        (void) ngx_cpystrn((u_char *) policy->name, (u_char *) name, sizeof(policy->name));
    }
    return policy;
}

static void know_own(struct known_policies *known, const char *name, const weir_limit *limit, weir_scope scope)
{
    struct known_policy *policy = know(known, name);
    policy->of_file = false;
    policy->limit = *limit;
    policy->scope = scope;
}

bool known_policies_add(struct known_policies *known, const struct block *block, ngx_log_t *log)
{
    const struct own_policy *own = block->own.elts;
    const struct policy *of_file = block->file.policies.elts;
    if (!grow(known, block->own.nelts + block->file.policies.nelts, log)) {
        return false;
    }
    for (size_t i = 0; i < block->own.nelts; i++) {
        know_own(known, own[i].name, &own[i].limit, own[i].scope);
    }
    for (size_t i = 0; i < block->file.policies.nelts; i++) {
        know(known, (const char *) of_file[i].name.data)->of_file = true;
    }
    return true;
}

/* Whether a zone may have made the policy. One of a file that looks like this stays, and nobody asks it. */
static bool may_be_own(const weir_policy *policy)
{
    return policy->limit_count == 1 && policy->limits[0].algorithm == WEIR_LEAKY_BUCKET &&
           policy->limits[0].period_ns == RATE_PERIOD_NS && policy->mode == WEIR_ENFORCE;
}

static void adopt(void *arg, const weir_policy_info *info)
{
    struct adoption *adoption = arg;
    if (adoption->room != 0 && may_be_own(info->policy)) {
        weir_limit limit = info->policy->limits[0];
        limit.name = NULL; /* readable in this call alone; a zone's limit has none */
        adoption->room--;
        know_own(adoption->known, info->policy->name, &limit, info->policy->scope);
    }
}

void known_policies_adopt(struct known_policies *known, const weir *w, ngx_log_t *log)
{
    struct adoption adoption = {known, weir_list_policies(w, NULL, NULL)};
    if (grow(known, adoption.room, log)) {
        (void) weir_list_policies(w, adopt, &adoption);
    }
}

int known_policies_set_form(struct known_policies *known, weir *w, const char *name, unsigned key_bits,
                            weir_error *error)
{
    struct known_policy *policy = find(known, name);
    const weir_key_form *form = weir_address_form(key_bits);
    if (policy == NULL || policy->form == form) {
        return 0; /* each change puts all policies in force anew */
    }
    char group[WEIR_MAX_NAME + 1];
    (void) ngx_cpystrn((u_char *) group, (u_char *) name, sizeof(group));
    group[strcspn(group, "/")] = '\0';
    const int result = weir_set_key_form(w, group, form, error);
    policy->form = result == 0 ? form : policy->form;
    return result;
}

size_t known_policies_own(const struct known_policies *known, weir_policy *policies)
{
    size_t count = 0;
    for (size_t i = 0; i < known->count; i++) {
        const struct known_policy *zone = &known->all[i];
        if (!zone->of_file) {
            weir_policy *policy = &policies[count++];
            *policy = (weir_policy) WEIR_POLICY_INIT;
            policy->name = zone->name;
            policy->limits = &zone->limit;
            policy->limit_count = 1;
            policy->scope = zone->scope;
        }
    }
    return count;
}
