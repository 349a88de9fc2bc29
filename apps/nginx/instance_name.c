/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See instance_name.h.
 *
 * The locks are of open files (F_OFD_SETLK), which children have in common with the master. The library locks the same
 * file by flock(), for the time of weir_open alone; the two kinds know nothing of each other.
 *
 * A lock is taken before weir_open, and then the file is looked at: one that was removed in between does not count. So
 * no master opens a name that another one removes.
 */
#include "instance_name.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <ngx_md5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "protocol.h"

/* Where shm_open() has its files. */
#define PLACE "/dev/shm"

/* Names of one pid path and of one size. Two masters have one each, and a reload needs another. */
#define MOST_NUMBERS 16

#define MD5_SIZE ((size_t) 16)

/* More than the memory of a worker's handle, and than the policies of all zones: present when they are used. */
#define HANDLE_SIZE   ((uint64_t) 640 << 10)
#define POLICIES_SIZE ((uint64_t) 8 << 20)

/*
 * One call of instance_name_open.
 *
 * prefix  of all names of the pid path and the module, with its '/'
 * w       NULL: none yet
 */
struct search {
    struct instance_name *name;
    const struct instance_need *need;
    weir_options *options;
    char prefix[sizeof("/nginx-weir--stream-") + 2 * MD5_SIZE];
    weir *w;
};

/* Of this process: the names that it has. */
static struct instance_name *held;

void instance_name_init(struct instance_name *name)
{
    *name = (struct instance_name){.fd = -1};
}

static bool lock(int fd, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole) == 0;
}

static int fail(weir_error *error, int code, const char *sentence)
{
    *error = (weir_error){.code = code};
    (void) ngx_cpystrn((u_char *) error->message, (u_char *) sentence, sizeof(error->message));
    return code;
}

/*
 * The hash has the device of the pid file's folder too: containers that share /dev/shm and have one path of the pid
 * file each are two nginx. An upgrade renames the pid file. Where that cannot be done a name is of no use.
 */
static int write_prefix(struct search *search, weir_error *error)
{
    const ngx_str_t *path = search->need->pid_path;
    char folder[NGX_MAX_PATH];
    struct stat about;
    u_char digest[MD5_SIZE];
    u_char digits[2 * MD5_SIZE + 1];
    (void) ngx_cpystrn((u_char *) folder, path->data, sizeof(folder));
    char *slash = strrchr(folder, '/');
    if (slash == NULL || path->len >= sizeof(folder)) {
        return fail(error, -ENAMETOOLONG, "the path of the pid file is too long");
    }
    slash[slash == folder] = '\0';
    if (stat(folder, &about) != 0 || access(folder, W_OK | X_OK) != 0) {
        return fail(error, -errno, "the folder of the pid file cannot be written");
    }
    ngx_md5_t md5;
    ngx_md5_init(&md5);
    ngx_md5_update(&md5, path->data, path->len);
    ngx_md5_update(&md5, &about.st_dev, sizeof(about.st_dev));
    ngx_md5_final(digest, &md5);
    *ngx_hex_dump(digits, digest, sizeof(digest)) = '\0';
    (void) snprintf(search->prefix, sizeof(search->prefix), "/nginx-weir-%s-%s-", (const char *) digits,
                    protocol_name());
    return 0;
}

/* The number at *at, and behind it the end. */
static bool read_number(const char **at, char end, size_t *out)
{
    char *after = NULL;
    *out = (size_t) strtoull(*at, &after, 10);
    const bool good = after != *at && *after == end;
    *at = after + good;
    return good;
}

/* Whether what follows the prefix is as it should be: the keys of the table, and a number. */
static bool read_name(const struct search *search, const char *text, size_t *keys)
{
    const char *at = text + strlen(search->prefix);
    size_t number;
    return read_number(&at, '-', keys) && read_number(&at, '\0', &number);
}

static bool is_held(const char *text)
{
    const struct instance_name *name = held;
    while (name != NULL && strcmp(name->text, text) != 0) {
        name = name->next;
    }
    return name != NULL;
}

/* Whether the nginx before an upgrade still runs, or the one after it does. */
static bool has_relative(void)
{
    return ngx_new_binary > 0 || (ngx_inherited && getppid() == ngx_parent);
}

/* Opens the file of a name. -1: it is not there, or not this user's. */
static int open_file(const char *text)
{
    struct stat about;
    const int fd = shm_open(text, O_RDWR, 0);
    if (fd >= 0 && (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid())) {
        (void) close(fd);
        return -1;
    }
    return fd;
}

/* Whether the file still has its name. */
static bool has_name(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 && about.st_nlink != 0;
}

/* Opens the weir of a file that this process has locked. */
static int open_weir(struct search *search, const char *text, int fd, weir_error *error)
{
    search->options->shared_name = text;
    int result = weir_open(search->options, &search->w, error);
    if (result == 0 && !has_name(fd)) {
        /* The library has found it damaged, and made another one that nobody has locked. */
        weir_close(search->w);
        search->w = NULL;
        (void) shm_unlink(text);
        result = fail(error, -EBADMSG, "its memory was damaged");
    }
    search->options->shared_name = NULL;
    return result;
}

/* The weir is open: the name is this process's, and other masters may enter it. */
static void hold(struct search *search, const char *text, int fd, enum instance_entry entry)
{
    struct instance_name *name = search->name;
    (void) lock(fd, F_RDLCK);
    (void) ngx_cpystrn((u_char *) name->text, (u_char *) text, sizeof(name->text));
    name->fd = fd;
    name->entry = entry;
    name->stays = entry == INSTANCE_RESUMED;
    name->next = held;
    held = name;
}

/* Tries to go on with the weir of a file that this process has locked. */
static bool try_weir(struct search *search, const char *text, int fd, size_t keys, enum instance_entry entry)
{
    const weir_options wanted = *search->options;
    weir_error error = {.message = "it is too small"};
    search->options->max_keys = keys; /* a larger table than it needs is as good */
    if (keys >= search->need->keys && open_weir(search, text, fd, &error) == 0) {
        hold(search, text, fd, entry);
        return true;
    }
    *search->options = wanted;
    if (entry == INSTANCE_UPGRADED) {
        (void) ngx_cpystrn((u_char *) search->name->refused, (u_char *) error.message, sizeof(search->name->refused));
    }
    return false;
}

/* A file of this pid path that is not this process's: enters its weir, removes it, or leaves it alone. */
static void look_at(struct search *search, const char *text, size_t keys)
{
    const int fd = open_file(text);
    if (fd < 0) {
        return;
    }
    const bool alone = lock(fd, F_WRLCK);
    const bool locked = alone || (has_relative() && lock(fd, F_RDLCK));
    const bool wanted = search->w == NULL && (!alone || (search->need->restarted && !ngx_inherited));
    if (locked && has_name(fd)) {
        if (wanted && try_weir(search, text, fd, keys, alone ? INSTANCE_RESUMED : INSTANCE_UPGRADED)) {
            return;
        }
        if (alone) {
            (void) shm_unlink(text);
        }
    }
    (void) close(fd);
}

static void look_at_all(struct search *search)
{
    char pattern[sizeof(PLACE) + sizeof(search->prefix) + 1];
    glob_t found;
    (void) snprintf(pattern, sizeof(pattern), PLACE "%s*", search->prefix);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
        return; /* there is none */
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *text = found.gl_pathv[i] + sizeof(PLACE) - 1;
        size_t keys;
        if (strlen(text) < INSTANCE_NAME_SIZE && read_name(search, text, &keys) && !is_held(text)) {
            look_at(search, text, keys);
        }
    }
    globfree(&found);
}

/*
 * Whether workers will find room for what is not present yet: those of a reload beside those before, and the masters. A
 * worker that finds none does not limit.
 */
static bool has_room(int fd, const struct instance_need *need)
{
    struct statvfs about;
    return fstatvfs(fd, &about) != 0 || /* no limit is known */
           (uint64_t) about.f_bavail * about.f_frsize >= (2 * need->workers + 2) * HANDLE_SIZE + POLICIES_SIZE;
}

/* Makes a weir in a new file that this process has locked. */
static int make_weir(struct search *search, const char *text, int fd, weir_error *error)
{
    int result = open_weir(search, text, fd, error);
    if (result == 0 && !has_room(fd, search->need)) {
        weir_close(search->w);
        search->w = NULL;
        result = fail(error, -ENOSPC, "there is no room in " PLACE);
    }
    if (result != 0) {
        (void) shm_unlink(text);
    }
    return result;
}

static int make_new(struct search *search, weir_error *error)
{
    const weir_options *options = search->options;
    for (unsigned number = 0; number < MOST_NUMBERS; number++) {
        char text[INSTANCE_NAME_SIZE];
        (void) snprintf(text, sizeof(text), "%s%zu-%u", search->prefix, options->max_keys, number);
        const int fd = shm_open(text, O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
        if (fd < 0 && errno != EEXIST) {
            return fail(error, -errno, "no file can be made in " PLACE);
        }
        /* Not locked: another master has taken the new file for one that was left, and removes it. */
        if (fd >= 0 && lock(fd, F_WRLCK) && has_name(fd)) {
            const int result = make_weir(search, text, fd, error);
            if (result == 0) {
                hold(search, text, fd, INSTANCE_NEW);
                return 0;
            }
            (void) close(fd);
            return result;
        }
        if (fd >= 0) {
            (void) close(fd);
        }
    }
    return fail(error, -EEXIST, "all names in " PLACE " are taken");
}

int instance_name_open(struct instance_name *name, const struct instance_need *need, weir_options *options, weir **out,
                       weir_error *error)
{
    struct search search = {.name = name, .need = need, .options = options};
    instance_name_init(name);
    int result = write_prefix(&search, error);
    if (result == 0) {
        look_at_all(&search);
        result = search.w != NULL ? 0 : make_new(&search, error);
    }
    *out = search.w;
    return result;
}

static void drop(struct instance_name *name)
{
    struct instance_name **at = &held;
    while (*at != name) {
        at = &(*at)->next;
    }
    *at = name->next;
    (void) close(name->fd);
    name->fd = -1;
}

void instance_name_confirm(struct instance_name *name)
{
    name->stays = false;
}

void instance_name_release(struct instance_name *name)
{
    instance_name_leave(name);
    if (name->fd < 0) {
        return;
    }
    /* In this order: of two masters that end at once the one that comes last finds itself alone. */
    (void) lock(name->fd, F_UNLCK);
    if (!name->stays && lock(name->fd, F_WRLCK) && has_name(name->fd)) {
        (void) shm_unlink(name->text);
    }
    drop(name);
}

void instance_name_leave(struct instance_name *name)
{
    if (name->fd >= 0 && (ngx_process == NGX_PROCESS_WORKER || ngx_process == NGX_PROCESS_HELPER)) {
        drop(name);
    }
}
