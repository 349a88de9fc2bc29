/* SPDX-License-Identifier: Apache-2.0 */
#include "outbox.h"

#include <errno.h>

#include "local.h"
#include "offload.h"
#include "refusal.h"

/* What has room in a packet of any path: IPv6's least MTU is 1,280 bytes, 48 of which are headers. */
#define SIZE_OF_ANY_PATH 1232

void outbox_open(struct outbox *box, int fd, int family, bool segments)
{
    box->fd = fd;
    box->family = family;
    box->segments = segments;
    box->prefix = NULL;
    box->prefix_size = 0;
    box->added = box->sent = box->segmented = box->refused = box->sent_bytes = 0;
    box->refusal = 0;
    box->count = box->piece_count = 0;
    outbox_forget_sizes(box);
}

void outbox_forget_sizes(struct outbox *box)
{
    box->segment_max = box->segments ? SEGMENTED_SIZE_MAX : 0;
}

static bool goes_the_same_way(const struct parcel *parcel, const struct address *to, const struct in6_addr *local)
{
    if (to == NULL || parcel->to.length == 0) {
        return to == NULL && parcel->to.length == 0;
    }
    return address_is_same(&parcel->to, to) && IN6_ARE_ADDR_EQUAL(&parcel->local, local);
}

/* Whether the message may take another datagram behind its last. */
static bool has_room(const struct outbox *box, const struct parcel *parcel, size_t size)
{
    return size != 0 && size <= parcel->segment && parcel->segment <= box->segment_max &&
           parcel->count < SEGMENTS_MAX && parcel->size == parcel->count * parcel->segment &&
           parcel->size + size <= SEGMENTED_SIZE_MAX;
}

/* A new message, of nothing yet. */
static struct parcel *begin(struct outbox *box, size_t segment, const struct address *to, const struct in6_addr *local)
{
    struct parcel *parcel = &box->parcels[box->count];
    struct msghdr *header = &box->messages[box->count++].msg_hdr;
    parcel->segment = segment;
    parcel->size = parcel->count = 0;
    parcel->to.length = 0;
    *header = (struct msghdr){.msg_iov = &box->pieces[box->piece_count]};
    if (to != NULL) {
        parcel->to = *to;
        parcel->local = *local;
        header->msg_name = &parcel->to.u;
        header->msg_namelen = parcel->to.length;
        local_set(header, &parcel->control, box->family, local);
    }
    return parcel;
}

void outbox_add(struct outbox *box, const struct datagram *datagram, const struct address *to,
                const struct in6_addr *local)
{
    const size_t size = box->prefix_size + datagram->size;
    struct parcel *parcel = box->count != 0 ? &box->parcels[box->count - 1] : NULL;
    if (parcel != NULL && !(has_room(box, parcel, size) && goes_the_same_way(parcel, to, local))) {
        parcel = NULL;
    }
    struct iovec *last = parcel != NULL && box->prefix_size == 0 ? &box->pieces[box->piece_count - 1] : NULL;
    if (last != NULL && (unsigned char *) last->iov_base + last->iov_len == datagram->data) {
        last->iov_len += datagram->size; /* they came merged, and leave so */
    } else {
        if (box->piece_count + 2 > OUTBOX_COUNT) {
            outbox_flush(box);
            parcel = NULL;
        }
        if (parcel == NULL) {
            parcel = begin(box, size, to, local);
        }
        if (box->prefix_size != 0) {
            box->pieces[box->piece_count++] = (struct iovec){(void *) (uintptr_t) box->prefix, box->prefix_size};
            box->messages[box->count - 1].msg_hdr.msg_iovlen++;
        }
        box->pieces[box->piece_count++] = (struct iovec){datagram->data, datagram->size};
        box->messages[box->count - 1].msg_hdr.msg_iovlen++;
    }
    parcel->size += size;
    parcel->count++;
    box->added++;
}

/*
 * Sends the datagrams of a message that was refused one by one. If that works, it was the segments that were refused:
 * for their size (EMSGSIZE; older kernels say EINVAL), or because this kernel, socket or route has no segments.
 */
static void send_apart(struct outbox *box, size_t index, int error)
{
    const struct parcel *parcel = &box->parcels[index];
    const struct msghdr *header = &box->messages[index].msg_hdr;
    struct outbox apart;
    outbox_open(&apart, box->fd, box->family, false);
    apart.prefix = box->prefix;
    apart.prefix_size = box->prefix_size;
    /* With prefixes every other piece is one, and those between are a datagram each. */
    const size_t step = box->prefix_size != 0 ? 2 : 1;
    for (size_t i = step - 1; i < header->msg_iovlen; i += step) {
        const struct iovec *piece = &header->msg_iov[i];
        for (size_t offset = 0; offset < piece->iov_len || (offset == 0 && step == 2); offset += parcel->segment) {
            const size_t left = piece->iov_len - offset;
            const struct datagram datagram = {.data = (unsigned char *) piece->iov_base + offset,
                                              .size = left < parcel->segment ? left : parcel->segment};
            outbox_add(&apart, &datagram, parcel->to.length != 0 ? &parcel->to : NULL, &parcel->local);
        }
    }
    outbox_flush(&apart);
    box->sent += apart.sent;
    box->sent_bytes += apart.sent_bytes;
    box->refused += apart.refused;
    box->refusal = apart.refused != 0 ? apart.refusal : box->refusal;
    if (apart.sent == 0) {
        return;
    }
    if (error == EMSGSIZE || (error == EINVAL && parcel->segment > SIZE_OF_ANY_PATH)) {
        box->segment_max = parcel->segment - 1 < box->segment_max ? parcel->segment - 1 : box->segment_max;
    } else {
        box->segments = false;
        box->segment_max = 0;
    }
}

/* Errors that may be of segments rather than of the way they go. */
static bool is_of_segments(int error)
{
    return error == EINVAL || error == EIO || error == EMSGSIZE || error == ENOPROTOOPT || error == EOPNOTSUPP;
}

void outbox_flush(struct outbox *box)
{
    for (size_t i = 0; i < box->count; i++) {
        struct parcel *parcel = &box->parcels[i];
        if (parcel->count > 1) {
            offload_segment_set(&box->messages[i].msg_hdr, &parcel->control, parcel->segment);
        }
    }
    bool retried = false;
    for (size_t done = 0; done < box->count;) {
        const int n = sendmmsg(box->fd, box->messages + done, (unsigned) (box->count - done), MSG_NOSIGNAL);
        if (n > 0) {
            for (const size_t end = done + (size_t) n; done < end; done++) {
                box->sent += box->parcels[done].count;
                box->sent_bytes += box->parcels[done].size;
                box->segmented += box->parcels[done].count > 1 ? box->parcels[done].count : 0;
            }
            retried = false;
            continue;
        }
        if (errno == EINTR) {
            continue;
        }
        if (errno == EAGAIN || errno == ENOBUFS) {
            break;
        }
        if (is_refusal(errno) && !(box->parcels[done].count > 1 && is_of_segments(errno))) {
            box->refused++;
            box->refusal = errno;
        }
        /* ECONNREFUSED is news of an earlier packet, and reading it clears it: this packet has not been tried yet. */
        if (errno == ECONNREFUSED && !retried) {
            retried = true;
            continue;
        }
        if (box->parcels[done].count > 1 && is_of_segments(errno)) {
            send_apart(box, done, errno);
        }
        done++;
        retried = false;
    }
    box->count = box->piece_count = 0;
}
