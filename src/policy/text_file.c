/* SPDX-License-Identifier: Apache-2.0 */
/* See text_file.h. */
#include "policy/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* The bytes at the end of a long path that are kept, however long the sentence is: they name the file. */
#define PATH_LEAST 40

int text_file_fail(const struct text_file *file, struct place place, int code, const char *format, ...)
{
    char sentence[sizeof(((weir_error *) NULL)->message)];
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    char position[40] = "";
    if (place.line != 0) {
        (void) snprintf(position, sizeof(position), ":%" PRIu32 ":%" PRIu32, place.line, place.column);
    }
    const size_t taken = strlen(position) + strlen(": ") + strlen(sentence) + 1;
    const size_t room = taken + PATH_LEAST < sizeof(sentence) ? sizeof(sentence) - taken : PATH_LEAST;
    const size_t length = strlen(file->path);
    const bool whole = length <= room;
    const char *path = whole ? file->path : file->path + length - (room - strlen("..."));
    return error_set(file->error, code, "%s%s%s: %s", whole ? "" : "...", path, position, sentence);
}

/* The size of the line break that `text` begins with; 0: it begins with none. */
static size_t break_size(const char *text, size_t size)
{
    static const char *const wide[] = {"\r\n", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
    if (text[0] != '\r' && text[0] != '\n' && text[0] != '\xc2' && text[0] != '\xe2') {
        return 0;
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        const size_t length = strlen(wide[i]);
        if (length <= size && memcmp(text, wide[i], length) == 0) {
            return length;
        }
    }
    return text[0] == '\r' || text[0] == '\n' ? 1 : 0;
}

size_t text_file_next_line(const struct text_file *file, size_t *at)
{
    const size_t start = *at;
    for (size_t i = start; i < file->size; i++) {
        const size_t length = break_size(file->text + i, file->size - i);
        if (length != 0) {
            *at = i + length;
            return i - start;
        }
    }
    *at = file->size;
    return file->size - start;
}

const char *text_file_line(const struct text_file *file, uint32_t number, size_t *size)
{
    size_t at = 0;
    size_t start = 0;
    *size = 0;
    for (uint32_t line = 0; line < number; line++) {
        start = at;
        *size = text_file_next_line(file, &at);
    }
    return file->text + start;
}

struct place text_file_place(const struct text_file *file, size_t offset)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf"; /* no character of the line */
    struct place place = {0, 1};
    size_t start = 0;
    for (size_t at = 0; at <= offset && at < file->size; place.line++) {
        start = at;
        (void) text_file_next_line(file, &at);
    }
    if (start == 0 && file->size >= 3 && memcmp(file->text, byte_order_mark, 3) == 0) {
        start = 3;
    }
    for (size_t i = start; i < offset && i < file->size; i++) {
        place.column += ((unsigned char) file->text[i] & 0xc0) != 0x80; /* counts the first byte of each character */
    }
    place.line = place.line != 0 ? place.line : 1;
    return place;
}

/* Reads `size` bytes from `fd` into file->text. */
static int read_all(struct text_file *file, int fd, size_t size)
{
    file->text = malloc(size + 1);
    if (file->text == NULL) {
        return text_file_fail(file, (struct place){0}, -ENOMEM, "out of memory");
    }
    while (file->size < size) {
        const ssize_t got = read(fd, file->text + file->size, size - file->size);
        if (got < 0 && errno != EINTR) {
            return text_file_fail(file, (struct place){0}, -errno, "cannot be read: %s", strerror(errno));
        }
        if (got == 0) {
            break; /* the file has become shorter */
        }
        file->size += got > 0 ? (size_t) got : 0;
    }
    file->text[file->size] = '\0';
    return 0;
}

int text_file_read(struct text_file *file)
{
    file->text = NULL;
    file->size = 0;
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    int result = 0;
    if (fd < 0 || fstat(fd, &status) != 0) {
        result = -errno;
        (void) text_file_fail(file, (struct place){0}, result, "cannot be read: %s", strerror(-result));
    } else if (!S_ISREG(status.st_mode)) {
        result = text_file_fail(file, (struct place){0}, S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL,
                                "is no regular file; give a YAML file");
    } else if ((uint64_t) status.st_size > TEXT_FILE_SIZE_MAX) {
        result = text_file_fail(file, (struct place){0}, -EFBIG, "is larger than 1 MiB; a policy takes some 100 bytes");
    } else {
        result = read_all(file, fd, (size_t) status.st_size);
    }
    if (fd >= 0) {
        (void) close(fd);
    }
    return result;
}
