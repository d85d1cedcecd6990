/* SPDX-License-Identifier: MIT */
/*
 * Checked arithmetic, named as in C23's <stdckdint.h>: true when the result does not fit. Every sum
 * or product with a number from a file goes through these.
 */
#ifndef PARSERS_CORE_CHECK_H
#define PARSERS_CORE_CHECK_H

#define ckd_add(result, a, b) __builtin_add_overflow((a), (b), (result))
#define ckd_sub(result, a, b) __builtin_sub_overflow((a), (b), (result))
#define ckd_mul(result, a, b) __builtin_mul_overflow((a), (b), (result))

#endif
