/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Warnings of `nginx -t` about a `weir` that requests may never be asked.
 *
 * A request is decided once, in the first location that asks anything. Where an internal redirect (try_files, index,
 * error_page, X-Accel-Redirect) brings it to another location, that location asks nothing, unless it has
 * `weir_ask_again on`. A configuration does not show which requests are redirected where. So a location is named that
 * has a `weir` of its own
 *
 *   where its server, or a location around it, asks something, or
 *   that only redirects lead to (`internal`, or a name with '@'), where another location of the server asks something,
 *
 * and nobody is warned who has said `weir_ask_again`, on or off.
 */
#ifndef WEIR_NGINX_REDIRECT_H
#define WEIR_NGINX_REDIRECT_H

#include "http_weir.h"

/*
 * A location that asks something.
 *
 * server    whose it is
 * own       its own first check; NULL: it has those outside, or limits alone
 * shadowed  what is outside asks something, too
 * internal  only redirects and subrequests lead to it
 * unsaid    nobody has said whether it asks again
 */
struct place {
    const void *server;
    const struct check *own;
    bool shadowed;
    bool internal;
    bool unsaid;
};

/* Before a location takes over what is outside: notes what it asks. False: there is no memory. */
bool redirect_note(struct http_weir *http, ngx_conf_t *cf, const struct location *outside,
                   const struct location *location);

/* When all directives are read: a line for each location that is to be named. */
void redirect_warn(const struct http_weir *http, ngx_conf_t *cf);

#endif
