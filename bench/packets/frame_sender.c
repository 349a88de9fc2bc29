/* SPDX-License-Identifier: Apache-2.0 */
/* See frame_sender.h. */
#include "frame_sender.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
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
    unsigned char frame[FRAMES_LINE + FRAME_MOST]; /* and the pad in front of it */
    size_t size;
};

/* Runs a program on `count` frames. False: errno says why not, or that a signal came. */
static bool run(struct frame_sender *sender, const struct bpf_program *program, size_t size, int count)
{
    struct xdp_md context = {.data_end = (uint32_t) size};
    struct bpf_test_run_opts options = {.sz = sizeof(options),
                                        .data_in = sender->frame,
                                        .data_size_in = (uint32_t) size,
                                        .ctx_in = &context,
                                        .ctx_size_in = sizeof(context),
                                        .repeat = count,
                                        .flags = BPF_F_TEST_XDP_LIVE_FRAMES,
                                        .batch_size = BATCH};
    return bpf_prog_test_run_opts(bpf_program__fd(program), &options) == 0;
}

struct frame_sender *frame_sender_open(const struct frames_to *to, const void *frame, size_t size)
{
    struct frame_sender *sender = calloc(1, sizeof(*sender));
    if (sender == NULL || size > FRAME_MOST) {
        free(sender);
        errno = EINVAL;
        return NULL;
    }
    sender->program = frames_bpf__open_and_load();
    if (sender->program == NULL || !run(sender, sender->program->progs.look_at_frame, FRAMES_LINE, 1)) {
        const int error = errno;
        frames_bpf__destroy(sender->program);
        free(sender);
        errno = error;
        return NULL;
    }
    const size_t pad = (FRAMES_LINE - sender->program->bss->place % FRAMES_LINE) % FRAMES_LINE;
    memcpy(sender->frame + pad, frame, size);
    sender->size = pad + size;
    sender->program->bss->to = *to;
    sender->program->bss->to.pad = (uint32_t) pad;
    return sender;
}

uint64_t frame_sender_run(struct frame_sender *sender)
{
    const bool went = run(sender, sender->program->progs.send_frame, sender->size, INT_MAX);
    return went || errno == EINTR ? sender->program->bss->next : UINT64_MAX;
}
