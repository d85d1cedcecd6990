/* SPDX-License-Identifier: MIT */
/* ONNX as data: element types after TensorProto.DataType, and which fields are messages or payloads. */
#include "parsers/onnx_types.h"

const struct onnx_type onnx_types[] = {
	[1] = {"FLOAT", DTYPE_FLOAT32, TENSOR_FLOAT_DATA, 4, TYPED_ONE},
	[2] = {"UINT8", DTYPE_UINT8, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[3] = {"INT8", DTYPE_INT8, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[4] = {"UINT16", DTYPE_UINT16, TENSOR_INT32_DATA, 2, TYPED_ONE},
	[5] = {"INT16", DTYPE_INT16, TENSOR_INT32_DATA, 2, TYPED_ONE},
	[6] = {"INT32", DTYPE_INT32, TENSOR_INT32_DATA, 4, TYPED_ONE},
	[7] = {"INT64", DTYPE_INT64, TENSOR_INT64_DATA, 8, TYPED_ONE},
	[8] = {"STRING", DTYPE_STRING, TENSOR_STRING_DATA, 0, TYPED_ONE},
	[9] = {"BOOL", DTYPE_BOOL, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[10] = {"FLOAT16", DTYPE_FLOAT16, TENSOR_INT32_DATA, 2, TYPED_ONE},
	[11] = {"DOUBLE", DTYPE_FLOAT64, TENSOR_DOUBLE_DATA, 8, TYPED_ONE},
	[12] = {"UINT32", DTYPE_UINT32, TENSOR_UINT64_DATA, 4, TYPED_ONE},
	[13] = {"UINT64", DTYPE_UINT64, TENSOR_UINT64_DATA, 8, TYPED_ONE},
	[14] = {"COMPLEX64", DTYPE_COMPLEX64, TENSOR_FLOAT_DATA, 4, TYPED_PAIR},
	[15] = {"COMPLEX128", DTYPE_COMPLEX128, TENSOR_DOUBLE_DATA, 8, TYPED_PAIR},
	[16] = {"BFLOAT16", DTYPE_BFLOAT16, TENSOR_INT32_DATA, 2, TYPED_ONE},
	[17] = {"FLOAT8E4M3FN", DTYPE_FLOAT8_E4M3FN, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[18] = {"FLOAT8E4M3FNUZ", DTYPE_FLOAT8_E4M3FNUZ, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[19] = {"FLOAT8E5M2", DTYPE_FLOAT8_E5M2, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[20] = {"FLOAT8E5M2FNUZ", DTYPE_FLOAT8_E5M2FNUZ, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[21] = {"UINT4", DTYPE_UINT4, TENSOR_INT32_DATA, 1, TYPED_BYTE},
	[22] = {"INT4", DTYPE_INT4, TENSOR_INT32_DATA, 1, TYPED_BYTE},
	[23] = {"FLOAT4E2M1", DTYPE_FLOAT4_E2M1, TENSOR_INT32_DATA, 1, TYPED_BYTE},
	[24] = {"FLOAT8E8M0", DTYPE_FLOAT8_E8M0FNU, TENSOR_INT32_DATA, 1, TYPED_ONE},
	[25] = {"UINT2", DTYPE_UINT2, TENSOR_INT32_DATA, 1, TYPED_BYTE},
	[26] = {"INT2", DTYPE_INT2, TENSOR_INT32_DATA, 1, TYPED_BYTE},
	[27] = {"FLOAT6E2M3", DTYPE_FLOAT6_E2M3, TENSOR_INT32_DATA, 1, TYPED_SIX},
	[28] = {"FLOAT6E3M2", DTYPE_FLOAT6_E3M2, TENSOR_INT32_DATA, 1, TYPED_SIX},
};
const int32_t onnx_type_count = sizeof(onnx_types) / sizeof(onnx_types[0]);

int32_t onnx_type_of(enum dtype d)
{
	for (int32_t i = 1; i < onnx_type_count; i++)
		if (onnx_types[i].dtype == d)
			return i;
	return 0;
}

#define FIELDS(f) (f), sizeof(f) / sizeof((f)[0])

static const struct pb_field tensor_fields[] = {
	{TENSOR_FLOAT_DATA, PB_NUMBERS, NULL}, {TENSOR_INT32_DATA, PB_NUMBERS, NULL},
	{TENSOR_INT64_DATA, PB_NUMBERS, NULL}, {TENSOR_RAW_DATA, PB_BLOB, NULL},
	{TENSOR_DOUBLE_DATA, PB_NUMBERS, NULL}, {TENSOR_UINT64_DATA, PB_NUMBERS, NULL},
};
const struct pb_type onnx_tensor_type = {"TensorProto", FIELDS(tensor_fields), TENSOR_RECORD, 0};

static const struct pb_field sparse_fields[] = {{1, PB_MESSAGE, &onnx_tensor_type}, {2, PB_MESSAGE, &onnx_tensor_type}};
static const struct pb_type sparse_type = {"SparseTensorProto", FIELDS(sparse_fields), 0, 0};

static const struct pb_type dimension_type = {"Dimension", NULL, 0, 0, 0};
static const struct pb_field shape_fields[] = {{1, PB_MESSAGE, &dimension_type}};
static const struct pb_type shape_type = {"TensorShapeProto", FIELDS(shape_fields), 0, 0};
static const struct pb_field tensor_type_fields[] = {{2, PB_MESSAGE, &shape_type}};
const struct pb_type onnx_tensor_type_type = {"TypeProto.Tensor", FIELDS(tensor_type_fields), 0, 0};
static const struct pb_field element_fields[] = {{1, PB_MESSAGE, &onnx_type_type}};
static const struct pb_type element_type = {"TypeProto.Sequence", FIELDS(element_fields), 0, 0};
static const struct pb_field map_fields[] = {{2, PB_MESSAGE, &onnx_type_type}};
static const struct pb_type map_type = {"TypeProto.Map", FIELDS(map_fields), 0, 0};
static const struct pb_field type_fields[] = {
	{1, PB_MESSAGE, &onnx_tensor_type_type}, {4, PB_MESSAGE, &element_type}, {5, PB_MESSAGE, &map_type},
	{8, PB_MESSAGE, &onnx_tensor_type_type}, {9, PB_MESSAGE, &element_type},
};
const struct pb_type onnx_type_type = {"TypeProto", FIELDS(type_fields), 0, 0};
static const struct pb_field value_info_fields[] = {{2, PB_MESSAGE, &onnx_type_type}};
const struct pb_type onnx_value_info_type = {"ValueInfoProto", FIELDS(value_info_fields), 0, 0};

/* Names inside annotations and nodes are plain fields; the tables list what has to be opened. */
const struct pb_type onnx_entry_type = {"StringStringEntryProto", NULL, 0, 0, 0};
static const struct pb_field annotation_fields[] = {{2, PB_MESSAGE, &onnx_entry_type}};
const struct pb_type onnx_annotation_type = {"TensorAnnotation", FIELDS(annotation_fields), 0, 0};

/* an engine blob in a string attribute is shown as a tensor of bytes rather than kept in memory */
static const struct pb_field attribute_fields[] = {
	{ATTRIBUTE_S, PB_BLOB, NULL}, {ATTRIBUTE_T, PB_MESSAGE, &onnx_tensor_type}, {ATTRIBUTE_G, PB_MESSAGE, &onnx_graph_type},
	{10, PB_MESSAGE, &onnx_tensor_type}, {ATTRIBUTE_GRAPHS, PB_MESSAGE, &onnx_graph_type}, {14, PB_MESSAGE, &onnx_type_type},
	{15, PB_MESSAGE, &onnx_type_type}, {22, PB_MESSAGE, &sparse_type}, {23, PB_MESSAGE, &sparse_type},
};
const struct pb_type onnx_attribute_type = {"AttributeProto", FIELDS(attribute_fields), TENSOR_RECORD, 65536};
static const struct pb_field node_fields[] = {{NODE_ATTRIBUTE, PB_MESSAGE, &onnx_attribute_type}};
const struct pb_type onnx_node_type = {"NodeProto", FIELDS(node_fields), 0, 0};
static const struct pb_field graph_fields[] = {
	{GRAPH_NODE, PB_MESSAGE, &onnx_node_type}, {GRAPH_INITIALIZER, PB_MESSAGE, &onnx_tensor_type},
	{GRAPH_INPUT, PB_MESSAGE, &onnx_value_info_type}, {GRAPH_OUTPUT, PB_MESSAGE, &onnx_value_info_type},
	{GRAPH_VALUE_INFO, PB_MESSAGE, &onnx_value_info_type}, {GRAPH_ANNOTATION, PB_MESSAGE, &onnx_annotation_type},
	{GRAPH_SPARSE, PB_MESSAGE, &sparse_type},
};
const struct pb_type onnx_graph_type = {"GraphProto", FIELDS(graph_fields), TENSOR_RECORD, 0};

static const struct pb_field training_fields[] = {{1, PB_MESSAGE, &onnx_graph_type}, {2, PB_MESSAGE, &onnx_graph_type}};
static const struct pb_type training_type = {"TrainingInfoProto", FIELDS(training_fields), 0, 0};
static const struct pb_field function_fields[] = {
	{FUNCTION_NODE, PB_MESSAGE, &onnx_node_type}, {11, PB_MESSAGE, &onnx_attribute_type}, {12, PB_MESSAGE, &onnx_value_info_type},
};
const struct pb_type onnx_function_type = {"FunctionProto", FIELDS(function_fields), TENSOR_RECORD, 0};
static const struct pb_field model_fields[] = {
	{MODEL_GRAPH, PB_MESSAGE, &onnx_graph_type}, {MODEL_TRAINING, PB_MESSAGE, &training_type}, {MODEL_FUNCTIONS, PB_MESSAGE, &onnx_function_type},
	{MODEL_METADATA, PB_MESSAGE, &onnx_entry_type},
};
const struct pb_type onnx_model_type = {"ModelProto", FIELDS(model_fields), 0, 0};
