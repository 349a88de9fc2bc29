/* SPDX-License-Identifier: Apache-2.0 */
/* What the compiler is told, and the machine's numbers. */
#ifndef WEIR_BASE_COMPILER_H
#define WEIR_BASE_COMPILER_H

#define CACHE_LINE 64

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#endif
