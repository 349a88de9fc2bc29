/* SPDX-License-Identifier: Apache-2.0 */
/* See loopback_record.h. */
#include "transport/loopback/loopback_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void loopback_record_free(struct record *record)
{
    for (struct author *author = record->authors; author != NULL;) {
        struct author *next = author->next;
        free(author);
        author = next;
    }
    while (record->units != NULL) {
        struct unit *next = record->units->next;
        free(record->units);
        record->units = next;
    }
    free(record);
}

/* A copy of one element of a list; NULL: out of memory. */
static void *copy_of(const void *from, size_t size)
{
    void *copy = malloc(size);
    if (copy != NULL) {
        memcpy(copy, from, size);
    }
    return copy;
}

struct record *loopback_record_copy(const struct record *from)
{
    struct record *copy = copy_of(from, sizeof(*from));
    if (copy == NULL) {
        return NULL;
    }
    struct author **author = &copy->authors;
    for (const struct author *next = from->authors; next != NULL && author != NULL; next = next->next) {
        *author = copy_of(next, sizeof(*next));
        author = *author != NULL ? &(*author)->next : NULL;
    }
    struct unit **unit = &copy->units;
    for (const struct unit *next = from->units; next != NULL && unit != NULL; next = next->next) {
        *unit = copy_of(next, sizeof(*next));
        unit = *unit != NULL ? &(*unit)->next : NULL;
    }
    if (author == NULL || unit == NULL) {
        loopback_record_free(copy); /* a list that is copied in part ends there */
        return NULL;
    }
    return copy;
}

struct author *loopback_record_author(struct record *record, const char *name)
{
    for (struct author *author = record->authors; author != NULL; author = author->next) {
        if (strcmp(author->name, name) == 0) {
            return author;
        }
    }
    struct author *author = calloc(1, sizeof(*author));
    if (author != NULL) {
        (void) snprintf(author->name, sizeof(author->name), "%s", name);
        author->next = record->authors;
        record->authors = author;
    }
    return author;
}
