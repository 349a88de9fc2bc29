/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener makes of a weir's memory that nobody else has, once it has entered (named.h): it can be used then,
 * whatever was written to it. See docs/decisions/023-named-segments.md for what is kept.
 */
#ifndef WEIR_LIMITER_WEIR_SALVAGE_H
#define WEIR_LIMITER_WEIR_SALVAGE_H

#include "weir/weir.h"

/*
 * All parts are taken (weir_parts.h). 0, or a negative errno with a sentence; -EUCLEAN: the policies in force cannot be
 * read, so that nothing is known of the keys.
 */
int weir_salvage(weir *w, weir_error *error);

#endif
