/* SPDX-License-Identifier: Apache-2.0 */
/* The full screen of weir top. Adapter to ncurses. */
#ifndef WEIR_TOP_SCREEN_H
#define WEIR_TOP_SCREEN_H

#include "top_view.h"

enum screen_key { KEY_IS_NONE, KEY_IS_QUIT, KEY_IS_SORT, KEY_IS_READ, KEY_IS_PAUSE, KEY_IS_HELP, KEY_IS_REDRAW };

/* Takes the terminal. False: it shows no screen, and `why` says so. */
bool screen_open(bool colour, char *why, size_t size);

/* Gives the terminal back as it was. */
void screen_close(void);

/* Shows a line of a title, and of the view what there is room for. */
void screen_show(const struct top_view *view, const char *title);

/* The next key that is not about scrolling; KEY_IS_NONE: there is none yet. Does not wait. */
enum screen_key screen_key(const struct top_view *view);

#endif
