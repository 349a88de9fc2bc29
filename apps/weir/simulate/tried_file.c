/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See tried_file.h. The library takes overrides one by one, each with a copy of all that are there, or from a file in
 * one go. So they are written anew into a file in memory, whose one policy nobody asks.
 */
#include "tried_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../policy_probe.h"
#include "base/error.h"

#define UNASKED "simulated-none"

static int out_of_memory(weir_error *error)
{
    return error_set(error, -ENOMEM, "out of memory");
}

static bool is_of(const char *name, const char *policy)
{
    const size_t length = policy != NULL ? strcspn(policy, "/") : 0;
    return policy != NULL && strncmp(name, policy, length) == 0 &&
           (name[length] == ':' || name[length] == '/' || name[length] == '\0');
}

static void keep_entry(void *arg, const weir_override *entry)
{
    struct tried_file *file = arg;
    if (file->entry_count < file->entry_capacity) {
        struct tried_entry *kept = &file->entries[file->entry_count++];
        kept->name = strdup(entry->name);
        kept->value = strdup(entry->value);
    }
}

static void count_entry(void *arg, const weir_override *entry)
{
    (void) arg;
    (void) entry;
}

static int take(struct tried_file *out, weir *w, weir_error *error)
{
    out->entry_capacity = 2 * weir_list_overrides(w, count_entry, NULL); /* room for those of the copy */
    out->entries = calloc(out->entry_capacity + 1, sizeof(*out->entries));
    if (out->entries == NULL || !listed_policies_take(&out->list, w)) {
        return out_of_memory(error);
    }
    (void) weir_list_overrides(w, keep_entry, out);
    for (size_t i = 0; i < out->entry_count; i++) {
        if (out->entries[i].name == NULL || out->entries[i].value == NULL) {
            return out_of_memory(error);
        }
    }
    return 0;
}

int tried_file_read(struct tried_file *out, const char *path, weir_error *error)
{
    weir *probe = NULL;
    *out = (struct tried_file){.path = policy_probe_name(path)};
    int result = policy_probe_open(NULL, &probe, error);
    result = result == 0 ? policy_probe_load(probe, path, error) : result;
    result = result == 0 ? take(out, probe, error) : result;
    weir_close(probe);
    return result;
}

void tried_file_free(struct tried_file *file)
{
    for (size_t i = 0; i < file->entry_count; i++) {
        free(file->entries[i].name);
        free(file->entries[i].value);
    }
    free(file->entries);
    listed_policies_free(&file->list);
    *file = (struct tried_file){NULL};
}

/* Policies as they are put in force, with room for their names. */
struct made {
    weir_policy *all;
    char (*names)[WEIR_MAX_NAME + 1];
    size_t count;
};

static void made_free(struct made *made)
{
    free(made->all);
    free(made->names);
}

static bool make(const struct tried_file *file, struct made *out)
{
    *out = (struct made){.all = calloc(2 * file->list.count + 1, sizeof(*out->all)),
                         .names = calloc(file->list.count + 1, sizeof(*out->names))};
    for (size_t i = 0; out->all != NULL && out->names != NULL && i < file->list.count; i++) {
        const weir_policy *policy = &file->list.all[i].policy;
        out->all[out->count] = *policy;
        out->all[out->count].mode = file->policy != NULL ? WEIR_ENFORCE : policy->mode;
        out->count++;
        if (file->form6 != NULL && is_of(policy->name, file->policy)) {
            (void) snprintf(out->names[i], sizeof(out->names[i]), TRIED_IPV6 "%.*s", (int) (WEIR_MAX_NAME / 2),
                            policy->name + strcspn(policy->name, "/"));
            out->all[out->count] = out->all[out->count - 1];
            out->all[out->count++].name = out->names[i];
        }
    }
    return out->all != NULL && out->names != NULL;
}

/* Gives keys their forms. */
static int set_forms(const struct tried_file *file, weir *w, weir_error *error)
{
    char base[WEIR_MAX_NAME + 1];
    if (file->policy == NULL) {
        return policy_probe_set_forms(w, error);
    }
    (void) snprintf(base, sizeof(base), "%.*s", (int) strcspn(file->policy, "/"), file->policy);
    int result = file->form != NULL ? weir_set_key_form(w, base, file->form, error) : 0;
    if (result == 0 && file->form6 != NULL) {
        result = weir_set_key_form(w, TRIED_IPV6, file->form6, error);
    }
    return result;
}

/* "api:2001:db8::/32" as an override of the copy. NULL: out of memory. */
static char *name_of_copy(const char *name)
{
    const char *rest = name + strcspn(name, "/:");
    char *made = malloc(sizeof(TRIED_IPV6) + strlen(rest));
    if (made != NULL) {
        (void) sprintf(made, TRIED_IPV6 "%s", rest);
    }
    return made;
}

/* Whether a weir takes an override, which is then taken off again. */
static bool takes(weir *w, const char *name, const char *value, weir_error *error)
{
    if (weir_set_override(w, name, value, error) != 0) {
        return false;
    }
    (void) weir_set_override(w, name, NULL, NULL);
    return true;
}

/* Names the override, of the policy or of the copy, as the one that takes it has it. False: none does. */
static bool check_entry(const struct tried_file *file, weir *w, struct tried_entry *entry, weir_error *error)
{
    weir_error unused;
    if (takes(w, entry->name, entry->value, error)) {
        return true;
    }
    if (file->form6 == NULL || !is_of(entry->name, file->policy)) {
        return false;
    }
    char *name = name_of_copy(entry->name);
    if (name == NULL || !takes(w, name, entry->value, &unused)) {
        free(name);
        return false;
    }
    free(entry->name);
    entry->name = name;
    return true;
}

/* A name that both take has an override of the copy beside its own: it is of a network, or of all. */
static void add_of_copy(struct tried_file *file, weir *w, const struct tried_entry *entry)
{
    weir_error unused;
    char *name = file->form6 != NULL && is_of(entry->name, file->policy) ? name_of_copy(entry->name) : NULL;
    char *value = name != NULL ? strdup(entry->value) : NULL;
    if (value != NULL && takes(w, name, value, &unused) && file->entry_count < file->entry_capacity) {
        file->entries[file->entry_count++] = (struct tried_entry){name, value};
        return;
    }
    free(name);
    free(value);
}

static void check_entries(struct tried_file *file, weir *w)
{
    const size_t count = file->entry_count;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        weir_error error;
        struct tried_entry entry = file->entries[i];
        if (!check_entry(file, w, &entry, &error)) {
            (void) fprintf(stderr, "%s: the override \"%s\" is left out: %s\n", file->path, entry.name, error.message);
            free(entry.name);
            free(entry.value);
            continue;
        }
        file->entries[kept++] = entry;
    }
    file->entry_count = kept;
    for (size_t i = 0; i < kept; i++) {
        add_of_copy(file, w, &file->entries[i]);
    }
}

int tried_file_check(struct tried_file *file, weir_error *error)
{
    weir *probe = NULL;
    struct made made;
    int result = make(file, &made) ? policy_probe_open(NULL, &probe, error) : out_of_memory(error);
    result = result == 0 ? weir_set_policies(probe, made.all, made.count, error) : result;
    result = result == 0 ? set_forms(file, probe, error) : result;
    if (result == 0) {
        check_entries(file, probe);
    }
    made_free(&made);
    weir_close(probe);
    return result;
}

static void put_quoted(FILE *out, const char *text)
{
    (void) fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            (void) fputc('\\', out);
        }
        (void) fputc(*text, out);
    }
    (void) fputc('"', out);
}

/* The overrides as a file in memory; -1: there is no memory. */
static int write_entries(const struct tried_file *file)
{
    const int memory = memfd_create("weir-overrides", MFD_CLOEXEC);
    const int copy = memory >= 0 ? dup(memory) : -1;
    FILE *out = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (out != NULL) {
        (void) fprintf(out, "policies: [{name: " UNASKED
                            ", limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}]\noverrides:\n");
        for (size_t i = 0; i < file->entry_count; i++) {
            (void) fputs("  ", out);
            put_quoted(out, file->entries[i].name);
            (void) fputs(": ", out);
            put_quoted(out, file->entries[i].value);
            (void) fputc('\n', out);
        }
    } else if (copy >= 0) {
        (void) close(copy);
    }
    if (memory >= 0 && (out == NULL || fclose(out) != 0)) {
        (void) close(memory);
        return -1;
    }
    return memory;
}

/* The policies once more, with the overrides. */
static int put_made(const struct tried_file *file, weir *w, const struct made *made, weir_error *error)
{
    char path[40];
    const int memory = write_entries(file);
    if (memory < 0) {
        return out_of_memory(error);
    }
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
    const int result = weir_load_policies_with(w, path, made->all, made->count, error);
    (void) close(memory);
    return result;
}

int tried_file_put(const struct tried_file *file, weir *w, weir_error *error)
{
    struct made made;
    int result = make(file, &made) ? weir_set_policies(w, made.all, made.count, error) : out_of_memory(error);
    result = result == 0 ? set_forms(file, w, error) : result;
    result = result == 0 && file->entry_count != 0 ? put_made(file, w, &made, error) : result;
    made_free(&made);
    return result;
}
