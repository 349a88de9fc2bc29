/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory reserved at open: zeroed, page aligned, on huge pages where the kernel gives them. None of these pages is
 * shared by two reservations, so what is not present stays so until it is touched.
 */
#ifndef WEIR_BASE_PAGES_H
#define WEIR_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>

/* NULL: none to be had. `present`: every page is there at once, so that no first touch of one stalls a check. */
void *pages_reserve(size_t size, bool present);

/* The same for what is hardly ever used, here and there: small pages, present where they are touched. */
void *pages_reserve_sparse(size_t size);

/* NULL is allowed. */
void pages_release(void *memory, size_t size);

#endif
