/* SPDX-License-Identifier: Apache-2.0 */
/* See frame_sender.h. */
#include "frame_sender.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "frames.skel.h"

#define BATCH      64
#define FRAME_MOST 1500

struct frame_sender {
    struct frames_bpf *program;
    unsigned char frame[FRAME_MOST];
    size_t size;
};

struct frame_sender *frame_sender_open(const struct frames_to *to, const void *frame, size_t size)
{
    struct frame_sender *sender = calloc(1, sizeof(*sender));
    if (sender == NULL || size > sizeof(sender->frame)) {
        free(sender);
        errno = EINVAL;
        return NULL;
    }
    memcpy(sender->frame, frame, size);
    sender->size = size;
    sender->program = frames_bpf__open_and_load();
    if (sender->program == NULL) {
        free(sender);
        return NULL;
    }
    sender->program->bss->to = *to;
    return sender;
}

uint64_t frame_sender_run(struct frame_sender *sender)
{
    struct xdp_md context = {.data_end = (uint32_t) sender->size};
    struct bpf_test_run_opts options = {.sz = sizeof(options),
                                        .data_in = sender->frame,
                                        .data_size_in = (uint32_t) sender->size,
                                        .ctx_in = &context,
                                        .ctx_size_in = sizeof(context),
                                        .repeat = INT_MAX,
                                        .flags = BPF_F_TEST_XDP_LIVE_FRAMES,
                                        .batch_size = BATCH};
    const int result = bpf_prog_test_run_opts(bpf_program__fd(sender->program->progs.send_frame), &options);
    return result == 0 || errno == EINTR ? sender->program->bss->next : UINT64_MAX;
}
