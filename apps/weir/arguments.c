/* SPDX-License-Identifier: Apache-2.0 */
/* See arguments.h. */
#include "arguments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/plain.h"
#include "policy/words.h"

/* The most bytes of a word of the command line that a sentence quotes, with the terminator. */
#define QUOTED_SIZE 81

/* The words that are read, and how far. */
struct reader {
    struct arguments *out;
    const struct option_form *forms;
    size_t form_count;
    char *const *words;
    size_t word_count, at;
};

static void see_help(const struct reader *r)
{
    (void) fprintf(stderr, "%s --help lists the options\n", r->out->command);
}

/* An option that the subcommand does not have. `name` is without its dashes. */
static bool fail_unknown(const struct reader *r, const char *dashes, const char *name)
{
    const char *names[OPTIONS_MAX];
    char quoted[QUOTED_SIZE];
    for (size_t i = 0; i < r->form_count; i++) {
        names[i] = r->forms[i].name;
    }
    const struct words words = {.names = names, .count = r->form_count};
    const char *meant = words_meant(&words, name);
    (void) plain_quoted(quoted, sizeof(quoted), name);
    (void) fprintf(stderr, "%s: there is no option \"%s%s\"", r->out->command, dashes, quoted);
    if (meant != NULL) {
        (void) fprintf(stderr, "; did you mean \"--%s\"?", meant);
    }
    (void) fputc('\n', stderr);
    see_help(r);
    return false;
}

/* Takes an option; `attached`: the value behind "=" or the letter, or NULL. */
static bool take(struct reader *r, size_t number, const char *attached)
{
    const struct option_form *form = &r->forms[number];
    const char *value = attached;
    if (!form->takes_value && attached != NULL) {
        (void) fprintf(stderr, "%s: --%s takes no value\n", r->out->command, form->name);
        return false;
    }
    if (form->takes_value && attached == NULL) {
        if (r->at == r->word_count) {
            (void) fprintf(stderr, "%s: --%s needs a value\n", r->out->command, form->name);
            see_help(r);
            return false;
        }
        value = r->words[r->at++];
    }
    if (r->out->values[number] != NULL && form->takes_value) {
        (void) fprintf(stderr, "%s: --%s is there twice; leave one out\n", r->out->command, form->name);
        return false;
    }
    r->out->values[number] = form->takes_value ? value : "";
    return true;
}

static bool read_long(struct reader *r, const char *name)
{
    const size_t length = strcspn(name, "=");
    for (size_t i = 0; i < r->form_count; i++) {
        if (strlen(r->forms[i].name) == length && strncmp(r->forms[i].name, name, length) == 0) {
            return take(r, i, name[length] == '=' ? name + length + 1 : NULL);
        }
    }
    char alone[QUOTED_SIZE];
    (void) snprintf(alone, sizeof(alone), "%.*s", (int) (length < sizeof(alone) ? length : sizeof(alone) - 1), name);
    return fail_unknown(r, "--", alone);
}

/* Reads letters behind one dash: flags may be joined, and a value may follow its letter. */
static bool read_letters(struct reader *r, const char *letters)
{
    for (const char *letter = letters; *letter != '\0'; letter++) {
        size_t number = 0;
        while (number < r->form_count && r->forms[number].letter != *letter) {
            number++;
        }
        if (number == r->form_count) {
            return fail_unknown(r, "-", letter);
        }
        if (r->forms[number].takes_value) {
            return take(r, number, letter[1] != '\0' ? letter + 1 : NULL);
        }
        if (!take(r, number, NULL)) {
            return false;
        }
    }
    return true;
}

bool arguments_read(struct arguments *out, const char *command, const struct option_form *forms, size_t form_count,
                    char *const *words, size_t word_count)
{
    *out = (struct arguments){.command = command};
    out->operands = calloc(word_count + 1, sizeof(*out->operands));
    if (out->operands == NULL) {
        (void) fprintf(stderr, "%s: out of memory\n", command);
        return false;
    }
    struct reader r = {out, forms, form_count, words, word_count, 0};
    bool ended = false; /* the options, by "--" */
    while (r.at < word_count) {
        const char *word = words[r.at++];
        bool good = true;
        if (ended || word[0] != '-' || word[1] == '\0') {
            out->operands[out->operand_count++] = word;
        } else if (strcmp(word, "--") == 0) {
            ended = true;
        } else {
            good = word[1] == '-' ? read_long(&r, word + 2) : read_letters(&r, word + 1);
        }
        if (!good) {
            return false;
        }
    }
    return true;
}

void arguments_free(struct arguments *arguments)
{
    free((void *) arguments->operands);
    arguments->operands = NULL;
}
