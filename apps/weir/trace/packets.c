/* SPDX-License-Identifier: Apache-2.0 */
/* See packets.h. */
#include "packets.h"

#include <stdlib.h>
#include <string.h>
#ifdef WEIR_HAS_PCAP
#include <pcap/pcap.h>
#endif

#include "../../gateway/kinds/packet_kind.h"

bool packets_detect(const unsigned char *bytes, size_t size)
{
    static const unsigned char marks[][4] = {{0xa1, 0xb2, 0xc3, 0xd4},
                                             {0xd4, 0xc3, 0xb2, 0xa1},
                                             {0xa1, 0xb2, 0x3c, 0x4d},
                                             {0x4d, 0x3c, 0xb2, 0xa1},
                                             {0x0a, 0x0d, 0x0d, 0x0a}};
    for (size_t i = 0; size >= 4 && i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (memcmp(bytes, marks[i], 4) == 0) {
            return true;
        }
    }
    return false;
}

#ifdef WEIR_HAS_PCAP

/* So many datagrams tell where the service is. */
#define LOOKED_AT (1 << 16)

/* A datagram, as far as requests are made of it. */
struct looked {
    uint64_t time_ms;
    struct address_bytes from, to;
    uint16_t to_port;
    unsigned char kind; /* see struct record */
    size_t size;
};

struct packets {
    pcap_t *pcap;
    const struct selection *selection;
    int link;
    struct service service;
    bool found;            /* the service is what most datagrams go to */
    struct looked *looked; /* datagrams that were looked at to find it; NULL: none was */
    size_t looked_count, looked_at;
    int ended; /* what reading on gave then: 1: there is more; else as packets_next */
    struct fault fault;
    struct packet_counts counts;
    char scratch[KEY_MOST + 1];
};

struct packets *packets_open(FILE *file, const struct selection *selection, struct fault *fault)
{
    char wrong[PCAP_ERRBUF_SIZE];
    struct packets *p = calloc(1, sizeof(*p));
    pcap_t *pcap = p != NULL ? pcap_fopen_offline(file, wrong) : NULL;
    if (pcap == NULL) {
        (void) snprintf(fault->text, sizeof(fault->text), "%.200s", p != NULL ? wrong : "out of memory");
        (void) fclose(file);
        free(p);
        return NULL;
    }
    *p = (struct packets){
        .pcap = pcap, .selection = selection, .link = pcap_datalink(pcap), .service = selection->service, .ended = 1};
    return p;
}

void packets_close(struct packets *p)
{
    if (p != NULL) {
        pcap_close(p->pcap);
        free(p->looked);
        free(p);
    }
}

const struct service *packets_service(const struct packets *p, bool *found)
{
    *found = p->found;
    return &p->service;
}

const struct packet_counts *packets_counts(const struct packets *p)
{
    return &p->counts;
}

/* Where the IP header is in an Ethernet frame, behind its VLAN tags; 0: it is no IP. */
static size_t ethernet_payload(const unsigned char *frame, size_t size)
{
    size_t at = 12;
    while (at + 2 <= size &&
           ((frame[at] == 0x81 && frame[at + 1] == 0x00) || (frame[at] == 0x88 && frame[at + 1] == 0xa8))) {
        at += 4;
    }
    const bool ip = at + 2 <= size &&
                    ((frame[at] == 0x08 && frame[at + 1] == 0x00) || (frame[at] == 0x86 && frame[at + 1] == 0xdd));
    return ip ? at + 2 : 0;
}

/* Where the IP header is; `size` or more: there is none. */
static size_t payload_of(int link, const unsigned char *frame, size_t size)
{
    size_t at = 0;
    switch (link) {
    case DLT_EN10MB:
        at = ethernet_payload(frame, size);
        return at != 0 ? at : size;
    case DLT_NULL:
    case DLT_LOOP:
        return 4;
    case DLT_LINUX_SLL:
        return 16;
    case DLT_LINUX_SLL2:
        return 20;
    default: /* DLT_RAW and those of one IP version */
        return 0;
    }
}

/* The kind of a datagram. Bytes that were not captured are taken for zeros, and counted where a kind may look at them.
 */
static unsigned char kind_of(struct packets *p, const struct datagram_view *view)
{
    unsigned char first[PACKET_KIND_PATTERN] = {0};
    if (p->selection->kinds == NULL || p->selection->kinds->count == 0) {
        return 0;
    }
    const size_t wanted = view->size < sizeof(first) ? view->size : sizeof(first);
    memcpy(first, view->payload, view->captured < wanted ? view->captured : wanted);
    p->counts.unseen += view->captured < wanted;
    return (unsigned char) packet_kinds_match(p->selection->kinds, first, view->size);
}

/* Reads the next datagram. 1, or what packets_next gives. */
static int read_datagram(struct packets *p, struct looked *out, struct fault *fault)
{
    struct pcap_pkthdr *header;
    const unsigned char *frame;
    for (;;) {
        const int result = pcap_next_ex(p->pcap, &header, &frame);
        if (result == PCAP_ERROR_BREAK) {
            return 0;
        }
        if (result != 1) {
            (void) snprintf(fault->text, sizeof(fault->text), "%.200s", pcap_geterr(p->pcap));
            return -1;
        }
        struct datagram_view view;
        const size_t at = payload_of(p->link, frame, header->caplen);
        const enum datagram_kind kind =
            at < header->caplen ? datagram_read(frame + at, header->caplen - at, &view) : DATAGRAM_OTHER;
        if (kind == DATAGRAM_UDP) {
            *out =
                (struct looked){.time_ms = (uint64_t) header->ts.tv_sec * 1000 + (uint64_t) header->ts.tv_usec / 1000,
                                .from = view.from,
                                .to = view.to,
                                .to_port = view.to_port,
                                .size = view.size};
            out->kind = kind_of(p, &view);
            fields_unmap(&out->from);
            fields_unmap(&out->to);
            return 1;
        }
        p->counts.kinds[kind]++;
    }
}

static bool is_address(const struct address_bytes *a, const struct address_bytes *b)
{
    return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

static bool is_to(const struct looked *d, const struct service *service)
{
    return (service->port == 0 || service->port == d->to_port) &&
           (service->address.length == 0 || is_address(&service->address, &d->to));
}

/* By where they go. */
static int compare_targets(const void *a, const void *b)
{
    const struct looked *x = *(const struct looked *const *) a, *y = *(const struct looked *const *) b;
    if (x->to_port != y->to_port) {
        return x->to_port < y->to_port ? -1 : 1;
    }
    if (x->to.length != y->to.length) {
        return x->to.length < y->to.length ? -1 : 1;
    }
    return memcmp(x->to.bytes, y->to.bytes, x->to.length);
}

/* Where most of the datagrams go that were looked at; of two alike, to the lower port. False: out of memory. */
static bool choose_service(struct packets *p)
{
    const size_t size = sizeof(struct looked *);
    const struct looked **order = (const struct looked **) calloc(p->looked_count + 1, size);
    size_t most = 0, run = 0;
    if (order == NULL) {
        return false;
    }
    for (size_t i = 0; i < p->looked_count; i++) {
        order[i] = &p->looked[i];
    }
    qsort((void *) order, p->looked_count, size, compare_targets);
    for (size_t i = 0; i < p->looked_count; i++) {
        run = i != 0 && compare_targets((const void *) &order[i - 1], (const void *) &order[i]) == 0 ? run + 1 : 1;
        if (run > most) {
            most = run;
            p->service = (struct service){order[i]->to, order[i]->to_port};
        }
    }
    free((void *) order);
    return true;
}

/* Looks at the first datagrams. False: out of memory. */
static bool find_service(struct packets *p)
{
    p->found = true;
    p->looked = calloc(LOOKED_AT, sizeof(*p->looked));
    while (p->looked != NULL && p->looked_count < LOOKED_AT && p->ended == 1) {
        p->ended = read_datagram(p, &p->looked[p->looked_count], &p->fault);
        p->looked_count += p->ended == 1;
    }
    return p->looked != NULL && choose_service(p);
}

/* The next datagram: one that was looked at, or one that is read. */
static int next_datagram(struct packets *p, struct looked *out, struct fault *fault)
{
    if (p->looked_at < p->looked_count) {
        *out = p->looked[p->looked_at++];
        return 1;
    }
    if (p->ended != 1) {
        *fault = p->fault;
        return p->ended;
    }
    return read_datagram(p, out, fault);
}

int packets_next(struct packets *p, struct record *out, struct fault *fault)
{
    struct looked d;
    if (p->service.port == 0 && p->service.address.length == 0 && !p->found && !find_service(p)) {
        (void) snprintf(fault->text, sizeof(fault->text), "out of memory");
        return -1;
    }
    for (;;) {
        const int result = next_datagram(p, &d, fault);
        if (result != 1) {
            return result;
        }
        if (is_to(&d, &p->service)) {
            break;
        }
        p->counts.elsewhere++;
    }
    out->time_ms = d.time_ms;
    out->cost = p->selection->bytes ? d.size : 1;
    out->kind = d.kind;
    out->whole = false;
    if (p->selection->key == KEY_ALL) {
        fields_all(out);
    } else {
        fields_set_address(out, &d.from, p->selection, p->scratch);
    }
    return 1;
}

#else

struct packets *packets_open(FILE *file, const struct selection *selection, struct fault *fault)
{
    (void) selection;
    (void) fclose(file);
    (void) snprintf(fault->text, sizeof(fault->text),
                    "is a capture of packets, and this weir was built without libpcap (libpcap-dev)");
    return NULL;
}

void packets_close(struct packets *p)
{
    (void) p;
}

int packets_next(struct packets *p, struct record *out, struct fault *fault)
{
    (void) p;
    (void) out;
    (void) fault;
    return 0;
}

const struct service *packets_service(const struct packets *p, bool *found)
{
    (void) p;
    *found = false;
    return NULL;
}

const struct packet_counts *packets_counts(const struct packets *p)
{
    (void) p;
    return NULL;
}

#endif
