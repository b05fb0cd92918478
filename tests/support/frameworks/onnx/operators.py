"""Models of one operator each: all that porter reads from ONNX, in every opset that changed them, with varied
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from porter.formats.onnx.plain import PLAIN
from porter.formats.onnx.proto import OLDEST_OPSET
from tests.support.arrays import Array

IMAGE = (2, 6, 9, 11)
NEWEST = 26
"""The last opset that onnxruntime 1.31 takes."""

_RANDOM = np.random.default_rng(0)


def _stored(*shape: int) -> Array:
    """Numbers between 0.2 and 1, half of them negative."""
    return (_RANDOM.uniform(0.2, 1, shape) * _RANDOM.choice([-1, 1], shape)).astype(np.float32)


NUMBERS: Mapping[str, Any] = {
    "k1": _stored(4, 6, 1, 1),
    "b4": _stored(4),
    "k3": _stored(8, 6, 3, 3),
    "k2": _stored(6, 3, 2, 2),
    "deep": _stored(12, 1, 3, 3),
    "t3": _stored(6, 2, 3, 3),
    "t1": _stored(6, 4, 1, 1),
    "t24": _stored(6, 3, 2, 4),
    "t2": _stored(6, 3, 2, 2),
    "tdeep": _stored(6, 2, 3, 3),
    "b8": _stored(8),
    "b6": _stored(6),
    "b2": _stored(2),
    "b12": _stored(12),
    "b5": _stored(5),
    "one6": _stored(1, 5),
    "gamma": _stored(6),
    "beta": _stored(6),
    "mean": _stored(6),
    "variance": np.abs(_stored(6)),
    "along": _stored(6, 1, 1),
    "g3": _stored(3),
    "h3": _stored(3),
    "map": _stored(6, 9, 11),
    "gw": _stored(11),
    "hw": _stored(11),
    "flat6": _stored(6),
    "dense": _stored(5, 6),
    "matrix": _stored(6, 5),
    "last": _stored(11, 4),
    "slope1": _stored(1),
    "g9": _stored(9, 11),
    "zero": np.float32(0),
    "six": np.float32(6),
    "half": np.float32(0.5),
    "low": np.float32(-0.3),
    "two": np.float32(2),
    "middle": np.array([5, 14], np.int64),
    "cells": np.stack(np.meshgrid([0, 7, 4], [9, 1], indexing="ij"), -1),
    "twenty": np.float32(20),
    "even": np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64),
    "three": np.float32(3),
    "point": np.float32(0.7),
    "zeroi": np.int64(0),
    "onei": np.int64(1),
    "axes23": np.array([2, 3], np.int64),
    "axis1": np.array([1], np.int64),
    "minus1": np.array([-1], np.int64),
    "none": np.zeros(0, np.int64),
    "pads": np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64),
    "pads2": np.array([1, 0, 2, 3], np.int64),
    "crop": np.array([0, 0, -1, 0, 0, 0, 0, -2], np.int64),
    "whole": np.array([0, 6, 9, 11], np.int64),
    "flat": np.array([0, -1], np.int64),
    "grouped": np.array([0, 3, 2, 9, 11], np.int64),
    "fifth": np.array([0, 3, -1], np.int64),
    "starts": np.array([1, 1], np.int64),
    "ends": np.array([9, 6], np.int64),
    "axes21": np.array([2, 1], np.int64),
    "steps": np.array([2, 2], np.int64),
    "back": np.array([-1], np.int64),
    "least": np.array([-(1 << 40)], np.int64),
    "place": np.int64(2),
    "axis3": np.array([3], np.int64),
    "four": np.array([4], np.int64),
    "parts": np.array([2, 1, 3], np.int64),
    "times": np.array([1, 1, 2, 3], np.int64),
    "all_cells": np.array([1, 1, 9, 11], np.int64),
    "axis0": np.array([0], np.int64),
    "wider": np.array([2, 6, 9, 11], np.int64),
    "scales": np.array([1, 1, 2, 3], np.float32),
    "scales2": np.array([1, 1, 2, 2], np.float32),
    "sizes": np.array([2, 6, 18, 33], np.int64),
    "size33": np.array([33], np.int64),
    "others": np.array([2, 6, 7, 16], np.int64),
    "fewer": np.array([0.6, 1.25], np.float32),
    "factors": np.array([2, 3], np.float32),
    "roi": np.zeros(0, np.float32),
    "axis2": np.array([2], np.int64),
    "thrice": np.array([1, 1, 3, 1, 1], np.int64),
    "channels18": np.array([0, 18, 9, 11], np.int64),
    "ends14": np.array([14], np.int64),
    "one_each": np.array([0, 6, 99], np.int64),
    "rows18": np.array([18, 33], np.int64),
    "rows10": np.array([10, 13], np.int64),
    "rows8": np.array([8, 11], np.int64),
    "block23": np.array([2, 3], np.int64),
    "square9": np.zeros((9, 11), np.float32),
    "row11": np.arange(11, dtype=np.float32),
    "column9": np.arange(9, dtype=np.float32)[:, None] / 4,
    "two_maps": np.array([2, 1, 9, 11], np.int64),
    "turned_maps": np.array([2, 1, 11, 9], np.int64),
    "back1": np.int64(-1),
    "axes01": np.array([0, 1], np.int64),
    "axis_all": np.array([1, 1, 11, 1], np.int64),
    "k8": np.random.default_rng(8).integers(-128, 128, (8, 6, 3, 2)).astype(np.int8),
    "scale": np.float32(0.013),
    "scale8": np.linspace(0.004, 0.02, 8, dtype=np.float32),
    "zero8": np.array([3, 0, -7, 1, 0, 0, 100, -128], np.int8),
    "dense8": np.random.default_rng(9).integers(0, 256, (5, 6)).astype(np.uint8),
    "zero_u8": np.uint8(131),
}
"""What models read that nothing in them gives."""


@dataclass(frozen=True)
class Case:
    """Nodes in ONNX's text, from `x` to `y`.

    Attributes:
        op: the operator that the case is about; those of an image that it needs besides have the same meaning
            in all opsets.
        since, until: the opsets in which the nodes can be written so.
        values: what the image holds: `normal`, `positive`, or `wide`, which reaches where activations bend.
        image: its sizes.
        runtime: onnxruntime computes it, and as ONNX says.
    """

    op: str
    text: str
    since: int = OLDEST_OPSET
    until: int = NEWEST
    values: str = "normal"
    image: tuple[int, ...] = IMAGE
    runtime: bool = True

    def opsets(self) -> list[int]:
        """The first opset of each version of the operator between `since` and `until`; the last is the newest
        that there is.
        """
        versions = {
            schema.since_version
            for schema in onnx.defs.get_all_schemas_with_history()
            if schema.domain == "" and schema.name == self.op and schema.since_version <= self.until
        }
        first = {max(version, self.since) for version in versions}
        assert first, f"ONNX has no {self.op} in these opsets"
        return sorted({*first, self.until})

    def batch(self) -> Array:
        images = np.random.default_rng(1).standard_normal(self.image)
        return {"normal": images, "positive": np.abs(images) + 0.1, "wide": images * 4}[self.values]


def _of_each(op: str, *attributes: str, since: int = OLDEST_OPSET) -> Iterator[Case]:
    for stated in ("", *attributes):
        yield Case(op, f"y = {op} {stated and f'<{stated}>'} (x)", since, values="wide")


def _features(op: str, node: str, since: int = OLDEST_OPSET, until: int = NEWEST) -> Case:
    """A node of N×6 features `f`."""
    return Case(op, f"p = GlobalAveragePool (x) f = Flatten (p) {node}", since, until)


def _softmax(op: str) -> Iterator[Case]:
    for axis in ("", "<axis=1>", "<axis=-1>", "<axis=2>", "<axis=-3>", "<axis=3>"):
        yield Case(op, f"y = {op} {axis} (x)")
    yield from (_features(op, f"y = {op} {axis} (f)") for axis in ("", "<axis=1>", "<axis=-1>", "<axis=0>"))
    yield from (
        Case(op, f"p = GlobalAveragePool (x) y = {op} {axis} (p)") for axis in ("", "<axis=1>", "<axis=-1>")
    )


def _pools(op: str) -> Iterator[Case]:
    kinds = ("", ", count_include_pad=1") if op == "AveragePool" else ("",)
    for kind in kinds:
        for stated in (
            "kernel_shape=[3, 2]",
            "kernel_shape=[3, 3], strides=[2, 2]",
            "kernel_shape=[3, 3], strides=[2, 3], pads=[1, 0, 1, 1]",
            "kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0]",
            "kernel_shape=[2, 2], pads=[1, 1, 0, 0]",
        ):
            yield Case(op, f"y = {op} <{stated}{kind}> (x)")
        for rule in ("SAME_UPPER", "SAME_LOWER", "VALID"):
            yield Case(op, f'y = {op} <kernel_shape=[3, 2], strides=[2, 2], auto_pad="{rule}"{kind}> (x)')
        for stated in (
            "kernel_shape=[3, 3], strides=[2, 2]",
            "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]",
            "kernel_shape=[2, 2], strides=[3, 4]",
            "kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 1, 1]",
            "kernel_shape=[3, 3], strides=[4, 5], pads=[0, 1, 2, 1]",
        ):
            yield Case(op, f"y = {op} <{stated}, ceil_mode=1{kind}> (x)", 10)
        dilated = 10 if op == "MaxPool" else 19
        for stated in (
            "kernel_shape=[3, 2], dilations=[2, 3]",
            'kernel_shape=[3, 2], dilations=[2, 3], auto_pad="VALID"',
            "kernel_shape=[3, 3], dilations=[2, 2], strides=[2, 2], pads=[1, 2, 2, 1], ceil_mode=1",
        ):
            yield Case(op, f"y = {op} <{stated}{kind}> (x)", dilated)


def _convolutions() -> Iterator[Case]:
    for stated, stored in (
        ("", "k3"),
        ("kernel_shape=[3, 3], pads=[0, 1, 2, 1], strides=[2, 1]", "k3, b8"),
        ("dilations=[2, 3], pads=[2, 3, 2, 3]", "k3, b8"),
        ("group=2, strides=[2, 2]", "k2, b6"),
        ("group=6, pads=[1, 1, 1, 1]", "deep, b12"),
        ('auto_pad="SAME_UPPER", strides=[2, 2]', "k3"),
        ('auto_pad="SAME_LOWER", strides=[2, 2], group=2', "k2"),
        ('auto_pad="SAME_LOWER", strides=[1, 2]', "k3, b8"),
        ('auto_pad="VALID", strides=[2, 3]', "k3"),
        ('auto_pad="SAME_UPPER", strides=[2, 2]', "k1"),
    ):
        yield Case("Conv", f"y = Conv {stated and f'<{stated}>'} (x, {stored})")


def _transposed() -> Iterator[Case]:
    for stated, stored in (
        ("", "t3, b2"),
        ("strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 1]", "t3"),
        ("strides=[2, 2], dilations=[2, 1], pads=[1, 1, 2, 0]", "t3, b2"),
        ("strides=[3, 3]", "t1"),
        ("strides=[2, 2], group=2", "t24"),
        ("strides=[2, 2], group=6, output_padding=[1, 0]", "tdeep"),
        ('auto_pad="SAME_UPPER", strides=[2, 2]', "t3"),
        ('auto_pad="SAME_LOWER", strides=[2, 2]', "t3, b2"),
        ('auto_pad="SAME_UPPER", strides=[3, 2], group=2', "t24"),
        ('auto_pad="SAME_UPPER", strides=[2, 2], output_padding=[1, 1]', "t3"),
        ('auto_pad="SAME_LOWER", strides=[2, 2], output_padding=[1, 1]', "t3"),
        ('auto_pad="VALID", strides=[2, 2], output_padding=[1, 1]', "t3"),
        ("strides=[2, 2], output_shape=[18, 22]", "t3"),
        ("strides=[2, 2], output_shape=[17, 20]", "t3, b2"),
        ('auto_pad="SAME_UPPER", strides=[2, 2], output_shape=[18, 22]', "t3"),
        ('auto_pad="SAME_LOWER", strides=[2, 2], output_shape=[18, 22]', "t3"),
        ("strides=[2, 2], output_shape=[18, 22], output_padding=[1, 1]", "t3"),
        ("strides=[3, 2], output_shape=[25, 24], pads=[1, 1, 1, 1], group=2", "t24"),
        ("strides=[3, 3], output_shape=[27, 33]", "t2"),
        ('auto_pad="SAME_UPPER", strides=[3, 3], output_shape=[27, 33]', "t2"),
        ('auto_pad="SAME_LOWER", strides=[3, 3]', "t2"),
    ):
        short = stated.startswith("auto_pad") and "strides=[3" in stated and "output_shape" not in stated
        yield Case(
            "ConvTranspose", f"y = ConvTranspose {stated and f'<{stated}>'} (x, {stored})", runtime=not short
        )


def _reductions() -> Iterator[Case]:
    for op in (
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceL1",
        "ReduceL2",
        "ReduceSum",
        "ReduceSumSquare",
        "ReduceProd",
    ):
        last = 12 if op == "ReduceSum" else 17
        for stated in ("axes=[2, 3]", "axes=[1]", "axes=[-1]", "axes=[2, 3], keepdims=0", "axes=[-2, -1]"):
            yield Case(op, f"y = {op} <{stated}> (x)", until=last)
        for stated, axes in (
            ("", "axes23"),
            ("", "axis1"),
            ("keepdims=0", "minus1"),
            ("keepdims=0", "axes23"),
        ):
            yield Case(op, f"y = {op} {stated and f'<{stated}>'} (x, {axes})", last + 1)
        yield Case(op, f"r = {op} <noop_with_empty_axes=1> (x) y = Relu (r)", last + 1)
        yield Case(op, f"r = {op} <noop_with_empty_axes=1> (x, none) y = Relu (r)", last + 1)
        yield Case(op, f"r = {op} (x) y = Mul (x, r)")
        yield Case(op, f"r = {op} <keepdims=0> (x) y = Mul (x, r)")


def _norms() -> Iterator[Case]:
    for stated in ("", "epsilon=0.01", "momentum=0.99"):
        yield Case(
            "BatchNormalization",
            f"y = BatchNormalization {stated and f'<{stated}>'} (x, gamma, beta, mean, variance)",
        )
    yield Case(
        "BatchNormalization", "y = BatchNormalization <spatial=1> (x, gamma, beta, mean, variance)", until=8
    )
    yield _features("BatchNormalization", "y = BatchNormalization (f, gamma, beta, mean, variance)")
    for stated in ("", "epsilon=0.01"):
        yield Case(
            "InstanceNormalization", f"y = InstanceNormalization {stated and f'<{stated}>'} (x, gamma, beta)"
        )
    yield Case(
        "InstanceNormalization",
        "r = Reshape (x, fifth) n = InstanceNormalization (r, g3, h3) y = Reshape (n, whole)",
    )
    for stated in ("", "epsilon=0.01", "axis=-1", "axis=3"):
        yield Case("LayerNormalization", f"y = LayerNormalization {stated and f'<{stated}>'} (x, gw, hw)", 17)
    yield Case("LayerNormalization", "y = LayerNormalization (x, gw)", 17)
    yield Case("LayerNormalization", "y = LayerNormalization <axis=1> (x, map, map)", 17)
    yield Case("LayerNormalization", "y = LayerNormalization <axis=-2> (x, g9)", 17)
    yield Case(
        "LayerNormalization",
        "t = Transpose <perm=[0, 2, 3, 1]> (x) n = LayerNormalization <epsilon=0.001> (t, gamma, beta) "
        "y = Transpose <perm=[0, 3, 1, 2]> (n)",
        17,
    )
    for stated in ("", "epsilon=0.01, axis=3"):
        yield Case("RMSNormalization", f"y = RMSNormalization {stated and f'<{stated}>'} (x, gw)", 23)
    yield Case("GroupNormalization", "y = GroupNormalization <num_groups=3> (x, g3, h3)", 18, 20)
    yield Case(
        "GroupNormalization", "y = GroupNormalization <num_groups=6, epsilon=0.01> (x, gamma, beta)", 18
    )
    yield Case(
        "GroupNormalization", "y = GroupNormalization <num_groups=3, epsilon=0.01> (x, gamma, beta)", 21
    )
    for stated in (
        "size=3",
        "size=5, alpha=0.3, beta=0.6, bias=2.0",
        "size=1, alpha=0.5",
        "size=2, alpha=0.5",
        "size=4, alpha=0.5",
    ):
        yield Case(
            "LRN", f"y = LRN <{stated}> (x)", runtime="size=2" not in stated and "size=4" not in stated
        )


def _products() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "Pow"):
        first = 8 if op in ("Max", "Min", "Mean", "Sum") else OLDEST_OPSET
        values = "positive" if op == "Pow" else "normal"
        for other in ("along", "half", "map", "b6x"):
            if other == "b6x":
                yield replace(_features(op, f"y = {op} (f, flat6)", first), values=values)
            else:
                yield Case(op, f"y = {op} (x, {other})", first, values=values)
        yield Case(
            op,
            f"a = Relu (x) b = Sigmoid (x) y = {op} ({'b, a' if op in ('Div', 'Pow') else 'a, b'})",
            values="positive",
        )
        if op in ("Max", "Min", "Mean", "Sum"):
            yield Case(op, f"a = Relu (x) b = Sigmoid (x) y = {op} (a, x, b)")
            yield Case(op, f"a = {op} (x) y = Sigmoid (a)")
        if op in ("Sub", "Div", "Pow"):
            yield Case(op, f"y = {op} (two, x)", values="positive")
    for power in ("two", "three", "half"):
        yield Case("Pow", f"y = Pow (x, {power})", values="positive")
    for stated, inputs in (
        ("transB=1", "dense, b5"),
        ("", "matrix"),
        ("", "matrix, one6"),
        ("alpha=0.3, beta=2.5", "matrix, b5"),
        ("alpha=0.5, transB=1", "dense"),
        ("beta=0.0", "matrix, b5"),
        ("transB=1", "dense, half"),
    ):
        yield _features(
            "Gemm",
            f"y = Gemm {stated and f'<{stated}>'} (f, {inputs})",
            11 if "," not in inputs else OLDEST_OPSET,
        )
    yield _features("Gemm", "t = Transpose (f) y = Gemm <transA=1> (t, matrix, b5)")
    yield _features("MatMul", "y = MatMul (f, matrix)")
    yield Case("MatMul", "y = MatMul (x, last)")


def _moves() -> Iterator[Case]:
    last = 12
    for axes in ("[2, 3]", "[-1, 2]", "[3, 2]"):
        yield Case(
            "Squeeze",
            f"p = GlobalMaxPool (x) y = Squeeze <axes={axes}> (p)",
            11 if "-" in axes else 7,
            until=last,
        )
    yield Case("Squeeze", "p = GlobalMaxPool (x) y = Squeeze (p)")
    yield Case("Squeeze", "p = GlobalMaxPool (x) y = Squeeze (p, axes23)", 13)
    yield Case("Unsqueeze", "f = Flatten (x) u = Unsqueeze <axes=[2, 3]> (f) y = Relu (u)", until=last)
    yield Case("Unsqueeze", "f = Flatten (x) u = Unsqueeze <axes=[-1, 2]> (f) y = Relu (u)", 11, last)
    yield Case("Unsqueeze", "f = Flatten (x) u = Unsqueeze (f, axes23) y = Relu (u)", 13)
    for axis in ("", "<axis=1>", "<axis=2>", "<axis=0>"):
        yield Case(
            "Flatten",
            f"f = Flatten {axis} (x) y = Reshape (f, wider)"
            if axis[6:7] in ("0", "2")
            else f"y = Flatten {axis} (x)",
        )
    yield Case("Flatten", "y = Flatten <axis=-3> (x)", 11)
    yield Case("Reshape", "y = Reshape (x, flat)")
    yield Case(
        "Reshape", "a = Reshape (x, grouped) b = Transpose <perm=[0, 2, 1, 3, 4]> (a) y = Reshape (b, whole)"
    )
    yield Case("Reshape", "a = Reshape <allowzero=1> (x, wider) y = Relu (a)", 14)
    yield Case("Transpose", "t = Transpose (x) r = Relu (t) y = Transpose (r)")
    yield Case(
        "Transpose",
        "t = Transpose <perm=[0, 2, 3, 1]> (x) a = Add (t, b6) y = Transpose <perm=[0, 3, 1, 2]> (a)",
    )
    for axis in ("1", "2", "3"):
        yield Case("Concat", f"r = Relu (x) y = Concat <axis={axis}> (x, r, x)")
    yield Case("Concat", "r = Relu (x) y = Concat <axis=-3> (x, r)", 11)
    yield Case("Split", "a, b = Split <axis=1> (x) y = Concat <axis=1> (b, a)", until=17)
    yield Case(
        "Split", "a, b, c = Split <axis=1, split=[2, 1, 3]> (x) y = Concat <axis=1> (c, a, b)", until=last
    )
    yield Case("Split", "a, b, c = Split <axis=1> (x, parts) y = Concat <axis=1> (c, a, b)", 13)
    yield Case("Split", "a, b = Split <axis=1, num_outputs=2> (x) y = Concat <axis=1> (b, a)", 18)
    yield Case("Split", "a, b = Split <axis=2, num_outputs=2> (x) y = Concat <axis=2> (b, a)", 18)
    yield Case("Split", "a, b, c, d = Split <axis=3, num_outputs=4> (x) y = Concat <axis=3> (b, a, c, d)", 18)
    yield Case("Slice", "y = Slice <starts=[1, 1], ends=[9, 6], axes=[2, 1]> (x)", until=9)
    yield Case("Slice", "y = Slice <starts=[-4], ends=[-1], axes=[3]> (x)", until=9)
    yield Case("Slice", "y = Slice (x, starts, ends, axes21, steps)", 10)
    yield Case("Slice", "y = Slice (x, back, least, axis1, back)", 10)
    yield Case(
        "Gather", "c = Gather <axis=1> (x, place) u = Unsqueeze (c, axis1) y = Concat <axis=1> (u, x)", 13
    )
    for along in (1, 2, 3):
        yield Case("Gather", f"y = Gather <axis={along}> (x, axes21)")
    for equation, other in (("nchw,co->nohw", "matrix"), ("nchw,wd->nchd", "last"), ("nchw,nchd->ncwd", "x")):
        yield Case("Einsum", f'y = Einsum <equation="{equation}"> (x, {other})', 12)
    yield Case("SpaceToDepth", "p = Pad (x, even) y = SpaceToDepth <blocksize=2> (p)", 11)
    for stated in ("blocksize=2", 'blocksize=2, mode="CRD"', 'blocksize=2, mode="DCR"', "blocksize=1"):
        text = f"c = Concat <axis=1> (x, x) y = DepthToSpace <{stated}> (c)"
        yield Case("DepthToSpace", text, 11 if "mode" in stated else OLDEST_OPSET)
    yield Case("Tile", "y = Tile (x, times)")
    yield Case("Expand", "p = GlobalAveragePool (x) e = Expand (p, wider) y = Mul (x, e)", 8)
    yield Case("Tile", "p = GlobalAveragePool (x) t = Tile (p, all_cells) y = Mul (x, t)")
    yield Case(
        "Unsqueeze",
        "p = GlobalAveragePool (x) f = Flatten (p) u = Unsqueeze <axes=[2, 3]> (f) y = Mul (x, u)",
        until=last,
    )
    yield Case(
        "Unsqueeze", "p = GlobalAveragePool (x) f = Flatten (p) u = Unsqueeze (f, axes23) y = Mul (x, u)", 13
    )
    yield Case(
        "Size",
        "s = Size (x) u = Unsqueeze (s, axis0) c = Concat <axis=0> (minus1, u) r = "
        "Reshape (x, whole) y = Relu (r)",
        13,
    )
    yield Case("Shape", "s = Shape (x) p = GlobalAveragePool (x) e = Expand (p, s) y = Mul (x, e)", 8)
    yield Case("Shape", "s = Shape <start=2, end=-1> (x) c = Cast <to=1> (s) y = Mul (x, c)", 15)
    yield Case("Size", "s = Size (x) c = Cast <to=1> (s) y = Div (x, c)")
    yield Case("Cast", "c = Cast <to=1> (x) y = Relu (c)")
    yield Case("Cast", "t = Mul (x, three) w = Cast <to=7> (t) c = Cast <to=1> (w) y = Add (c, x)")
    yield Case("Cast", "g = Greater (x, zero) c = Cast <to=1> (g) y = Mul (c, x)", 9)
    # As torch writes repeat_interleave, and the slice behind it.
    for repeat in ("Expand", "Tile"):
        yield Case(
            repeat,
            f"u = Unsqueeze (x, axis2) e = {repeat} (u, thrice) r = Reshape (e, channels18) "
            "y = Slice (r, axis1, ends14, axis1)",
            13,
        )
    for size, stated in (
        ("rows18", "strides=[2, 3]"),
        ("rows10", "dilations=[1, 1]"),
        ("rows8", "pads=[1, 0, 1, 2]"),
    ):
        # Each number of a channel is one of the six cells of a patch of an only one.
        text = f"r = Reshape (x, one_each) y = Col2Im <{stated}> (r, {size}, block23)"
        yield Case("Col2Im", text, 18)
    # Maps of places, as CoordConv's.
    yield Case(
        "Concat",
        "a = Expand (row11, two_maps) b = Expand (column9, two_maps) c = Concat <axis=1> (a, b) "
        "r = Relu (x) y = Concat <axis=1> (c, x, a, r)",
        13,
    )
    yield Case(
        "Transpose",
        "s = Shape (x) n = Gather (s, axis0) r = Concat <axis=0> (n, axis1, axis1, axis1) "
        "t = Transpose (column9) u = Unsqueeze (t, axes01) v = Tile (u, axis_all) "
        "m = Tile (v, r) w = Transpose <perm=[0, 1, 3, 2]> (m) y = Concat <axis=1> (x, w)",
        13,
    )
    yield Case("EyeLike", "e = EyeLike <k=2> (square9) y = Mul (x, e)", 9)
    yield Case("EyeLike", "e = EyeLike <k=-1> (square9) y = Mul (x, e)", 9)
    yield Case("CumSum", "y = CumSum (x, back1)", 11)
    yield Case("CumSum", "c = CumSum (row11, zeroi) y = Mul (x, c)", 11)


def _in_parts() -> Iterator[Case]:
    """What porter says by several of its ops."""
    yield Case("Tan", "t = Tanh (x) y = Tan (t)", 9)  # far from where it has no bounds
    for op in ("Asinh", "Cosh", "Sinh"):
        yield Case(op, f"y = {op} (x)", 9)
    yield Case("Acosh", "a = Abs (x) b = Add (a, two) y = Acosh (b)", 9)
    yield Case("Atanh", "t = Tanh (x) h = Mul (t, half) y = Atanh (h)", 9)
    yield from _truths()
    for upper in (0, 1):
        yield Case("Trilu", f"y = Trilu <upper={upper}> (x, onei)", 14)
    for stated in ("lambd=0.3", "lambd=0.3, bias=0.3"):
        yield Case("Shrink", f"y = Shrink <{stated}> (x)", 9)
    for op in ("ReduceLogSum", "ReduceLogSumExp"):
        yield Case(op, f"a = Abs (x) y = {op} <axes=[1]> (a)", until=17)
    for order in (1, 2):
        yield Case("LpNormalization", f"y = LpNormalization <axis={order}, p={order}> (x)", until=21)
    for order in (1, 2, 3):
        stated = f"kernel_shape=[3, 2], p={order}, strides=[2, 1], pads=[1, 1, 0, 0]"
        yield Case("LpPool", f"a = Abs (x) y = LpPool <{stated}> (a)", until=21)
        yield Case("LpPool", f"y = LpPool <{stated}> (x)", until=21)
    for order in (1, 2, 3):
        yield Case("GlobalLpPool", f"y = GlobalLpPool <p={order}> (x)", until=21)
    for axes in ("1, 2, 3", "2, 3", "-1"):
        yield Case("MeanVarianceNormalization", f"y = MeanVarianceNormalization <axes=[{axes}]> (x)", 9)
    yield Case("CenterCropPad", "y = CenterCropPad <axes=[2, 3]> (x, middle)", 18)
    yield Case("DequantizeLinear", "k = DequantizeLinear (k8, scale) y = Conv (x, k)", 10)
    for stated, zero in (("axis=0", ""), ("axis=0", ", zero8"), ("axis=-4", ", zero8")):
        text = f"k = DequantizeLinear <{stated}> (k8, scale8{zero}) y = Conv (x, k)"
        yield Case("DequantizeLinear", text, 13)
    text = "d = DequantizeLinear (dense8, scale, zero_u8) p = GlobalAveragePool (x) f = Flatten (p)"
    yield Case("DequantizeLinear", f"{text} y = Gemm <transB=1> (f, d)", 11)
    yield Case("Attention", "y = Attention <scale=0.5> (x, x, x)", 23)
    # As torch writes an adaptive pool.
    text = "t = Transpose <perm=[2, 3, 0, 1]> (x) g = GatherND (t, cells)"
    yield Case("GatherND", f"{text} y = Transpose <perm=[2, 3, 0, 1]> (g)", 12)


def _truths() -> Iterator[Case]:
    for op in ("Equal", "Greater", "Less"):
        yield Case(op, f"r = Relu (x) g = {op} (x, r) y = Where (g, x, low)", 11)
    for op in ("GreaterOrEqual", "LessOrEqual"):
        yield Case(op, f"g = {op} (x, zero) y = Where (g, x, low)", 12)
    for op in ("And", "Or"):
        yield Case(op, f"a = Less (x, half) b = Greater (x, low) c = {op} (a, b) y = Where (c, x, low)", 9)
    yield Case("Not", "a = Less (x, half) b = Not (a) y = Where (b, x, low)", 9)


def _pads() -> Iterator[Case]:
    for mode in ("constant", "edge", "reflect"):
        yield Case("Pad", f'y = Pad <mode="{mode}", pads=[0, 0, 1, 0, 0, 0, 0, 2]> (x)', until=10)
        yield Case("Pad", f'y = Pad <mode="{mode}"> (x, pads)', 11)
    yield Case("Pad", "y = Pad <pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.7> (x)", until=10)
    yield Case("Pad", "y = Pad <pads=[0, 0, -1, 0, 0, 0, 0, -2]> (x)", until=10)
    yield Case("Pad", "y = Pad (x, pads, point)", 11)
    yield Case("Pad", "y = Pad (x, crop)", 11)
    yield Case("Pad", "y = Pad (x, pads2, point, axes23)", 18)
    yield Case("Pad", 'y = Pad <mode="edge"> (x, pads2, , axes23)', 18)
    yield Case("Pad", 'y = Pad <mode="wrap"> (x, pads)', 19)


def _resizes() -> Iterator[Case]:
    yield Case("Upsample", 'y = Upsample <mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]> (x)', until=8)
    yield Case("Upsample", "y = Upsample (x, scales)", 9, 9)
    yield Case("Resize", "y = Resize (x, scales)", 10, 10)
    for rule in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric"):
        for nearest in ("floor", "round_prefer_floor", "round_prefer_ceil", "ceil"):
            if rule == "half_pixel_symmetric" and nearest != "floor":
                continue
            stated = f'<coordinate_transformation_mode="{rule}", nearest_mode="{nearest}">'
            first = 19 if rule == "half_pixel_symmetric" else 11
            yield Case("Resize", f"y = Resize {stated} (x, roi, scales)", first)
    stated = '<coordinate_transformation_mode="asymmetric", nearest_mode="floor">'
    yield Case("Resize", f"y = Resize {stated} (x, , scales2)", 13)
    yield Case("Resize", f"y = Resize {stated} (x, , , sizes)", 13)
    yield Case("Resize", "y = Resize (x, , scales2)", 13)
    for axes in ("2, 3", "3, 2"):  # the reference implementation takes none that counts from the end
        yield Case("Resize", f"y = Resize <axes=[{axes}]> (x, , factors)", 18)
    yield Case("Resize", f"y = Resize {stated[:-1]}, axes=[3]> (x, , , size33)", 18)
    yield Case("Upsample", 'y = Upsample <mode="linear", scales=[1.0, 1.0, 2.0, 3.0]> (x)', until=8)
    yield Case("Resize", 'y = Resize <mode="linear"> (x, scales)', 10, 10)
    for rule in ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners"):
        for mode, more in (
            ("linear", ""),
            ("cubic", ""),
            ("cubic", ", cubic_coeff_a=-0.5, exclude_outside=1"),
        ):
            stated = f'mode="{mode}", coordinate_transformation_mode="{rule}"{more}'
            yield Case("Resize", f"y = Resize <{stated}> (x, roi, scales)", 11)
            yield Case("Resize", f"y = Resize <{stated}> (x, , , others)", 13)
            yield Case("Resize", f"y = Resize <{stated}, axes=[2, 3]> (x, , fewer)", 18)
    nearest = 'coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor"'
    yield Case("Resize", f"y = Resize <{nearest}> (x, roi, scales)", 11, 12)
    yield Case("Resize", 'y = Resize <mode="linear", antialias=1, axes=[2, 3]> (x, , factors)', 18)
    yield Case("Resize", 'y = Resize <mode="cubic", antialias=1, axes=[2, 3]> (x, , factors)', 18)


def _constants() -> Iterator[Case]:
    """What porter computes from sizes and stored numbers, or reads as a part of a layer of several ops."""
    for op in ("Sqrt", "Reciprocal", "Log"):
        yield Case(op, f"y = {op} (x)", values="positive")
    for op in ("Abs", "Exp", "Floor", "Ceil", "Identity"):
        yield Case(op, f"a = {op} (x) y = Add (a, x)")
    yield Case("Erf", "y = Erf (x)", 9)
    yield Case("Dropout", "d = Dropout (x) y = Relu (d)")
    yield Case("Mod", "y = Mod <fmod=1> (x, half)", 10)
    yield Case(
        "Range",
        "s = Shape (x) n = Gather (s, place) r = Range (zeroi, n, onei) c = Cast <to=1> (r) u = "
        "Unsqueeze (c, axis1) "
        "y = Mul (x, u)",
        13,
    )
    yield Case("ConstantOfShape", "s = Shape (x) z = ConstantOfShape (s) y = Add (x, z)", 9)
    yield Case("Constant", "c = Constant <value=float[1] {0.3}> () y = Mul (x, c)")
    yield Case("Constant", "c = Constant <value_float=0.3> () y = Mul (x, c)", 12)
    yield Case("Where", "g = Greater (x, half) y = Where (g, x, low)", 9)
    yield Case("Where", "b = Add (x, twenty) g = Greater (b, twenty) s = Softplus (b) y = Where (g, b, s)", 9)


def cases() -> Iterator[Case]:
    yield from _of_each("LeakyRelu", "alpha=0.3", "alpha=0.01", "alpha=0.2")
    yield from _of_each("Elu", "alpha=0.7", "alpha=1.3")
    yield from _of_each("Celu", "alpha=0.7", since=12)
    yield from _of_each("Selu", "alpha=1.2, gamma=0.9")
    yield from _of_each("HardSigmoid", "alpha=0.16666667", "alpha=0.3, beta=0.4", "alpha=0.2, beta=0.5")
    yield from _of_each("ThresholdedRelu", "alpha=0.3", "alpha=0.1", since=10)
    yield from _of_each("Gelu", 'approximate="tanh"', 'approximate="none"', since=20)
    yield from (replace(case, runtime=False) for case in _of_each("Swish", "alpha=1.7", since=24))
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        first[schema.name] = min(schema.since_version, first.get(schema.name, NEWEST))
    for op in (*(kind for kind, row in PLAIN.items() if not row.attributes), "Abs", "Neg", "Mish"):
        yield from _of_each(op, since=max(first[op], OLDEST_OPSET))
    yield Case("Clip", "y = Clip (x)")
    yield Case("Clip", "y = Clip <min=-0.3, max=0.7> (x)", until=10)
    yield Case("Clip", "y = Clip <max=0.7> (x)", until=10)
    for bounds in ("low, six", "low", ", point", "zero, six", "point, low"):
        yield Case("Clip", f"y = Clip (x, {bounds})", 11)
    for slope in ("along", "slope1", "map"):
        yield Case("PRelu", f"y = PRelu (x, {slope})")
    yield _features("PRelu", "y = PRelu (f, flat6)")
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from _softmax(op)
    for op in ("MaxPool", "AveragePool"):
        yield from _pools(op)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield Case(op, f"y = {op} (x)")
        yield Case(op, f"r = Reshape (x, grouped) y = {op} (r)")
    for made in (
        _convolutions,
        _transposed,
        _reductions,
        _norms,
        _products,
        _moves,
        _in_parts,
        _pads,
        _resizes,
        _constants,
    ):
        yield from made()


def random_windows(count: int) -> Iterator[Case]:
    """Pools and convolutions of random sizes, windows and rules; none that onnxruntime is known to refuse or
    to compute wrongly (a rule with a dilation, or with a kernel shorter than its stride).
    """
    random = np.random.default_rng(2)

    def pair(low: int, high: int) -> list[int]:
        return random.integers(low, high + 1, 2).tolist()

    for _ in range(count):
        op = str(random.choice(["MaxPool", "AveragePool", "Conv", "ConvTranspose"]))
        kernel, stride, image = pair(1, 4), pair(1, 4), (2, 6, *pair(6, 15))
        stated: dict[str, Any] = {"kernel_shape": kernel, "strides": stride}
        rule = str(random.choice(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
        if rule.startswith("SAME"):
            stated["kernel_shape"] = kernel = np.maximum(kernel, stride).tolist()
        elif random.random() < 0.5:
            stated["dilations"] = pair(1, 2)
        if rule == "NOTSET":
            stated["pads"] = [int(random.integers(0, extent)) for extent in (*kernel, *kernel)]
        if op.endswith("Pool"):
            stated["ceil_mode"] = int(random.random() < 0.6 and rule == "NOTSET")
        if op == "AveragePool":
            stated["count_include_pad"] = int(random.random() < 0.5)
        groups = int(random.choice([1, 2, 6]))
        if op.startswith("Conv"):
            stated["group"] = groups
        if op == "ConvTranspose" and random.random() < 0.5:
            stated["output_padding"] = [int(random.integers(0, step)) for step in stride]
        if op == "ConvTranspose" and rule != "VALID" and random.random() < 0.4:
            stated.pop("pads", None)
            dilations, more = (
                stated.get(name, [even, even]) for name, even in (("dilations", 1), ("output_padding", 0))
            )
            whole = [
                (image[2 + axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilations[axis] + 1 + more[axis]
                for axis in (0, 1)
            ]
            stated["output_shape"] = [size - int(random.integers(0, 4)) for size in whole]
        shape = (6, 12 // groups, *kernel) if op == "ConvTranspose" else (12, 6 // groups, *kernel)
        rule = f'auto_pad="{rule}"' if rule != "NOTSET" else ""
        attributes = ", ".join(
            [*(f"{name}={value}" for name, value in stated.items()), *([rule] if rule else [])]
        )
        weights = f", k{'x'.join(map(str, shape))}" if op.startswith("Conv") else ""
        newest = 19 if op == "AveragePool" else 11
        yield Case(op, f"y = {op} <{attributes}> (x{weights})", newest, newest, image=image)


def _number(name: str) -> Any:
    """A stored tensor; one such as k6x3x2x2 is a kernel of that shape."""
    if name in NUMBERS:
        return NUMBERS[name]
    shape = [int(size) for size in name.removeprefix("k").split("x")]
    return np.float32(np.random.default_rng(3).standard_normal(shape))


def model(case: Case, opset: int) -> Any:
    """ModelProto of a case: the image has a free batch where its nodes allow it."""
    graph = onnx.parser.parse_graph(
        f"g (float[{','.join(map(str, case.image))}] x) => (float y) {{ {case.text} }}"
    )
    given = {value for node in graph.node for value in node.output}
    for name in dict.fromkeys(value for node in graph.node for value in node.input):
        if name and name != "x" and name not in given:
            graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(_number(name)), name))
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
