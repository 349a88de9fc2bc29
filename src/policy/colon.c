/* SPDX-License-Identifier: Apache-2.0 */
/* See colon.h. */
#include "policy/colon.h"

#include <errno.h>
#include <string.h>

#include "base/numbers.h"

/* A limit has seven fields: more lines than these in a row cannot lack their spaces. */
#define LINES_BACK 8

/* The most bytes of a word and of a value that the error quotes. */
#define QUOTED_MAX 40

size_t colon_word(const char *text, size_t size)
{
    size_t word = 0;
    while (word < size && ((text[word] >= 'a' && text[word] <= 'z') || text[word] == '_')) {
        word++;
    }
    if (word == 0 || word + 1 >= size || text[word] != ':') {
        return 0;
    }
    return text[word + 1] != ' ' && text[word + 1] != '\t' ? word : 0;
}

/* As colon_fail, for a text of this size without a terminator. */
static int fail_sized(const struct text_file *file, struct place place, const char *text, size_t size, size_t word)
{
    static const char ends[] = " ,}]#";
    const char *value = text + word + 1;
    size_t length = 0;
    while (word + 1 + length < size && strchr(ends, value[length]) == NULL) {
        length++;
    }
    if (strchr("[{\"'", *value) != NULL) {
        value = "...";
        length = strlen(value);
    }
    place.column += (uint32_t) word + 1;
    return text_file_fail(file, place, -EINVAL, "a space is lacking after the colon; write \"%.*s: %.*s\"",
                          (int) min_u64(word, QUOTED_MAX), text, (int) min_u64(length, QUOTED_MAX), value);
}

int colon_fail(const struct text_file *file, struct place place, const char *text, size_t word)
{
    return fail_sized(file, place, text, strlen(text), word);
}

bool colon_fail_in_lines(const struct text_file *file, uint32_t line)
{
    const char *text = NULL;
    struct place place = {0, 0};
    size_t size = 0;
    size_t word = 0;
    /* text_file_line takes time linear in the file: LINES_BACK bounds the work. */
    for (uint32_t tries = 0; line != 0 && tries < LINES_BACK; line--, tries++) {
        size_t line_size;
        const char *begin = text_file_line(file, line, &line_size);
        size_t indent = 0;
        while (indent < line_size && (begin[indent] == ' ' || begin[indent] == '-')) {
            indent++;
        }
        const size_t length = colon_word(begin + indent, line_size - indent);
        if (length == 0) {
            break;
        }
        text = begin + indent;
        size = line_size - indent;
        word = length;
        place = (struct place){line, (uint32_t) indent + 1};
    }
    if (text != NULL) {
        (void) fail_sized(file, place, text, size, word);
    }
    return text != NULL;
}
