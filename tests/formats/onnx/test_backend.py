"""ONNX's own tests of single operators: what porter reads gives their outputs in torch and in Keras, or is refused by name."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.dtypes import Array
from porter.base.errors import FileError, GraphError, PaddingError
from porter.filegraph.file_graph import Foreign
from porter.formats.onnx.plain import PLAIN
from porter.formats.reading import read_checkpoint
from porter.frameworks import get_destination
from porter.graph.plan import make_plan
from tests.filegraph.values import translated

onnx = pytest.importorskip("onnx")

OF_MAPS = frozenset(
    {
        *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "BatchNormalization", "LRN"),
        *("DepthToSpace", "Pad", "Concat", "Flatten"),
    }
)
OF_EACH = frozenset(
    {
        *(*PLAIN, "Gelu", "Mish", "Celu", "Clip", "Swish", "Neg"),
    }
)
REFUSED = ("Gemm with a bias for each image", "no dilated avg_pool")


def cases() -> Iterator[tuple[str, Any, list[Array], Array]]:
    """Name, model whose weights are initialisers, images, and the first output.

    An op of each number takes an image. A matrix's rows are images, of a transposed one its columns. A Flatten that joins images
    with their channels is of a tensor that one image holds. Whole numbers are real ones.
    """
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():  # tests of other operators overflow on purpose
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        (inputs, outputs), graph = case.data_sets[0], case.model.graph
        kinds = {node.op_type for node in graph.node} - {"Constant", "Identity"}
        if (
            len(kinds) != 1
            or "training" in case.name
            or not inputs
            or not isinstance(inputs[0], np.ndarray)
            or inputs[0].dtype not in (np.float32, np.int32)
        ):
            continue
        (kind,) = kinds
        x, y = inputs[0].astype(np.float32), outputs[0]
        nodes, first = graph.node, graph.input[0].name
        del graph.output[1:]
        if kind in OF_EACH and x.ndim:
            shape = (1, x.size, 1, 1) if x.ndim < 4 else x.shape
            x, y = x.reshape(shape), y.reshape(shape)
        elif kind == "Gemm":
            transposed = any(attribute.name == "transA" for attribute in nodes[0].attribute)
            if transposed:
                nodes.insert(0, onnx.helper.make_node("Transpose", ["rows"], [first]))
            nodes.insert(0, onnx.helper.make_node("Flatten", ["image"], ["rows" if transposed else first]))
            graph.input[0].name = "image"
            x = (x.T if transposed else x)[:, :, None, None]
        elif kind not in OF_MAPS or x.ndim != 4:
            continue
        elif kind == "Flatten" and outputs[0].shape[0] != x.shape[0]:
            nodes[0].output[0] = "flat"
            nodes.insert(0, onnx.helper.make_node("Reshape", ["image", "tensor"], [first]))
            nodes.append(onnx.helper.make_node("Reshape", ["flat", "whole"], ["joined"]))
            nodes.append(onnx.helper.make_node("Relu", ["joined"], [graph.output[0].name]))  # a model that only reshapes is none
            graph.input[0].name = "image"
            whole = (1, x.shape[0] * x.shape[1], *x.shape[2:])
            graph.initializer.extend(
                onnx.numpy_helper.from_array(np.array(n), name) for n, name in ((x.shape, "tensor"), (whole, "whole"))
            )
            x, y = x.reshape(whole), np.maximum(y, 0).reshape(whole)
        stored = [
            onnx.numpy_helper.from_array(np.asarray(array), value.name)
            for value, array in zip(graph.input[1:], inputs[1:], strict=False)
        ]
        graph.initializer.extend(stored)
        image = onnx.helper.make_tensor_value_info(graph.input[0].name, 1, list(x.shape))
        del graph.input[:]
        graph.input.append(image)
        yield case.name, case.model, x, y


def refusal(model: Any, path: Path) -> Any:
    """The checkpoint, or why porter refuses it."""
    path.write_bytes(model.SerializeToString())
    try:
        checkpoint = read_checkpoint(path)
    except FileError as error:
        return error.message
    assert checkpoint.graph is not None
    foreign = [node.op.kind for node in checkpoint.graph.nodes if isinstance(node.op, Foreign)]
    return foreign[0] if foreign else checkpoint


@pytest.mark.full
def test_every_operator_is_exact_or_refused_by_name(tmp_path: Path) -> None:
    found: Counter[str] = Counter()
    for name, model, x, y in cases():
        checkpoint = refusal(model, tmp_path / "model.onnx")
        if isinstance(checkpoint, str):
            found[f"refused: {checkpoint}"] += 1
            continue
        graph, tensors = translated(checkpoint.graph, checkpoint.tensors)
        for framework in map(get_destination, ("torch", "tf")):
            try:
                plan = make_plan(graph.graph, x.shape[2:], framework.CAPABILITIES)
            except (PaddingError, GraphError) as error:
                found[f"refused by {framework.NAME}: {error.message}"] += 1
                continue
            engine, output = framework.ENGINE, graph.graph.output
            value = engine.run(engine.build(plan, tensors, {}, "float32", "cpu"), x, [output])[output]
            rounding = 1e-5 if (y != y.round(4)).any() else 1e-4  # some outputs are written with four digits
            assert value.size == y.size and np.allclose(value.reshape(y.shape), y, rtol=rounding, atol=rounding), (
                name,
                framework.NAME,
            )
            found[f"exact in {framework.NAME}"] += 1
    counts = [found.pop(f"exact in {name}") for name in ("torch", "tf")]
    assert counts == [118, 118] and all(reason.endswith(REFUSED) for reason in found), (counts, found)
