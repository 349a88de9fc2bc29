/* SPDX-License-Identifier: Apache-2.0 */
/* See choice.h. */
#include "choice.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char form[] = "give HOST:PORT, and ,weight=N or ,drain behind it if you like";

/* Takes one of the words behind the address. */
static bool take_word(struct backend_choice *out, const char *word, size_t length, char *problem, size_t size)
{
    static const char weight[] = "weight=";
    const size_t skip = sizeof(weight) - 1;
    if (length == 5 && memcmp(word, "drain", 5) == 0) {
        out->drain = true;
        return true;
    }
    if (length < skip || memcmp(word, weight, skip) != 0) {
        (void) snprintf(problem, size, "\"%.*s\" is neither weight=N nor drain; %s", (int) length, word, form);
        return false;
    }
    char *end = NULL;
    const unsigned long n = strtoul(word + skip, &end, 10);
    if (word[skip] < '0' || word[skip] > '9' || end != word + length || n < 1 || n > BACKEND_WEIGHT_MAX) {
        (void) snprintf(problem, size, "weight: give a number from 1 to %d; for no new clients give ,drain",
                        BACKEND_WEIGHT_MAX);
        return false;
    }
    out->weight = (unsigned) n;
    return true;
}

/* The address is a label of the metrics, and a field of JSON: it has no character that these would have escaped. */
static bool is_plain(const char *text)
{
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.:[]%-_")] == '\0';
}

bool backend_choice_read(const char *text, struct backend_choice *out, char *problem, size_t size)
{
    const size_t length = strcspn(text, ",");
    char host[ADDRESS_HOST_SIZE];
    uint16_t port;
    memset(out, 0, sizeof(*out));
    out->weight = 1;
    if (length < sizeof(out->text)) {
        memcpy(out->text, text, length);
    }
    for (const char *at = text + length; *at == ',';) {
        const size_t word = strcspn(at + 1, ",");
        if (!take_word(out, at + 1, word, problem, size)) {
            return false;
        }
        at += 1 + word;
    }
    if (length >= sizeof(out->text) || !is_plain(out->text) || !address_split(out->text, host, &port)) {
        (void) snprintf(problem, size, "%s", address_problem(ADDRESS_MALFORMED));
        return false;
    }
    return true;
}

int backend_choice_parse(const char *text, struct backend_choice *out, char *problem, size_t size)
{
    if (!backend_choice_read(text, out, problem, size)) {
        return ADDRESS_MALFORMED;
    }
    const int result = address_find(out->text, SOCK_DGRAM, &out->address);
    if (result != 0) {
        (void) snprintf(problem, size, "%s", address_problem(result));
    }
    return result;
}
