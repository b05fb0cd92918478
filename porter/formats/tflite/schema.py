"""The numbers of TensorFlow Lite's schema (tensorflow/lite/schema/schema.fbs): fields by their places in its
tables, what its enumerations count, and the options of operators.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.name_tables import by_name
from porter.formats.tflite.flatbuffer import Field


def _flag(place: int) -> Field:
    return Field(place, "?", False)


# Fields of the schema's tables.
MODEL_CODES, MODEL_GRAPHS, MODEL_BUFFERS = 1, 2, 4
BYTE_CODE, BUILTIN_CODE = Field(0, "b"), Field(3, "i")
CUSTOM_CODE = 1
GRAPH_TENSORS, GRAPH_OPERATORS = 0, 3
GRAPH_INPUTS, GRAPH_OUTPUTS = Field(1, "i4"), Field(2, "i4")
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER = Field(0, "i4"), Field(1, "b"), Field(2, "I")
TENSOR_NAME, TENSOR_QUANTISATION, TENSOR_SPARSITY = 3, 4, 6
TENSOR_SHAPE_SIGNATURE = Field(7, "i4")
SCALE, ZERO_POINT, QUANTISED_AXIS = Field(2, "f4"), Field(3, "i8"), Field(6, "i")
OPERATOR_CODE, OPERATOR_INPUTS, OPERATOR_OUTPUTS = Field(0, "I"), Field(1, "i4"), Field(2, "i4")
OPERATOR_OPTIONS = 4
BUFFER_DATA, BUFFER_OFFSET, BUFFER_SIZE = Field(0, "u1"), Field(1, "Q"), Field(2, "Q")
NUMPY_TYPES = {
    0: "f4",
    1: "f2",
    2: "i4",
    3: "u1",
    4: "i8",
    6: "?",
    7: "i2",
    9: "i1",
    10: "f8",
    12: "u8",
    15: "u4",
    16: "u2",
}
"""The types of numpy by the numbers of the schema's TensorType."""
QUANTISED = (3, 7, 9, 17, 19, 20)
"""UINT8, INT16, INT8, INT4, INT2 and UINT4 of the schema's TensorType, if they state a scale."""
OPERATOR_CODES = {
    0: "ADD",
    1: "AVERAGE_POOL_2D",
    2: "CONCATENATION",
    3: "CONV_2D",
    4: "DEPTHWISE_CONV_2D",
    5: "DEPTH_TO_SPACE",
    6: "DEQUANTIZE",
    8: "FLOOR",
    9: "FULLY_CONNECTED",
    11: "L2_NORMALIZATION",
    12: "L2_POOL_2D",
    13: "LOCAL_RESPONSE_NORMALIZATION",
    14: "LOGISTIC",
    16: "LSTM",
    17: "MAX_POOL_2D",
    18: "MUL",
    19: "RELU",
    20: "RELU_N1_TO_1",
    21: "RELU6",
    22: "RESHAPE",
    23: "RESIZE_BILINEAR",
    24: "RNN",
    25: "SOFTMAX",
    26: "SPACE_TO_DEPTH",
    27: "SVDF",
    28: "TANH",
    31: "CALL",
    32: "CUSTOM",
    34: "PAD",
    36: "GATHER",
    37: "BATCH_TO_SPACE_ND",
    38: "SPACE_TO_BATCH_ND",
    39: "TRANSPOSE",
    40: "MEAN",
    41: "SUB",
    42: "DIV",
    43: "SQUEEZE",
    45: "STRIDED_SLICE",
    47: "EXP",
    48: "TOPK_V2",
    49: "SPLIT",
    50: "LOG_SOFTMAX",
    53: "CAST",
    54: "PRELU",
    55: "MAXIMUM",
    56: "ARG_MAX",
    57: "MINIMUM",
    58: "LESS",
    59: "NEG",
    60: "PADV2",
    61: "GREATER",
    62: "GREATER_EQUAL",
    63: "LESS_EQUAL",
    64: "SELECT",
    65: "SLICE",
    66: "SIN",
    67: "TRANSPOSE_CONV",
    69: "TILE",
    70: "EXPAND_DIMS",
    71: "EQUAL",
    72: "NOT_EQUAL",
    73: "LOG",
    74: "SUM",
    75: "SQRT",
    76: "RSQRT",
    77: "SHAPE",
    78: "POW",
    79: "ARG_MIN",
    80: "FAKE_QUANT",
    81: "REDUCE_PROD",
    82: "REDUCE_MAX",
    83: "PACK",
    84: "LOGICAL_OR",
    85: "ONE_HOT",
    86: "LOGICAL_AND",
    87: "LOGICAL_NOT",
    88: "UNPACK",
    89: "REDUCE_MIN",
    90: "FLOOR_DIV",
    91: "REDUCE_ANY",
    92: "SQUARE",
    93: "ZEROS_LIKE",
    94: "FILL",
    95: "FLOOR_MOD",
    96: "RANGE",
    97: "RESIZE_NEAREST_NEIGHBOR",
    98: "LEAKY_RELU",
    99: "SQUARED_DIFFERENCE",
    100: "MIRROR_PAD",
    101: "ABS",
    102: "SPLIT_V",
    103: "UNIQUE",
    104: "CEIL",
    105: "REVERSE_V2",
    106: "ADD_N",
    107: "GATHER_ND",
    108: "COS",
    109: "WHERE",
    110: "RANK",
    111: "ELU",
    114: "QUANTIZE",
    116: "ROUND",
    117: "HARD_SWISH",
    118: "IF",
    119: "WHILE",
    123: "SELECT_V2",
    124: "DENSIFY",
    126: "BATCH_MATMUL",
    128: "CUMSUM",
    129: "CALL_ONCE",
    130: "BROADCAST_TO",
    150: "GELU",
    152: "RELU_0_TO_1",
    158: "SIGN",
}
"""The schema's BuiltinOperator by number, as far as vision models have them."""
FLOAT32, FLOAT16, UINT8, INT8 = 0, 1, 3, 9
"""Some numbers of the schema's TensorType."""
PADDINGS = {0: "SAME", 1: "VALID"}
"""The schema's Padding by number."""
ACTIVATIONS = {0: "", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH", 5: "SIGN_BIT"}
"""The schema's ActivationFunctionType by number."""
ACTIVATION_FIELDS = by_name(
    {
        "ADD DIV FULLY_CONNECTED L2_NORMALIZATION MUL SUB": Field(0, "b"),
        "CONCATENATION": Field(1, "b"),
        "CONV_2D TRANSPOSE_CONV": Field(3, "b"),
        "DEPTHWISE_CONV_2D": Field(4, "b"),
        "AVERAGE_POOL_2D MAX_POOL_2D": Field(5, "b"),
    }
)
"""Where the options of an operator have its activation."""

# Options of operators.
PADDING = Field(0, "b")
STRIDES = Field(2, "i"), Field(1, "i")
"""The strides of every window, of rows and then of columns, as all pairs here are."""
DILATIONS = {
    "CONV_2D": (Field(5, "i", 1), Field(4, "i", 1)),
    "DEPTHWISE_CONV_2D": (Field(6, "i", 1), Field(5, "i", 1)),
}
POOL_SIDES = Field(4, "i"), Field(3, "i")
WEIGHTS_FORMAT = Field(1, "b")
KEEP_NUM_DIMS = _flag(2)
ADJ_X, ADJ_Y = _flag(0), _flag(1)
KEEP_DIMS = _flag(0)
CONCATENATION_AXIS = Field(0, "i")
GATHER_AXIS, GATHER_BATCH_DIMS = Field(0, "i"), Field(1, "i")
PACK_AXIS = UNPACK_AXIS = Field(1, "i")
BLOCK_SIZE = Field(0, "i")
RADIUS, BIAS, ALPHA, BETA = Field(0, "i"), Field(1, "f"), Field(2, "f"), Field(3, "f")
"""The options of LOCAL_RESPONSE_NORMALIZATION."""
SOFTMAX_BETA = Field(0, "f", 1.0)
LEAKY_RELU_ALPHA = Field(0, "f", 0.0)
GELU_APPROXIMATE = _flag(0)
CUMSUM_EXCLUSIVE, CUMSUM_REVERSE = _flag(0), _flag(1)
CAST_FROM, CAST_TO = Field(0, "b"), Field(1, "b")
MIRROR_PAD_IS_SYMMETRIC = _flag(0)
ALIGN_CORNERS_HALF_PIXELS = {
    "RESIZE_BILINEAR": (_flag(2), _flag(3)),  # after two fields of older versions
    "RESIZE_NEAREST_NEIGHBOR": (_flag(0), _flag(1)),
}
SLICE_MASKS = tuple(Field(place, "i") for place in range(5))
"""The masks of STRIDED_SLICE for its begin, end, ellipsis, new_axis and shrink_axis."""
SLICE_ENDS_ARE_OFFSETS = _flag(5)
STATED_NUMBERS = Field(0, "i4")
"""The sizes of a RESHAPE, or the places of a SQUEEZE: a vector."""
IGNORED_OPTIONS: Mapping[str, Mapping[int, str]] = {
    "ADD": {1: "pot_scale_int16"},
    "BATCH_MATMUL": {2: "asymmetric_quantize_inputs"},
    "CONV_2D": {6: "quantized_bias_type"},
    "DEPTHWISE_CONV_2D": {3: "depth_multiplier"},
    "FULLY_CONNECTED": {3: "asymmetric_quantize_inputs", 4: "quantized_bias_type"},
    "PACK": {0: "values_count"},
    "RESHAPE": {0: "new_shape"},
    "RESIZE_BILINEAR": {0: "new_height", 1: "new_width"},
    "SHAPE": {0: "out_type"},
    "SPLIT": {0: "num_splits"},
    "SPLIT_V": {0: "num_splits"},
    "SUB": {1: "pot_scale_int16"},
    "TRANSPOSE_CONV": {4: "quantized_bias_type"},
    "UNPACK": {0: "num"},
}
"""Options that say what tensors say too, that older versions had, or that are of whole numbers, by their
places.
"""
