"""Caffe's and MXNet's ports, which porter's own engine runs: every op, recipes, files, a mistaken writer, and
files that someone changed; and what OpenCV, or under `full` MXNet, computes of the files.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CheckFailed, FileError, GraphError, MappingError, UsageError
from porter.formats.reading import read_checkpoint
from porter.frameworks import get_destination
from porter.frameworks.caffe import destination as caffe
from porter.frameworks.mxnet import destination as mxnet
from porter.frameworks.numpy.nets import NetDestination
from porter.graph import ConvTranspose, LayerNorm, Rearrange
from porter.graph.plan import Plan, make_plan
from porter.padding import ANY, Size
from porter.recipe import expand
from tests.support.arrays import Array
from tests.support.caffe_files import run_by_opencv, write_caffe
from tests.support.frameworks.every_op import OF_MAPS, SIZE, images, tensors_of
from tests.support.frameworks.sayable import (
    AT_SIZES,
    expect_equal_tensors,
    expect_every_op,
    expect_near,
    expect_refused,
    plant_in_the_writer,
    sayable_plan,
    sizes_of,
)
from tests.support.frameworks.small_variants import REFUSED, WITHOUT_LAYER_NORMS, cases, small
from tests.support.mxnet_files import write_mxnet
from tests.support.mxnet_runs import NEEDS_MXNET, run_symbol
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference
from tests.support.recipe.recipes import all_recipes
from tests.support.standin_files import sign
from tests.unit.formats.caffe.test_read import NET, blobs
from tests.unit.formats.mxnet.test_read import LINES, arrays

ROUNDED = 1e-5
NO_ARRAYS = {
    "caffe": "Caffe's layers take maps and features, not arrays of other axes",
    "mxnet": "porter writes maps and features for MXNet, not arrays of other axes",
}


def opencv(folder: Path, plan: Plan, batch: Array) -> dict[str, Array]:
    """The outputs of a port for Caffe, but of dilated ConvTransposes: OpenCV 4.14 leaves out the dilation of
    a Deconvolution, which Caffe has (deconv_layer.cpp).
    """
    values = caffe.DESTINATION.make_net(plan).values
    paths = [path for path in plan.graph.outputs if not dilated(plan.graph.by_path[path].op)]
    found = run_by_opencv(folder / "model.prototxt", batch, [values[path] for path in paths])
    # OpenCV's arrays in Python have two axes at least.
    numbers = {path for path in paths if len(plan.graph.open_shapes[path]) == 0}
    return {path: found[values[path]][:, 0] if path in numbers else found[values[path]] for path in paths}


def dilated(op: object) -> bool:
    return isinstance(op, ConvTranspose) and op.window.dilation != (1, 1)


def of_mxnet(folder: Path, plan: Plan, batch: Array) -> dict[str, Array]:
    return dict(zip(plan.graph.outputs, run_symbol(folder, batch, batch.dtype.name), strict=True))


@dataclass(frozen=True)
class Case:
    """A destination as its tests know it.

    Attributes:
        refusals: what it says of ops that it has but not in every form; of the others it says it in the same
            words.
        write: makes a file of its format in a folder, which is ported for images of `size`.
        changes: of the text of a port's net: a pattern, what is put there, and what is said of it then.
        lost: a tensor's name in a port, the one that is put there, and what is said then.
        run: gives the outputs of a port's files as another program computes them, in `dtypes`.
    """

    framework: NetDestination[Any]
    refusals: set[str]
    write: Callable[[Path], Path]
    size: tuple[int, int]
    changes: tuple[tuple[str, str, str], ...]
    lost: tuple[bytes, bytes, str]
    run: Callable[[Path, Plan, Array], Mapping[str, Array]]
    dtypes: Any

    @property
    def lacks(self) -> str:
        return f"porter writes no layer of {self.framework.TITLE} for a"

    def port(self, file: Path, folder: Path, **more: Any) -> Any:
        out, to = folder / "port", self.framework.NAME
        return porter.convert(file, to=to, input_size=self.size, out=out, **more)


CAFFE = Case(
    caffe.DESTINATION,
    {
        "porter writes no layer of Caffe for a gelu",
        "Caffe pads with zeros only, not with -2.5",
        "Caffe's BNLL is log(1 + exp(x)) for every x, not x above 20",
        "Caffe's Eltwise takes values of one shape",
        NO_ARRAYS["caffe"],
    },
    lambda folder: write_caffe(folder / "model", NET, blobs(NET)),
    (33, 38),
    (
        ("pad_h: 1 pad_w: 1", "pad_h: 0 pad_w: 1", "'avg' differs"),
        (
            r"\Z",
            'layer { name: "more" type: "ReLU" bottom: "fc" top: "more" }',
            "it has more layers, or fewer",
        ),
    ),
    (b"scale1_statistics", b"scale1_statistic_", "expected a tensor of shape .*, got none"),
    opencv,
    ["float32"],
)
MXNET = Case(
    mxnet.DESTINATION,
    {
        "MXNet's softrelu is x above 20, not log(1 + exp(x))",
        "MXNet's Pad knows no mode symmetric",
        "MXNet's Pad knows no mode wrap",
        "porter writes MXNet's InstanceNorm, not norms of several channels",
        "porter writes no norm along an axis for MXNet",
        NO_ARRAYS["mxnet"],
    },
    lambda folder: write_mxnet(folder / "model", LINES, arrays()),
    (21, 28),
    (
        (r'"pad": "\(1, 1\)"', '"pad": "(1, 0)"', "'conv' differs"),
        ('"pooling_convention": "full"', '"pooling_convention": "valid"', "'most' differs"),
    ),
    (b"arg:fc_bias", b"arg:fc_bia_", r"fc_bias: expected a tensor of shape \(6,\), got none"),
    of_mxnet,
    ["float64", "float32"],
)
EACH = pytest.mark.parametrize("case", [CAFFE, MXNET], ids=["caffe", "mxnet"])
RUN = pytest.mark.parametrize("case", [CAFFE, pytest.param(MXNET, marks=NEEDS_MXNET)], ids=["caffe", "mxnet"])


@EACH
@AT_SIZES
def test_every_op(case: Case, size: Size, of_maps: Any) -> None:
    graph, plan, said = sayable_plan(case.framework, size, of_maps)
    assert said == case.refusals | (set() if size == ANY else {f"{case.lacks} rearrange"})
    assert plan.only_size == (None if size == ANY else SIZE)
    expect_every_op(case.framework, graph, plan)


@RUN
@AT_SIZES
def test_another_program_computes_the_same_of_the_files(
    case: Case, size: Size, of_maps: Any, tmp_path: Path
) -> None:
    graph, plan, _ = sayable_plan(case.framework, size, of_maps)
    facts = {"porter.native_size": json.dumps(SIZE), "porter.zoo": "keras"}
    case.framework.write(tmp_path, plan, tensors_of(graph), {}, "float32", facts)
    for at in sizes_of(plan):
        batch = images(at).astype(np.float32)
        wanted, found = (
            evaluate(graph, tensors_of(graph), batch.astype(float)),
            case.run(tmp_path, plan, batch),
        )
        assert len(found) > 100
        expect_near(found, wanted, ROUNDED)


@EACH
def test_the_files_are_read_back(case: Case, tmp_path: Path) -> None:
    graph, plan, _ = sayable_plan(case.framework, ANY, OF_MAPS)
    tensors = tensors_of(graph)
    case.framework.write(tmp_path, plan, tensors, {}, "float32", {})
    expect_equal_tensors(case.framework.read_port(tmp_path, plan, {}), tensors, np.float32)
    if case is CAFFE:
        stored = read_checkpoint(tmp_path / "model.prototxt").tensors
        places = {"scale_factor": "2", "scale": "0"}
        for name, number in case.framework.fillings(graph, tensors).items():
            layer, what = name.rsplit("/", 1)
            assert (stored[f"{layer}/{places[what]}"] == number).all()


@EACH
def test_what_it_lacks_is_refused_with_its_node(case: Case) -> None:
    expect_refused(case.framework, LayerNorm(1e-6), f"{case.lacks} layer norm")
    expect_refused(case.framework, Rearrange("c h w -> (h w) c"), NO_ARRAYS[case.framework.NAME])


@EACH
def test_every_recipe_has_a_net_but_those_that_are_refused_by_name(case: Case) -> None:
    refused = REFUSED[case.framework.NAME]
    for recipe in all_recipes():
        member = next(small(recipe))
        plan = make_plan(expand(member), member.native_size(), case.framework.CAPABILITIES)
        if recipe.architecture not in refused:
            parts = case.framework.text_parts(case.framework.make_net(plan).text())
            assert len(parts) > len(plan.graph.nodes)
            continue
        with pytest.raises(GraphError, match=refused[recipe.architecture]):
            case.framework.make_net(plan)


@RUN
@pytest.mark.full
@pytest.mark.parametrize("architecture", WITHOUT_LAYER_NORMS)
def test_another_program_computes_a_recipes_function(case: Case, architecture: str, tmp_path: Path) -> None:
    for each in cases(architecture, case.framework):
        facts = {"porter.native_size": json.dumps(each.images.shape[2:])}
        for dtype in case.dtypes:
            case.framework.write(tmp_path, each.plan, each.tensors, {}, dtype, facts)
            found = case.run(tmp_path, each.plan, each.images.astype(dtype))[each.plan.graph.output]
            apart = difference(found.reshape(each.wanted.shape), each.wanted)
            assert apart <= each.limits[dtype], (each.name, dtype)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each format."""
    return {case.framework.NAME: case.write(tmp_path_factory.mktemp("file")) for case in (CAFFE, MXNET)}


@EACH
def test_a_port_of_a_file(case: Case, files: Mapping[str, Path], tmp_path: Path) -> None:
    file = files[case.framework.NAME]
    made = case.port(file, tmp_path)
    assert made.verdict.ok and made.verdict.proof.reference == "the file's own graph"
    assert porter.verify(made.folder, weights=file).ok
    shutil.copytree(made.folder, tmp_path / "others", ignore=shutil.ignore_patterns("port.json"))
    net = tmp_path / "others" / case.framework.NET_FILE
    again = porter.convert(net, to="torch", out=tmp_path / "torch", check=False)
    batch, path = np.random.default_rng(0).standard_normal((2, 3, *case.size)), again.port.graph.output
    found = get_destination("torch").ENGINE.run(again.port.build(), batch.astype(np.float32), [path])[path]
    assert difference(porter.load(made.folder)(batch.astype(np.float32)), found) < ROUNDED
    for path, roles in made.port.tensors().items():
        assert all(np.array_equal(again.port.tensors()[path][role], array) for role, array in roles.items())
    said = f"porter writes {case.framework.TITLE}'s tensors in float32 and float64, not in float16"
    with pytest.raises(UsageError, match=said):
        case.port(file, tmp_path / "half", dtype="float16")


@pytest.mark.parametrize(
    ("case", "wrote", "instead"),
    [
        (CAFFE, "stride_h: 2 stride_w: 2 pad_h: 1 pad_w: 1", "stride_h: 2 stride_w: 2"),
        (CAFFE, 'bottom: "relu1" top: "pool1"', 'bottom: "scale1" top: "pool1"'),
        (CAFFE, "pool: AVE", "pool: MAX"),
        (CAFFE, "eps: 0.001", "eps: 0.002"),
        (CAFFE, "shift: -0.25", "shift: 0.25"),
        (MXNET, '"stride": "(2, 2)", "pad": "(1, 1)"', '"stride": "(2, 2)", "pad": "(0, 1)"'),
        (MXNET, '"pooling_convention": "full"', '"pooling_convention": "valid"'),
        (MXNET, '"count_include_pad": "True"', '"count_include_pad": "False"'),
        (MXNET, '"eps": "2e-05"', '"eps": "0.001"'),
        (MXNET, '"fix_gamma": "False"', '"fix_gamma": "True"'),
        (MXNET, '"scalar": "-0.5"', '"scalar": "0.5"'),
    ],
)
def test_a_mistake_of_the_writer_is_seen(
    case: Case,
    wrote: str,
    instead: str,
    files: Mapping[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_in_the_writer(monkeypatch, case.framework, wrote, instead)
    with pytest.raises(CheckFailed):
        case.port(files[case.framework.NAME], tmp_path)


@EACH
def test_files_that_were_changed(case: Case, files: Mapping[str, Path], tmp_path: Path) -> None:
    folder = case.port(files[case.framework.NAME], tmp_path, check=False).folder
    net, tensors = folder / case.framework.NET_FILE, folder / case.framework.MODEL_FILE
    written, weights = net.read_text(), tensors.read_bytes()
    for pattern, instead, said in case.changes:
        changed, places = re.subn(pattern, instead, written, count=1)
        assert places == 1
        net.write_text(changed)
        sign(folder)
        with pytest.raises(FileError, match=f"the net is not the one that port.json records: {said}"):
            porter.verify(folder, weights=files[case.framework.NAME])
    net.write_text(written)
    name, other, said = case.lost
    tensors.write_bytes(weights.replace(name, other))
    sign(folder)
    with pytest.raises(MappingError, match=said):
        porter.verify(folder, weights=files[case.framework.NAME])
