/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See ports.h.
 *
 * There is one entry for each port. A client's hash says where its search begins; the client's own port, if it has one,
 * is within the next WINDOW ports. So no index is needed, and nothing has to be repaired when a process dies.
 *
 * The state of an entry is one word: when the port was last used, which process has it, and
 *
 *   FREE   no socket has the port, and it rests
 *   BUSY   somebody tries whether the kernel gives out the port
 *   HELD   one socket or several have the port, all for `client`; the state says how many
 *
 * The kernel decides who has a port: no two sockets do unless both share it (SO_REUSEPORT). Whoever has bound a port
 * without sharing is alone with it, and that one alone writes `client`. A socket shares its port once it is connected,
 * and only a socket for the same client asks for a share. So a wrong state costs a failed bind(), or a rest that is
 * longer than it need be; it never gives a port in use to another client.
 *
 * A process has a slot, a byte of the file that it holds a lock on. The kernel drops the lock when the process dies, so
 * others find its ports and let them rest.
 */
#include "ports.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"

#define PORTS UINT32_C(65536)

/* Has room for any list of ports that the kernel writes: six characters for each port are enough. */
#define LIST_SIZE (UINT64_C(12) * PORTS)

/*
 * A client's port is less than so many ports behind the one where its search begins. Among so many there is a rested
 * one until nearly all ports are taken, and their entries are 16 KiB in a row, which are quickly looked through.
 */
#define WINDOW UINT32_C(1024)

/* For so long after a search in vain only the window is searched, so that a flood of new clients costs little. */
#define PAUSE_MS 100

/* The time in a state may be so late, as ports_note() is called once a second. */
#define NOTE_MS 1000

/* An opener waits at most so long for another one to fill the file, which takes a millisecond. */
#define FILL_MS 5000

/* Slot 0 is the lock of those that open the file. */
#define SLOTS 256

enum port_state { PORT_FREE, PORT_BUSY, PORT_HELD };

/* Sockets that share a port, all for one client. More are counted as so many. */
#define HOLDERS_MOST 63

struct entry {
    _Atomic uint64_t client; /* who had the port last; 0: nobody */
    _Atomic uint64_t state;  /* ms << 16 | slot << 8 | holders << 2 | port_state; 0: never used */
};

#define MAGIC UINT64_C(0x776569722d707431) /* "weir-pt1" */

struct table {
    union {
        struct {
            uint64_t magic;
            unsigned char boot[64]; /* which start of the machine the times are of */
            struct hash_secret secret;
        };
        unsigned char page[4096];
    };
    struct entry entries[PORTS];
};

struct ports {
    struct table *table;
    int fd; /* -1: the table is this process's alone */
    unsigned slot;
    unsigned rest_ms;
    unsigned count;              /* of `usable` */
    _Atomic uint64_t none_until; /* no port had rested; a search of all is worth it from then on */
    pthread_mutex_t sweeping;    /* locks of one file do not keep threads apart */
    uint16_t usable[PORTS];
};

static uint64_t pack(uint64_t ms, unsigned slot, unsigned holders, enum port_state state)
{
    return ms << 16 | (uint64_t) slot << 8 | (uint64_t) holders << 2 | (uint64_t) state;
}

static uint64_t ms_of(uint64_t word)
{
    return word >> 16;
}

static unsigned slot_of(uint64_t word)
{
    return (unsigned) (word >> 8 & 0xff);
}

static unsigned holders_of(uint64_t word)
{
    return (unsigned) (word >> 2 & HOLDERS_MOST);
}

static enum port_state state_of(uint64_t word)
{
    return (enum port_state)(word & 3);
}

uint64_t ports_now(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

/* Locks or unlocks a slot, without waiting. */
static bool set_lock(int fd, unsigned slot, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static bool is_alive(const struct ports *ports, unsigned slot)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
    return slot == ports->slot || (fcntl(ports->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK);
}

/* Reads a file of /proc. Empty: it cannot be read. */
static void read_text(const char *path, char *out, size_t size)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t n = 0;
    while (fd >= 0 && length + 1 < size && (n = read(fd, out + length, size - 1 - length)) > 0) {
        length += (size_t) n;
    }
    out[length] = '\0';
    if (fd >= 0) {
        (void) close(fd);
    }
}

/* The ports that the kernel would give to sockets that ask for any. */
static void find_usable(struct ports *ports)
{
    char *text = malloc(LIST_SIZE);
    unsigned first = 32768; /* the kernel's range where nobody has changed it */
    unsigned last = 60999;
    bool *reserved = calloc(PORTS, sizeof(*reserved));
    if (text != NULL) {
        read_text("/proc/sys/net/ipv4/ip_local_port_range", text, LIST_SIZE);
        char *end = text;
        const unsigned long low = strtoul(text, &end, 10);
        const unsigned long high = strtoul(end, NULL, 10);
        if (low != 0 && low <= high && high < PORTS) {
            first = (unsigned) low;
            last = (unsigned) high;
        }
        read_text("/proc/sys/net/ipv4/ip_local_reserved_ports", text, LIST_SIZE);
    }
    for (char *at = text; text != NULL && reserved != NULL && *at >= '0' && *at <= '9';) {
        const unsigned long from = strtoul(at, &at, 10);
        const unsigned long to = *at == '-' ? strtoul(at + 1, &at, 10) : from;
        for (unsigned long port = from; port <= to && port < PORTS; port++) {
            reserved[port] = true;
        }
        at += *at == ',';
    }
    for (unsigned port = first; port <= last; port++) {
        if (reserved == NULL || !reserved[port]) {
            ports->usable[ports->count++] = (uint16_t) port;
        }
    }
    free(reserved);
    free(text);
}

/* Lets the ports of dead processes rest: `dead` has a process's slot, whose lock the caller holds. */
static void sweep_slots(struct ports *ports, const bool dead[SLOTS], uint64_t now)
{
    for (unsigned port = 0; port < PORTS; port++) {
        _Atomic uint64_t *state = &ports->table->entries[port].state;
        uint64_t word = atomic_load_explicit(state, memory_order_relaxed);
        if (state_of(word) != PORT_FREE && dead[slot_of(word)]) {
            const uint64_t last = ms_of(word) + NOTE_MS < now ? ms_of(word) + NOTE_MS : now;
            (void) atomic_compare_exchange_strong_explicit(state, &word, pack(last, 0, 0, PORT_FREE),
                                                           memory_order_relaxed, memory_order_relaxed);
        }
    }
}

/*
 * Lets the ports of all dead processes rest. The caller holds the lock of those that open the file, as they take a slot
 * whose lock nobody holds, and this function holds the locks of all such slots for a moment.
 */
static void sweep(struct ports *ports, uint64_t now)
{
    bool dead[SLOTS] = {false};
    for (unsigned slot = 1; slot < SLOTS; slot++) {
        dead[slot] = slot != ports->slot && set_lock(ports->fd, slot, F_WRLCK);
    }
    sweep_slots(ports, dead, now);
    for (unsigned slot = 1; slot < SLOTS; slot++) {
        if (dead[slot]) {
            (void) set_lock(ports->fd, slot, F_UNLCK);
        }
    }
}

/* Sweeps, unless another thread does so at this moment or somebody opens the file. */
static void try_to_sweep(struct ports *ports, uint64_t now)
{
    if (pthread_mutex_trylock(&ports->sweeping) != 0) {
        return;
    }
    if (set_lock(ports->fd, 0, F_WRLCK)) {
        sweep(ports, now);
        (void) set_lock(ports->fd, 0, F_UNLCK);
    }
    (void) pthread_mutex_unlock(&ports->sweeping);
}

/*
 * Makes a table fit for use. Times that were written before the machine last started cannot be compared with those of
 * now, so those ports begin to rest.
 */
static int fill(struct table *table, uint64_t now)
{
    char boot[sizeof(table->boot)] = "";
    read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (table->magic != MAGIC) {
        memset(table, 0, sizeof(*table));
        const int result = hash_secret_fill(&table->secret);
        if (result != 0) {
            return result;
        }
    }
    const bool same_boot = memcmp(table->boot, boot, sizeof(boot)) == 0;
    for (unsigned port = 0; port < PORTS; port++) {
        _Atomic uint64_t *state = &table->entries[port].state;
        uint64_t word = atomic_load_explicit(state, memory_order_relaxed);
        const bool is_wrong = state_of(word) > PORT_HELD || ms_of(word) > now + NOTE_MS;
        if (word != 0 && (!same_boot || is_wrong)) {
            (void) atomic_compare_exchange_strong_explicit(state, &word, pack(now, 0, 0, PORT_FREE),
                                                           memory_order_relaxed, memory_order_relaxed);
        }
    }
    memcpy(table->boot, boot, sizeof(boot));
    table->magic = MAGIC;
    return 0;
}

/* Waits until no other process opens the file. */
static bool lock_file(int fd)
{
    const uint64_t until = ports_now() + FILL_MS;
    while (!set_lock(fd, 0, F_WRLCK)) {
        if ((errno != EAGAIN && errno != EACCES) || ports_now() > until) {
            return false;
        }
        (void) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

/* Whether a file is a table, or is empty, as one that is not filled yet. What is something else is left as it is. */
static bool is_table(int fd, off_t size)
{
    uint64_t magic = 0;
    const ssize_t length = pread(fd, &magic, sizeof(magic), 0);
    return length == 0 ||
           (length == sizeof(magic) && (magic == MAGIC || (magic == 0 && size == (off_t) sizeof(struct table))));
}

/* Maps the file, with room for all of it, and takes a slot. 0 or a negative errno value. */
static int map_file(struct ports *ports)
{
    struct stat status;
    if (fstat(ports->fd, &status) != 0) {
        return -errno;
    }
    if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) {
        return -EPERM;
    }
    if (!lock_file(ports->fd)) {
        return -errno;
    }
    if (fstat(ports->fd, &status) != 0 || !is_table(ports->fd, status.st_size)) {
        return -EINVAL;
    }
    const int result = posix_fallocate(ports->fd, 0, sizeof(struct table)); /* no write finds a full disk later */
    if (result != 0) {
        return -result;
    }
    void *memory = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, ports->fd, 0);
    if (memory == MAP_FAILED) {
        return -errno;
    }
    ports->table = memory;
    ports->slot = 1;
    while (ports->slot < SLOTS && !set_lock(ports->fd, ports->slot, F_WRLCK)) {
        ports->slot++;
    }
    const int filled = ports->slot < SLOTS ? fill(ports->table, ports_now()) : -EUSERS;
    if (filled == 0) {
        /* Whoever had the slot before is dead, too. */
        bool dead[SLOTS] = {false};
        dead[ports->slot] = true;
        sweep_slots(ports, dead, ports_now());
        sweep(ports, ports_now());
    }
    (void) set_lock(ports->fd, 0, F_UNLCK);
    return filled;
}

/* Opens the directory. Nobody else may write to it. -1: errno says why not. */
static int open_directory(const char *path, int flags)
{
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST) {
        return -1;
    }
    struct stat status;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
    if (fd >= 0 &&
        (fstat(fd, &status) != 0 || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0)) {
        (void) close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

static struct ports *make(unsigned rest_ms)
{
    struct ports *ports = calloc(1, sizeof(*ports));
    if (ports != NULL) {
        ports->fd = -1;
        ports->slot = 1;
        ports->rest_ms = rest_ms;
        (void) pthread_mutex_init(&ports->sweeping, NULL);
        find_usable(ports);
    }
    return ports;
}

struct ports *ports_open_private(unsigned rest_ms)
{
    struct ports *ports = make(rest_ms);
    if (ports == NULL) {
        return NULL;
    }
    ports->table = calloc(1, sizeof(*ports->table));
    if (ports->table == NULL || fill(ports->table, ports_now()) != 0) {
        ports_close(ports);
        return NULL;
    }
    return ports;
}

struct ports *ports_open(const char *directory, unsigned rest_ms, char *problem, size_t size)
{
    char path[4096];
    const char *of_systemd = getenv("RUNTIME_DIRECTORY");
    const bool is_own = directory == NULL && (of_systemd == NULL || *of_systemd == '\0');
    if (is_own) {
        (void) snprintf(path, sizeof(path), "/dev/shm/weir-gateway-%ju", (uintmax_t) geteuid());
    } else if (directory == NULL) {
        (void) snprintf(path, sizeof(path), "%.*s", (int) strcspn(of_systemd, ":"), of_systemd); /* the first of them */
    } else {
        (void) snprintf(path, sizeof(path), "%s", directory);
    }
    struct ports *ports = make(rest_ms);
    if (ports == NULL) {
        (void) snprintf(problem, size, "out of memory");
        return NULL;
    }
    /* Anybody may make a link in shared memory; elsewhere one is of whoever gave the name. */
    const int place = open_directory(path, is_own ? O_NOFOLLOW : 0);
    if (place >= 0) {
        ports->fd = openat(place, "ports", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    }
    int result = ports->fd < 0 ? -errno : 0;
    if (place >= 0) {
        (void) close(place);
    }
    result = result == 0 ? map_file(ports) : result;
    if (result != 0) {
        (void) snprintf(problem, size, "%s: %s", path,
                        result == -EPERM    ? "it is another user's, or others may write to it"
                        : result == -EUSERS ? "255 gateways use it; give another directory"
                        : result == -EINVAL ? "its file \"ports\" is no table of ports; give another directory"
                                            : strerror(-result));
        ports_close(ports);
        return NULL;
    }
    return ports;
}

void ports_close(struct ports *ports)
{
    if (ports == NULL) {
        return;
    }
    if (ports->fd < 0) {
        free(ports->table);
    } else {
        (void) (ports->table != NULL ? munmap(ports->table, sizeof(struct table)) : 0);
        (void) close(ports->fd);
    }
    (void) pthread_mutex_destroy(&ports->sweeping);
    free(ports);
}

unsigned ports_count(const struct ports *ports)
{
    return ports->count;
}

uint64_t ports_client(const struct ports *ports, const void *bytes, size_t size)
{
    const uint64_t hash = hash_keyed(&ports->table->secret, bytes, size);
    return hash != 0 ? hash : 1;
}

/* Binds to a port of every local address, as the kernel does for a socket that asks for any port. 0 or an error. */
static int bind_port(int fd, int family, uint16_t port)
{
    const int on = 1;
    if (family == AF_INET) {
        const struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
        return bind(fd, (const struct sockaddr *) &own, sizeof(own)) == 0 ? 0 : errno;
    }
    const struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) {
        return errno;
    }
    return bind(fd, (const struct sockaddr *) &own, sizeof(own)) == 0 ? 0 : errno;
}

void ports_share(int fd)
{
    const int on = 1;
    (void) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
}

/* What became of an attempt to have a port. */
enum taken { TAKEN, TAKEN_BY_OTHERS, TAKEN_FAILED /* errno says why */ };

static enum taken taken_of(int error)
{
    errno = error;
    return error == 0 ? TAKEN : error == EADDRINUSE || error == EACCES ? TAKEN_BY_OTHERS : TAKEN_FAILED;
}

/* Takes a port that is the client's own. Another socket of the client may have it as well. */
static enum taken take_own(struct ports *ports, uint16_t port, uint64_t client, int fd, int family, uint64_t now)
{
    struct entry *entry = &ports->table->entries[port];
    uint64_t before = atomic_load_explicit(&entry->state, memory_order_acquire); /* pairs with take_rested() */
    uint64_t word;
    unsigned holders;
    do {
        /* Behind the state: another client that has got the port is seen here. */
        if (state_of(before) == PORT_BUSY || atomic_load_explicit(&entry->client, memory_order_relaxed) != client) {
            return TAKEN_BY_OTHERS;
        }
        holders = state_of(before) == PORT_HELD ? holders_of(before) : 0;
        word = pack(now, ports->slot, holders < HOLDERS_MOST ? holders + 1 : holders, PORT_HELD);
    } while (!atomic_compare_exchange_weak_explicit(&entry->state, &before, word, memory_order_acquire,
                                                    memory_order_acquire));
    uint64_t after = word;
    int error = bind_port(fd, family, port);
    if (error == 0) {
        after = pack(now, ports->slot, 1, PORT_HELD); /* a process died with the others */
    } else if (error == EADDRINUSE && holders != 0 && is_alive(ports, slot_of(before))) {
        ports_share(fd);
        error = bind_port(fd, family, port);
    }
    after = error == 0 ? after : before;
    if (after != word) {
        (void) atomic_compare_exchange_strong_explicit(&entry->state, &word, after, memory_order_relaxed,
                                                       memory_order_relaxed);
    }
    return taken_of(error);
}

/* Takes a port that has rested. */
static enum taken take_rested(struct ports *ports, uint16_t port, uint64_t client, int fd, int family, uint64_t now)
{
    struct entry *entry = &ports->table->entries[port];
    uint64_t word = atomic_load_explicit(&entry->state, memory_order_relaxed);
    if (state_of(word) != PORT_FREE || (word != 0 && now < ms_of(word) + ports->rest_ms) ||
        !atomic_compare_exchange_strong_explicit(&entry->state, &word, pack(now, ports->slot, 0, PORT_BUSY),
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return TAKEN_BY_OTHERS;
    }
    const int error = bind_port(fd, family, port);
    if (error == 0) {
        atomic_store_explicit(&entry->client, client, memory_order_relaxed);
    }
    /* Release: whoever finds the port held finds for whom. */
    atomic_store_explicit(&entry->state, error == 0 ? pack(now, ports->slot, 1, PORT_HELD) : pack(now, 0, 0, PORT_FREE),
                          memory_order_release);
    return taken_of(error);
}

int ports_bind(struct ports *ports, uint64_t client, int fd, int family, uint64_t now, bool *came_back)
{
    const uint32_t window = ports->count < WINDOW ? ports->count : WINDOW;
    const uint32_t start = (uint32_t) ((client >> 32) * ports->count >> 32);
    for (uint32_t i = 0; i < window; i++) {
        const uint16_t port = ports->usable[(start + i) % ports->count];
        if (atomic_load_explicit(&ports->table->entries[port].client, memory_order_relaxed) == client) {
            const enum taken taken = take_own(ports, port, client, fd, family, now);
            if (taken != TAKEN_BY_OTHERS) {
                *came_back = true;
                return taken == TAKEN ? port : -1;
            }
        }
    }
    *came_back = false;
    const bool looks_far = now >= atomic_load_explicit(&ports->none_until, memory_order_relaxed);
    for (uint32_t i = 0; i < (looks_far ? ports->count : window); i++) {
        const uint16_t port = ports->usable[(start + i) % ports->count];
        const enum taken taken = take_rested(ports, port, client, fd, family, now);
        if (taken != TAKEN_BY_OTHERS) {
            return taken == TAKEN ? port : -1;
        }
    }
    if (looks_far) {
        atomic_store_explicit(&ports->none_until, now + PAUSE_MS, memory_order_relaxed);
        try_to_sweep(ports, now);
    }
    errno = EADDRNOTAVAIL;
    return -1;
}

void ports_note(struct ports *ports, uint64_t client, uint16_t port, uint64_t now)
{
    struct entry *entry = &ports->table->entries[port];
    uint64_t word = atomic_load_explicit(&entry->state, memory_order_relaxed);
    const bool is_held = state_of(word) == PORT_HELD;
    const uint64_t then =
        is_held ? pack(now, slot_of(word), holders_of(word), PORT_HELD) : pack(now, ports->slot, 1, PORT_HELD);
    if (atomic_load_explicit(&entry->client, memory_order_relaxed) == client && state_of(word) != PORT_BUSY) {
        (void) atomic_compare_exchange_strong_explicit(&entry->state, &word, then, memory_order_relaxed,
                                                       memory_order_relaxed);
    }
}

void ports_release(struct ports *ports, uint64_t client, uint16_t port, uint64_t last)
{
    struct entry *entry = &ports->table->entries[port];
    uint64_t word = atomic_load_explicit(&entry->state, memory_order_relaxed);
    /* Where somebody tries to get the port at this moment, it rests from this moment on. */
    while (atomic_load_explicit(&entry->client, memory_order_relaxed) == client && state_of(word) != PORT_BUSY) {
        const uint64_t since = last > ms_of(word) ? last : ms_of(word);
        const unsigned holders = state_of(word) == PORT_HELD ? holders_of(word) : 0;
        const uint64_t then =
            holders > 1 ? pack(since, slot_of(word), holders - 1, PORT_HELD) : pack(since, 0, 0, PORT_FREE);
        if (atomic_compare_exchange_weak_explicit(&entry->state, &word, then, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            return;
        }
    }
}
