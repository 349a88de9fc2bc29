/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See loops.h, and docs/decisions/035-loops.md.
 *
 * Invariants:
 *   what is in `found` has sent back LOOPS_NONCE_SIZE random bytes that were sent to its address and port alone
 *   an answer is as large as its question, and is no question: so neither is worth forging
 */
#include "loops.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway.h"
#include "listen_socket.h"
#include "local.h"
#include "log.h"

/*
 * A client is asked when it has sent packets in this many turns, and in four, sixteen, ... times as many: a loop goes
 * on, and few other clients are asked often.
 */
#define FIRST_ASKED 64

/* How long an answer may take, in seconds. */
#define ANSWER_SECONDS 2

/* Answers that one thread gives in a second, at most: a flood of forged questions is not sent on to others. */
#define ANSWERS_MAX 64

/* Packets that are read at once: whoever floods the socket of the questions takes no more of a turn. */
#define READS_MAX 64

/* The addresses of this host are read again after so long. */
#define LOCALS_SECONDS 2

static const char question_mark[LOOPS_QUESTION_SIZE - LOOPS_NONCE_SIZE + 1] = "weir: a gateway?";
static const char answer_mark[LOOPS_QUESTION_SIZE - LOOPS_NONCE_SIZE + 1] = "weir: a gateway.";

#define MARK_SIZE (LOOPS_QUESTION_SIZE - LOOPS_NONCE_SIZE)

/* Services that answer whatever comes (RFC 862 to 868): echo, daytime, quotd, chargen, time. */
static const uint16_t services[] = {7, 13, 17, 19, 37};

static struct loops_end end_of(const struct address *address)
{
    return (struct loops_end){address_mapped(address), address_port(address)};
}

static bool is_same(const struct loops_end *a, const struct loops_end *b)
{
    return a->port == b->port && IN6_ARE_ADDR_EQUAL(&a->address, &b->address);
}

static uint64_t port_bit(uint16_t port)
{
    return UINT64_C(1) << (ntohs(port) & 63);
}

static void refuse(struct loops *loops, const struct address *address, bool any)
{
    const struct loops_end end = end_of(address);
    loops->refused[loops->refused_count++] = (struct loops_refused){end, any};
    loops->ports |= port_bit(end.port);
}

/* The addresses of listeners and backends. */
static void read_refused_slow(struct loops *loops)
{
    loops->refused_count = 0;
    loops->ports = port_bit(0);
    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        loops->ports |= port_bit(htons(services[i]));
    }
    (void) pthread_mutex_lock(&loops->listeners->mutex);
    loops->generation = atomic_load_explicit(&loops->listeners->generation, memory_order_relaxed);
    for (size_t i = 0; i < LISTENER_SLOTS; i++) {
        const struct listener *listener = &loops->listeners->all[i];
        if (listener->is_in_force) {
            refuse(loops, &listener->address, address_is_any(&listener->address));
        }
    }
    (void) pthread_mutex_unlock(&loops->listeners->mutex);
    loops->view_version = loops->view->version;
    for (uint8_t place = 0; place < BACKEND_PLACES; place++) {
        const struct address *address = &view_backend(loops->view, place)->address;
        if (!loops->view->is_gone[place] && address->length != 0) {
            refuse(loops, address, false);
        }
    }
}

void loops_update(struct loops *loops)
{
    if (loops->generation != atomic_load_explicit(&loops->listeners->generation, memory_order_relaxed) ||
        loops->view_version != loops->view->version) {
        read_refused_slow(loops);
    }
}

int loops_open(struct loops *loops, struct listeners *listeners, const struct backends_view *view,
               _Atomic uint32_t *told)
{
    const int type = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const int off = 0;
    *loops = (struct loops){.listeners = listeners, .view = view, .told = told, .fd = socket(AF_INET6, type, 0)};
    if (loops->fd >= 0) {
        (void) setsockopt(loops->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* IPv4 as well */
    } else {
        loops->is_v4 = true;
        loops->fd = socket(AF_INET, type, 0);
    }
    if (loops->fd < 0) {
        return -errno;
    }
    read_refused_slow(loops);
    return 0;
}

void loops_close(struct loops *loops)
{
    if (loops->fd >= 0) {
        (void) close(loops->fd);
    }
    loops->fd = -1;
    locals_close(&loops->locals);
}

static void ignore_change(void *arg, const struct drop_key *address, bool there)
{
    (void) arg;
    (void) address;
    (void) there;
}

/* Whether an address is one of this host. Packets that ask for this are few: they come from a listener's port. */
static bool is_local(struct loops *loops, const struct in6_addr *address, uint32_t now)
{
    const bool v4 = IN6_IS_ADDR_V4MAPPED(address);
    struct drop_key key = {.family = v4 ? 4 : 6};
    memcpy(key.address, &address->s6_addr[v4 ? 12 : 0], v4 ? 4 : 16);
    if (v4 ? key.address[0] == IN_LOOPBACKNET : IN6_IS_ADDR_LOOPBACK(address)) {
        return true;
    }
    if (loops->locals_read == 0 || now - loops->locals_read >= LOCALS_SECONDS) {
        locals_look(&loops->locals, ignore_change, NULL);
        loops->locals_read = now;
    }
    return locals_have(&loops->locals, &key);
}

/* Whether a listener on every address takes packets to this one. */
static bool takes_all_of(const struct loops_refused *refused, const struct in6_addr *address)
{
    return IN6_IS_ADDR_UNSPECIFIED(&refused->end.address) || IN6_IS_ADDR_V4MAPPED(address);
}

/* Whether no client has this address and port. */
static bool is_invalid(struct loops *loops, const struct loops_end *end, uint32_t now)
{
    if (end->port == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        if (end->port == htons(services[i])) {
            return true;
        }
    }
    for (size_t i = 0; i < loops->refused_count; i++) {
        const struct loops_refused *refused = &loops->refused[i];
        if (refused->end.port == end->port &&
            (refused->any ? takes_all_of(refused, &end->address) && is_local(loops, &end->address, now)
                          : IN6_ARE_ADDR_EQUAL(&refused->end.address, &end->address))) {
            return true;
        }
    }
    return false;
}

/* Whether a client is one that was found. Forgets those whose time is over. */
static bool is_found(struct loops *loops, const struct loops_end *end, uint32_t now)
{
    for (size_t i = 0; i < loops->found_count;) {
        if (loops->found[i].until <= now) {
            loops->found[i] = loops->found[--loops->found_count];
        } else if (is_same(&loops->found[i].end, end)) {
            return true;
        } else {
            i++;
        }
    }
    return false;
}

static bool has_mark(const unsigned char *data, size_t size, const char *mark)
{
    return size == LOOPS_QUESTION_SIZE && memcmp(data, mark, MARK_SIZE) == 0;
}

static void answer(struct loops *loops, const struct loops_packet *packet, uint32_t now)
{
    if (loops->answer_second != now) {
        loops->answer_second = now;
        loops->answers = 0;
    }
    if (loops->answers++ >= ANSWERS_MAX) {
        return;
    }
    unsigned char bytes[LOOPS_QUESTION_SIZE];
    memcpy(bytes, answer_mark, MARK_SIZE);
    memcpy(bytes + MARK_SIZE, packet->data + MARK_SIZE, LOOPS_NONCE_SIZE);
    struct iovec piece = {bytes, sizeof(bytes)};
    struct packet_control control;
    struct address to = *packet->from;
    struct msghdr message = {.msg_name = &to.u, .msg_namelen = to.length, .msg_iov = &piece, .msg_iovlen = 1};
    local_set(&message, &control, packet->socket->address.u.any.sa_family, packet->local);
    (void) sendmsg(packet->socket->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Looks at a packet that may be one that loops_take() takes. `may_be_invalid`: by its port its source may be. */
static bool take_slow(struct loops *loops, const struct loops_packet *packet, bool may_be_invalid, uint32_t now)
{
    const struct loops_end end = end_of(packet->from);
    if (may_be_invalid && is_invalid(loops, &end, now)) {
        loops->invalid_sources++;
        return true;
    }
    if (is_found(loops, &end, now)) {
        loops->looped++;
        return true;
    }
    if (has_mark(packet->data, packet->size, question_mark)) {
        answer(loops, packet, now);
        return true;
    }
    return false;
}

bool loops_take(struct loops *loops, const struct loops_packet *packet, uint32_t now)
{
    const bool may_be_invalid = (loops->ports & port_bit(address_port(packet->from))) != 0;
    const bool is_near = may_be_invalid || loops->found_count != 0 || packet->size == LOOPS_QUESTION_SIZE;
    return is_near && take_slow(loops, packet, may_be_invalid, now);
}

/* An address as the socket of the questions takes it. */
static struct address address_for(const struct loops *loops, const struct address *client)
{
    struct address to = *client;
    if (loops->is_v4 || client->u.any.sa_family == AF_INET6) {
        return to;
    }
    memset(&to, 0, sizeof(to));
    to.u.v6.sin6_family = AF_INET6;
    to.u.v6.sin6_port = client->u.v4.sin_port;
    to.u.v6.sin6_addr = address_mapped(client);
    to.length = sizeof(to.u.v6);
    return to;
}

/* False: as many are asked already. */
static bool ask(struct loops *loops, const struct address *client, uint32_t now)
{
    const size_t place = loops->asked_next;
    unsigned char bytes[LOOPS_QUESTION_SIZE];
    const struct address to = address_for(loops, client);
    if ((loops->asked[place].second != 0 && now - loops->asked[place].second < ANSWER_SECONDS) ||
        getrandom(loops->asked[place].nonce, LOOPS_NONCE_SIZE, GRND_NONBLOCK) != LOOPS_NONCE_SIZE) {
        return false;
    }
    loops->asked[place].end = end_of(client);
    loops->asked[place].second = now;
    loops->asked_next = (place + 1) % LOOPS_ASKED_MAX;
    memcpy(bytes, question_mark, MARK_SIZE);
    memcpy(bytes + MARK_SIZE, loops->asked[place].nonce, LOOPS_NONCE_SIZE);
    (void) sendto(loops->fd, bytes, sizeof(bytes), MSG_DONTWAIT | MSG_NOSIGNAL, &to.u.any, to.length);
    return true;
}

/* Whether a count is FIRST_ASKED times a power of four. */
static bool is_due(uint32_t count)
{
    static const uint32_t powers_of_four = 0x55555555;
    return count >= FIRST_ASKED && (count & (count - 1)) == 0 && (count & powers_of_four) != 0;
}

_Static_assert((FIRST_ASKED & 0x55555555) != 0, "a power of four itself");

void loops_note(struct loops *loops, uint32_t *count, const struct address *client, uint32_t now)
{
    ++*count;
    if (is_due(*count) && !ask(loops, client, now)) {
        --*count; /* with its next packet */
    }
}

static void tell(struct loops *loops, const struct loops_end *end, uint32_t now)
{
    const bool v4 = IN6_IS_ADDR_V4MAPPED(&end->address);
    char host[INET6_ADDRSTRLEN] = "";
    if (!log_is_due(loops->told, now)) {
        return;
    }
    (void) inet_ntop(v4 ? AF_INET : AF_INET6, &end->address.s6_addr[v4 ? 12 : 0], host, sizeof(host));
    log_line(WEIR_LOG_WARNING,
             "a loop with %s%s%s:%u, which answers what it is sent as another gateway does: its packets are dropped "
             "for %d s; let gateways deny each other's addresses by overrides",
             v4 ? "" : "[", host, v4 ? "" : "]", ntohs(end->port), LOOPS_SECONDS);
}

/* The client with this end is a gateway, or an echo. */
static void find(struct loops *loops, const struct loops_end *end, uint32_t now)
{
    size_t place = 0;
    if (is_found(loops, end, now)) {
        return; /* it was asked twice */
    }
    if (loops->found_count < LOOPS_FOUND_MAX) {
        place = loops->found_count++;
    } else {
        for (size_t i = 1; i < LOOPS_FOUND_MAX; i++) {
            place = loops->found[i].until < loops->found[place].until ? i : place;
        }
    }
    loops->found[place].end = *end;
    loops->found[place].until = now + LOOPS_SECONDS;
    loops->loops++;
    tell(loops, end, now);
}

void loops_read(struct loops *loops, uint32_t now)
{
    unsigned char bytes[LOOPS_QUESTION_SIZE + 1];
    for (unsigned n = 0; n < READS_MAX; n++) {
        struct address from = {.length = sizeof(from.u)};
        const ssize_t size = recvfrom(loops->fd, bytes, sizeof(bytes), MSG_DONTWAIT, &from.u.any, &from.length);
        if (size < 0) {
            return;
        }
        const struct loops_end end = end_of(&from);
        const bool is_answer =
            has_mark(bytes, (size_t) size, answer_mark) || has_mark(bytes, (size_t) size, question_mark);
        for (size_t i = 0; is_answer && i < LOOPS_ASKED_MAX; i++) {
            if (loops->asked[i].second != 0 && now - loops->asked[i].second <= ANSWER_SECONDS &&
                is_same(&loops->asked[i].end, &end) &&
                memcmp(bytes + MARK_SIZE, loops->asked[i].nonce, LOOPS_NONCE_SIZE) == 0) {
                loops->asked[i].second = 0;
                find(loops, &end, now);
            }
        }
    }
}
