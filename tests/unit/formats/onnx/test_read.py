"""What porter reads of an ONNX model is what onnxruntime computes, and what ONNX's own reference computes in
double precision.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.authoring.new_recipe import new_recipe
from porter.base.errors import FileError, MappingError, PorterError, UsageError
from porter.conversion import pad_table
from porter.filegraph.file_graph import Foreign
from porter.filegraph.to_graph import to_graph
from porter.formats.reading import read_checkpoint
from porter.frameworks.onnx.engine import build_file, run_reference
from porter.graph import Conv, CropLike, Gelu, HardSigmoid, HardSwish, LayerNorm, Op, Swish
from porter.padding import ANY, Convention, Window
from tests.support.filegraph.values import values_of

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

IMAGE = (2, 6, 9, 11)
WEIGHTS = {
    "k3": (8, 6, 3, 3),
    "k2": (6, 3, 2, 2),
    "k1": (4, 6, 1, 1),
    "t3": (6, 2, 3, 3),
    "b8": (8,),
    "b6": (6,),
    "b4": (4,),
    "gamma": (6,),
    "beta": (6,),
    "mean": (6,),
    "variance": (6,),
    "along": (6, 1, 1),
    "slopes": (6, 1, 1),
    "one": (1,),
    "dense": (5, 6),
    "matrix": (6, 5),
    "b5": (5,),
    "wide": (594, 3),
    "k6": (6, 6, 1, 1),
    "row3": (1, 1, 3),
    "logits": (8, 7),
    "map": IMAGE[1:],
    "map1": IMAGE[1:],
    "norm": (6, 9),
    "columns": (11,),
    "one_cell": (1, 1, 1),
    "one_matrix": (1, 11, 4),
    "matrices": (6, 11, 4),
    "left": (1, 4, 9),
    "queries": (1, 5, 3),
    "table": (6, 6),
}
BRANCHES = """y = If (q) <then_branch = g1 () => (float[N] t) { k = Constant <value = float {3.0}> ()
        t = Mul (a, k) },
    else_branch = g2 () => (float[N] e) { k = Constant <value = float {2.0}> () w = Neg (a)
        e = Div (w, k) }>"""
CASES = {
    "conv": "y = Conv <pads=[0, 1, 2, 1], strides=[2, 1], dilations=[1, 2]> (x, k3, b8)",
    "a dropout that a constant keeps from training": "t = Constant <value = bool {0}> () "
    "d = Dropout (x, half, t) y = Relu (d)",
    "a dropout that a stored number keeps from training": "t = Identity (off) d = Dropout (x, , t) "
    "y = Conv (d, k1)",
    "conv same upper": 'y = Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (x, k3)',
    "conv same lower": 'y = Conv <auto_pad="SAME_LOWER", strides=[2, 2], group=2> (x, k2)',
    "transposed": "y = ConvTranspose <strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 1]> (x, t3)",
    "transposed same": 'y = ConvTranspose <auto_pad="SAME_UPPER", strides=[2, 2], group=2> (x, t3)',
    "a sum of every part": f"c = Concat <axis=1> ({', '.join('x' * 64)}) r = Reshape (c, of_two) "
    "y = ReduceSum <keepdims=0> (r, one1)",
    "a norm of rows": "p = AveragePool <kernel_shape=[1, 6]> (x) m = ReduceMean (p, places) d = Sub "
    "(p, m) q = "
    "Mul (d, d) "
    "v = ReduceMean (q, places) e = Add (v, half) r = Sqrt (e) n = Div (d, r) y = Mul (n, gamma)",
    "pad before a pool": "p = Pad (x, pads, fill) y = MaxPool <kernel_shape=[3, 3], strides=[2, 2]> (p)",
    "pads of the map's own cells": 'a = Pad <mode="edge"> (x, pads) b = Pad <mode="reflect"> (a, pads) '
    'y = Pad <mode="wrap"> (b, pads)',
    "pool with places in another order": "y = MaxPool <kernel_shape=[2, 2], storage_order=1> (x)",
    "pool, ceil": "y = MaxPool <kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1> (x)",
    "average, counted": (
        "y = AveragePool <kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0], count_include_pad=1> (x)"
    ),
    "average, ceil": "y = AveragePool <kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, "
    "count_include_pad=1> (x)",
    "average, same": 'y = AveragePool <kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_LOWER"> (x)',
    "norm and its activation": (
        "n = BatchNormalization <epsilon=0.01> (x, gamma, beta, mean, variance) y = Clip (n, zero, six)"
    ),
    "norm of opset 13": "y = BatchNormalization <epsilon=0.01> (x, gamma, beta, mean, variance)",
    "constants": (
        "a = Mul (x, along) b = Sub (a, half) m = Max (half, two, six) c = Div (b, m) y = Max (c, zero)"
    ),
    "activations": "a = LeakyRelu <alpha=0.3> (x) b = Elu (a) c = HardSigmoid <alpha=0.16666667, "
    "beta=0.5> (b) "
    "d = HardSwish (c) y = Softplus (d)",
    "softplus, cut": (
        "a = Mul (x, half) b = Add (a, twenty) g = Greater (b, twenty) s = Softplus (b) y = Where (g, b, s)"
    ),
    "no room between bounds": "a = Clip (x, six, half) y = Concat <axis=1> (a, x)",
    "selu and others": "a = Selu (x) b = Mish (a) c = Celu <alpha=0.7> (b) d = PRelu (c, slopes) e = "
    "Softsign (d) f "
    "= Tanh (e) "
    "y = ThresholdedRelu <alpha=0.3> (f)",
    "swish in parts": "s = Sigmoid (x) y = Mul (s, x)",
    "gelu in parts": "a = Div (x, root2) b = Erf (a) c = Add (b, unit) d = Mul (x, c) y = Mul (d, half)",
    "head": "p = GlobalAveragePool (x) f = Flatten (p) g = Gemm <transB=1> (f, dense, b5) y = Softmax (g)",
    "head of a matrix": "p = ReduceMean <axes=[2, 3], keepdims=0> (x) m = MatMul (p, matrix) y = Add (m, b5)",
    "head of a convolution": "c = Conv (x, k1, b4) r = ReduceMax <axes=[2, 3]> (c) y = Squeeze (r, places)",
    "kernel cast to truths and back": (
        "b = Cast <to=9> (k3) c = Cast <to=1> (b) y = Conv <pads=[1, 1, 1, 1]> (x, c)"
    ),
    "flattened map": "f = Reshape (x, flat) y = MatMul (f, wide)",
    "transposed features": (
        "p = GlobalAveragePool (x) f = Flatten (p) t = Transpose (f) y = Gemm <transA=1> (t, matrix, b5)"
    ),
    "norm of responses": (
        "n = ReduceL2 (x, places) m = ReduceMean (n, one1) a = Add (m, half) d = Div (n, a) y = Mul (x, d)"
    ),
    "squeeze and excite": "p = GlobalAveragePool (x) c = Conv (p, k6) s = Sigmoid (c) y = Mul (x, s)",
    "efficient channel attention": "p = ReduceMean <axes=[2, 3], keepdims=0> (x) r = Reshape (p, row) "
    "c = Conv <pads=[0, 2]> (r, row3) g = Sigmoid (c) m = Reshape (g, cell) s = Shape (x) e = Expand (m, "
    "s) y = Mul (x, e)",
    "selective kernels": "a = Unsqueeze (x, one1) t = Tanh (x) b = Unsqueeze (t, one1) s = Concat "
    "<axis=1> (a, b) "
    "u = ReduceSum <keepdims=0> (s, one1) p = GlobalAveragePool (u) q = Neg (p) c = Concat <axis=1> (p, "
    "q) r = Reshape (c, paths) "
    "w = Softmax <axis=1> (r) m = Mul (s, w) k = ReduceSum (m, one1) y = Squeeze (k, one1)",
    "split attention": "a = Reshape (x, halves) s = ReduceSum <keepdims=0> (a, one1) p = "
    "GlobalAveragePool (s) q = Neg (p) "
    "c = Concat <axis=1> (p, q) d = Conv (c, k6) r = Reshape (d, radix) t = Transpose <perm=[0, 2, "
    "1, 3]> (r) "
    "w = Softmax <axis=1> (t) f = Reshape (w, flat) g = Reshape (f, gate) m = Mul (a, g) y = ReduceSum "
    "<keepdims=0> (m, one1)",
    "an output that is its op's second": "a = Relu (x) b, y = Split <axis=1, num_outputs=2> (a)",
    "channels last": "t = Transpose <perm=[0, 2, 3, 1]> (x) a = Add (t, b6) m = MatMul "
    "(a, matrix) r = Relu (m) "
    "y = Transpose <perm=[0, 3, 1, 2]> (r)",
    "norm of the channels": "t = Transpose <perm=[0, 2, 3, 1]> (x) n = LayerNormalization "
    "<epsilon=0.001> (t, "
    "gamma, beta) "
    "y = Transpose <perm=[0, 3, 1, 2]> (n)",
    "norm of the channels in parts": "t = Transpose <perm=[0, 2, 3, 1]> (x) m = ReduceMean "
    "<axes=[3]> (t) d = "
    "Sub (t, m) "
    "p = Pow (d, two) v = ReduceMean <axes=[3]> (p) e = Add (v, half) r = Sqrt (e) n = Div (d, r) g = "
    "Mul (n, gamma) "
    "b = Add (g, beta) y = Transpose <perm=[0, 3, 1, 2]> (b)",
    "norm of the channels in parts of tf2onnx": "m = ReduceMean <axes=[1]> (x) n = Neg (m) d = Sub "
    "(x, m) p = "
    "Mul (d, d) "
    "v = ReduceMean <axes=[1]> (p) e = Add (v, half) r = Sqrt (e) i = Reciprocal (r) g = Mul (i, along) "
    "a = Mul (x, g) "
    "b = Mul (n, g) y = Add (a, b)",
    "norm of the channels over a quotient": "t = Transpose <perm=[0, 2, 3, 1]> (x) m = ReduceMean "
    "<axes=[3]> (t) d = "
    "Sub (t, m) "
    "p = Mul (d, d) v = ReduceMean <axes=[3]> (p) e = Add (v, half) r = Sqrt (e) i = Div (unit, r) n = "
    "Mul (d, i) "
    "g = Mul (n, gamma) b = Add (g, beta) y = Transpose <perm=[0, 3, 1, 2]> (b)",
    "norms by the root": "p = Pow (x, two) m = ReduceMean <axes=[1]> (p) e = Add (m, half) r = Sqrt (e) d = "
    "Div (x, r) "
    "s = Mul (d, d) v = ReduceMean <axes=[1]> (s) a = Add (v, half) q = Sqrt (a) i = Reciprocal (q) n = "
    "Mul (d, i) "
    "y = Mul (n, along)",
    "norms of groups": "g = Reshape (x, thirds) n = InstanceNormalization <epsilon=0.01> (g, "
    "ones3, zeros3) s = Shape (x) "
    "r = Reshape (n, s) m = Mul (r, along) a = Add (m, along) i = InstanceNormalization <epsilon=0.1> "
    "(a, gamma, beta) "
    "y = GroupNormalization <num_groups=6, epsilon=0.01> (i, gamma, beta)",
    "norms of groups of opset 21": "y = GroupNormalization <num_groups=3, epsilon=0.01> (x, gamma, beta)",
    "norm of features in parts": "p = GlobalAveragePool (x) f = Flatten (p) m = ReduceMean (f, minus) d = "
    "Sub (f, m) "
    "q = Mul (d, d) v = ReduceMean (q, minus) e = Add (v, half) r = Sqrt (e) i = Reciprocal (r) g = Mul "
    "(i, gamma) s = Mul (f, g) "
    "h = Mul (m, g) k = Sub (beta, h) y = Add (s, k)",
    "a norm of each image": "n = LayerNormalization <axis=1, epsilon=0.01> (x, map, map1) y = PRelu (n, map)",
    "products with a vector": "m = MatMul (x, columns) n = LayerNormalization <axis=-2, "
    "epsilon=0.01> (m, norm) "
    "y = PRelu (n, norm)",
    "a matrix for each channel": "y = MatMul (x, matrices)",
    "one matrix for all channels": "m = MatMul (x, one_matrix) s = ReduceMean <axes=[3]> (m) y = MatMul (s, "
    "one_cell)",
    "the least and others": "a = Abs (x) b = ReduceMin <axes=[2]> (x) c = ReduceL1 <axes=[1]> (x) "
    "d = ReduceSumSquare <axes=[3]> (x) e = Mul (a, b) f = Mul (c, d) y = Add (e, f)",
    "places in any order": "a = Gather <axis=1> (x, back) b = Gather <axis=2> (a, some) c = Gather <axis=3> "
    "(b, square) "
    "p = GlobalAveragePool (x) f = Flatten (p) y = Gather <axis=1> (f, some)",
    "channels in any order": "y = Gather <axis=1> (x, some)",
    "cells as channels": "p = Pad (x, even) y = SpaceToDepth <blocksize=2> (p)",
    "channels shuffled": (
        "a = Reshape (x, grouped) b = Transpose <perm=[0, 2, 1, 3, 4]> (a) y = Reshape (b, image)"
    ),
    "nine axes": "r = Reshape (x, nine) t = Transpose <perm=[0, 9, 8, 7, 6, 5, 4, 3, 2, 1]> (r) "
    "s = Softmax <axis=3> (t) y = Transpose <perm=[0, 9, 8, 7, 6, 5, 4, 3, 2, 1]> (s)",
    "split and joined": "a, b = Split <axis=1, num_outputs=2> (x) y = Concat <axis=1> (b, a, x)",
    "sizes at run time": "s = Shape (x) n = Gather (s, first) u = Unsqueeze (n, first0) c = Concat <axis=0> "
    "(u, minus) "
    "y = Reshape (x, c)",
    "strides of torch's exporter": "p = ReduceMean <axes=[2, 3]> (x) f = Reshape (p, minus) "
    "s = Shape (x) n = Gather "
    "(s, first) "
    "i = Range (first, n, next) k = Mul (i, six6) u = Unsqueeze (k, cells) g = Add (u, in_order) y = "
    "Gather (f, g)",
    "pads of torch's older exporter": "s = Shape (around) n = Sub (eight, s) z = ConstantOfShape "
    "<value=int64[1] {0}> (n) "
    "c = Concat <axis=0> (around, z) m = Mod (c, eight) f = Reshape (m, pairs) b = Slice (f, minus, "
    "least, first0, minus) "
    "t = Transpose <perm=[1, 0]> (b) p = Reshape (t, minus) y = Pad (x, p)",
    "pads that timm computes by SAME": "s = Shape (x) h = Gather (s, rows) f = Cast <to=1> (h) q = Cast "
    "<to=1> (eight) "
    "d = Div (f, q) e = Ceil (d) r = Sub (e, unit) c = Clip (r, zero, ) i = Cast <to=7> (c) "
    "n = Concat <axis=0> (none, none, none, none) p = Concat <axis=0> (n, none, "
    "none, i, none) y = Pad (x, p)",
    "a channel": "c = Gather <axis=1> (x, first) u = Unsqueeze (c, one1) y = Concat <axis=1> (u, x)",
    "scale and offset": "c = Conv (x, k6) m = Mul (c, along) y = Add (m, along)",
    "slices": "y = Slice (x, starts, ends, axes, steps)",
    "powers of windows and of axes": "a = LpPool <kernel_shape=[3, 2], p=3, strides=[2, 1], pads=[1, 1, "
    "0, 0]> (x) "
    "b = LpNormalization <axis=1, p=1> (a) y = LpNormalization <axis=2> (b)",
    "a middle of opset 18": "y = CenterCropPad <axes=[2, 3]> (x, squarer)",
    "slices of tf2onnx": "y = Slice (x, from_second, to_any_end, of_cells, every)",
    "resized": (
        'y = Resize <mode="nearest", coordinate_transformation_mode="asymmetric", '
        'nearest_mode="floor"> (x, , scales)'
    ),
    "resized along axes of opset 18": 'y = Resize <axes=[3, 2], mode="nearest"> (x, , factors)',
    "resized linearly": (
        'y = Resize <mode="linear", coordinate_transformation_mode="align_corners"> (x, , scales)'
    ),
    "resized to fewer cells of opset 18": 'y = Resize <axes=[-1, -2], mode="linear", '
    'coordinate_transformation_mode="asymmetric"> (x, , fewer)',
    "resized by a cubic of opset 18": 'y = Resize <axes=[-2, -1], mode="cubic", cubic_coeff_a=-0.5, '
    "exclude_outside=1> "
    "(x, , , other)",
    "resized like its input of opset 18": "p = MaxPool <kernel_shape=[3, 3], strides=[2, 2]> (x) s = Shape "
    "<start=2> (x) "
    'y = Resize <axes=[2, 3], mode="linear"> (p, , , s)',
    "the nearest of other cells of opset 18": "y = Resize <axes=[2, 3], "
    'coordinate_transformation_mode="align_corners"> '
    "(x, , , other)",
    "the nearest of TensorFlow of opset 18": 'y = Resize <axes=[2, 3], nearest_mode="floor", '
    'coordinate_transformation_mode="tf_half_pixel_for_nn"> (x, , fewer)',
    "cells to channels": 'c = Concat <axis=1> (x, x) y = DepthToSpace <blocksize=2, mode="CRD"> (c)',
    "response norm": "y = LRN <size=3, alpha=0.3, beta=0.6, bias=2.0> (x)",
    "products of sums": "a = Sum (x, x, x) b = Neg (a) c = Sub (x, b) d = Mean (c, x) y = Pow (d, two)",
    "sums of one": "a = Sum (x) b = Mean (a) c = Max (b) d = Min (c) e = Relu (d) y = Mean (e)",
    "pools of cells and of more axes": "r = Reshape (x, thirds) p = GlobalMaxPool (r) b = Reshape "
    "(x, of_two) "
    "q = GlobalAveragePool (b) z = GlobalMaxPool (b) a = Add (q, z) t = Unsqueeze (p, places) y = Mul (b, t)",
    "zeros instead of a value": "g = Greater (x, half) s = Shape (x) z = ConstantOfShape "
    "(s) w = Where (g, x, z) "
    "v = Where (g, z, x) f = Cast <to=1> (g) m = Mul (f, z) n = Mul (w, x) a = Add (n, m) y = Sub (a, v)",
    "two outputs": "y = Relu (x) z = GlobalMaxPool (y)",
    "a matrix before a value": "y = MatMul (left, x)",
    "grouped queries of opset 23": "t = Reshape (x, six_rows) k, v, w = Split <axis=2, num_outputs=3> (t) "
    "a = Attention <q_num_heads=9, kv_num_heads=3, is_causal=1> (t, k, v, table) "
    "b = Attention <q_num_heads=3, kv_num_heads=3, softcap=0.7, scale=0.3> (w, k, v) c = Concat <axis=2> "
    "(a, b) y = Neg (c)",
    "learned queries of each image": "s = Shape (x) n = Gather (s, first0) r = Concat <axis=0> (n, "
    "one1, one1) "
    "q = Tile (queries, r) t = Reshape (x, thirds) y = MatMul (q, t)",
    "a branch by sizes": "a = Relu (x) s = Shape (x) h = Gather (s, rows) m = Mod (h, two2) "
    "f = Equal (m, one1) g = "
    "Greater (h, m) "
    "l = LessOrEqual (m, h) b = And (f, g) o = Xor (b, l) n = Not (o) q = Squeeze (n) " + BRANCHES,
    "a branch by what is stored": "a = Relu (x) d = Sub (one1, two2) f = Abs (d) g = Less (f, one1) q = "
    "Squeeze (g) " + BRANCHES,
    "a branch in a branch": "a = Relu (x) g = GreaterOrEqual (two, unit) y = If (g) <then_branch = g1 () => "
    "(float[N] t) "
    "{ q = Less (two, unit) u = Sigmoid (a) "
    + BRANCHES.replace("y =", "v =")
    .replace("(a", "(u")
    .replace("t =", "p =")
    .replace("float[N] t", "float[N] p")
    + " t = Add (v, u) }, else_branch = g2 () => (float[N] e) { e = Sin (x) }>",
}
NUMBERS: dict[str, Any] = {
    "large": [2, 6, 27, 22],
    "twenty": np.float32(20),
    "zero": np.float32(0),
    "six": np.float32(6),
    "half": np.float32(0.5),
    "unit": np.float32(1),
    "two": np.float32(2),
    "root2": np.float32(np.sqrt(2)),
    "root1": np.float32(np.sqrt(0.5)),
    "fill": np.float32(0),
    "pads": [0, 0, 1, 0, 0, 0, 0, 2],
    "places": [2, 3],
    "flat": [0, -1],
    "row": [0, 1, -1],
    "of_two": [0, -1, 2, 9, 11],
    "paths": [0, 2, -1, 1, 1],
    "halves": [0, 2, 3, 9, 11],
    "radix": [0, 1, 2, -1],
    "gate": [0, 2, 3, 1, 1],
    "cell": [0, -1, 1, 1],
    "grouped": [0, 3, 2, 9, 11],
    "nine": [0, 2, 1, 3, 1, 3, 1, 3, 1, 11],
    "thirds": [0, 3, -1],
    "six_rows": [0, 6, -1],
    "two_rows": [1, 1, 2, 1],
    "squarer": [6, 14],
    "from_second": [0, 1, 3],
    "to_any_end": [10**9] * 3,
    "of_cells": [0, 2, 3],
    "every": [1, 2, 10**9],
    "ones3": np.ones(3, np.float32),
    "zeros3": np.zeros(3, np.float32),
    "image": [0, 6, 9, 11],
    "first": 0,
    "next": 1,
    "six6": [6],
    "cells": [1, 2, 3],
    "in_order": np.arange(6).reshape(1, 6, 1, 1),
    "squares": np.arange(100) ** 2 % 594,
    "first0": [0],
    "minus": [-1],
    "rows": [2],
    "one1": [1],
    "two2": [2],
    "three": np.float32(3),
    "third": [3],
    "none": [0],
    "back": [5, 4, 3, 2, 1, 0],
    "some": [3, 0, -1, 3],
    "square": [[0, 2], [4, 1]],
    "even": [0, 0, 0, 0, 0, 0, 1, 1],
    "all_pads": [0, 1, 1, 0, 0, 0, 0, 2],
    "starts": [1, 1],
    "ends": [9, 6],
    "around": [2, 1, 0, 3, 0, 1],
    "eight": [8],
    "pairs": [-1, 2],
    "least": [-(1 << 63) + 1],
    "on": True,
    "off": False,
    "endless": [0, 0, 1 << 40, 0, 0, 0, 0, 0],
    "million": [1, 1, 1 << 20, 1 << 20],
    "axes": [2, 1],
    "steps": [2, 2],
    "scales": np.array([1, 1, 2, 3], np.float32),
    "factors": np.array([2, 3], np.float32),
    "forty": [*range(40)],
    "fewer": np.array([0.5, 0.75], np.float32),
    "other": [7, 5],
}


def model(text: str, opset: int = 20, image: tuple[int | str, ...] = ("N", *IMAGE[1:])) -> Any:
    """A model of nodes in ONNX's text, with its stored tensors; the values that nothing reads are its
    outputs.
    """
    graph = onnx.parser.parse_graph(f"g (float[{','.join(map(str, image))}] x) => () {{ {text} }}")
    rng = np.random.default_rng(0)
    stored = {
        name: rng.uniform(0.2, 1, shape) * rng.choice([-1, 1], shape) for name, shape in WEIGHTS.items()
    }
    stored["variance"] = np.abs(stored["variance"])
    given = [value for node in graph.node for value in node.output]
    read = [value for node in graph.node for value in node.input]
    for name in dict.fromkeys(read):
        if name and name not in given and name != "x":
            array = stored[name].astype(np.float32) if name in stored else np.asarray(NUMBERS[name])
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    ends = [value for value in given if value not in read or value == "y"]
    graph.output.extend(onnx.helper.make_tensor_value_info(value, 1, None) for value in ends)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)


def written(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_model_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    stated = name.partition("opset ")[2]
    opset = int(stated) if stated else 17 if "axes=" in CASES[name] else 20
    checkpoint = read_checkpoint(written(model(CASES[name], opset), tmp_path))
    graph, batch = checkpoint.graph, np.random.default_rng(1).standard_normal(IMAGE)
    assert graph is not None
    assert not [node.op for node in graph.nodes if isinstance(node.op, Foreign)]
    values = values_of(graph, checkpoint.tensors, batch)
    taps = {node.name: node.tap for node in graph.nodes if node.tap}
    assert set(graph.outputs) <= set(taps), "every output can be compared"
    for dtype, limit in (("float32", 2e-6), ("float64", 1e-13)):
        theirs = run_reference(build_file(checkpoint, dtype, ANY), batch.astype(dtype), taps)  # type: ignore[arg-type]
        for node, value in theirs.items():
            assert (
                values[node].shape == value.shape
                and np.abs(values[node] - value).max() <= limit * np.abs(value).max()
            ), node


def test_a_sigmoid_close_to_zero_has_all_its_digits_in_float64(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(written(model("y = Sigmoid (x)"), tmp_path))
    batch = np.full(IMAGE, -40.0)
    found = run_reference(build_file(checkpoint, "float64", ANY), batch, {"y": "y"})["y"]
    assert np.allclose(found, np.exp(-40), rtol=1e-14, atol=0)


def test_an_image_with_its_channels_last_is_turned(tmp_path: Path) -> None:
    text = "t = Transpose <perm=[0, 3, 1, 2]> (x) y = Conv (t, k3)"
    checkpoint = read_checkpoint(written(model(text, image=(1, "H", "W", 6)), tmp_path))
    assert checkpoint.graph is not None and (checkpoint.graph.channels, checkpoint.graph.size) == (6, ANY)
    batch = np.random.default_rng(1).standard_normal(IMAGE)
    theirs = run_reference(build_file(checkpoint, "float64", ANY), batch, {"y": "y"})["y"]
    assert np.allclose(
        values_of(checkpoint.graph, checkpoint.tensors, batch)[checkpoint.graph.outputs[0]],
        theirs,
        rtol=1e-12,
    )


def test_nodes_have_the_names_of_their_tensors_or_their_own(tmp_path: Path) -> None:
    made = model("a = Conv (x, k3) b = Relu (a) y = Add (a, b)")
    made.graph.node[0].input[1] = made.graph.initializer[0].name = "layer1.0.conv1.weight"
    made.graph.node[1].name = "/layer1/layer1.0/relu/Relu"
    made.graph.node[2].name = "/layer1/layer1.0/Add"
    graph = read_checkpoint(written(made, tmp_path)).graph
    assert graph is not None and [node.name for node in graph.nodes] == [
        "layer1/0/conv1",
        "layer1/0/relu",
        "layer1/0/Add",
    ]
    graph = read_checkpoint(written(model("a = Clip (x, , six) y = Relu (a)"), tmp_path)).graph
    assert graph is not None and [(node.name, node.inputs) for node in graph.nodes] == [
        ("a", ("input",)),
        ("y", ("a",)),
    ]


def test_a_layer_of_the_inputs_name_has_another(tmp_path: Path) -> None:
    """A module of torch's named `input` has tensors named `input.weight` and `input.bias`."""
    made = model("a = Conv (x, k3) y = Relu (a)")
    made.graph.node[0].input[1] = made.graph.initializer[0].name = "input.weight"
    made.graph.node[0].name = "/input/Conv"
    graph = read_checkpoint(written(made, tmp_path)).graph
    assert graph is not None and [(node.name, node.inputs) for node in graph.nodes] == [
        ("input_2", ("input",)),
        ("y", ("input_2",)),
    ]
    assert porter.convert(tmp_path / "model.onnx", out=tmp_path / "port").port.record.check == "passed"


def test_a_computed_kernel_gives_its_layer_no_name(tmp_path: Path) -> None:
    made, value = model(CASES["efficient channel attention"]), "/layer1/layer1.0/se/conv/Conv_output_0"
    conv, gate = made.graph.node[2:4]
    conv.name, conv.output[0], gate.input[0] = "/layer1/layer1.0/se/conv/Conv", value, value
    graph = read_checkpoint(written(made, tmp_path)).graph
    assert graph is not None and "layer1/0/se/conv" in graph.by_name and {*graph.evaluated} == {value}


HALVES = {10: np.float16, 16: "bfloat16", 11: np.float64}


@pytest.mark.parametrize("kind", HALVES)
def test_tensors_of_every_width_are_read(kind: int, tmp_path: Path) -> None:
    made = model("y = Conv (x, k3)")
    array = onnx.numpy_helper.to_array(made.graph.initializer[0])
    made.graph.initializer[0].CopyFrom(
        onnx.helper.make_tensor("k3", kind, array.shape, array.ravel().tolist())
    )
    found = read_checkpoint(written(made, tmp_path)).tensors["k3"]
    assert found.dtype == onnx.helper.tensor_dtype_to_np_dtype(kind) and np.allclose(
        found.astype(np.float32), array, rtol=0.01
    )


def external(folder: Path, **entries: str) -> Path:
    made = model("y = Conv (x, k3)")
    tensor = made.graph.initializer[0]
    (folder / "weights.bin").write_bytes(b"\0" * 8 + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in ({"location": "weights.bin", "offset": "8"} | entries).items():
        tensor.external_data.add(key=key, value=value)
    return written(made, folder)


def test_tensors_stand_in_files_beside_the_model(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(external(tmp_path))
    expected = onnx.numpy_helper.to_array(model("y = Conv (x, k3)").graph.initializer[0])
    assert np.array_equal(checkpoint.tensors["k3"], expected)
    assert [file.name for file in checkpoint.files] == ["model.onnx", "weights.bin"]


def test_no_file_outside_the_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 4000)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to("loop")
    for location in ("../secret", str(tmp_path / "secret"), "link", "..", "", "loop", "a" * 5000):
        with pytest.raises(FileError, match=r"stands outside the model's folder|is missing|cannot be found"):
            read_checkpoint(external(folder, location=location))


def test_a_file_that_memory_does_not_hold_is_named_with_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    path = external(tmp_path)
    monkeypatch.setattr(np, "memmap", full)
    with pytest.raises(FileError, match=r"the [\d,]+ bytes of tensor 'k3' in 'weights\.bin' cannot be read"):
        read_checkpoint(path)


def test_the_hub_s_cache_links_to_its_own_blobs_only(tmp_path: Path) -> None:
    """`snapshots/REVISION` has links to `blobs` of the same repository."""
    repository = tmp_path / "models--owner--name"
    folder, blobs = repository / "snapshots" / "0a1b" / "onnx", repository / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    external(folder)
    for name in ("model.onnx", "weights.bin"):
        (folder / name).rename(blobs / f"digest of {name}")
        (folder / name).symlink_to(f"../../../blobs/digest of {name}")
    expected = onnx.numpy_helper.to_array(model("y = Conv (x, k3)").graph.initializer[0])
    assert np.array_equal(read_checkpoint(folder / "model.onnx").tensors["k3"], expected)
    for place in (tmp_path / "secret", tmp_path / "other" / "blobs" / "secret"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((blobs / "digest of weights.bin").read_bytes())
        (folder / "weights.bin").unlink()
        (folder / "weights.bin").symlink_to(place)
        with pytest.raises(FileError, match="stands outside the model's folder"):
            read_checkpoint(folder / "model.onnx")
    stepping = external(folder.parent, location="../../blobs/digest of weights.bin")
    with pytest.raises(FileError, match="stands outside the model's folder"):
        read_checkpoint(stepping)


SMALL = "a = Conv (x, k3) y = Relu (a)"


def changed(change: Callable[[Any], Any], text: str = SMALL) -> Any:
    made = model(text)
    change(made)
    return made


def holding(name: str, op: str, **attributes: Any) -> Callable[[Any], Any]:
    """Adds a node that nothing reads."""
    return lambda made: made.graph.node.add(
        op_type=op, name=name, input=["x"], output=[name]
    ).attribute.extend(onnx.helper.make_attribute(key, value) for key, value in attributes.items())


def outside() -> Any:
    tensor = onnx.TensorProto(name="t", data_type=1, dims=[1], data_location=1)
    tensor.external_data.add(key="location", value="/etc/hostname")
    return tensor


def a_branch() -> Any:
    graph = onnx.parser.parse_graph("g () => (float z) { z = Constant <value_float=1.0> () }")
    graph.initializer.append(outside())
    return graph


BROKEN: dict[str, tuple[Callable[[], Any], str]] = {
    "opset 6": (
        lambda: changed(lambda made: setattr(made.opset_import[0], "version", 6)),
        "opset 6, and porter reads opset 7 to",
    ),
    "an opset to come": (
        lambda: changed(lambda made: setattr(made.opset_import[0], "version", 999)),
        "has opset 999",
    ),
    "a loop": (
        lambda: changed(lambda made: made.graph.node[0].input.__setitem__(0, "y")),
        "reads 'y', which nothing before it gives",
    ),
    "a dangling input": (
        lambda: changed(lambda made: made.graph.node[1].input.__setitem__(0, "b")),
        "reads 'b', which nothing",
    ),
    "too few numbers": (
        lambda: changed(lambda made: setattr(made.graph.initializer[0], "raw_data", b"\0" * 12)),
        "'k3' does not hold",
    ),
    "too many numbers": (
        lambda: changed(lambda made: made.graph.initializer[0].dims.__setitem__(0, 1 << 62)),
        "'k3' does not hold",
    ),
    "no numbers": (
        lambda: changed(lambda made: made.graph.initializer[0].ClearField("raw_data")),
        "'k3' does not hold",
    ),
    "numbers below none": (
        lambda: changed(lambda made: made.graph.initializer[0].dims.__setitem__(0, -1)),
        "'k3' does not hold",
    ),
    "texts": (
        lambda: changed(lambda made: setattr(made.graph.initializer[0], "data_type", 8)),
        "'k3' holds no real numbers.*string",
    ),
    "a type to come": (
        lambda: changed(lambda made: setattr(made.graph.initializer[0], "data_type", 99)),
        "'k3' does not hold",
    ),
    "a value given twice": (
        lambda: changed(lambda made: made.graph.node[1].output.__setitem__(0, "a")),
        "two values called 'a'",
    ),
    "a node that gives a value twice": (
        lambda: changed(lambda made: made.graph.node[1].output.append("y")),
        "two values called 'y'",
    ),
    "a tensor stored twice": (
        lambda: changed(lambda made: made.graph.initializer.append(made.graph.initializer[0])),
        "two values called 'k3'",
    ),
    "a tensor without a name": (
        lambda: changed(lambda made: made.graph.initializer.add(data_type=1)),
        "without a name",
    ),
    "a node without a value": (
        lambda: changed(lambda made: made.graph.node.add(op_type="Relu", input=["x"])),
        "gives nothing",
    ),
    "functions": (
        lambda: changed(lambda made: made.functions.add(name="Mine", domain="mine")),
        "functions of its own, such as 'Mine'",
    ),
    "sparse tensors": (
        lambda: changed(lambda made: made.graph.sparse_initializer.add()),
        "stores sparse tensors",
    ),
    "a constant elsewhere": (
        lambda: changed(holding("c", "Constant", value=outside())),
        "stands outside the model's folder",
    ),
    "numbers of a node elsewhere": (
        lambda: changed(holding("c", "ConstantOfShape", value=outside())),
        "'c' keeps its own numbers",
    ),
    "numbers of a branch elsewhere": (
        lambda: changed(holding("c", "If", then_branch=a_branch())),
        "'c' keeps its own numbers",
    ),
    "an image of whole numbers": (
        lambda: changed(lambda made: setattr(made.graph.input[0].type.tensor_type, "elem_type", 7)),
        "the input 'x' has whole numbers",
    ),
    "no output": (
        lambda: changed(lambda made: made.graph.ClearField("output")),
        "no output of the model depends on its image",
    ),
}
"""Models that are refused when they are read, and what the message says."""
FOREIGN: dict[str, tuple[str, str]] = {
    "no layer": ("y = MaxPool <kernel_shape=[1, 1]> (x)", "this model has no layers"),
    "a branch": (
        (
            "n = IsNaN (unit) y = If <then_branch=t () => (float z) {z = Neg (x)}, else_branch=e () => "
            "(float z) {z = Relu (x)}> (n)"
        ),
        "If",
    ),
    "a loop": (
        "y = Loop <body=b (int64 i, bool c, float v) => (bool c, float w) {w = Relu (v)}> (eight, on, x)",
        "Loop",
    ),
    "an op of another domain": ("y = mine.Gelu (x)", "mine.Gelu"),
    "an op that is none": ("y = Frobnicate (x)", "Frobnicate"),
    "a quotient of one": ("y = Div (x)", "no op for 'y' \\(Div"),
    "an op without inputs": (
        "c = Conv (x) y = Relu (c)",
        "Conv of 1 value",
    ),
    "pads without end": ("y = Pad (x, endless, fill)", "whole numbers from 0 to 1024"),
    "pads that are not whole": ("y = Pad (x, scales)", "Pad"),
    "channels padded without end": (
        "p = GlobalAveragePool (x) r = Reshape (p, row) y = Conv <pads=[0, 1099511627776]> (r, row3)",
        "Conv over 6 channels",
    ),
    "strides of 0": ("y = Conv <strides=[0, 0]> (x, k3)", "stride"),
    "no groups": ("y = Conv <group=0> (x, k3)", "groups: expected a whole number from 1"),
    "blocks of 0": ("y = DepthToSpace <blocksize=0> (x)", "block: expected a whole number from 1"),
    "parts of 0": ("y = Div (x, zero)", "Div"),
    "many places in any order": ("f = Flatten (x) y = Gather <axis=1> (f, squares)", "Gather of 100 places"),
    "a scale of fewer ones than channels": (
        "y = InstanceNormalization (x, ones3, zeros3)",
        "with tensors that are not one stored number per channel",
    ),
    "numbers of more axes than numpy adds": (
        "a = Unsqueeze (two2, forty) b = Add (a, a) y = Reshape (x, b)",
        "Reshape",
    ),
    "cells without end": ("y = Tile (x, million)", "copies"),
    "channels without end": (
        " ".join(f"v{n} = Concat <axis=1> ({', '.join([f'v{n - 1}' if n else 'x'] * 64)})" for n in range(6)),
        "numbers",
    ),
    "values without end": (
        " ".join(f"v{n} = Concat <axis=1> ({', '.join([f'v{n - 1}' if n else 'x'] * 64)})" for n in range(3))
        + " r0 = Relu (v2) "
        + " ".join(f"r{n} = Relu (r{n - 1})" for n in range(1, 40)),
        "more than 4294967296 numbers together",
    ),
}
"""Models that are refused by the name of an op or a value."""


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_are_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    make, words = BROKEN[name]
    with pytest.raises(FileError, match=words) as caught:
        read_checkpoint(written(make(), tmp_path))
    assert caught.value.next


def test_models_that_are_cut_short_are_refused(tmp_path: Path) -> None:
    whole = model(SMALL).SerializeToString()
    for end in range(40, len(whole), 97):
        (tmp_path / "model.onnx").write_bytes(whole[:end])
        with pytest.raises(PorterError) as caught:
            read_checkpoint(tmp_path / "model.onnx")
        assert caught.value.next
    for text, name in ((SMALL, b"k3"), ("y = LeakyRelu <alpha=0.5> (x)", b"alpha")):
        (tmp_path / "model.onnx").write_bytes(
            model(text).SerializeToString().replace(name, name[:-1] + b"\xff")
        )
        with pytest.raises(FileError, match="is not text"):
            read_checkpoint(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", FOREIGN)
def test_what_has_no_op_or_no_end_is_refused_by_name(name: str, tmp_path: Path) -> None:
    text, words = FOREIGN[name]
    made = model(text, image=(1, *IMAGE[1:]))
    made.opset_import.add(domain="mine", version=1)
    tracemalloc.start()
    try:
        graph = read_checkpoint(written(made, tmp_path)).graph
        assert graph is not None
        with pytest.raises(MappingError, match=words) as caught:
            to_graph(graph)
        assert caught.value.next and tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_tensors_in_one_place_of_a_file_take_no_more_memory_than_a_file_may(tmp_path: Path) -> None:
    made = model("y = Relu (x)")
    (tmp_path / "weights.bin").write_bytes(bytes(1 << 20))
    for place in range(65):
        tensor = made.graph.initializer.add(name=f"t{place}", data_type=1, dims=[1 << 18], data_location=1)
        tensor.external_data.add(key="location", value="weights.bin")
    with pytest.raises(FileError, match="tensors take 68157440 bytes, more than"):
        read_checkpoint(written(made, tmp_path))


@pytest.mark.parametrize(
    "entries", [{"offset": "x"}, {"offset": "-8"}, {"offset": "1760"}, {"length": "12"}, {"length": "999999"}]
)
def test_a_place_outside_the_file_of_a_tensor_is_refused(entries: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(FileError, match="tensor 'k3' does not hold"):
        read_checkpoint(external(tmp_path, **entries))


def test_pads_that_a_file_computes_from_its_size_are_of_that_size(tmp_path: Path) -> None:
    """SAME of a kernel of 3 at stride 2, as exporters write it out. Of an open size they would be those of
    odd sizes.
    """
    text = """s = Shape (x) h = Gather (s, rows) a = Add (h, one1) b = Div (a, two2) c = Sub (b, one1)
        d = Mul (c, two2)
    e = Add (d, third) f = Sub (e, h) g = Max (f, none) first = Div (g, two2) last = Sub (g, first)
    pads = Concat <axis=0> (none, none, first, none, none, none, last, none) p = Pad (x, pads)
    y = Conv <strides=[2, 2]> (p, k3)"""
    for size, pads in ((9, (1, 1)), (12, (0, 1)), ("rows", None)):
        graph = read_checkpoint(written(model(text, image=("N", 6, size, 11)), tmp_path)).graph
        assert graph is not None
        if pads:
            (node,) = graph.nodes
            assert node.op == Conv(8, Window((3, 3), (2, 2)), Convention("explicit", (*pads, 0, 0)))
        else:
            assert "Pad to a size that depends on the input's" in [
                node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)
            ]


@pytest.mark.parametrize("op", ["Sub (h, g)", "Add (h, n)"])
def test_the_difference_of_two_open_sizes_makes_a_map_as_large_as_another(op: str, tmp_path: Path) -> None:
    """As in a U-Net. Here the map has one row more, or two."""
    text = f"""c = Conv <strides=[2, 2]> (x, k6) u = ConvTranspose <strides=[2, 2]> (c, t3) s = Shape (x)
        h = Gather (s, rows)
    t = Shape (u) g = Gather (t, rows) n = Neg (g) d = {op}
    p = Concat <axis=0> (none, none, none, none, none, none, d, none) y = Pad (u, p)"""
    graph = read_checkpoint(written(model(text, image=("N", 6, "rows", 11)), tmp_path)).graph
    assert graph is not None and graph.by_name[graph.outputs[0]].op == CropLike("end", "none")
    assert graph.by_name[graph.outputs[0]].inputs == ("u", "input")
    graph = read_checkpoint(written(model(text, image=("N", 6, 9, 11)), tmp_path)).graph
    assert graph is not None and not any(isinstance(node.op, Foreign) for node in graph.nodes)


@pytest.mark.parametrize(("number", "holds"), [("none", True), ("minus", True), ("eight", False)])
def test_a_branch_that_an_open_size_decides_is_no_constant(number: str, holds: bool, tmp_path: Path) -> None:
    text = (
        f"a = Relu (x) s = Shape (x) h = Gather (s, rows) g = Greater (h, {number}) q "
        f"= Squeeze (g) {BRANCHES}"
    )
    for rows, known in (("rows", holds), (9, True)):
        graph = read_checkpoint(written(model(text, image=("N", 6, rows, 11)), tmp_path)).graph
        assert graph is not None and graph.foreign is not known


def test_what_porter_lacks_is_foreign_by_name(tmp_path: Path) -> None:
    texts = {
        "GroupNormalization with numbers for each group": (
            "y = GroupNormalization <num_groups=2> (x, gamma, beta)"
        ),
        "MaxPool output 1": "y, z = MaxPool <kernel_shape=[2, 2]> (x)",
        "Pad of channels by reflect": 'y = Pad <mode="reflect"> (x, all_pads)',
        "a group norm that does not fit: 6 groups of one number in 6x1x1": "p = GlobalAveragePool (x) "
        "y = InstanceNormalization (p, gamma, beta)",
        "BatchNormalization in training mode": (
            "y = BatchNormalization <training_mode=1> (x, gamma, beta, mean, variance)"
        ),
        "Resize with keep_aspect_ratio_policy not_larger": 'y = Resize <mode="nearest", '
        'nearest_mode="floor", '
        'coordinate_transformation_mode="asymmetric", keep_aspect_ratio_policy="not_larger"> (x, , , large)',
        "Dropout whose training_mode is no constant False": "t = Constant <value = bool {1}> () "
        "y = Dropout (x, half, t)",
        "Dropout's mask": "d, m = Dropout (x) c = Cast <to=1> (m) y = Mul (d, c)",
        "Resize (nearest) with antialias": (
            'y = Resize <axes=[2, 3], mode="nearest", antialias=1> (x, , factors)'
        ),
        "Resize along axes [2, -2]": 'y = Resize <axes=[2, -2], mode="nearest"> (x, , factors)',
        "Resize along axes [2, 7]": 'y = Resize <axes=[2, 7], mode="nearest"> (x, , factors)',
        "Resize (linear) with antialias": 'y = Resize <axes=[2, 3], mode="linear", antialias=1> (x, , fewer)',
        "Resize (linear by tf_crop_and_resize)": 'y = Resize <mode="linear", '
        'coordinate_transformation_mode="tf_crop_and_resize"> '
        "(x, , scales)",
        "Resize (nearest by tf_half_pixel_for_nn and ceil)": 'y = Resize <nearest_mode="ceil", '
        'coordinate_transformation_mode="tf_half_pixel_for_nn"> (x, , scales)',
    }
    for kind, text in texts.items():
        graph = read_checkpoint(written(model(text), tmp_path)).graph
        assert graph is not None and [
            node.op.kind for node in graph.nodes if isinstance(node.op, Foreign)
        ] == [kind]


def test_dropouts_in_a_branch_that_is_chosen_and_behind_it_are_told(tmp_path: Path) -> None:
    text = (
        "a = Relu (x) q = Less (two, unit) b = If (q) <then_branch = g1 () => (float[N] t) { t = Neg (a) }, "
        "else_branch = g2 () => (float[N] e) { d = Dropout (a) e = Sin (d) }> c = Dropout (b) y = Relu (c)"
    )
    graph = read_checkpoint(written(model(text, 20), tmp_path)).graph
    assert graph is not None and [layer.after for layer in graph.left_out] == ["b/e", "a"]


def test_outputs_that_are_left_out_are_named(tmp_path: Path) -> None:
    """A constant, which no port gives, and a second name of a value."""
    made = model("y = Relu (x) z = Identity (y) c = Mul (b6, two)")
    made.graph.output.append(onnx.helper.make_tensor_value_info("two", 1, None))
    checkpoint = read_checkpoint(written(made, tmp_path))
    assert checkpoint.graph is not None and checkpoint.graph.output_names == ("z",)
    said = ("'y', which is 'z'", "'c', which is a constant", "'two', which is a constant")
    assert checkpoint.notes[1:] == tuple(f"without its output {each}" for each in said)


def test_a_norm_over_several_axes_is_not_one_over_the_first_of_them(tmp_path: Path) -> None:
    text = (
        "t = Transpose <perm=[0, 2, 3, 1]> (x) m = ReduceMean <axes=[3, 2]> (t) d = Sub (t, m) q = "
        "Mul (d, d) "
    )
    text += "v = ReduceMean <axes=[3, 2]> (q) e = Add (v, half) r = Sqrt (e) y = Div (d, r)"
    graph = read_checkpoint(written(model(text, 17), tmp_path)).graph
    assert graph is not None and not [node for node in graph.nodes if isinstance(node.op, LayerNorm)]


PARTS: dict[str, Op] = {
    "a = Add (x, three) b = Clip (a, zero, six) c = Div (b, six) y = Mul (x, c)": HardSwish(),
    "a = Add (x, three) b = Clip (a, zero, six) c = Mul (x, b) y = Div (c, six)": HardSwish(),
    "a = Add (x, three) b = Clip (a, zero, six) y = Div (b, six)": HardSigmoid(),
    "a = HardSigmoid <alpha=0.16666667, beta=0.5> (x) y = Mul (x, a)": HardSwish(),
    "s = Sigmoid (x) y = Mul (x, s)": Swish(),
    "s = Mul (x, half) a = Mul (x, root1) e = Erf (a) c = Add (unit, e) y = Mul (c, s)": Gelu(),
    "a = Div (x, root2) e = Erf (a) c = Add (e, unit) d = Mul (c, half) y = Mul (x, d)": Gelu(),
    "a = Div (x, root2) e = Erf (a) c = Add (e, unit) d = Mul (x, c) y = Mul (half, d)": Gelu(),
}


def test_layers_that_exporters_write_in_parts_are_one_op(tmp_path: Path) -> None:
    for text, op in PARTS.items():
        graph = read_checkpoint(written(model(text), tmp_path)).graph
        assert graph is not None and [node.op for node in graph.nodes] == [op], text


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize(("destination", "kind"), [("torch", 16), ("tf", 10)])
def test_a_model_is_ported_and_proved(destination: str, kind: int, tmp_path: Path) -> None:
    """Its weights have 16 bits, which ports hold exactly in 32."""
    text = 'c = Conv <auto_pad="SAME_UPPER", strides=[2, 2]> (x, k3, b8) p = Pad (c, pads, fill) '
    text += (
        "m = MaxPool <kernel_shape=[3, 3]> (p) g = GlobalAveragePool (m) f = Flatten (g) d = Gemm "
        "(f, logits) y = Softmax (d)"
    )
    made = model(text, image=("N", 6, 17, 20))
    for tensor in made.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.ndim and array.dtype == np.float32:
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, kind, array.shape, array.ravel().tolist()))
    result = porter.convert(written(made, tmp_path), to=destination, out=tmp_path / "port")
    assert result.port.record.activation == "softmax" and result.port.record.classes == 7
    assert result.port.record.output_names == ("y",)
    assert (
        result.verdict is not None
        and result.verdict.ok
        and all(parity.proves for parity in result.verdict.parities)
    )
    assert porter.verify(tmp_path / "port", weights=tmp_path / "model.onnx", float64=True).ok


@pytest.mark.usefixtures("one_recipe")
def test_a_model_of_fixed_sizes_is_proved_in_its_own_batch_and_holds_at_its_own_size_only(
    tmp_path: Path,
) -> None:
    """Its exporter may have computed its pads from the size: these are right for even rows only."""
    made = model("p = Pad (x, pads, fill) y = Conv (p, k3, b8)", image=(3, 6, 17, 20))
    result = porter.convert(written(made, tmp_path), to="torch", out=tmp_path / "port")
    assert (
        result.verdict is not None
        and result.verdict.ok
        and all(parity.proves for parity in result.verdict.parities)
    )
    assert result.port.record.input.size == (17, 20)
    assert result.warnings == (
        "the port accepts only 17x20, and predict and eval feed squares: export the model with open sizes",
    )
    with pytest.raises(UsageError, match="the file works at 17x20 only"):
        porter.convert(tmp_path / "model.onnx", to="torch", out=tmp_path / "other", input_size="18")
    with pytest.raises(UsageError, match="the file works at 17x20 only"):
        pad_table.pads(str(tmp_path / "model.onnx"), None, "torch", "18", None)
    assert pad_table.pads(str(tmp_path / "model.onnx"), None, "torch", "17x20", None)


@pytest.mark.usefixtures("one_recipe")
def test_a_port_of_a_port_has_its_size_its_names_and_its_outputs(tmp_path: Path) -> None:
    """Whatever framework stands between them: a file that was traced at one size holds for that size only."""
    text = "c = Conv (x, k3, b8) g = GlobalAveragePool (c) f = Flatten (g) y = Gemm (f, logits) z = Relu (c)"
    source, further = written(model(text, image=(1, 6, 17, 20)), tmp_path), tmp_path / "further"
    first = porter.convert(source, to="tf", out=tmp_path / "port").port.record
    assert (first.input.size, first.output_names) == ((17, 20), ("y", "z")) and first.names
    made = porter.convert(tmp_path / "port", to="torch", out=further)
    record = made.port.record
    kept = (
        record.input.size,
        record.input.native_size,
        record.input.traced,
        record.names,
        record.output_names,
    )
    assert kept == ((17, 20), (17, 20), True, first.names, first.output_names)
    assert porter.verify(further, weights=tmp_path / "port").ok
    with pytest.raises(UsageError, match="the file works at 17x20 only"):
        porter.convert(tmp_path / "port", to="torch", out=tmp_path / "other", input_size="18")


def test_a_recipe_is_drafted_from_a_model(tmp_path: Path) -> None:
    text = "c = Conv (x, k3, b8) g = GlobalAveragePool (c) f = Flatten (g) y = Gemm (f, logits)"
    drafted = new_recipe(
        "mine", tmp_path / "mine.yaml", written(model(text, image=("N", 6, 17, 20)), tmp_path)
    )
    assert 'names: {c: c, "y": "y"}' in drafted.draft.text and "framework: torch" in drafted.draft.text
