/* SPDX-License-Identifier: Apache-2.0 */
/* weir SUBCOMMAND: a program for operators. Each subcommand is a struct command in a file of its own. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weir/weir.h>

#include "base/plain.h"
#include "command.h"
#include "policy/words.h"

static const struct command *const commands[] = {
    &bench_command,   &check_command,    &demo_command,  &doctor_command,
    &explain_command, &override_command, &reset_command, &simulate_command,
#ifdef WEIR_HAS_TOP
    &top_command,
#endif
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* The most bytes of a misspelt subcommand that the sentence quotes, with the terminator. */
#define QUOTED_SIZE 81

/* "weir " and the longest name of a subcommand, with the terminator. */
#define COMMAND_SIZE 32

/*
 * A standard stream that is closed would become the next file that is opened. In its place comes /dev/null, opened so
 * that output there is an error.
 */
static bool occupy_standard_streams(void)
{
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY) != stream) {
            return false;
        }
    }
    return true;
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static int fail_unknown(const char *name)
{
    const char *names[COMMAND_COUNT + 1];
    char quoted[QUOTED_SIZE];
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i]->name;
    }
    names[COMMAND_COUNT] = "help";
    const struct words words = {.names = names, .count = COMMAND_COUNT + 1};
    const char *meant = words_meant(&words, name);
    (void) plain_quoted(quoted, sizeof(quoted), name);
    (void) fprintf(stderr, "weir: there is no %s \"%s\"", *name == '-' ? "option" : "subcommand", quoted);
    if (meant != NULL) {
        (void) fprintf(stderr, "; did you mean \"%s\"?", meant);
    } else if (*name == '-') {
        (void) fputs("; options of a subcommand stand behind it", stderr);
    }
    (void) fputs("\nweir --help lists the subcommands\n", stderr);
    return CODE_USAGE;
}

static void print_overview(FILE *file)
{
    (void) fputs("Usage: weir SUBCOMMAND [OPTION]... [ARGUMENT]...\n"
                 "\n"
                 "For operators of servers that limit with weir.\n"
                 "\n"
                 "Subcommands:\n",
                 file);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        (void) fprintf(file, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    }
    (void) fputs("  help       what a subcommand does: weir help check\n"
                 "\n"
                 "Options:\n"
                 "  -h, --help     this text\n"
                 "      --version  the version of this program and of its library\n"
                 "\n"
                 "Examples:\n"
                 "  weir check gateway.yaml\n"
                 "  weir explain --policies gateway.yaml api 203.0.113.9\n"
                 "  weir override set api:203.0.113.9 deny\n"
                 "  weir help check\n"
                 "\n"
                 "Exit codes:\n"
                 "  0  good\n"
                 "  1  what was asked about is not good\n"
                 "  2  the command line is wrong\n"
                 "  3  there is no answer: of a file, of Redis or of a node\n"
                 "  4  the output cannot be written\n"
                 "  5 to 8  a trace cannot be read, or what is said of it may be wrong (simulate)\n"
                 "  130  interrupted while it read (simulate)\n",
                 file);
}

static int end_output(const char *command, int code)
{
    struct output out = {.json = false};
    const bool good = output_end(&out, command);
    return good ? code : CODE_OUTPUT;
}

/* weir help [SUBCOMMAND] */
static int help(char *const *words, size_t count)
{
    const struct command *command = count != 0 ? find_command(words[0]) : NULL;
    if (count > 1) {
        (void) fputs("weir help: give one subcommand\n", stderr);
        return CODE_USAGE;
    }
    if (count == 1 && command == NULL && strcmp(words[0], "help") != 0) {
        return fail_unknown(words[0]);
    }
    if (command != NULL) {
        (void) fputs(command->help, stdout);
    } else {
        print_overview(stdout);
    }
    return end_output("weir help", CODE_GOOD);
}

static int run(const struct command *command, char *const *words, size_t count)
{
    char name[COMMAND_SIZE];
    struct arguments arguments;
    struct output out;
    int code = CODE_USAGE;
    (void) snprintf(name, sizeof(name), "weir %s", command->name);
    if (!arguments_read(&arguments, name, command->options, command->option_count, words, count)) {
        arguments_free(&arguments);
        return code;
    }
    if (arguments.values[OPTION_HELP] != NULL) {
        (void) fputs(command->help, stdout);
        code = end_output(name, CODE_GOOD);
    } else if (output_begin(&out, name, arguments.values[OPTION_COLOR], arguments.values[OPTION_JSON] != NULL)) {
        code = command->run(&arguments, &out);
        code = output_end(&out, name) ? code : CODE_OUTPUT;
    }
    arguments_free(&arguments);
    return code;
}

int main(int argc, char **argv)
{
    if (!occupy_standard_streams()) {
        return CODE_OUTPUT;
    }
    /* Output to a closed pipe is then an error like any other. */
    (void) signal(SIGPIPE, SIG_IGN);
    if (argc < 2) {
        print_overview(stderr);
        return CODE_USAGE;
    }
    const struct command *command = find_command(argv[1]);
    if (command != NULL) {
        return run(command, argv + 2, (size_t) argc - 2);
    }
    if (strcmp(argv[1], "help") == 0) {
        return help(argv + 2, (size_t) argc - 2);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return help(argv + 2, 0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void) printf("weir %d.%d.%d, library %s\n", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH,
                      weir_version());
        return end_output("weir", CODE_GOOD);
    }
    return fail_unknown(argv[1]);
}
