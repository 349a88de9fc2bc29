/* SPDX-License-Identifier: Apache-2.0 */
/* weir check: whether policy files are good, and what their policies admit. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"
#include "command.h"
#include "describe.h"
#include "policy_probe.h"
#include "tell_policies.h"

enum { OPTION_KEYS = OPTION_OWN, OPTION_QUIET, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {
    COMMON_OPTIONS, [OPTION_KEYS] = {"keys", 0, true}, [OPTION_QUIET] = {"quiet", 'q', false}};

static const char help[] = "Usage: weir check [OPTION]... FILE...\n"
                           "\n"
                           "Reads policy files as a server does, and says in words what each policy admits.\n"
                           "A FILE of \"-\" is standard input. What is wrong with a file goes to standard\n"
                           "error, as FILE:LINE:COLUMN: sentence.\n"
                           "\n"
                           "Options:\n"
                           "      --keys=FORM    what the keys of overrides are: gateway, as weir-gateway\n"
                           "                     has them, or bytes; else gateway where all policies\n"
                           "                     have names that it uses\n"
                           "  -q, --quiet        no output but what is wrong\n"
                           "      --json         the policies as data: one line of JSON\n"
                           "      --color=WHEN   auto (default), always or never\n"
                           "  -h, --help         this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir check gateway.yaml\n"
                           "  weir check --quiet conf/*.yaml || exit 1\n"
                           "  ssh edge1 cat /etc/weir/gateway.yaml | weir check -\n"
                           "  weir check --json gateway.yaml | jq '.files[].policies[].name'\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  every file is good\n"
                           "  1  a file is malformed\n"
                           "  2  the command line is wrong\n"
                           "  3  a file cannot be read\n"
                           "  4  the output cannot be written\n"
                           "Where several apply, the largest.\n";

/* The files that were good, malformed and unreadable. */
struct tally {
    size_t good, bad, unread;
};

/* The overrides of a file while they are told. */
struct overrides_teller {
    struct output *out;
    const struct listed_policies *policies;
};

static void tell_entry(void *arg, const weir_override *entry)
{
    const struct overrides_teller *teller = arg;
    const weir_policy *policy = listed_policies_find(teller->policies, entry->name, strcspn(entry->name, ":"));
    if (policy != NULL || describe_is_of_all(entry->name)) {
        tell_override(teller->out, policy, entry->name, entry->value);
        output_close(teller->out, '}');
        output_text(teller->out, "\n");
    }
}

static void count_entry(void *arg, const weir_override *entry)
{
    (void) arg;
    (void) entry;
}

static void tell_file_name(struct output *out, const char *path, bool good)
{
    output_open(out, NULL, '{');
    output_string(out, "file", path);
    output_flag(out, "good", good);
}

static void tell_good(struct output *out, const char *path, weir *w, const struct listed_policies *policies)
{
    const size_t entries = weir_list_overrides(w, count_entry, NULL);
    struct overrides_teller teller = {out, policies};
    tell_file_name(out, path, true);
    output_styled(out, STYLE_NAME, path);
    output_text(out, ": ");
    output_styled(out, STYLE_GOOD, "good");
    output_text(out, ", %zu %s", policies->count, plain_number(policies->count, "policy", "policies"));
    if (entries != 0) {
        output_text(out, ", %zu %s", entries, plain_number(entries, "override", "overrides"));
    }
    output_text(out, "\n");
    output_open(out, "policies", '[');
    tell_policies(out, policies);
    output_close(out, ']');
    output_open(out, "overrides", '[');
    (void) weir_list_overrides(w, tell_entry, &teller);
    output_close(out, ']');
    output_close(out, '}');
}

static void tell_fault(struct output *out, const char *path, const weir_error *error)
{
    struct probe_place place;
    const char *sentence = policy_probe_sentence(path, error->message, &place);
    output_fault(out, error->message);
    tell_file_name(out, policy_probe_name(path), false);
    output_open(out, "error", '{');
    if (place.line != 0) {
        output_number(out, "line", place.line);
        output_number(out, "column", place.column);
    }
    output_string(out, "message", sentence);
    output_close(out, '}');
    output_close(out, '}');
}

/* Loads a file and copies its policies. `error` has a sentence where the result is not 0. */
static int load_file(const char *path, enum probe_keys keys, weir *w, struct listed_policies *policies,
                     weir_error *error)
{
    const int result = policy_probe_load_keys(w, path, keys, NULL, error);
    if (result == 0 && !listed_policies_take(policies, w)) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    return result;
}

/* Returns the exit code of this file. */
static int check_file(struct output *out, const char *path, enum probe_keys keys)
{
    weir *w;
    weir_error error;
    struct listed_policies policies = {NULL, 0, 0};
    int code;
    const bool opened = policy_probe_open(NULL, &w, &error) == 0;
    const int result = opened ? load_file(path, keys, w, &policies, &error) : -ENOMEM;
    if (result == 0) {
        tell_good(out, policy_probe_name(path), w, &policies);
        code = CODE_GOOD;
    } else {
        tell_fault(out, path, &error);
        code = policy_probe_is_bad(result) ? CODE_BAD : CODE_UNASKED;
    }
    listed_policies_free(&policies);
    weir_close(w);
    return code;
}

static void tell_tally(struct output *out, const struct tally *tally)
{
    const size_t count = tally->good + tally->bad + tally->unread;
    if (count > 1) {
        output_text(out, "%zu files: %zu good", count, tally->good);
        if (tally->bad != 0) {
            output_text(out, ", %zu malformed", tally->bad);
        }
        if (tally->unread != 0) {
            output_text(out, ", %zu not read", tally->unread);
        }
        output_text(out, "\n");
    }
    output_number(out, "good", tally->good);
    output_number(out, "malformed", tally->bad);
    output_number(out, "unread", tally->unread);
}

/* Whether the operands can be checked. False: a sentence is on stderr. */
static bool is_usable(const struct arguments *arguments)
{
    size_t inputs = 0;
    for (size_t i = 0; i < arguments->operand_count; i++) {
        inputs += strcmp(arguments->operands[i], STANDARD_INPUT) == 0;
    }
    if (arguments->operand_count == 0) {
        (void) fprintf(stderr, "%s: there is no FILE to check; \"-\" is standard input\n", arguments->command);
    } else if (inputs > 1) {
        (void) fprintf(stderr, "%s: \"-\" is there twice; standard input can be read once\n", arguments->command);
    }
    return arguments->operand_count != 0 && inputs <= 1;
}

static int check_all_files(const struct arguments *arguments, struct output *out)
{
    struct tally tally = {0, 0, 0};
    int code = CODE_GOOD;
    enum probe_keys keys;
    if (!is_usable(arguments)) {
        return CODE_USAGE;
    }
    if (!policy_probe_read_keys(arguments->values[OPTION_KEYS], &keys)) {
        (void) fprintf(stderr, "%s: --keys is \"%s\"; give gateway or bytes\n", arguments->command,
                       arguments->values[OPTION_KEYS]);
        return CODE_USAGE;
    }
    out->quiet = arguments->values[OPTION_QUIET] != NULL;
    output_open(out, NULL, '{');
    output_open(out, "files", '[');
    for (size_t i = 0; i < arguments->operand_count; i++) {
        const int one = check_file(out, arguments->operands[i], keys);
        tally.good += one == CODE_GOOD;
        tally.bad += one == CODE_BAD;
        tally.unread += one == CODE_UNASKED;
        code = one > code ? one : code;
    }
    output_close(out, ']');
    tell_tally(out, &tally);
    output_close(out, '}');
    output_line(out);
    return code;
}

const struct command check_command = {.name = "check",
                                      .summary = "whether policy files are good, and what they admit",
                                      .help = help,
                                      .options = options,
                                      .option_count = OPTION_COUNT,
                                      .run = check_all_files};
