/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See shared_policies.h.
 *
 * The sources are written one behind the other: the number and the bytes of the names, the configured policies, and of
 * each list of overrides the number and the texts.
 *
 * Invariant: `version` and what it names change in one store, after all that was written before. A version's last bit
 * says which place is in force.
 */
#include "limiter/shared_policies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/pages.h"
#include "limiter/configured_policies.h"
#include "limiter/weir_private.h"
#include "policy/override_set.h"
#include "policy/policy_set.h"

/* Far more than 10,000 overrides of the usual length; touched where used. */
#define SOURCES_SIZE ((size_t) 32 << 20)

#define SET_SIZE (sizeof(struct policy_set) + WEIR_MAX_POLICIES * sizeof(struct policy))

/* What changes of it. It has no pointers. */
struct shared_policies_state {
    _Atomic uint64_t version; /* of the sources; 0: none were stored yet */
    size_t sizes[2];          /* bytes of the sources */
};

struct shared_policies {
    struct shared_policies_state *state;
    void *sources[2], *sets[2], *overrides[2]; /* by place */
    uint64_t loaded;                           /* the version of this process's copy */
    int unread;                                /* why it is not the last one: as shared_policies_load() */
    struct pages_owner *pages;
    void *memory;
    size_t memory_size;
};

static size_t memory_size(void)
{
    return arena_padded(sizeof(struct shared_policies_state)) +
           2 * (arena_padded(SOURCES_SIZE) + arena_padded(SET_SIZE) + arena_padded(overrides_size_most()));
}

int shared_policies_open(struct shared_policies **out, struct pages_owner *pages)
{
    struct shared_policies *shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return -ENOMEM;
    }
    shared->pages = pages;
    shared->memory_size = memory_size();
    shared->memory = pages_take(pages, shared->memory_size, PAGES_SPARSE | PAGES_LATER);
    const int result = shared->memory != NULL ? pages_commit(pages, shared->memory, sizeof(*shared->state)) : -ENOMEM;
    if (result != 0) {
        shared_policies_close(shared);
        return result;
    }
    unsigned char *next = shared->memory;
    shared->state = arena_carve(&next, sizeof(*shared->state));
    for (size_t place = 0; place < 2; place++) {
        shared->sources[place] = arena_carve(&next, SOURCES_SIZE);
        shared->sets[place] = arena_carve(&next, SET_SIZE);
        shared->overrides[place] = arena_carve(&next, overrides_size_most());
    }
    *out = shared;
    return 0;
}

void shared_policies_close(struct shared_policies *shared)
{
    if (shared != NULL) {
        pages_give(shared->pages, shared->memory, shared->memory_size);
        free(shared);
    }
}

/* Moves a block from the heap to the place that `present` is not in. */
static void *place_block(void *const places[2], void *block, size_t size, const void *present)
{
    void *place = places[present == places[0] ? 1 : 0];
    memcpy(place, block, size);
    free(block);
    return place;
}

struct policy_set *shared_policies_place_set(struct shared_policies *shared, struct policy_set *set,
                                             const struct policy_set *present)
{
    return shared == NULL ? set : place_block(shared->sets, set, set->size, present);
}

struct overrides *shared_policies_place_overrides(struct shared_policies *shared, struct overrides *overrides,
                                                  const struct overrides *present)
{
    return shared == NULL || overrides == NULL
               ? overrides
               : place_block(shared->overrides, overrides, overrides_size(overrides), present);
}

/* Where the next bytes are written to, or read from. */
struct cursor {
    unsigned char *at; /* NULL: bytes are counted, and not written */
    size_t left;
    bool fits;      /* all so far did, and what was read made sense */
    bool no_memory; /* for a copy of what was read */
};

static void write_bytes(struct cursor *to, const void *bytes, size_t size)
{
    to->fits = to->fits && size <= to->left;
    if (to->fits && to->at != NULL && size != 0) {
        memcpy(to->at, bytes, size);
        to->at += size;
    }
    to->left -= to->fits ? size : 0;
}

static void put_size(struct cursor *to, size_t size)
{
    write_bytes(to, &size, sizeof(size));
}

static void put_text(struct cursor *to, const char *text)
{
    const size_t size = strlen(text) + 1;
    put_size(to, size);
    write_bytes(to, text, size);
}

/* The next bytes; NULL: there are not so many. */
static const void *take_bytes(struct cursor *from, size_t size)
{
    const void *bytes = from->at;
    from->fits = from->fits && size <= from->left;
    if (!from->fits) {
        return NULL;
    }
    from->at += size;
    from->left -= size;
    return bytes;
}

static size_t take_size(struct cursor *from)
{
    size_t size = 0;
    const void *bytes = take_bytes(from, sizeof(size));
    if (bytes != NULL) {
        memcpy(&size, bytes, sizeof(size));
    }
    return size;
}

static char *take_text(struct cursor *from)
{
    const size_t size = take_size(from);
    const void *bytes = take_bytes(from, size);
    const bool whole = bytes != NULL && size != 0;
    char *text = whole ? malloc(size) : NULL;
    from->no_memory = from->no_memory || (whole && text == NULL);
    if (text != NULL) {
        memcpy(text, bytes, size);
        from->fits = text[size - 1] == '\0';
        text[size - 1] = '\0';
    }
    from->fits = from->fits && text != NULL;
    return text;
}

static void put_names(struct cursor *to, const struct policy_names *names)
{
    put_size(to, names->count);
    write_bytes(to, &names->set_count, sizeof(names->set_count));
    write_bytes(to, names->names, (names->count + 1) * sizeof(names->names[0]));
}

/* Names may be those of a process that has damaged them: all are read, or none. */
static void take_names(struct cursor *from, struct policy_names *names)
{
    const size_t count = take_size(from);
    const void *set_count = take_bytes(from, sizeof(names->set_count));
    const void *bytes = count <= WEIR_MAX_POLICIES ? take_bytes(from, (count + 1) * sizeof(names->names[0])) : NULL;
    struct policy_names *read = bytes != NULL ? malloc(sizeof(*read)) : NULL;
    from->no_memory = from->no_memory || (bytes != NULL && read == NULL);
    from->fits = read != NULL;
    if (read == NULL) {
        return;
    }
    read->count = count;
    memcpy(read->names, bytes, (count + 1) * sizeof(names->names[0]));
    from->fits = policy_names_are_sound(read);
    if (from->fits) {
        names->count = count;
        memcpy(&names->set_count, set_count, sizeof(names->set_count));
        memcpy(names->names, read->names, (count + 1) * sizeof(names->names[0]));
    }
    free(read);
}

static void put_list(struct cursor *to, const struct override_list *list)
{
    put_size(to, list->count);
    for (size_t i = 0; i < list->count; i++) {
        put_text(to, list->texts[i].field);
        put_text(to, list->texts[i].value);
        write_bytes(to, &list->texts[i].compiled, sizeof(list->texts[i].compiled)); /* it is about to be in force */
    }
}

static void take_list(struct cursor *from, struct override_list *list)
{
    const size_t count = take_size(from);
    from->fits = from->fits && count <= from->left; /* each entry takes more than a byte */
    struct override_list read = {calloc(from->fits ? count + 1 : 1, sizeof(*read.texts)), 0};
    from->no_memory = from->no_memory || read.texts == NULL;
    from->fits = from->fits && read.texts != NULL;
    while (from->fits && read.count < count) {
        struct override_text *text = &read.texts[read.count++];
        text->field = take_text(from);
        text->value = take_text(from);
        const bool *in_force = take_bytes(from, sizeof(text->in_force));
        text->in_force = in_force != NULL && bool_of_byte(in_force);
    }
    if (!from->fits) {
        overrides_drop(read.texts, read.count);
        return;
    }
    overrides_drop(list->texts, list->count);
    *list = read;
}

static void take_configured(struct cursor *from, struct configured_policies **configured)
{
    const size_t size = take_size(from);
    const void *bytes = take_bytes(from, size);
    struct configured_policies *read = NULL;
    const int result = bytes != NULL ? configured_policies_from_bytes(bytes, size, &read) : -EUCLEAN;
    from->no_memory = from->no_memory || result == -ENOMEM;
    from->fits = from->fits && result == 0;
    if (result == 0) {
        configured_policies_free(*configured);
        *configured = read;
    }
}

static void put_sources(struct cursor *to, const weir *w)
{
    size_t size = 0;
    const void *configured = configured_policies_bytes(w->configured, &size);
    put_names(to, &w->names);
    put_size(to, size);
    write_bytes(to, configured, size);
    for (size_t i = 0; i < OVERRIDE_LISTS; i++) {
        put_list(to, &w->overrides[i]);
    }
}

/* Has so many bytes present in both places: which of them is in force may differ from part to part. */
static int commit_places(const struct shared_policies *shared, void *const places[2], size_t size)
{
    const int result = pages_commit(shared->pages, places[0], size);
    return result != 0 ? result : pages_commit(shared->pages, places[1], size);
}

int shared_policies_make_room(const weir *w, const struct policy_set *set, const struct overrides *overrides)
{
    const struct shared_policies *shared = w->shared_policies;
    if (shared == NULL) {
        return 0;
    }
    const int result = commit_places(shared, shared->sets, set->size);
    return result == 0 && overrides != NULL ? commit_places(shared, shared->overrides, overrides_size(overrides))
                                            : result;
}

int shared_policies_prepare(weir *w, const struct policy_set *set, const struct overrides *overrides)
{
    struct shared_policies *shared = w->shared_policies;
    if (shared == NULL) {
        return 0;
    }
    const uint64_t version = load_relaxed(&shared->state->version) + 1; /* written under the lock alone */
    if (version != shared->loaded + 1) {
        return shared->unread != 0 ? shared->unread : -ENOMEM; /* what another process has set would be lost */
    }
    const size_t place = version % 2;
    struct cursor counted = {.left = SOURCES_SIZE, .fits = true};
    put_sources(&counted, w);
    if (!counted.fits) {
        return -ENOMEM;
    }
    const size_t size = SOURCES_SIZE - counted.left;
    int result = pages_commit(shared->pages, shared->sources[place], size);
    result = result != 0 ? result : shared_policies_make_room(w, set, overrides);
    if (result == 0) {
        struct cursor to = {.at = shared->sources[place], .left = SOURCES_SIZE, .fits = true};
        put_sources(&to, w);
        shared->state->sizes[place] = size;
    }
    return result;
}

void shared_policies_commit(weir *w)
{
    if (w->shared_policies != NULL) {
        struct shared_policies_state *state = w->shared_policies->state;
        w->shared_policies->loaded = load_relaxed(&state->version) + 1; /* written under the lock alone */
        store_release(&state->version, w->shared_policies->loaded);     /* pairs with shared_policies_load() */
    }
}

int shared_policies_load(weir *w)
{
    struct shared_policies *shared = w->shared_policies;
    /* Acquire: pairs with shared_policies_commit(). */
    const uint64_t version = shared != NULL ? load_acquire(&shared->state->version) : 0;
    if (shared == NULL || version == shared->loaded) {
        return 0;
    }
    const size_t place = version % 2;
    const size_t stored = shared->state->sizes[place];
    struct cursor from = {.at = shared->sources[place], .left = stored, .fits = stored <= SOURCES_SIZE};
    take_names(&from, &w->names);
    if (from.fits) {
        take_configured(&from, &w->configured);
    }
    for (size_t i = 0; i < OVERRIDE_LISTS && from.fits; i++) {
        take_list(&from, &w->overrides[i]);
    }
    if (from.fits) {
        shared->loaded = version;
        shared->unread = 0;
        return 0;
    }
    shared->unread = from.no_memory ? -ENOMEM : -EUCLEAN;
    return shared->unread; /* the next caller tries again */
}

struct policy_set *shared_policies_in_force(const weir *w)
{
    const struct shared_policies *shared = w->shared_policies;
    struct policy_set *set = process_policies(&w->limiter.process); /* under the lock */
    return shared == NULL || set == shared->sets[0] || set == shared->sets[1] ? set : NULL;
}

int shared_policies_refuse(int result, weir_error *error)
{
    switch (result) {
    case -ENOSPC:
        return error_set(error, result, "there is no room in /dev/shm for the policies; make that file system larger");
    case -EDEADLK:
        return error_set(error, result,
                         "this thread is within a check, as in a signal handler, and the change would wait for it; set "
                         "a flag in the handler, and call behind the check");
    case -EBUSY:
        return error_set(error, result,
                         "a thread of a process that shares the weir has read the policies for ten seconds, and they "
                         "cannot be changed again meanwhile; end that process");
    case -EUCLEAN:
        return error_set(error, result,
                         "the policies in shared memory are damaged; end all processes that share the weir, and start "
                         "them anew");
    default:
        return error_set(error, result, "out of memory for the policies and the entries of single keys");
    }
}
