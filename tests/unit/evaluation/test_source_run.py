"""Which of a source's forms runs beside a port."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from porter.base.errors import CannotRun, NotInstalled, UsageError
from porter.base.ways_to_run import FP32, Run
from porter.evaluation.source_run import source_classifier
from porter.filegraph.checkpoint import Checkpoint
from porter.graph import Dense, Node, Relu
from porter.verification.references import source_references
from porter.verification.references.own_build import OwnBuild
from porter.verification.references.zoo_reference import ZooReference
from porter.zoos.implementation import Implementation
from tests.support.evaluation.protocols import PROTOCOLS

HEAD = "head/logits"


@dataclass
class Stub:
    """A framework whose models give the numbers 0, 1, 2, ... as logits."""

    missing: bool = False
    without_gpu: bool = False
    asked: list[Any] = field(default_factory=list)
    CAPABILITIES: Any = None

    def build(self, *arguments: Any) -> str:
        if self.missing:
            raise NotInstalled("the library is not installed")
        self.asked.append(arguments)
        return "reference"

    def classifier(self, model: Any, protocol: Any, device: str, how: Run, tap: str | None = None) -> Any:
        if self.without_gpu and device != "cpu":
            raise UsageError("it sees no GPU")
        self.asked.append((model, device, how, tap))
        return lambda pixels: lambda: np.arange(5, dtype=np.float32)[np.newaxis]


def reference(framework: Any, without_background: str | None = None) -> ZooReference:
    checkpoint = Checkpoint(Path("weights"), "memory", "torch", {})
    code = Implementation(framework.build, lambda variant: True)
    return ZooReference(
        framework,
        code,
        "torchvision",
        "resnet18",
        5,
        checkpoint,
        {HEAD: "fc", "stem": "conv1"},
        without_background,
    )


class Own(OwnBuild):
    def classifier(self, *arguments: Any) -> Any:
        return self.graph, arguments


def opened(references: list[ZooReference], zoo: str = "tf", shipped: Any = None) -> Any:
    def given(dtype: str) -> Iterator[ZooReference]:
        assert dtype == "float64"  # the source's own numbers, not those rounded to the port's type
        yield from references

    graph = SimpleNamespace(output=HEAD)
    own = Own(Stub(), graph, {})  # type: ignore[arg-type]
    file = SimpleNamespace(format="keras-h5")
    return SimpleNamespace(
        graph=graph, shipped=shipped, references=given, own=lambda dtype: own, framework=zoo, file=file
    )


@pytest.fixture(autouse=True)
def forms_of_stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_references, "references_of", lambda source, dtype: source.references(dtype))
    monkeypatch.setattr(source_references, "own_build", lambda source, dtype: source.own(dtype))


PORT: Any = SimpleNamespace(record=SimpleNamespace(framework="torch"))


def beside(source: Any) -> Any:
    return source_classifier(PORT, source, PROTOCOLS[0], "cuda:1")


def test_the_zoos_implementation_gives_only_its_logits_in_float32() -> None:
    framework = Stub()
    name, run, warnings = beside(opened([reference(framework)]))
    assert (name, warnings) == ("torchvision", ()) and run(None)().tolist() == [[0, 1, 2, 3, 4]]
    (request,) = framework.asked[0]
    assert (request.size, request.dtype) == ((6, 6), "float32")
    assert framework.asked[1] == ("reference", "cuda:1", FP32, "fc")


def test_the_background_row_that_the_port_lost_is_left_out() -> None:
    assert beside(opened([reference(Stub(), HEAD)]))[1](None)().tolist() == [[1, 2, 3, 4]]


def test_the_files_own_dense_layers_follow_the_features() -> None:
    hidden = Node("head/hidden", Dense(2), ("pool",)), {"kernel": np.eye(2, 5), "bias": np.array([-1.0, 2.0])}
    last = Node(HEAD, Dense(1, bias=False), ("head/hidden_relu",)), {"kernel": np.array([[1.0, 10.0]])}
    behind: tuple[Any, ...] = (hidden, (Node("head/hidden_relu", Relu(), ("head/hidden",)), {}), last)
    framework = Stub()
    run = beside(opened([replace(reference(framework), taps={"pool": "avgpool"}, behind=behind)]))[1]
    assert run(None)().tolist() == [[30.0]] and framework.asked[1][3] == "avgpool"


def test_porters_own_build_where_nothing_else_runs() -> None:
    source = opened([reference(Stub(missing=True))])
    name, run, warnings = beside(source)
    assert name == "self" and run[0] is source.graph
    assert (
        warnings[0] == "torchvision was not run: the library is not installed" and "own build" in warnings[1]
    )


def test_a_form_that_takes_another_size_is_passed_over() -> None:
    fixed = reference(Stub())
    fixed.takes = lambda size: False  # type: ignore[method-assign]
    name, _, warnings = beside(opened([fixed]))
    assert name == "self" and "cannot be run at 6x6" in warnings[0]


def test_a_source_whose_framework_sees_no_gpu_runs_on_the_cpu() -> None:
    framework = Stub(without_gpu=True)
    name, _, warnings = beside(opened([reference(framework)]))
    assert (name, warnings) == ("torchvision", ("the source ran on the CPU: it sees no GPU",))
    assert framework.asked[-1] == ("reference", "cpu", FP32, "fc")


def test_a_port_beside_itself_proves_nothing() -> None:
    with pytest.raises(CannotRun, match="that is the port itself"):
        beside(opened([], zoo="torch"))


def test_the_source_of_a_port_as_trained_keeps_the_pads_that_it_ships() -> None:
    shipped = SimpleNamespace(output=HEAD)
    assert beside(opened([reference(Stub())], shipped=shipped))[0] == "torchvision, with the shipped pads"
    assert beside(opened([], shipped=shipped))[1][0] is shipped
