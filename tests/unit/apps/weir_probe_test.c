/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies from standard input, however it comes, and the sentences of a message behind the path of its file.
 *
 * Guards: apps/weir/policy_probe.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../apps/weir/policy_probe.h"
#include "support/support.h"

/* Standard input, as far as it has come: pieces of at most so many bytes, of which every third is interrupted first. */
static struct {
    const char *text;
    size_t length, piece;
    unsigned calls;
    int error; /* at the end */
} input;

ssize_t __real_read(int fd, void *out, size_t size);
ssize_t __wrap_read(int fd, void *out, size_t size);

ssize_t __wrap_read(int fd, void *out, size_t size)
{
    if (fd != STDIN_FILENO) {
        return __real_read(fd, out, size);
    }
    assert_true(size != 0);
    if (++input.calls % 3 == 1) {
        errno = EINTR;
        return -1;
    }
    if (input.length == 0 && input.error != 0) {
        errno = input.error;
        return -1;
    }
    size = size < input.piece ? size : input.piece;
    size = size < input.length ? size : input.length;
    memcpy(out, input.text, size);
    input.text += size;
    input.length -= size;
    return (ssize_t) size;
}

static int load(const char *text, size_t length, size_t piece, weir_error *error, size_t *count)
{
    weir *w = NULL;
    memset(&input, 0, sizeof(input));
    input.text = text;
    input.length = length;
    input.piece = piece;
    assert_int_equal(policy_probe_open("prefix", &w, error), 0);
    const int result = policy_probe_load(w, "-", error);
    *count = weir_list_policies(w, NULL, NULL);
    weir_close(w);
    return result;
}

static void test_standard_input_is_read_to_its_end_in_whatever_pieces_it_comes(void **state)
{
    (void) state;
    static const size_t pieces[] = {1, 7, 1000, 1 << 14, 1 << 21};
    enum { MOST = 1 << 20 };
    static char text[MOST + 10];
    static const char policy[] = "policies:\n  - {name: a, limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n"
                                 "  - {name: b, limits: [{algorithm: fixed_window, limit: 1, period: 1s}]}\n";
    weir_error error;
    size_t count;
    const size_t usual = strlen(policy);
    memset(text, '\n', sizeof(text));
    memcpy(text, policy, usual);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(load(text, usual, pieces[i], &error, &count), 0);
        assert_int_equal(count, 2);
        assert_int_equal(input.length, 0);
    }
    /* A file may be that large, and not a byte larger. */
    memcpy(text + MOST - usual, policy, usual);
    memset(text, '\n', usual);
    for (size_t i = 2; i < 5; i++) {
        assert_int_equal(load(text, MOST, pieces[i], &error, &count), 0);
        assert_int_equal(count, 2);
        const int result = load(text, MOST + 1, pieces[i], &error, &count);
        assert_true(result < 0 && policy_probe_is_bad(result));
        assert_int_equal(strncmp(error.message, "<stdin>: ", 9), 0);
    }
    /* It says what is wrong with the file, and what cannot be read. */
    assert_int_equal(load("policies: 7\n", 12, 5, &error, &count), -EINVAL);
    assert_int_equal(strncmp(error.message, "<stdin>:1:", 10), 0);
    weir *w = NULL;
    assert_int_equal(policy_probe_open("prefix", &w, &error), 0);
    memset(&input, 0, sizeof(input));
    input.error = EISDIR;
    assert_int_equal(policy_probe_load(w, "-", &error), -EIO);
    assert_string_equal(error.message, "<stdin>: cannot be read: Is a directory");
    assert_true(policy_probe_load(w, "/nonexistent", &error) == -ENOENT && input.calls == 2);
    weir_close(w);
    static const struct {
        int code;
        bool bad;
    } codes[] = {{-EINVAL, true}, {-EFBIG, true},   {-ENOSPC, true},  {-EISDIR, true},
                 {-EIO, false},   {-ENOENT, false}, {-ENOMEM, false}, {0, false}};
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(policy_probe_is_bad(codes[i].code), codes[i].bad);
    }
}

static void test_a_sentence_stands_behind_the_path_and_the_place(void **state)
{
    (void) state;
    static const struct {
        const char *path, *message, *sentence;
        unsigned line, column;
    } rows[] = {
        {"a.yaml", "a.yaml:3:14: it is wrong", "it is wrong", 3, 14},
        {"a.yaml", "a.yaml: it is wrong", "it is wrong", 0, 0},
        {"a.yaml", "a.yaml:3: it is wrong", "a.yaml:3: it is wrong", 0, 0},
        {"a.yaml", "a.yaml:3:14:it is wrong", "it is wrong", 3, 14},
        {"a.yaml", "a.yaml:3:14", "a.yaml:3:14", 0, 0},
        {"a.yaml", "b.yaml:3:14: it is wrong", "b.yaml:3:14: it is wrong", 0, 0},
        {"a.yaml", "a.yam", "a.yam", 0, 0},
        {"-", "<stdin>:1:2: it is wrong", "it is wrong", 1, 2},
        {"-", "-:1:2: it is wrong", "-:1:2: it is wrong", 0, 0},
        {"a\xff\n", "a??:1:2: it is wrong", "it is wrong", 1, 2},
        {"a??", "a\xff\n:1:2: it is wrong", "a\xff\n:1:2: it is wrong", 0, 0},
        {"long/a.yaml", "...ng/a.yaml:1:2: it is wrong", "it is wrong", 1, 2},
        {"long/a.yaml", "...ml: it is wrong", "it is wrong", 0, 0},
        {"long/a.yaml", "...: it is wrong", "...: it is wrong", 0, 0},
        {"long/a.yaml", "..ml: it is wrong", "..ml: it is wrong", 0, 0},
        {"/long/a.yaml", "...a.yam: it is wrong", "...a.yam: it is wrong", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct probe_place place = {9, 9};
        const char *sentence = policy_probe_sentence(rows[i].path, rows[i].message, &place);
        assert_string_equal(sentence, rows[i].sentence);
        assert_int_equal(place.line, rows[i].line);
        assert_int_equal(place.column, rows[i].column);
    }
    assert_string_equal(policy_probe_name("-"), "<stdin>");
    assert_string_equal(policy_probe_name("a"), "a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_standard_input_is_read_to_its_end_in_whatever_pieces_it_comes),
        cmocka_unit_test(test_a_sentence_stands_behind_the_path_and_the_place),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_probe", tests, NULL, NULL);
}
