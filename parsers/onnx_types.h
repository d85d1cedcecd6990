/* SPDX-License-Identifier: MIT */
/* What onnx.c (reading) and onnx_write.c (writing) share: message types, the table of element types, private data. */
#ifndef PARSERS_ONNX_TYPES_H
#define PARSERS_ONNX_TYPES_H

#include "parsers/container/protobuf.h"
#include "parsers/core/dtype.h"
#include "parsers/core/model.h"

/* Field numbers (ONNX 1.23) that both sides need. */
enum {
	MODEL_IR_VERSION = 1, MODEL_PRODUCER_NAME = 2, MODEL_PRODUCER_VERSION = 3, MODEL_VERSION = 5,
	MODEL_DOC_STRING = 6, MODEL_GRAPH = 7, MODEL_OPSET_IMPORT = 8, MODEL_METADATA = 14,
	MODEL_TRAINING = 20, MODEL_FUNCTIONS = 25,
	GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12,
	GRAPH_VALUE_INFO = 13, GRAPH_ANNOTATION = 14, GRAPH_SPARSE = 15,
	NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP_TYPE = 4, NODE_ATTRIBUTE = 5,
	ATTRIBUTE_S = 4, ATTRIBUTE_T = 5, ATTRIBUTE_G = 6, ATTRIBUTE_GRAPHS = 11,
	FUNCTION_OUTPUT = 5, FUNCTION_NODE = 7,
	VALUE_INFO_NAME = 1, VALUE_INFO_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1, TENSOR_TYPE_SHAPE = 2,
	ANNOTATION_TENSOR = 1, ANNOTATION_PARAMETER = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2,
	TENSOR_DIMS = 1, TENSOR_DATA_TYPE = 2, TENSOR_SEGMENT = 3, TENSOR_FLOAT_DATA = 4, TENSOR_INT32_DATA = 5,
	TENSOR_STRING_DATA = 6, TENSOR_INT64_DATA = 7, TENSOR_NAME = 8, TENSOR_RAW_DATA = 9,
	TENSOR_DOUBLE_DATA = 10, TENSOR_UINT64_DATA = 11, TENSOR_EXTERNAL_DATA = 13, TENSOR_DATA_LOCATION = 14,
	TENSOR_RECORD = 500000001,
};

struct onnx_type {
	const char *name;
	enum dtype dtype;
	uint32_t field;    /* typed field that holds the elements when raw_data does not */
	uint8_t width;     /* bytes that each number of it gives */
	enum { TYPED_ONE, TYPED_PAIR, TYPED_BYTE, TYPED_SIX } typed; /* numbers: one an element, two (complex), one a packed
		* byte, one a 6-bit element */
};

/* by TensorProto.DataType */
extern const struct onnx_type onnx_types[];
extern const int32_t onnx_type_count;
int32_t onnx_type_of(enum dtype d); /* 0 = none */

extern const struct pb_type onnx_model_type, onnx_graph_type, onnx_function_type, onnx_node_type, onnx_attribute_type,
	onnx_tensor_type, onnx_value_info_type, onnx_type_type, onnx_tensor_type_type, onnx_annotation_type, onnx_entry_type;

/* tensor->priv: where a tensor lies in the file */
struct onnx_place {
	uint64_t offset, size; /* body of its TensorProto */
	int32_t data_type;
	bool external;
	bool in_attribute;     /* of a node, not an initializer */
	bool sparse;           /* values or indices of a sparse tensor */
	bool string;           /* the bytes of a string attribute: offset and size are the AttributeProto's */
	struct str location;   /* external data file */
	uint64_t external_offset;
};

/* model->priv */
struct onnx_file {
	struct source *src; /* held by the model */
	int64_t ir_version;
	int64_t opset;
	bool training;      /* it has training graphs, whose bindings name tensors */
	uint64_t *graphs;   /* for each of the model's graphs where its message's body begins */
	struct str *beside; /* names in the model's directory; only with external data */
	size_t beside_count;
};

/* properties that tell more of the version than model_version can */
#define ONNX_VERSION_PROPERTY "wiamodel.version"
/* defined by the ONNX specification (IR.md, "Standard metadata") */
#define ONNX_AUTHOR_PROPERTY "model_author"
#define ONNX_LICENSE_PROPERTY "model_license"

#endif
