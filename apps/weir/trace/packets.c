/* SPDX-License-Identifier: Apache-2.0 */
/* See packets.h. */
#include "packets.h"

#include <stdlib.h>
#include <string.h>
#ifdef WEIR_HAS_PCAP
#include <pcap/pcap.h>
#endif

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

struct packets {
    pcap_t *pcap;
    const struct selection *selection;
    int link;
    char scratch[16];
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
    *p = (struct packets){.pcap = pcap, .selection = selection, .link = pcap_datalink(pcap)};
    return p;
}

void packets_close(struct packets *p)
{
    if (p != NULL) {
        pcap_close(p->pcap);
        free(p);
    }
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

/* The source address of an IP packet as the key. */
static bool take_source(struct packets *p, const unsigned char *packet, size_t size, struct record *out)
{
    const unsigned version = size != 0 ? packet[0] >> 4 : 0;
    if (version == 4 && size >= 20) {
        memcpy(p->scratch, packet + 12, 4);
        out->length = 4;
    } else if (version == 6 && size >= 40) {
        memcpy(p->scratch, packet + 8, 16);
        out->length = p->selection->prefix / 8;
    } else {
        return false;
    }
    out->key = p->scratch;
    out->address = true;
    return true;
}

int packets_next(struct packets *p, struct record *out, uint64_t *malformed, struct fault *fault)
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
        const size_t at = payload_of(p->link, frame, header->caplen);
        out->time_ms = (uint64_t) header->ts.tv_sec * 1000 + (uint64_t) header->ts.tv_usec / 1000;
        out->cost = p->selection->bytes ? header->len : 1;
        out->whole = false;
        if (at < header->caplen && take_source(p, frame + at, header->caplen - at, out)) {
            return 1;
        }
        ++*malformed;
    }
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

int packets_next(struct packets *p, struct record *out, uint64_t *malformed, struct fault *fault)
{
    (void) p;
    (void) out;
    (void) malformed;
    (void) fault;
    return 0;
}

#endif
