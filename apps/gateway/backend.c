/* SPDX-License-Identifier: Apache-2.0 */
#include "backend.h"

#include <errno.h>
#include <string.h>

#include "log.h"

#define SILENT_SECONDS 3

bool backend_is_refusal(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == EPROTO || error == ENOPROTOOPT || error == EACCES || error == EPERM;
}

void backend_refused(struct backend_view *view, int error, uint32_t now)
{
    struct backend *backend = view->backend;
    view->tried_at = 0;
    atomic_store_explicit(&backend->refused_at, now, memory_order_relaxed);
    if (!atomic_load_explicit(&backend->refuses, memory_order_relaxed) && !atomic_exchange(&backend->refuses, true)) {
        log_line(WEIR_LOG_WARNING, "the backend %s refuses packets: %s", backend->text, strerror(error));
    }
}

void backend_watch(struct backend_view *view, bool sent, bool replied, uint32_t now)
{
    struct backend *backend = view->backend;
    if (!atomic_load_explicit(&backend->refuses, memory_order_relaxed)) {
        return;
    }
    /* Another thread may have just been refused, in a second that has begun since `now` was read. */
    const uint32_t refused_at = atomic_load_explicit(&backend->refused_at, memory_order_relaxed);
    if (now <= refused_at) {
        view->tried_at = 0;
        return;
    }
    if (view->tried_at <= refused_at) {
        view->tried_at = sent ? now : 0;
    }
    if ((replied || (view->tried_at != 0 && now - view->tried_at >= SILENT_SECONDS)) &&
        atomic_exchange(&backend->refuses, false)) {
        log_line(WEIR_LOG_INFO, "the backend %s accepts packets again", backend->text);
    }
}
