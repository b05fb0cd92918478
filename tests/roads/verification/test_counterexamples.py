"""Wrong ports that porter proved once, each with the right one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.dtypes import Array
from porter.graph import INPUT, Clip, Conv, Graph, Identity, Node, Op, SliceChannels
from porter.graph.ops import CropAxis, ThresholdedRelu
from porter.graph.plan import make_plan
from porter.padding import Convention
from porter.port import StoredPort
from porter.source.reopening import reopen_source
from porter.verification.check import Check
from porter.verification.proving import prove_against
from porter.verification.verdict import Verdict

RNG = np.random.default_rng(1)
KERNEL = RNG.normal(size=(4, 3, 3, 3))
FAINT = 1e-4 * KERNEL
"""Of a convolution that no image takes to a bound."""

Plant = Callable[[Graph], Graph]


def changed(path: str, **changes: Any) -> Plant:
    """Another op, or other inputs, at a path."""
    return lambda graph: replace(
        graph, nodes=tuple(replace(node, **changes) if node.path == path else node for node in graph.nodes)
    )


def without(kind: type[Op]) -> Plant:
    """What reads the node of this op reads what that reads."""

    def planted(graph: Graph) -> Graph:
        (lost,) = (node for node in graph.nodes if isinstance(node.op, kind))
        kept = (node for node in graph.nodes if node is not lost)
        return replace(graph, nodes=tuple(replace(node, inputs=rewired(node, lost)) for node in kept))

    return planted


def rewired(node: Node, lost: Node) -> tuple[str, ...]:
    return tuple(lost.inputs[0] if path == lost.path else path for path in node.inputs)


def swapped(graph: Graph) -> Graph:
    return changed("b", inputs=(INPUT,))(changed("a", inputs=("z",))(graph))


def of_every_second(graph: Graph) -> Graph:
    ((path, op),) = ((node.path, node.op) for node in graph.nodes if isinstance(node.op, CropAxis))
    return changed(path, op=replace(op, after=1))(graph)


def padded_at_the_end(graph: Graph) -> Graph:
    """As SAME pads even maps."""
    conv = graph.by_path["y"].op
    assert isinstance(conv, Conv)
    return changed("y", op=replace(conv, convention=Convention("explicit", (0, 1, 0, 1))))(graph)


TOKENS = (
    "c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, k) f = Reshape (c, flat) "
    "t = Transpose <perm = [0, 2, 1]> (f) s = Slice (t, zero, last, one, two) "
    "y = ReduceMean <axes = [1], keepdims = 0> (s)"
)
CASES: dict[str, tuple[str, Mapping[str, Any], Plant]] = {
    "inputs that are swapped": (
        "(float[N,1,8,8] x, float[N,1,8,8] z) => (float[N,2,1,1] y) "
        "{ a = GlobalAveragePool (x) b = GlobalMaxPool (z) y = Concat <axis = 1> (a, b) }",
        {},
        swapped,
    ),
    "other channels of an input that has more of them": (
        "(float[N,3,8,8] x, float[N,6,8,8] z) => (float[N,3,8,8] y) "
        "{ s = Slice (z, zero, three, one) y = Add (x, s) }",
        {"zero": [0], "three": [3], "one": [1]},
        changed("s", op=SliceChannels(3, 6)),
    ),
    "a bound of 1e-12 before a logarithm": (
        "(float[N,3,12,11] x) => (float[N,4,10,9] y) "
        "{ c = Conv (x, k) s = Softmax <axis = 1> (c) r = Clip (s, low) y = Log (r) }",
        {"k": KERNEL, "low": 1e-12},
        without(Clip),
    ),
    "a bound that is no node's": (
        "(float[N,3,12,11] x) => (float[N,4,10,9] y) "
        "{ c = Conv (x, k) s = Softmax <axis = 1> (c) r = Clip (s, low) y = Log (r) }",
        {"k": KERNEL, "low": 1e-12},
        changed("r", op=Identity()),
    ),
    "a step beside a largest one": (
        "(float[N,1,2,2] x) => (float[N,2,2,2] y) { t = ThresholdedRelu <alpha = 0.065> (x) "
        "m = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x) y = Concat <axis = 1> (m, t) }",
        {},
        changed("t", op=ThresholdedRelu(0.0715)),
    ),
    **{
        f"a bound of 50 before {name}": (
            "(float[N,3,12,11] x) => (float[N,4,R,C] y) "
            f"{{ c = Conv (x, k) r = Clip (c, low, high) {body} }}",
            {"k": FAINT, "low": -50, "high": 50, **more},
            without(Clip),
        )
        for name, body, more in (
            ("an exponential", "y = Exp (r)", {}),
            ("a power", "y = Pow (r, three)", {"three": 3}),
            ("a product", "t = Transpose <perm = [0, 1, 3, 2]> (c) y = MatMul (r, t)", {}),
        )
    },
    "tokens that are even at most sizes": (
        f"(float[N,3,H,W] x) => (float[N,4] y) {{ {TOKENS} }}",
        {"k": KERNEL, "flat": [0, 4, -1], "zero": [0], "last": [1 << 40], "one": [1], "two": [2]},
        of_every_second,
    ),
    **{
        f"odd maps behind {name}": (
            "(float[N,3,H,W] x) => (float[N,4,R,C] y) "
            f'{{ a = {name} (x) y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (a, k) }}',
            {"k": kernel},
            padded_at_the_end,
        )
        for name, kernel in (
            ("SpaceToDepth <blocksize = 4>", RNG.normal(size=(4, 48, 3, 3))),
            ("Transpose <perm = [0, 1, 3, 2]>", KERNEL),
        )
    },
}


def proved(port: StoredPort, file: Path) -> Verdict:
    return prove_against(Check(port), reopen_source(port, file, None))[0]


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("name", CASES)
def test_a_wrong_port_that_was_proved_once(name: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text, tensors, plant = CASES[name]
    model: Any = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> net {text}')
    for tensor, content in tensors.items():
        array: Array = np.asarray(content)
        whole = tensor in ("zero", "one", "two", "last", "flat") or (tensor == "three" and array.ndim)
        array = array.astype(np.int64 if whole else np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, tensor))
    file = tmp_path / "net.onnx"
    onnx.save(model, file)
    size = "any" if "[N,3,H,W]" in text else None
    port = porter.convert(file, to="torch", out=tmp_path / "port", check=False, input_size=size).port
    right = proved(port, file)
    assert right.ok and right.proof.cut is not None and right.proof.cut.inside == ()
    graph = plant(port.graph)
    plan = make_plan(graph, port.plan.only_size or (None, None), port.destination.CAPABILITIES)
    assert not proved(replace(port, graph=graph, plan=plan), file).ok
