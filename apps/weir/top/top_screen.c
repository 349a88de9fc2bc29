/* SPDX-License-Identifier: Apache-2.0 */
/* See top_screen.h. */
#include "top_screen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ncurses.h>

#include "top_terminal.h"

static SCREEN *terminal;
static size_t first; /* line of the view at the top of the screen */

/* Pairs of colours. */
enum { PAIR_GOOD = 1, PAIR_BAD };

bool screen_open(bool colour, char *why, size_t size)
{
    const char *term = getenv("TERM");
    if (isatty(STDOUT_FILENO) == 0 || isatty(STDIN_FILENO) == 0) {
        (void) snprintf(why, size, "standard input and output are no terminal; --once prints once");
        return false;
    }
    if (term == NULL || *term == '\0' || strcmp(term, "dumb") == 0) {
        (void) snprintf(why, size, "TERM is \"%.40s\", a terminal without a full screen; --once prints once",
                        term != NULL ? term : "");
        return false;
    }
    terminal = terminal_is_known(term) ? newterm(NULL, stdout, stdin) : NULL;
    if (terminal == NULL) {
        (void) snprintf(why, size, "TERM is \"%.40s\", which is not known here; --once prints once", term);
        return false;
    }
    first = 0;
    (void) cbreak();
    (void) noecho();
    (void) keypad(stdscr, TRUE);
    (void) nodelay(stdscr, TRUE);
    (void) curs_set(0);
    if (colour && has_colors()) {
        (void) start_color();
        (void) use_default_colors();
        (void) init_pair(PAIR_GOOD, COLOR_GREEN, -1);
        (void) init_pair(PAIR_BAD, COLOR_RED, -1);
    }
    return true;
}

void screen_close(void)
{
    if (terminal != NULL) {
        (void) endwin();
        delscreen(terminal);
        terminal = NULL;
    }
}

/* What is bad is bold as well: it can be told without colours. */
static void set_style(enum style style)
{
    attr_t attributes = style == STYLE_NAME || style == STYLE_BAD ? A_BOLD : A_NORMAL;
    if (has_colors() && (style == STYLE_BAD || style == STYLE_GOOD)) {
        attributes |= (attr_t) COLOR_PAIR(style == STYLE_BAD ? PAIR_BAD : PAIR_GOOD);
    }
    (void) attrset((int) attributes);
}

/* The greatest `first` that leaves no room below the last line. */
static size_t last_first(const struct top_view *view)
{
    const size_t rows = LINES > 1 ? (size_t) LINES - 1 : 0;
    return view->count > rows ? view->count - rows : 0;
}

void screen_show(const struct top_view *view, const char *title)
{
    const size_t most = last_first(view);
    first = first < most ? first : most;
    (void) erase();
    (void) attrset(A_REVERSE);
    (void) mvhline(0, 0, ' ', COLS);
    (void) mvaddnstr(0, 0, title, COLS);
    for (int row = 1; row < LINES && first + (size_t) row - 1 < view->count; row++) {
        const struct view_line *line = &view->lines[first + (size_t) row - 1];
        set_style(line->style);
        (void) mvaddnstr(row, 0, line->text, COLS);
    }
    (void) attrset(A_NORMAL);
    (void) refresh();
}

static void scroll_by(const struct top_view *view, long lines)
{
    const long most = (long) last_first(view);
    const long to = (long) first + lines;
    first = (size_t) (to < 0 ? 0 : to < most ? to : most);
}

/* Whether a key was about scrolling. */
static bool scrolls(const struct top_view *view, int key)
{
    const long page = LINES > 2 ? LINES - 2 : 1;
    const long all = (long) view->count;
    const struct {
        int key;
        long lines;
    } keys[] = {{KEY_UP, -1},       {'k', -1},         {KEY_DOWN, 1},    {'j', 1},
                {KEY_PPAGE, -page}, {KEY_NPAGE, page}, {KEY_HOME, -all}, {KEY_END, all}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (keys[i].key == key) {
            scroll_by(view, keys[i].lines);
            return true;
        }
    }
    return false;
}

enum screen_key screen_key(const struct top_view *view)
{
    const int key = getch();
    if (key == ERR) {
        return KEY_IS_NONE;
    }
    if (key == KEY_RESIZE || scrolls(view, key)) {
        return KEY_IS_REDRAW;
    }
    switch (key) {
    case 'q':
    case 'Q':
    case 27: /* Esc */
        return KEY_IS_QUIT;
    case 's':
        return KEY_IS_SORT;
    case ' ':
        return KEY_IS_READ;
    case 'p':
        return KEY_IS_PAUSE;
    case 'h':
    case '?':
    case KEY_F(1):
        return KEY_IS_HELP;
    case 12: /* Ctrl-L */
        (void) clearok(curscr, TRUE);
        return KEY_IS_REDRAW;
    default:
        return KEY_IS_REDRAW;
    }
}
