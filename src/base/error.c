/* SPDX-License-Identifier: Apache-2.0 */
/* See error.h. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

int error_set(weir_error *error, int code, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->code = code;
        va_start(arguments, format);
        (void) vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
        /* The sentence may quote text from outside, and is shown to people. */
        for (char *c = error->message; *c != '\0'; c++) {
            *c = (unsigned char) *c < ' ' || (unsigned char) *c >= 0x7f ? '?' : *c;
        }
    }
    return code;
}

int error_clear(weir_error *error)
{
    if (error != NULL) {
        error->code = 0;
        error->message[0] = '\0';
    }
    return 0;
}
