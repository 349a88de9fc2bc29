/* SPDX-License-Identifier: Apache-2.0 */
/* See quote.h. */
#include "quote.h"

#include <string.h>

#include "base/plain.h"

const char *quote(char out[QUOTE_SIZE], const unsigned char *value, size_t length)
{
    const size_t at = plain_bytes(out, QUOTE_SIZE, value, length < QUOTE_MOST ? length : QUOTE_MOST);
    if (length > QUOTE_MOST) {
        memcpy(out + at, "...", sizeof("..."));
    }
    return out;
}
