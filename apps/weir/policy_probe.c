/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See policy_probe.h. The library reads regular files alone, so standard input is copied into one in memory. Its path
 * in an error becomes "<stdin>".
 */
#include "policy_probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../gateway/policy_kind.h"
#include "base/error.h"

/* One byte more than the library takes, so that the library says that there are too many. */
#define COPY_MOST ((1 << 20) + 1)

/* The least keys that a weir can hold. Nothing is checked here. */
#define KEYS_LEAST 1000

static const char stdin_name[] = "<stdin>";

const char *policy_probe_name(const char *path)
{
    return strcmp(path, STANDARD_INPUT) == 0 ? stdin_name : path;
}

/* Copies standard input into a file in memory. Returns the file's descriptor, or a negative errno. */
static int copy_input(void)
{
    char buffer[1 << 14];
    const int file = memfd_create("weir-stdin", MFD_CLOEXEC);
    ssize_t got = file >= 0 ? 1 : -1;
    for (size_t size = 0; got > 0 && size < COPY_MOST;) {
        const size_t room = COPY_MOST - size;
        got = read(STDIN_FILENO, buffer, room < sizeof(buffer) ? room : sizeof(buffer));
        if (got < 0 && errno == EINTR) {
            got = 1;
            continue;
        }
        if (got > 0 && write(file, buffer, (size_t) got) != got) {
            got = -1;
        }
        size += got > 0 ? (size_t) got : 0;
    }
    if (got >= 0) {
        return file;
    }
    const int code = -errno;
    if (file >= 0) {
        (void) close(file);
    }
    return code;
}

/* Puts `name` in the place of `path`, with which the message begins. */
static void rename_in_message(weir_error *error, const char *path, const char *name)
{
    const size_t length = strlen(path);
    if (strncmp(error->message, path, length) == 0) {
        char rest[sizeof(error->message)];
        (void) snprintf(rest, sizeof(rest), "%s", error->message + length);
        (void) snprintf(error->message, sizeof(error->message), "%s%.*s", name,
                        (int) (sizeof(error->message) - sizeof(stdin_name)), rest);
    }
}

/* Whether a file has policies of the gateway, and others. */
struct names {
    bool any, others;
};

static void look_at_name(void *arg, const weir_policy_info *info)
{
    struct names *names = arg;
    struct policy_kind kind;
    const bool of_gateway = policy_kind_read(info->policy->name, &kind);
    names->any = names->any || of_gateway;
    names->others = names->others || !of_gateway;
}

/* The names of a file's policies, without their tiers. */
struct bases {
    size_t count;
    char all[WEIR_MAX_POLICIES][WEIR_MAX_NAME + 1];
};

static void take_base(void *arg, const weir_policy_info *info)
{
    struct bases *bases = arg;
    const char *name = info->policy->name;
    (void) snprintf(bases->all[bases->count++], WEIR_MAX_NAME + 1, "%.*s", (int) strcspn(name, "/"), name);
}

int policy_probe_set_forms(weir *w, weir_error *error)
{
    struct bases *bases = calloc(1, sizeof(*bases));
    if (bases == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    (void) weir_list_policies(w, take_base, bases);
    int result = 0;
    for (size_t i = 0; i < bases->count && result == 0; i++) {
        struct policy_kind kind;
        if (policy_kind_read(bases->all[i], &kind)) {
            result = weir_set_key_form(w, bases->all[i], policy_kind_form(&kind), error);
        }
    }
    free(bases);
    return result;
}

/* Loads a file, and once more where its keys have forms: its policies say which. */
static int load_path(weir *w, const char *path, enum probe_keys keys, bool *of_gateway, weir_error *error)
{
    struct names names = {false, false};
    int result = weir_load_policies(w, path, error);
    if (result == 0) {
        (void) weir_list_policies(w, look_at_name, &names);
    }
    *of_gateway =
        result == 0 && (keys == PROBE_KEYS_OF_GATEWAY || (keys == PROBE_KEYS_GUESSED && names.any && !names.others));
    if (!*of_gateway) {
        return result;
    }
    result = policy_probe_set_forms(w, error);
    result = result == 0 ? weir_load_policies(w, path, error) : result;
    if (result == -EINVAL && keys == PROBE_KEYS_GUESSED) {
        static const char hint[] = " (for weir-gateway; else give --keys=bytes)";
        const size_t length = strlen(error->message);
        if (length + sizeof(hint) <= sizeof(error->message)) {
            memcpy(error->message + length, hint, sizeof(hint));
        }
    }
    return result;
}

static int load_input(weir *w, enum probe_keys keys, bool *of_gateway, weir_error *error)
{
    char path[40];
    const int file = copy_input();
    if (file < 0) {
        (void) snprintf(error->message, sizeof(error->message), "%s: cannot be read: %s", stdin_name, strerror(-file));
        return -EIO; /* no fault of what was read */
    }
    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const int result = load_path(w, path, keys, of_gateway, error);
    rename_in_message(error, path, stdin_name);
    (void) close(file);
    return result;
}

int policy_probe_open(const char *prefix, weir **out, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = KEYS_LEAST;
    options.max_threads = 1;
    options.prefix = prefix;
    *out = NULL;
    return weir_open(&options, out, error);
}

int policy_probe_load(weir *w, const char *path, weir_error *error)
{
    return policy_probe_load_keys(w, path, PROBE_KEYS_BYTES, NULL, error);
}

bool policy_probe_read_keys(const char *text, enum probe_keys *out)
{
    *out = PROBE_KEYS_GUESSED;
    if (text != NULL && strcmp(text, "bytes") == 0) {
        *out = PROBE_KEYS_BYTES;
    } else if (text != NULL && strcmp(text, "gateway") == 0) {
        *out = PROBE_KEYS_OF_GATEWAY;
    }
    return text == NULL || *out != PROBE_KEYS_GUESSED;
}

int policy_probe_load_keys(weir *w, const char *path, enum probe_keys keys, bool *of_gateway, weir_error *error)
{
    bool unused = false;
    bool *told = of_gateway != NULL ? of_gateway : &unused;
    return strcmp(path, STANDARD_INPUT) == 0 ? load_input(w, keys, told, error) : load_path(w, path, keys, told, error);
}

bool policy_probe_is_bad(int code)
{
    return code == -EINVAL || code == -EFBIG || code == -ENOSPC || code == -EISDIR;
}

/* Whether a message begins with a path. In a message '?' stands for each byte that is no plain text. */
static bool begins_with(const char *message, const char *path)
{
    while (*path != '\0' && (*message == *path || *message == '?')) {
        message++;
        path++;
    }
    return *path == '\0';
}

/* The length of the path that a message begins with: a long one is cut at its front, after "...". */
static size_t path_length(const char *path, const char *message)
{
    const size_t length = strlen(path);
    if (begins_with(message, path)) {
        return length;
    }
    if (strncmp(message, "...", 3) == 0) {
        for (size_t kept = length; kept != 0; kept--) {
            if (begins_with(message + 3, path + length - kept)) {
                return 3 + kept;
            }
        }
    }
    return 0;
}

const char *policy_probe_sentence(const char *path, const char *message, struct probe_place *place)
{
    const size_t length = path_length(policy_probe_name(path), message);
    int taken = 0;
    *place = (struct probe_place){0, 0};
    if (length == 0) {
        return message;
    }
    /* NOLINTNEXTLINE(cert-err34-c): the library has written the numbers */
    if (sscanf(message + length, ":%u:%u: %n", &place->line, &place->column, &taken) == 2 && taken != 0) {
        return message + length + taken;
    }
    *place = (struct probe_place){0, 0};
    return strncmp(message + length, ": ", 2) == 0 ? message + length + 2 : message;
}
