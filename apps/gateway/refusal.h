/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of a UDP socket by which the other end, or the way to it, refuses packets. */
#ifndef WEIR_GATEWAY_REFUSAL_H
#define WEIR_GATEWAY_REFUSAL_H

#include <errno.h>
#include <stdbool.h>

static inline bool is_refusal(int error)
{
    return error == ECONNREFUSED || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN ||
           error == ENETDOWN || error == EPROTO || error == ENOPROTOOPT || error == EACCES || error == EPERM;
}

#endif
