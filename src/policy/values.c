/* SPDX-License-Identifier: Apache-2.0 */
/* See values.h. */
#include "policy/values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/numbers.h"

static const char digits[] = "0123456789";

/* Whether a text is hexadecimal, such as "0x64": some YAML readers take that for the number 100. */
static bool is_hexadecimal(const char *text)
{
    return text[0] == '0' && (text[1] == 'x' || text[1] == 'X') && text[2] != '\0' &&
           text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] == '\0';
}

/* The error for a text that is no decimal number. */
static int fail_number(const struct value *v)
{
    if (is_hexadecimal(v->text)) {
        return text_file_fail(v->file, v->place, -EINVAL,
                              "%s has %s \"%.40s\", which is hexadecimal; give a decimal number such as %llu",
                              v->subject, v->field, v->text, strtoull(v->text, NULL, 16));
    }
    return text_file_fail(v->file, v->place, -EINVAL,
                          "%s has %s \"%.40s\", which is no whole number; give units such as 1000%s", v->subject,
                          v->field, v->text, strchr(v->text, '/') != NULL ? ", and the time as period" : "");
}

int value_number(const struct value *v, uint64_t *out)
{
    const char *text = v->text;
    const size_t length = strspn(text, digits);
    if (length == 0 || text[length] != '\0') {
        return fail_number(v);
    }
    if (text[0] == '0' && length > 1) {
        const char *rest = text + strspn(text, "0");
        return text_file_fail(v->file, v->place, -EINVAL,
                              "%s has %s \"%.40s\" with a leading 0, which some take for octal; write %.40s",
                              v->subject, v->field, text, *rest != '\0' ? rest : "0");
    }
    uint64_t number = 0;
    for (const char *c = text; *c != '\0'; c++) {
        number = saturating_add(saturating_mul(number, 10), (uint64_t) (*c - '0'));
    }
    if (number > WEIR_MAX_UNITS) {
        return text_file_fail(v->file, v->place, -EINVAL, "%s has %s %.40s; give at most %" PRIu64 " units", v->subject,
                              v->field, text, WEIR_MAX_UNITS);
    }
    *out = number;
    return 0;
}

/* Parses a duration. False: the text is none. A duration of 2^64 ns or more is UINT64_MAX. */
static bool parse_duration(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1},
                 {"us", NS_PER_US},
                 {"ms", NS_PER_MS},
                 {"s", NS_PER_S},
                 {"m", 60 * NS_PER_S},
                 {"h", 3600 * NS_PER_S},
                 {"d", 86400 * NS_PER_S}};
    *out = 0;
    if (*text == '\0') {
        return false;
    }
    while (*text != '\0') {
        uint64_t number = 0;
        const char *first = text;
        for (; *text >= '0' && *text <= '9'; text++) {
            number = saturating_add(saturating_mul(number, 10), (uint64_t) (*text - '0'));
        }
        const size_t length = strspn(text, "nusmhd");
        uint64_t unit = 0;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strlen(units[i].name) == length && strncmp(units[i].name, text, length) == 0) {
                unit = units[i].ns;
            }
        }
        if (first == text || unit == 0) {
            return false;
        }
        text += length;
        *out = saturating_add(*out, saturating_mul(number, unit));
    }
    return true;
}

int value_duration(const struct value *v, uint64_t least_ns, uint64_t most_ns, const char *give, uint64_t *out)
{
    uint64_t ns;
    if (!parse_duration(v->text, &ns)) {
        return text_file_fail(
            v->file, v->place, -EINVAL,
            "%s \"%.40s\" is no duration; give whole numbers with a unit, such as \"10s\" or \"1m30s\"", v->field,
            v->text);
    }
    if (ns < least_ns || ns > most_ns) {
        return text_file_fail(v->file, v->place, -EINVAL, "%s has %s \"%.40s\"; give %s", v->subject, v->field, v->text,
                              give);
    }
    *out = ns;
    return 0;
}

int value_flag(const struct value *v, bool *out)
{
    static const char *const names[] = {"false", "true", "no", "yes", "off", "on"};
    static const struct words flags = {.names = names, .count = sizeof(names) / sizeof(names[0])};
    for (size_t i = 0; i < flags.count; i++) {
        if (strcasecmp(v->text, names[i]) == 0) {
            *out = i % 2 != 0;
            return 0;
        }
    }
    const char *meant = words_meant(&flags, v->text);
    return text_file_fail(v->file, v->place, -EINVAL, "%s has %s \"%.40s\"; %s%s%sive true or false", v->subject,
                          v->field, v->text, meant != NULL ? "did you mean \"" : "", meant != NULL ? meant : "",
                          meant != NULL ? "\"? G" : "g");
}

int value_word(const struct value *v, const struct words *words, unsigned *out)
{
    const size_t number = words_find(words, v->text);
    if (number != WORD_NONE) {
        *out = (unsigned) number;
        return 0;
    }
    char list[160];
    const char *meant = words_meant(words, v->text);
    const char *note = meant != NULL && strchr(meant, ':') != NULL ? words->note : NULL;
    return text_file_fail(v->file, v->place, -EINVAL, "%s has %s \"%.40s\"; %s%s%s%s%s%s%s", v->subject, v->field,
                          v->text, meant != NULL ? "did you mean \"" : "give one of ", meant != NULL ? meant : "",
                          meant != NULL ? "\"? " : "", note != NULL ? note : "", note != NULL ? ". " : "",
                          meant != NULL ? "There are " : "", words_list(words, list, sizeof(list)));
}
