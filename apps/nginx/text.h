/* SPDX-License-Identifier: Apache-2.0 */
/* A text that grows in the pool of a request. */
#ifndef WEIR_NGINX_TEXT_H
#define WEIR_NGINX_TEXT_H

#include <stdbool.h>

#include "nginx_weir.h"

/* Begins as {.pool = pool}. `failed`: there was no memory, and the text is not whole. */
struct text {
    ngx_pool_t *pool;
    char *bytes;
    size_t length;
    size_t size;
    bool failed;
};

/* Appends what printf would print. */
__attribute__((format(printf, 2, 3))) void text_add(struct text *text, const char *format, ...);

/* Appends a text as text of HTML. */
void text_add_html(struct text *text, const char *value);

/* Room for so many more bytes, which the caller fills and then adds to `length`. NULL: no memory. */
char *text_room(struct text *text, size_t size);

#endif
