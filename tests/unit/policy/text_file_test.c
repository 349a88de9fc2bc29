/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines and places of a file's text, by the line breaks of YAML 1.1; what is read of files; and how a long path is cut.
 *
 * Guards: src/policy/text_file.c
 */
#include "policy/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/support.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __wrap_read(int fd, void *bytes, size_t size);

/* The linker's --wrap leads the library's reads here. A program that the host starts does not inherit the file. */
ssize_t __wrap_read(int fd, void *bytes, size_t size)
{
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    return __real_read(fd, bytes, size);
}

/* Pieces that texts are made of. What is no break is a character. */
static const struct {
    const char *bytes;
    bool breaks;
} pieces[] = {{"a", false},        {":", false},           {"\xc3\xa9", false},    {"\xe2\x82\xac", false},
              {"\xc2\xa0", false}, {"\n", true},           {"\r\n", true},         {"\r", true},
              {"\xc2\x85", true},  {"\xe2\x80\xa8", true}, {"\xe2\x80\xa9", true}, {"\xf0\x9f\x98\x80", false}};

/* A text, and of each of its bytes the place that it has. */
struct drawn {
    char text[400];
    struct place places[400];
    size_t size;
    uint32_t lines;
    size_t begins[100], lengths[100]; /* of lines, by their number */
};

static void draw_text(uint64_t *rng, struct drawn *d)
{
    const size_t count = random_below(rng, 60);
    struct place place = {1, 1};
    memset(d, 0, sizeof(*d));
    if (draw_once_in(rng, 4)) {
        memcpy(d->text, "\xef\xbb\xbf", 3); /* a mark that is no character of its line */
        d->places[0] = d->places[1] = d->places[2] = place;
        d->size = 3;
    }
    d->lines = 1;
    size_t last = 0;
    for (size_t i = 0; i < count; i++) {
        size_t piece = random_below(rng, COUNT_OF(pieces));
        if (last == 7 && piece == 5) {
            piece = 0; /* "\r" and "\n" would be one break */
        }
        last = piece;
        const size_t length = strlen(pieces[piece].bytes);
        for (size_t j = 0; j < length; j++) {
            d->places[d->size + j] = place;
            d->places[d->size + j].column += j != 0; /* within a character: as the next one */
        }
        memcpy(d->text + d->size, pieces[piece].bytes, length);
        d->size += length;
        place.column++;
        if (pieces[piece].breaks) {
            d->lengths[d->lines] = d->size - length - d->begins[d->lines];
            place = (struct place){place.line + 1, 1};
            d->lines++;
            d->begins[d->lines] = d->size;
        }
    }
    d->lengths[d->lines] = d->size - d->begins[d->lines];
}

static void test_lines_and_places_are_those_of_the_breaks_of_yaml(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(2000); round++) {
        struct drawn d;
        draw_text(&rng, &d);
        const struct text_file file = {.path = "f", .text = d.text, .size = d.size};
        size_t at = 0;
        for (uint32_t line = 1; line <= d.lines; line++) {
            size_t size = 99;
            assert_ptr_equal(text_file_line(&file, line, &size), d.text + d.begins[line]);
            assert_int_equal(size, d.lengths[line]);
            assert_int_equal(at, d.begins[line]);
            assert_int_equal(text_file_next_line(&file, &at), d.lengths[line]);
        }
        assert_int_equal(at, d.size);
        size_t size = 99;
        (void) text_file_line(&file, d.lines + 1, &size);
        assert_int_equal(size, 0);
        size = 99;
        (void) text_file_line(&file, 0, &size); /* nor is there such a line */
        assert_int_equal(size, 0);
        for (size_t i = 0; i < d.size; i++) {
            const struct place place = text_file_place(&file, i);
            assert_int_equal(place.line, d.places[i].line);
            assert_int_equal(place.column, d.places[i].column);
        }
    }
    const struct text_file empty = {.path = "f", .text = (char[]){""}, .size = 0};
    const struct place place = text_file_place(&empty, 0);
    assert_true(place.line == 1 && place.column == 1);
    /* Behind the end: the place that the next character of the last line would have. */
    const struct text_file short_file = {.path = "f", .text = (char[]){"a\nbc"}, .size = 4};
    const struct place end = text_file_place(&short_file, 4);
    assert_true(end.line == 2 && end.column == 3);
    const struct place beyond = text_file_place(&short_file, 100);
    assert_true(beyond.line == 2 && beyond.column == 3);
}

/* An error of a file whose path has `length` bytes. */
static size_t fail_with_path(size_t length, const char *sentence, weir_error *error)
{
    char path[400];
    memset(path, 'd', length);
    memcpy(path + length - 2, "/f", 3);
    const struct text_file file = {.path = path, .error = error};
    assert_int_equal(text_file_fail(&file, (struct place){12, 345}, -ENOSPC, "%s", sentence), -ENOSPC);
    assert_int_equal(error->code, -ENOSPC);
    return strlen(error->message);
}

static void test_a_path_gives_way_to_the_sentence_from_its_front(void **state)
{
    (void) state;
    weir_error error;
    const size_t room = sizeof(error.message);
    static const char behind[] = "/f:12:345: a sentence";
    const size_t fits = room - strlen(behind) + 1; /* a path of so many bytes fills the message */
    assert_int_equal(fail_with_path(10, "a sentence", &error), 10 + strlen(behind) - 2);
    assert_string_equal(error.message, "dddddddd/f:12:345: a sentence");
    assert_int_equal(fail_with_path(fits, "a sentence", &error), room - 1);
    assert_memory_equal(error.message, "dddd", 4);
    assert_string_equal(error.message + room - sizeof(behind), behind);
    for (size_t length = fits + 1; length < fits + 5; length++) {
        assert_int_equal(fail_with_path(length, "a sentence", &error), room - 1);
        assert_memory_equal(error.message, "...d", 4);
        assert_string_equal(error.message + room - sizeof(behind), behind);
    }
    /* However long the sentence is, 40 bytes of the path stay: the dots are among them. */
    char sentence[250];
    memset(sentence, 's', sizeof(sentence) - 1);
    sentence[sizeof(sentence) - 1] = '\0';
    assert_int_equal(fail_with_path(41, sentence, &error), room - 1);
    assert_memory_equal(error.message, "...d", 4);
    assert_memory_equal(error.message + 37, "d/f:12:345: sss", 15);
    assert_int_equal(fail_with_path(40, sentence, &error), room - 1);
    assert_memory_equal(error.message, "dddd", 4);
    assert_memory_equal(error.message + 36, "dd/f:12:345: sss", 16);
    /* No place: the file as a whole. */
    const struct text_file file = {.path = "f", .error = &error};
    assert_int_equal(text_file_fail(&file, (struct place){0, 7}, -EINVAL, "is %d", 5), -EINVAL);
    assert_string_equal(error.message, "f: is 5");
    const struct text_file nobody = {.path = "f"};
    assert_int_equal(text_file_fail(&nobody, (struct place){1, 1}, -EINVAL, "is %d", 5), -EINVAL);
}

static char directory[] = "/tmp/weir-text-XXXXXX";

static void expect_refused(const char *path, int code, const char *says)
{
    weir_error error;
    char whole[sizeof(error.message)];
    struct text_file file = {.path = path, .error = &error};
    (void) snprintf(whole, sizeof(whole), "%s: %s", path, says);
    assert_int_equal(text_file_read(&file), code);
    assert_int_equal(error.code, code);
    assert_string_equal(error.message, whole);
    assert_null(file.text);
    assert_int_equal(file.size, 0);
}

static void test_a_regular_file_of_up_to_a_mebibyte_is_read(void **state)
{
    (void) state;
    char path[64];
    assert_non_null(mkdtemp(directory));
    (void) snprintf(path, sizeof(path), "%s/f", directory);
    const size_t descriptors = count_descriptors();
    expect_refused(path, -ENOENT, "cannot be read: No such file or directory");
    expect_refused(directory, -EISDIR, "is no regular file; give a YAML file");
    assert_int_equal(mkfifo(path, 0600), 0); /* and nobody waits for a writer */
    expect_refused(path, -EINVAL, "is no regular file; give a YAML file");
    assert_int_equal(unlink(path), 0);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    struct text_file file = {.path = path};
    assert_int_equal(text_file_read(&file), 0);
    assert_int_equal(file.size, 0);
    assert_string_equal(file.text, "");
    free(file.text);
    assert_int_equal(write(fd, "a\0b\n", 4), 4);
    assert_int_equal(text_file_read(&file), 0);
    assert_int_equal(file.size, 4);
    assert_memory_equal(file.text, "a\0b\n", 5);
    free(file.text);
    /* In a process without an input the file has its number for a while. */
    const int kept = take_0_away();
    assert_int_equal(text_file_read(&file), 0);
    free(file.text);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    give_back_0(kept);
    assert_int_equal(ftruncate(fd, TEXT_FILE_SIZE_MAX), 0);
    assert_int_equal(text_file_read(&file), 0);
    assert_int_equal(file.size, TEXT_FILE_SIZE_MAX);
    free(file.text);
    assert_int_equal(ftruncate(fd, TEXT_FILE_SIZE_MAX + 1), 0);
    expect_refused(path, -EFBIG, "is larger than 1 MiB; a policy takes some 100 bytes");
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(count_descriptors(), descriptors);
}

/* What /sys says of a file's size is a page, and most files there have a few bytes. */
static void test_a_file_that_is_shorter_than_its_size_is_read_to_its_end(void **state)
{
    (void) state;
    struct text_file file = {.path = "/sys/devices/system/cpu/possible"};
    struct stat status;
    if (stat(file.path, &status) != 0 || status.st_size < 100) {
        skip();
    }
    assert_int_equal(text_file_read(&file), 0);
    assert_true(file.size != 0 && file.size < 100);
    assert_int_equal(strlen(file.text), file.size);
    free(file.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_and_places_are_those_of_the_breaks_of_yaml),
        cmocka_unit_test(test_a_path_gives_way_to_the_sentence_from_its_front),
        cmocka_unit_test(test_a_regular_file_of_up_to_a_mebibyte_is_read),
        cmocka_unit_test(test_a_file_that_is_shorter_than_its_size_is_read_to_its_end),
    };
    return cmocka_run_group_tests_name("unit/policy/text_file", tests, NULL, NULL);
}
