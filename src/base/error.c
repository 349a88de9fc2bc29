/* SPDX-License-Identifier: Apache-2.0 */
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
