/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir demo: a gateway under live traffic, on this machine alone. The demonstration is a script that is installed
 * beside the programs: scripts/run of the source tree runs the same one.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../command.h"

enum { OPTION_FLEET = OPTION_OWN, OPTION_SECONDS, OPTION_COUNT };
static const struct option_form options[OPTION_COUNT] = {
    COMMON_OPTIONS, [OPTION_FLEET] = {"fleet", 0, false}, [OPTION_SECONDS] = {"seconds", 0, true}};

static const char help[] = "Usage: weir demo [OPTION]...\n"
                           "\n"
                           "Shows a weir-gateway that limits live traffic on this machine, second by second:\n"
                           "a polite client, a greedy one and a swarm. With --fleet three gateways share one\n"
                           "limit through a private Redis, which is killed half way and comes back empty.\n"
                           "All ports are of 127.0.0.1, and nothing stays. It needs python3; --fleet needs\n"
                           "redis-server.\n"
                           "\n"
                           "Options:\n"
                           "      --fleet          three gateways and a Redis\n"
                           "      --seconds=N      3 to 999999 (10; with --fleet 15)\n"
                           "      --json           the result alone, as one line of JSON\n"
                           "      --color=WHEN     auto (default), always or never\n"
                           "  -h, --help           this text\n"
                           "\n"
                           "Examples:\n"
                           "  weir demo\n"
                           "  weir demo --fleet\n"
                           "  weir demo --seconds 3 --json | jq .held\n"
                           "\n"
                           "Exit codes:\n"
                           "  0  every limit was held\n"
                           "  1  a limit was not held, or the demonstration was interrupted\n"
                           "  2  the command line is wrong\n"
                           "  3  something that it needs is missing, or did not start\n"
                           "  4  the output cannot be written\n";

/* Where the installation puts the script, below the folder of the programs' folder. */
#define SCRIPT "share/weir/demo.py"

static int fail(const struct arguments *arguments, int code, const char *sentence)
{
    (void) fprintf(stderr, "%s: %s\n", arguments->command, sentence);
    return code;
}

/* The folder of this program. False: the kernel does not tell it. */
static bool find_folder(char folder[PATH_MAX])
{
    const ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char *slash;
    folder[length > 0 ? length : 0] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* The script: beside the programs, wherever the installation has been moved to, else where it was configured to be. */
static bool find_script(const char *folder, char path[PATH_MAX])
{
    const int length = snprintf(path, PATH_MAX, "%s/../" SCRIPT, folder);
    if (length < PATH_MAX && access(path, R_OK) == 0) {
        return true;
    }
    (void) snprintf(path, PATH_MAX, "%s", WEIR_DEMO_SCRIPT);
    return access(path, R_OK) == 0;
}

static bool is_gateway_there(const char *folder)
{
    char path[PATH_MAX + 16];
    (void) snprintf(path, sizeof(path), "%s/weir-gateway", folder);
    return access(path, X_OK) == 0;
}

static int run_demo(const struct arguments *arguments, struct output *out)
{
    char folder[PATH_MAX];
    char script[PATH_MAX];
    const char *seconds = arguments->values[OPTION_SECONDS];
    if (arguments->operand_count != 0) {
        return fail(arguments, CODE_USAGE, "it takes options alone");
    }
    const size_t digits = seconds != NULL ? strspn(seconds, "0123456789") : 1;
    if (seconds != NULL && (digits == 0 || digits > 6 || seconds[digits] != '\0' || strtol(seconds, NULL, 10) < 3)) {
        return fail(arguments, CODE_USAGE, "--seconds takes a whole number from 3 to 999999");
    }
    if (!find_folder(folder) || !is_gateway_there(folder)) {
        return fail(arguments, CODE_UNASKED, "there is no weir-gateway beside this program; install it");
    }
    if (!find_script(folder, script)) {
        return fail(arguments, CODE_UNASKED, "the script of the demonstration is not installed: " WEIR_DEMO_SCRIPT);
    }
    char *words[9] = {"python3", "-BI", script, folder};
    size_t count = 4;
    if (seconds != NULL) {
        words[count++] = "--seconds";
        words[count++] = (char *) (uintptr_t) seconds;
    }
    if (arguments->values[OPTION_FLEET] != NULL) {
        words[count++] = "--fleet";
    }
    if (out->json) {
        words[count] = "--json";
    }
    (void) execvp(words[0], words);
    return fail(arguments, CODE_UNASKED, errno == ENOENT ? "there is no python3; install it" : strerror(errno));
}

const struct command demo_command = {.name = "demo",
                                     .summary = "a gateway under live traffic, on this machine",
                                     .help = help,
                                     .options = options,
                                     .option_count = OPTION_COUNT,
                                     .run = run_demo};
