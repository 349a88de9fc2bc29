/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share: assertions, the parts of an input, and inputs as files. */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* An assertion of every build, also with NDEBUG; writes a message to the fuzzer's log. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void) fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input's bytes that are not taken yet, then zeros. */
struct input {
    const uint8_t *at, *end;
};

/* The next `size` bytes as a number, the first byte highest. */
static inline uint64_t input_number(struct input *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | (in->at < in->end ? *in->at++ : 0);
    }
    return value;
}

/* A number below `most` of one byte; the digits '0', '1' and so on are 0, 1 and so on, so that an input may be text. */
static inline unsigned input_choice(struct input *in, unsigned most)
{
    return (unsigned) (unsigned char) (input_number(in, 1) - '0') % most;
}

/*
 * The bytes up to a mark, which is taken too, or up to the end; NULL: all that are left. It is a copy at the end of its
 * memory, so that AddressSanitizer sees each read behind it.
 */
static inline char *input_part(struct input *in, const char *mark, size_t *size)
{
    const size_t left = (size_t) (in->end - in->at);
    const uint8_t *found = left != 0 && mark != NULL ? memmem(in->at, left, mark, strlen(mark)) : NULL;
    *size = found != NULL ? (size_t) (found - in->at) : left;
    char *memory = malloc(1 + *size); /* a part may be empty, and malloc(0) has a byte */
    CHECK(memory != NULL);
    memory[0] = '#';
    if (*size != 0) {
        memcpy(memory + 1, in->at, *size);
    }
    in->at += *size + (found != NULL ? strlen(mark) : 0);
    return memory + 1;
}

static inline void input_free(char *part)
{
    free(part - 1);
}

/* The next part as a text, which ends at its first NUL. The caller gives it to free(). */
static inline char *input_text(struct input *in, const char *mark)
{
    size_t size;
    char *part = input_part(in, mark, &size);
    char *text = strndup(part, size);
    CHECK(text != NULL);
    input_free(part);
    return text;
}

/* The path of a file with these bytes: the same one for every input. */
static inline const char *input_file(const void *bytes, size_t size)
{
    static char path[32];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        CHECK(fd >= 0);
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    }
    CHECK(ftruncate(fd, 0) == 0);
    for (size_t done = 0; done < size;) {
        const ssize_t wrote = pwrite(fd, (const char *) bytes + done, size - done, (off_t) done);
        CHECK(wrote > 0);
        done += (size_t) wrote;
    }
    return path;
}

/* A sentence for a person: it ends within its room, is not empty, and has printable ASCII alone. */
static inline void check_sentence(const char *text, size_t room)
{
    const char *end = memchr(text, '\0', room);
    CHECK(end != NULL && end > text);
    for (const char *c = text; c < end; c++) {
        CHECK(*c >= ' ' && *c <= '~');
    }
}

#endif
