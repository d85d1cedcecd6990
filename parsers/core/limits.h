/* SPDX-License-Identifier: MIT */
/*
 * limits: the largest counts, lengths and depths that a file may ask of us, each with its reason. A
 * number from a file is compared with its limit and with the bytes remaining before memory is taken.
 */
#ifndef PARSERS_CORE_LIMITS_H
#define PARSERS_CORE_LIMITS_H

/* protobuf's own default nesting limit; every framework's loader has it too */
#define LIMIT_PROTOBUF_DEPTH 100
/* nesting of JSON, pickle, MessagePack, HDF5 groups; real files stay below 30 */
#define LIMIT_NESTING 200
/* NumPy 2 stops at 64 dimensions, no format of the mission needs more */
#define LIMIT_RANK 64
/* all strings, arrays and indexes of one model; 100,000 ops take about 60 MB */
#define LIMIT_MODEL_MEMORY (4ull << 30)
/* tensors, ops, graphs: ids are 32 bits, and some are reserved by the inode encoding */
#define LIMIT_TENSORS (1u << 26)
#define LIMIT_OPS (1u << 26)
#define LIMIT_GRAPHS (1u << 20)
/* inputs or outputs of one op; Linux links per directory are not limited, our inodes are */
#define LIMIT_OP_EDGES (1u << 20)
/* one metadata document written by a user or held by a container */
#define LIMIT_METADATA (256u << 20)
/* the header of safetensors, as its reference loader limits it */
#define LIMIT_SAFETENSORS_HEADER 100000000u
/* header text of .npy: NumPy's own max_header_size is 10000 */
#define LIMIT_NPY_HEADER 65536u
/* one file name; Linux NAME_MAX */
#define LIMIT_NAME 255
/* an elided protobuf payload: fields shorter than this stay in the skeleton */
#define LIMIT_INLINE_PAYLOAD 64u
/* decoded blocks kept by one mount, bytes */
#define LIMIT_CACHE (8u << 20)

#endif
