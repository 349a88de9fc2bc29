/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a terminal is known; apart from top_screen.c, as <term.h> takes many names as macros. */
#ifndef WEIR_COMMAND_TOP_TERMINAL_H
#define WEIR_COMMAND_TOP_TERMINAL_H

#include <stdbool.h>

/* Whether there is a description of a terminal of that name. */
bool terminal_is_known(const char *term);

#endif
