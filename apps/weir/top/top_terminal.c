/* SPDX-License-Identifier: Apache-2.0 */
/* See top_terminal.h. newterm() keeps memory where it does not know the terminal, so it is not asked then. */
#include "top_terminal.h"

#include <unistd.h>

#include <curses.h>
#include <term.h>

bool terminal_is_known(const char *term)
{
    int known = 0;
    if (setupterm(term, STDOUT_FILENO, &known) != OK) {
        return false;
    }
    (void) del_curterm(cur_term);
    return true;
}
