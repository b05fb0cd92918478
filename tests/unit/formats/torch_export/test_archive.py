"""Archives of every torch, and those that nobody should send."""

from __future__ import annotations

import io
import json
import math
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import porter
from porter.base.errors import MappingError, UsageError
from porter.filegraph.file_graph import Foreign
from porter.formats.reading import read_checkpoint
from porter.formats.recognition import recognise
from porter.padding import ANY
from porter.source.open import open_source
from porter.source.place import find
from tests.support.checkout import ROOT
from tests.support.formats.torch_export.exports import export
from tests.support.refusals import unreadable

pytestmark = [
    pytest.mark.filterwarnings("ignore:No complete tensor", "ignore:.*treespec"),
    pytest.mark.usefixtures("in_double"),
]
Members = dict[str, bytes]
WEIGHTS = "data/weights/model_weights_config.json"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.turned = nn.Parameter(torch.randn(4, 4).t())
        self.register_buffer("offset", torch.tensor([0.5, 1.0, 2.0, 4.0]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).relu().mean((2, 3)) @ self.turned + self.offset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.export.ExportedProgram, Members]:
    """A program, and the members of its archive."""
    path, program = export(Small().eval(), torch.randn(2, 3, 8, 8), tmp_path_factory.mktemp("made"))
    with zipfile.ZipFile(path) as archive:
        return program, {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def written(path: Path, members: Members, top: str = "model/") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(top + name, data)
    return path


def pickled(tensors: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    torch.save(tensors, stream)
    return stream.getvalue()


def layouts(program: torch.export.ExportedProgram, members: Members) -> dict[str, tuple[Members, str]]:
    """By the torch that wrote them: members, and the folder that they stand in (torch/export/__init__.py of
    torch 2.7 and 2.8).
    """
    weights, constants = pickled(program.state_dict), pickled(program.constants)
    model = members["models/model.json"]
    old = {
        "serialized_exported_program.json": model,
        "serialized_state_dict.pt": weights,
        "serialized_constants.pt": constants,
    }
    newer = {"archive_format": b"pt2", "models/model.json": model}
    return {
        "2.9": (members, "model/"),
        "2.8": ({**newer, "data/weights/model.pt": weights, "data/constants/model.pt": constants}, "model/"),
        "2.7": ({**old, "version": b"8.5"}, ""),
    }


@pytest.mark.parametrize("version", ["2.9", "2.8", "2.7"])
@pytest.mark.parametrize("suffix", [".pt2", ".zip"])
def test_archives_of_every_torch(
    made: tuple[Any, Members], version: str, suffix: str, tmp_path: Path
) -> None:
    members, top = layouts(*made)[version]
    path = written(tmp_path / f"a{suffix}", members, top)
    assert recognise(path).name == "torch-export"
    checkpoint = read_checkpoint(path)
    assert checkpoint.graph is not None
    assert [node.name for node in checkpoint.graph.nodes] == ["conv", "relu", "mean", "add"]
    expected = {**made[0].state_dict, **made[0].constants}
    assert checkpoint.tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(checkpoint.tensors[name], tensor.detach().numpy())


def test_the_page_s_lines_make_an_archive_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    lines = next(
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "torch.export" in block
    )
    monkeypatch.chdir(tmp_path)
    exec(lines, {"torch": torch, "model": Small()})
    graph = read_checkpoint(tmp_path / "flowers.pt2").graph
    assert graph is not None and graph.size == ANY


def with_json(name: str, change: Callable[[Any], Any]) -> Callable[[Members], Members]:
    def changed(members: Members) -> Members:
        content = json.loads(members[name])
        return {**members, name: json.dumps(change(content) or content).encode()}

    return changed


def program(change: Callable[[Any], Any]) -> Callable[[Members], Members]:
    return with_json("models/model.json", lambda content: change(content["graph_module"]["graph"]))


def weight(**stated: Any) -> Callable[[Members], Members]:
    def change(content: Any) -> None:
        content["config"]["conv.weight"]["tensor_meta"] |= stated

    return with_json(WEIGHTS, change)


def entry(**stated: Any) -> Callable[[Members], Members]:
    return with_json(WEIGHTS, lambda content: content["config"]["conv.weight"].update(stated))


def number(value: int) -> dict[str, int]:
    return {"as_int": value}


def loop(graph: Any) -> None:
    graph["nodes"][0]["inputs"][0]["arg"] = {"as_tensor": {"name": graph["nodes"][-1]["name"]}}


def twice(graph: Any) -> None:
    graph["nodes"].append(graph["nodes"][0])


def without(members: Members, name: str) -> Members:
    return {other: data for other, data in members.items() if other != name}


class Runs:
    """Writes a file where its pickle is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.write_text, (self.path, "ran")


def call(target: str, output: dict[str, Any], **inputs: Any) -> dict[str, Any]:
    arguments = [{"name": name, "arg": argument, "kind": 1} for name, argument in inputs.items()]
    return {"target": target, "inputs": arguments, "outputs": [output], "metadata": {}}


BROKEN: dict[str, tuple[Callable[[Members], Members], str]] = {
    "no program": (lambda members: {"archive_format": b"pt2"}, "no exported program, perhaps compiled code"),
    "two programs": (lambda members: {**members, "models/other.json": b"{}"}, "2 programs, expected one"),
    "no JSON": (lambda members: {**members, "models/model.json": b"{'a'"}, "its JSON is damaged"),
    "deep JSON": (lambda members: {**members, "models/model.json": b"[" * 100_000}, "its JSON is damaged"),
    "another program": (
        lambda members: {**members, "models/model.json": b"[1]"},
        "schema None, and porter reads schema 8",
    ),
    "another schema": (
        with_json("models/model.json", lambda content: content | {"schema_version": {"major": 5}}),
        "schema 5",
    ),
    "no nodes": (program(lambda graph: graph.clear()), "the program is damaged"),
    "nodes of another kind": (program(lambda graph: graph["nodes"].insert(0, 7)), "the program is damaged"),
    "a loop": (program(loop), "which nothing before it gives"),
    "a value without a name": (
        program(lambda graph: graph["nodes"][0]["outputs"][0]["as_tensor"].update(name="a.b")),
        "not a name of a value",
    ),
    "a value given twice": (program(twice), "two nodes give 'conv2d'"),
    "an output that nothing gives": (
        with_json(
            "models/model.json",
            lambda content: content["graph_module"]["signature"]["output_specs"][0]["user_output"].update(
                arg={"as_tensor": {"name": "z"}}
            ),
        ),
        "the program is damaged: it lacks 'z'",
    ),
    "a power of large numbers": (
        program(
            lambda graph: graph["nodes"].append(
                call(
                    "torch.ops.aten.pow.Scalar",
                    {"as_tensor": {"name": "p"}},
                    self=number(1 << 64),
                    exponent=number(1 << 40),
                )
            )
        ),
        "a number has more than 64 bits",
    ),
    "an infinite size": (
        program(lambda graph: graph["tensor_values"]["x"]["sizes"].insert(0, {"as_int": math.inf})),
        "the program is damaged: cannot convert float infinity",
    ),
    "no weights": (
        lambda members: {name: members[name] for name in members if "weight_0" not in name},
        "lacks 'data/weights/weight_0'",
    ),
    "too large": (weight(sizes=[number(1 << 60)] * 4), "its data has 432 bytes"),
    "any size by no strides": (
        weight(sizes=[number(1 << 60)], strides=[number(0)]),
        "its data has 432 bytes",
    ),
    "beyond its storage": (weight(storage_offset=number(50)), "its data has 432 bytes"),
    "before its storage": (weight(storage_offset=number(-1)), "its data has 432 bytes"),
    "of no type": (weight(dtype=29), "not a dense tensor of real numbers"),
    "sparse": (weight(layout=1), "not a dense tensor of real numbers"),
    "of no size": (weight(sizes=None), "the list of weights is damaged"),
    "as an object": (entry(use_pickle=True), "is pickled, as an object"),
    "a path outside": (
        entry(path_name="weight_/../../../secret"),
        "lacks 'data/weights/weight_/../../../secret'",
    ),
}


def computed_size(kind: str) -> Callable[[Any], None]:
    """A reshape to a size that is computed in 45 steps, each from the one before and itself."""

    def change(graph: Any) -> None:
        image = {"as_tensor": {"name": "conv2d"}}
        sizes = [{"as_sym_int": {"as_name": f"size_{step}"}} for step in range(46)]
        first = call("torch.ops.aten.sym_size.int", sizes[0], self=image, dim=number(2))
        steps = [call(f"_operator.{kind}", after, a=before, b=before) for before, after in pairwise(sizes)]
        shape = {"as_sym_ints": [*map(number, (2, 4)), {"as_name": "size_45"}, number(8)]}
        graph["nodes"][1:1] = [
            first,
            *steps,
            call("torch.ops.aten.view.default", {"as_tensor": {"name": "viewed"}}, self=image, size=shape),
        ]
        graph["nodes"][48]["inputs"][0]["arg"] = {"as_tensor": {"name": "viewed"}}

    return change


def deep(graph: Any) -> None:
    graph["nodes"][0]["metadata"]["nn_module_stack"] = f"a,{'a.' * (1 << 18)}a,b"


HOSTILE: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "sums of sums": (computed_size("add"), True),
    "squares of squares": (computed_size("mul"), True),
    "a path of many modules": (deep, False),
    "an op without its kernel": (lambda graph: graph["nodes"][0]["inputs"].pop(1) and None, True),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_programs_take_no_time_and_no_memory(
    made: tuple[Any, Members], name: str, tmp_path: Path
) -> None:
    """Each is read, and with a foreign layer where porter cannot say it."""
    change, foreign = HOSTILE[name]
    graph = read_checkpoint(written(tmp_path / "a.pt2", program(change)(made[1]))).graph
    assert graph is not None
    assert any(isinstance(node.op, Foreign) for node in graph.nodes) == foreign


def hinted(hint: Any) -> Callable[[Any], Any]:
    def change(content: Any) -> None:
        for size in content["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][2:]:
            size["as_expr"]["hint"] = hint

    return change


SIZES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "as they are": (lambda content: None, ANY),
    "a large image": (hinted(number(5000)), (5000, 5000)),
    "many short guards": (
        lambda content: (hinted(number(4096))(content), content.update(guards_code=["1"] * 65536))[1],
        (4096, 4096),
    ),
    "many guards": (lambda content: content.update(guards_code=["1 < 2"] * (1 << 18)), (8, 8)),
    "sizes of another kind": (hinted({"as_int": "a"}), "the program is damaged: invalid literal"),
    "no ranges": (
        lambda content: content.pop("range_constraints") and None,
        "the program is damaged: it lacks 'range_constraints'",
    ),
    "guards of another kind": (
        lambda content: content.update(guards_code=[7]),
        "the program is damaged: sequence item 0",
    ),
}


def test_hostile_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = export(Small().eval(), torch.randn(2, 3, 8, 8), tmp_path, free=True)
    with zipfile.ZipFile(path) as archive:
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    for name, (change, expected) in SIZES.items():
        changed = written(tmp_path / "a.pt2", with_json("models/model.json", change)(members))
        if isinstance(expected, str):
            unreadable(changed, expected)
            continue
        graph = read_checkpoint(changed).graph
        assert graph is not None and graph.size == expected, name
    monkeypatch.setattr("porter.formats.torch_export.guards._MOST_SHAPES", 15)
    graph = read_checkpoint(path).graph
    assert graph is not None and graph.size == (8, 8)


@pytest.mark.parametrize("name", ["models/model.json", WEIGHTS])
def test_json_that_takes_far_more_memory_than_bytes_is_not_parsed(
    made: tuple[Any, Members], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**made[1], name: b"[" + b"[]," * (8 << 20) + b"0]"}.items():
            archive.writestr(f"model/{member}", data)
    tracemalloc.start()
    unreadable(path, "has more than 2097152 values")
    assert tracemalloc.get_traced_memory()[1] < 128 << 20
    tracemalloc.stop()


@pytest.mark.usefixtures("one_recipe")
@pytest.mark.parametrize("images", [1 << 24, 1 << 40])
def test_a_batch_without_end_is_not_filled(made: tuple[Any, Members], images: int, tmp_path: Path) -> None:
    def change(graph: Any) -> None:
        for value in graph["tensor_values"].values():
            if value["sizes"][:1] == [number(2)]:
                value["sizes"][0] = number(images)

    path = written(tmp_path / "a.pt2", program(change)(made[1]))
    found = porter.convert(path, to="tf", out=tmp_path / "port")
    assert not found.port.record.proved and any(
        f"takes {images} images at once" in warning for warning in found.warnings
    )


@pytest.mark.parametrize("name", BROKEN)
def test_broken_archives_are_refused_in_one_line(
    made: tuple[Any, Members], name: str, tmp_path: Path
) -> None:
    change, words = BROKEN[name]
    path = written(tmp_path / "a.pt2", change(made[1]))
    unreadable(path, words)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_damaged_zips(made: tuple[Any, Members], tmp_path: Path) -> None:
    whole = written(tmp_path / "a.pt2", made[1])
    cut = tmp_path / "cut.pt2"
    cut.write_bytes(whole.read_bytes()[:-1000])
    unreadable(cut, "cut short")
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr("model/data/weights/weight_0", b"")
    unreadable(whole, "two members of this archive are called 'data/weights/weight_0'")
    bomb = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/archive_format", "pt2")
        archive.writestr("a/models/model.json", b" " * (65 << 20))
    unreadable(bomb, "declares 68157440 bytes, more than the 67108864 it can have")


@pytest.mark.parametrize("version", ["2.8", "2.7"])
def test_no_code_of_a_pickle_is_run(made: tuple[Any, Members], version: str, tmp_path: Path) -> None:
    members, top = layouts(*made)[version]
    name = "serialized_state_dict.pt" if version == "2.7" else "data/weights/model.pt"
    sentinel = tmp_path / "ran"
    unreadable(
        written(tmp_path / "a.pt2", {**members, name: pickled({"conv.weight": Runs(sentinel)})}, top),
        "porter runs no code",
    )
    assert not sentinel.exists()


class Reads(nn.Module):
    """What a program does that porter's graphs cannot say."""

    def __init__(self, forward: Callable[[nn.Module, Any], Any]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.call = forward

    def forward(self, x: Any) -> Any:
        return self.call(self.conv, x)


def changes(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    value = conv(x)
    part = value[:, :2]
    value.relu_()
    return part + 1


def changes_beside(conv: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return changes(conv, x), x.logcumsumexp(1)


def changes_expanded(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    value = conv(x)
    value.expand_as(value).relu_()
    return value + 1


def summed(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    value = x.logcumsumexp(1).relu_() + x
    return conv(value)


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_what_is_refused_is_the_op_and_not_what_stands_before_it(tmp_path: Path) -> None:
    """A norm that keeps no statistics has them of its input also in eval mode, and an LSTM's steps may come
    before its batch.
    """

    class Net(torch.nn.Module):
        def __init__(self, last: torch.nn.Module) -> None:
            super().__init__()
            self.last = last

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.last(
                image if isinstance(self.last, torch.nn.BatchNorm2d) else image.mean(2).permute(2, 0, 1)
            )

    said = "batch_norm with the statistics of its input", "lstm"
    for last, kind in zip(
        (torch.nn.BatchNorm2d(3, track_running_stats=False), torch.nn.LSTM(3, 5)), said, strict=True
    ):
        path, _ = export(Net(last).eval(), torch.randn(2, 3, 8, 8), tmp_path)
        with pytest.raises(MappingError, match=rf"porter has no op for '[\w/]+' \({kind}\)"):
            open_source(find(path))


def test_an_op_that_porter_lacks_is_named_where_it_may_share_memory(tmp_path: Path) -> None:
    with pytest.raises(MappingError, match=r"porter has no op for 'logcumsumexp' \(logcumsumexp\)"):
        open_source(find(export(Reads(summed), torch.randn(1, 3, 4, 4), tmp_path)[0]))


def test_what_an_op_that_porter_lacks_may_have_changed_is_named_too(tmp_path: Path) -> None:
    """An output that the op does not lead to can be ported without the op."""

    def call(conv: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = conv(x)
        return value.logcumsumexp(1).relu_(), value + 1

    with pytest.raises(
        MappingError,
        match=r"'logcumsumexp' .*, 'add' \(add since 'add' uses a value that 'relu_' .* has changed\)",
    ):
        open_source(find(export(Reads(call), torch.randn(1, 3, 4, 4), tmp_path)[0]))


def writes_beside(conv: nn.Module, x: torch.Tensor) -> torch.Tensor:
    value = conv(x)
    older = value[:, :2]
    value[:, :1] = value[:, 1:2] * 2
    return older + value[:, :2]


UNREAD = {
    "a value copied into beside an older view of it": (
        writes_beside,
        torch.randn(1, 3, 4, 4),
        "uses a value that 'copy_' (aten.copy_.default) has changed",
    ),
    "a value changed after it is a part": (
        changes,
        torch.randn(1, 3, 4, 4),
        "uses a value that 'relu_' (aten.relu_.default) has changed",
    ),
    "a value changed beside an op that porter lacks": (
        changes_beside,
        torch.randn(1, 3, 4, 4),
        "uses a value that 'relu_' (aten.relu_.default) has changed",
    ),
    "a value changed through another of its size": (
        changes_expanded,
        torch.randn(1, 3, 4, 4),
        "uses a value that 'relu_' (aten.relu_.default) has changed",
    ),
    "no image": (
        lambda conv, x: x + 1,
        torch.randn(2, 3),
        "an image of rank 4 is expected as an input, found 'x' of 2x3",
    ),
    "whole numbers": (
        lambda conv, x: conv((x + x).float()),
        torch.zeros(1, 3, 4, 4, dtype=torch.uint8),
        "computes with the whole numbers of its input",
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_the_weights_are_read_where_the_graph_is_not(name: str, tmp_path: Path) -> None:
    call, image, words = UNREAD[name]
    path = export(Reads(call), image, tmp_path)[0]
    checkpoint = read_checkpoint(path)
    assert checkpoint.graph is None and "conv.weight" in checkpoint.tensors
    assert "read without the graph: " in checkpoint.notes[0] and words in checkpoint.notes[0]
    with pytest.raises(UsageError, match=re.escape(words)):
        open_source(find(path))


class Changing(nn.Module):
    """A convolution, and something that each call changes: in eval mode its norm changes nothing."""

    def __init__(self, change: Callable[[Any, Any], object] = lambda model, x: None) -> None:
        super().__init__()
        self.conv, self.norm, self.change = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), change
        self.register_buffer("scale", torch.ones(4, 1, 1))
        self.offset = nn.Parameter(torch.ones(4, 1, 1))

    def forward(self, x: Any) -> Any:
        self.change(self, x)
        return self.norm(self.conv(x)) * self.scale + self.offset


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model, x: model.scale.mul_(1.5), "each run changes the buffer 'scale'"),
        (lambda model, x: model.scale[:1].copy_(model.scale[1:2]), "each run changes the buffer 'scale'"),
        (lambda model, x: model.offset.mul_(1.5), "each run changes the parameter 'offset'"),
        (lambda model, x: x.mul_(1.5), "each run changes the input 'x'"),
    ],
)
def test_a_program_without_ops_that_change_says_in_its_signature_what_each_run_changes(
    change: Callable[[Any, Any], object], words: str, tmp_path: Path
) -> None:
    with torch.no_grad():
        path = export(Changing(change).eval(), torch.randn(1, 3, 4, 4), tmp_path, decomposed=True)[0]
        with pytest.raises(UsageError, match=words):
            open_source(find(path))
        assert (
            read_checkpoint(
                export(Changing().eval(), torch.randn(1, 3, 4, 4), tmp_path, decomposed=True)[0]
            ).graph
            is not None
        )
