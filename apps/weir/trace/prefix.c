/* SPDX-License-Identifier: Apache-2.0 */
/* See prefix.h. */
#include "prefix.h"

#include <string.h>

#include "fields.h"

/* So many prefixes may stand one behind another. */
#define PREFIXES_MOST 6

/* Words of a syslog header that may stand before the one with a colon: a zone, a host, a word of the program. */
#define WORDS_MOST 4

#define CLOCK_SIZE 8  /* 10:00:00 */
#define DATE_SIZE  10 /* 2026-11-25 */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && is_digit(*at)) {
        at++;
    }
    return at;
}

static const char *skip_blanks(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t')) {
        at++;
    }
    return at;
}

/* The end of a word. */
static const char *skip_word(const char *at, const char *end)
{
    while (at < end && *at != ' ' && *at != '\t') {
        at++;
    }
    return at;
}

/* Behind `count` words and the blanks that follow them; NULL: there are not so many, or nothing follows. */
static const char *skip_words(const char *at, const char *end, int count)
{
    for (int i = 0; i < count; i++) {
        const char *stop = skip_word(at, end);
        if (stop == at || stop == end) {
            return NULL;
        }
        at = skip_blanks(stop, end);
    }
    return at < end ? at : NULL;
}

static bool begins_with(const char *at, const char *end, const char *text)
{
    const size_t length = strlen(text);
    return (size_t) (end - at) >= length && memcmp(at, text, length) == 0;
}

/* Whether the text has the form, in which 0 stands for any digit. */
static bool has_form(const char *at, const char *end, const char *form)
{
    for (; *form != '\0'; form++, at++) {
        if (at >= end || (*form == '0' ? !is_digit(*at) : *at != *form)) {
            return false;
        }
    }
    return true;
}

/* Behind the words of colour. */
static const char *skip_colours(const char *at, const char *end)
{
    while (end - at > 2 && at[0] == '\x1b' && at[1] == '[') {
        const char *stop = at + 2;
        while (stop < end && (is_digit(*stop) || *stop == ';')) {
            stop++;
        }
        if (stop == end) {
            return at;
        }
        at = stop + 1;
    }
    return at;
}

/* Behind "10.0.0.5 nginx: ", where the host that logs is an address. NULL: it is none. */
static const char *skip_address_and_tag(const char *at, const char *end)
{
    struct address_bytes address;
    const char *stop = skip_word(at, end);
    const char *tag = skip_blanks(stop, end);
    const char *tag_end = skip_word(tag, end);
    const struct span word = {tag, (size_t) (tag_end - tag)};
    const bool good = fields_read_address((struct span){at, (size_t) (stop - at)}, &address) && word.length > 1 &&
                      tag_end < end && tag_end[-1] == ':' && !fields_read_address(word, &address);
    return good ? skip_blanks(tag_end, end) : NULL;
}

/* "web1 nginx[14]: " behind the time of a header; where there is no such word, nothing. */
static const char *skip_tag(const char *at, const char *end)
{
    const char *word = at;
    for (int i = 0; i < WORDS_MOST; i++) {
        struct address_bytes address;
        const char *behind = skip_address_and_tag(word, end);
        if (behind != NULL) {
            return behind;
        }
        const char *stop = skip_word(word, end);
        const struct span text = {word, (size_t) (stop - word)};
        if (stop == end || text.length == 0 || *word == '"' || *word == '[' || *word == '{' ||
            (text.length == 1 && *word == '-') || fields_read_address(text, &address)) {
            break;
        }
        if (stop[-1] == ':') {
            return skip_blanks(stop, end);
        }
        word = skip_blanks(stop, end);
    }
    return at;
}

/* Behind "2026-11-25T10:00:00", with a fraction and a zone or without, and the blanks that follow. NULL: there is none.
 */
static const char *skip_iso(const char *at, const char *end)
{
    const bool dated = has_form(at, end, "0000-00-00") || has_form(at, end, "0000/00/00");
    if (!dated || end - at <= DATE_SIZE + 1 + CLOCK_SIZE || strchr("Tt ", at[DATE_SIZE]) == NULL ||
        !has_form(at + DATE_SIZE + 1, end, "00:00:00")) {
        return NULL;
    }
    return skip_words(at + DATE_SIZE + 1, end, 1);
}

/* Behind "Nov 25 10:00:00 ", with a year or without. NULL: there is none. */
static const char *skip_syslog_time(const char *at, const char *end)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    bool known = false;
    for (int i = 0; i < 12 && end - at > 4; i++) {
        known = known || memcmp(at, months + (ptrdiff_t) 3 * i, 3) == 0;
    }
    if (!known || at[3] != ' ') {
        return NULL;
    }
    at = skip_blanks(at + 3, end);
    const char *day = skip_digits(at, end);
    if (day == at || day - at > 2) {
        return NULL;
    }
    at = skip_blanks(day, end);
    if (has_form(at, end, "0000 ")) {
        at = skip_blanks(at + 4, end);
    }
    return has_form(at, end, "00:00:00") ? skip_words(at, end, 1) : NULL;
}

/* Behind the header of RFC 5424, from its version on. NULL: there is none. */
static const char *skip_structured(const char *at, const char *end)
{
    const char *stop = skip_digits(at, end);
    if (stop == at || stop - at > 2 || stop == end || *stop != ' ') {
        return NULL;
    }
    at = stop + 1;
    if (!begins_with(at, end, "- ") && skip_iso(at, end) == NULL) {
        return NULL;
    }
    at = skip_words(at, end, 5); /* time, host, program, its number, the message's name */
    if (at != NULL && *at == '[') {
        while (at < end && *at == '[') { /* [name key="value"], one behind the other */
            for (; at < end && *at != ']'; at++) {
                if (*at == '"') {
                    at = fields_quote_end(at + 1, end);
                    if (at == NULL) {
                        return NULL;
                    }
                }
            }
            at = at < end ? at + 1 : end;
        }
    } else if (at != NULL && *at == '-') {
        at++;
    } else {
        return NULL;
    }
    at = skip_blanks(at, end);
    return begins_with(at, end, "\xef\xbb\xbf") ? at + 3 : at;
}

/* Behind "1764064800.123 ". NULL: there is none. */
static const char *skip_epoch(const char *at, const char *end)
{
    const char *dot = skip_digits(at, end);
    const char *stop = dot < end && *dot == '.' ? skip_digits(dot + 1, end) : dot;
    return dot - at >= 9 && dot - at <= 11 && stop > dot + 1 && stop < end && *stop == ' ' ? skip_blanks(stop, end)
                                                                                           : NULL;
}

/* Behind a time, and what else belongs to it. NULL: there is none. */
static const char *skip_time(const char *at, const char *end)
{
    static const char *const streams[] = {"stdout F ", "stderr F ", "stdout P ", "stderr P "};
    const char *behind = skip_iso(at, end);
    if (behind == NULL && end - at > 4 && at[3] == ' ') { /* a day of the week */
        behind = skip_iso(at + 4, end);
    }
    for (size_t i = 0; behind != NULL && i < sizeof(streams) / sizeof(streams[0]); i++) {
        if (begins_with(behind, end, streams[i])) {
            return behind + strlen(streams[i]);
        }
    }
    behind = behind != NULL ? behind : skip_syslog_time(at, end);
    behind = behind != NULL ? behind : skip_epoch(at, end);
    return behind != NULL ? skip_tag(behind, end) : NULL;
}

/* Behind "web-1  | ", or "[pod/web-1/nginx] ". NULL: there is none. */
static const char *skip_source(const char *at, const char *end)
{
    const char *stop = skip_word(at, end);
    const char *bar = skip_blanks(stop, end);
    struct address_bytes address;
    if (fields_read_address((struct span){at, (size_t) (stop - at)}, &address)) {
        return NULL;
    }
    if (*at == '[' && stop > at + 1 && stop[-1] == ']' && bar < end) {
        return bar;
    }
    bar = skip_colours(bar, end);
    if (stop == at || stop == end || bar == end || *bar != '|' || *at == '"' || *at == '{') {
        return NULL;
    }
    return skip_blanks(skip_colours(skip_blanks(bar + 1, end), end), end);
}

/* Behind "<134>" and what follows it. NULL: there is none. */
static const char *skip_priority(const char *at, const char *end)
{
    const char *stop = end - at > 2 && *at == '<' ? skip_digits(at + 1, end) : at;
    if (stop < at + 2 || stop - at > 4 || stop == end || *stop != '>') {
        return NULL;
    }
    const char *behind = skip_structured(stop + 1, end);
    behind = behind != NULL ? behind : skip_time(stop + 1, end);
    return behind != NULL ? behind : skip_tag(stop + 1, end);
}

const char *prefix_skip(const char *line, const char *end)
{
    const char *at = skip_colours(line, end);
    for (int i = 0; i < PREFIXES_MOST && at < end && prefix_may_be(at, end) && *at != '{' && *at != '"'; i++) {
        const char *behind = skip_priority(at, end);
        behind = behind != NULL ? behind : skip_structured(at, end);
        behind = behind != NULL ? behind : skip_time(at, end);
        behind = behind != NULL ? behind : skip_source(at, end);
        if (behind == NULL || behind == at) {
            break;
        }
        at = skip_colours(behind, end);
    }
    return at;
}
