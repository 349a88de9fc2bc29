/* SPDX-License-Identifier: Apache-2.0 */
/* See rare_line.h. */
#include "rare_line.h"

#define MINUTE_MS 60000

const char *rare_line_end(struct rare_line *line, char end[RARE_LINE_END_SIZE])
{
    if (line->written && (ngx_msec_int_t) (ngx_current_msec - line->next) < 0) {
        line->left++;
        return NULL;
    }
    end[0] = '\0';
    if (line->left != 0) {
        *ngx_sprintf((u_char *) end, "; %ui more since the last such line", line->left) = '\0';
    }
    *line = (struct rare_line){.written = true, .next = ngx_current_msec + MINUTE_MS};
    return end;
}
