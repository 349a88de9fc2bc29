/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the error log that a client can provoke with each request, but for those of refusals, which are nginx's own.
 * A worker writes such a line at once, and then at most once a minute, with how often the reason came up meanwhile.
 */
#ifndef WEIR_NGINX_RARE_LINE_H
#define WEIR_NGINX_RARE_LINE_H

#include "nginx_weir.h"

/* Of one line, as one directive writes it. Begins as zeros. */
struct rare_line {
    bool written;
    ngx_msec_t next; /* no line before that */
    ngx_uint_t left; /* out since the last one */
};

#define RARE_LINE_END_SIZE 80

/* NULL: the line is not written now. Else what it ends with, in `end`. */
const char *rare_line_end(struct rare_line *line, char end[RARE_LINE_END_SIZE]);

#endif
