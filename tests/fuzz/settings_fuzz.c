/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of the gateway's settings. A file is refused with its place, as is a setting whose text says nothing; what is
 * taken is within its bounds, and written as YAML anew, it is read as the same.
 */
#include <errno.h>

#include "../../apps/gateway/config.h"
#include "../../apps/gateway/gateway.h"
#include "fuzz.h"

static void check_place(const char *sentence, const char *path)
{
    unsigned line = 0, column = 0;
    CHECK(strncmp(sentence, path, strlen(path)) == 0);
    CHECK(sscanf(sentence + strlen(path), ":%9u:%9u: ", &line, &column) == 2 && line != 0 && column != 0);
}

/* Writes a text between double quotes. False: it has more than ASCII, which is written as it is. */
static bool write_quoted(FILE *out, const char *text)
{
    bool is_ascii = true;
    (void) putc('"', out);
    for (const char *c = text; *c != '\0'; c++) {
        is_ascii = is_ascii && (unsigned char) *c < 0x80;
        if (*c >= ' ' && *c <= '~' && *c != '"' && *c != '\\') {
            (void) putc(*c, out);
        } else {
            (void) fprintf(out, "\\x%02x", (unsigned char) *c);
        }
    }
    (void) putc('"', out);
    return is_ascii;
}

/* Writes the settings as a file. False: as write_quoted(). */
static bool write_settings(FILE *out, const struct settings *settings)
{
    bool is_ascii = true;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const bool is_list = setting_entries[i].form == FORM_LIST;
        for (size_t j = 0; j < settings->of[i].count; j++) {
            (void) fprintf(out, "%s%s%s", j == 0 ? setting_entries[i].name : "", j == 0 ? ": " : ", ",
                           j == 0 && is_list ? "[" : "");
            is_ascii = write_quoted(out, settings->of[i].texts[j]) && is_ascii;
        }
        (void) fputs(settings->of[i].count == 0 ? "" : is_list ? "]\n" : "\n", out);
    }
    return is_ascii;
}

static void check_written(const struct settings *settings)
{
    struct settings again = {.file = NULL};
    weir_error error;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    CHECK(out != NULL);
    const bool is_ascii = write_settings(out, settings);
    CHECK(fclose(out) == 0);
    CHECK(!is_ascii || config_read(input_file(text, size), &again, &error) == 0);
    for (size_t i = 0; i < SETTING_COUNT && is_ascii; i++) {
        CHECK(again.of[i].count == settings->of[i].count);
        for (size_t j = 0; j < again.of[i].count; j++) {
            CHECK(strcmp(again.of[i].texts[j], settings->of[i].texts[j]) == 0);
        }
    }
    free(text);
    settings_free(&again);
}

/* A number's option has what its text says, and numbers have their bounds. */
static void check_number(const struct setting_entry *entry, const struct settings *settings, size_t setting,
                         const struct gateway_options *options)
{
    unsigned value;
    memcpy(&value, (const char *) options + entry->offset, sizeof(value));
    if (settings->of[setting].count != 0) {
        const char *text = settings->of[setting].texts[0];
        CHECK(value >= entry->least && value <= entry->most);
        CHECK(text[strspn(text, "0123456789")] == '\0' && strtoul(text, NULL, 10) == value);
    }
}

static void check_options(const struct settings *settings, const struct gateway_options *options)
{
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        CHECK(options->from[i] == (settings->of[i].count != 0 ? settings : NULL));
        if (setting_entries[i].form == FORM_NUMBER) {
            check_number(&setting_entries[i], settings, i, options);
        }
    }
    CHECK(options->listen.count == settings->of[SETTING_LISTEN].count);
    CHECK(options->backend.count == settings->of[SETTING_BACKEND].count);
    if (settings->of[SETTING_PROBE].count != 0) {
        CHECK(options->checks.payload.size >= 1 && options->checks.payload.size <= PROBE_SIZE_MAX);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct settings line;
    static struct gateway_options options;
    struct settings settings = {.file = NULL};
    struct setting_problem problem;
    weir_error error = {.code = 0};
    const char *path = input_file(data, size);
    const int result = config_read(path, &settings, &error);
    if (result != 0) {
        CHECK(result == error.code);
        check_sentence(error.message, sizeof(error.message));
        check_place(error.message, path);
    } else {
        if (settings_apply(&line, &settings, &options, &problem)) {
            check_options(&settings, &options);
            check_written(&settings);
        } else {
            CHECK(memchr(problem.sentence, '\0', sizeof(problem.sentence)) != NULL && problem.code == 2);
            check_place(problem.sentence, path);
        }
    }
    settings_free(&settings);
    return 0;
}
