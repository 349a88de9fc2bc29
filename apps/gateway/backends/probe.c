/* SPDX-License-Identifier: Apache-2.0 */
/* See probe.h. */
#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../refusal.h"

/* "The PROXY protocol, versions 1 & 2", section 2.2, of the HAProxy project: version 2, LOCAL, no addresses. */
static const unsigned char local_header[16] = {0x0d, 0x0a, 0x0d, 0x0a, 0x00, 0x0d, 0x0a, 0x51,
                                               0x55, 0x49, 0x54, 0x0a, 0x20, 0x00, 0x00, 0x00};

static int digit_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool probe_parse(const char *text, struct probe_payload *out, char *problem, size_t size)
{
    const size_t most = PROBE_SIZE_MAX - sizeof(local_header);
    const bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    const size_t length = strlen(text);
    const size_t count = is_hex ? (length - 2) / 2 : length;
    if (count == 0 || count > most || (is_hex && length % 2 != 0)) {
        (void) snprintf(problem, size, "give a text, or 0x and pairs of hex digits, of 1 to %zu bytes", most);
        return false;
    }
    out->size = count;
    for (size_t i = 0; i < count; i++) {
        if (!is_hex) {
            out->bytes[i] = (unsigned char) text[i];
            continue;
        }
        const int high = digit_of(text[2 + 2 * i]);
        const int low = digit_of(text[3 + 2 * i]);
        if (high < 0 || low < 0) {
            (void) snprintf(problem, size, "\"%.2s\" is no pair of hex digits", text + 2 + 2 * i);
            return false;
        }
        out->bytes[i] = (unsigned char) (high << 4 | low);
    }
    return true;
}

void probe_introduce(struct probe_payload *payload)
{
    memmove(payload->bytes + sizeof(local_header), payload->bytes, payload->size);
    memcpy(payload->bytes, local_header, sizeof(local_header));
    payload->size += sizeof(local_header);
}

int probe_open(const struct address *backend)
{
    const int fd = socket(backend->u.any.sa_family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, &backend->u.any, backend->length) != 0) {
        const int error = errno;
        (void) close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

enum probe_news probe_send(int fd, const struct probe_payload *payload, int *error)
{
    enum probe_news news = PROBE_NOTHING;
    /* The first error is news of an earlier packet, and reading it clears it. */
    for (int tries = 0; tries < 2; tries++) {
        if (send(fd, payload->bytes, payload->size, MSG_NOSIGNAL) >= 0 || !is_refusal(errno)) {
            break;
        }
        *error = errno;
        news = PROBE_REFUSED;
    }
    return news;
}

enum probe_news probe_read(int fd, int *error)
{
    unsigned char bytes[1];
    enum probe_news news = PROBE_NOTHING;
    for (int packets = 0; packets < 64; packets++) { /* the rest waits for the next time */
        if (recv(fd, bytes, sizeof(bytes), 0) >= 0) {
            news = PROBE_ANSWERED;
        } else if (is_refusal(errno)) {
            *error = errno;
            news = news == PROBE_ANSWERED ? news : PROBE_REFUSED;
        } else if (errno != EINTR) {
            break;
        }
    }
    return news;
}
