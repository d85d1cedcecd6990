/* SPDX-License-Identifier: MIT */
/*
 * dtype: what the elements of a tensor are, as one table. A dtype says how elements are encoded in
 * little-endian C order; drivers map their own enumerations to it by tables of their own.
 *
 * Elements are stored in blocks: `block` elements in `block_bytes` bytes. Ordinary types have block 1.
 * Sub-byte types pack from the lowest bit, one flat run for the whole tensor: int4 has block 2 in 1 byte,
 * float6 block 4 in 3 bytes; an odd rest takes a whole byte. Block-quantised types (GGUF) keep scales
 * inside the block.
 */
#ifndef PARSERS_CORE_DTYPE_H
#define PARSERS_CORE_DTYPE_H

#include "parsers/core/error.h"
#include "parsers/core/str.h"

enum dtype {
	DTYPE_NONE, /* unknown: raw bytes only */
	DTYPE_BOOL,
	DTYPE_INT8,
	DTYPE_INT16,
	DTYPE_INT32,
	DTYPE_INT64,
	DTYPE_UINT8,
	DTYPE_UINT16,
	DTYPE_UINT32,
	DTYPE_UINT64,
	DTYPE_FLOAT16,
	DTYPE_FLOAT32,
	DTYPE_FLOAT64,
	DTYPE_FLOAT128, /* x86 long double in 16 bytes, NumPy's <f16; shown raw and as such */
	DTYPE_BFLOAT16,
	DTYPE_COMPLEX32, /* two float16 */
	DTYPE_COMPLEX64,
	DTYPE_COMPLEX128,
	DTYPE_FLOAT8_E4M3FN,
	DTYPE_FLOAT8_E4M3FNUZ,
	DTYPE_FLOAT8_E5M2,
	DTYPE_FLOAT8_E5M2FNUZ,
	DTYPE_FLOAT8_E8M0FNU,
	DTYPE_FLOAT6_E2M3,
	DTYPE_FLOAT6_E3M2,
	DTYPE_FLOAT4_E2M1,
	DTYPE_INT4,
	DTYPE_UINT4,
	DTYPE_INT2,
	DTYPE_UINT2,
	DTYPE_STRING, /* struct tensor.strings; raw/ shows u32 little-endian length + bytes for each */
	DTYPE_COUNT,
};

enum dtype_kind { KIND_OPAQUE, KIND_BOOL, KIND_INT, KIND_UINT, KIND_FLOAT, KIND_COMPLEX, KIND_STRING };

struct dtype_info {
	const char *name; /* shown everywhere: "bfloat16", "float8_e4m3fn", "int4" */
	enum dtype_kind kind;
	uint8_t block;        /* elements per block; 0 for string */
	uint8_t block_bytes;  /* bytes per block */
	uint8_t swap;         /* unit of byte order in bytes: 1 = none; complex64: 4 */
	enum dtype npy;       /* the type a .npy shows: itself or what it widens to exactly */
	const char *descr;    /* NumPy descr of that shown type, little-endian: "<f4" */
	const char *descr_bits; /* -o npy=bits: the ml_dtypes spelling of the stored bits, "<V2"; NULL = descr */
};

const struct dtype_info *dtype_info(enum dtype d);
/* by the shown name; DTYPE_NONE when unknown */
enum dtype dtype_by_name(struct str name);

/* Bytes that `count` elements take; -EOVERFLOW when they do not fit 63 bits. */
int dtype_bytes(enum dtype d, uint64_t count, uint64_t *bytes);
/* Product of a shape; 1 for rank 0; -EOVERFLOW beyond 2^63-1. A zero anywhere gives 0 (after the others
 * were checked for overflow as NumPy does: without the zeros). */
int shape_count(const uint64_t *shape, uint32_t rank, uint64_t *count);

/*
 * Decodes whole blocks from `in` (stored bits, little-endian) to the type dtype_info(d)->npy; the last
 * block may be partial. count elements; out has count * size of npy type. Exact for every type.
 */
void dtype_decode(enum dtype d, const void *in, uint64_t count, void *out);
/*
 * Encodes count elements of type `from` (an ordinary type, little-endian) to the stored bits of d: exact
 * where it is exact, round to nearest even where precision is lost, -ERANGE when a finite value would
 * overflow, a NaN has no place, an integer does not fit or a fraction would be cut in an integer type.
 * *bad gets the index of the first such element.
 */
int dtype_encode(enum dtype d, enum dtype from, const void *in, uint64_t count, void *out, uint64_t *bad);
/* in place, count elements with dtype_info(d)->swap units */
void dtype_swap(enum dtype d, void *data, uint64_t count);

#endif
