"""Ports in torch at every input size: the ones that take any are right at any, the others refuse what they
are not right at.
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import porter
from porter.base.errors import PorterError, UsageError
from porter.data.photo_decoding import open_image
from porter.data.preparing import prepare
from porter.frameworks import get_destination
from porter.port import read_port, write_record
from porter.zoos.implementation import BuildRequest, get_implementation
from tests.support.arrays import Array
from tests.support.checkout import PHOTO
from tests.support.fixtures import WeightsMaker
from tests.support.standin_files import make_batch, source_checkpoint

VARIANTS = ("mobilenet_v1_0.25", "mobilenet_v2_0.35")
EVERY = range(96, 301)
QUICK = EVERY[::37]  # every other one is odd, and each leaves another rest by 32


def oblong(rows: int) -> tuple[int, int]:
    """Rows with columns of all kinds, within the same bounds."""
    return rows, 96 + rows * 7 % 205


@dataclass
class Ported:
    folder: Path
    model: torch.nn.Module
    variant: str

    def source(self, size: tuple[int, int], images: NDArray[np.float64]) -> NDArray[np.float64]:
        """keras.applications, built at this size: its pads depend on it."""
        tf = get_destination("tf")
        checkpoint = source_checkpoint(self.variant, "keras")
        reference = get_implementation("keras").build(
            BuildRequest(self.variant, 1000, size, checkpoint, "float64")
        )
        head = "predictions" if "v2" in self.variant else "conv_preds"
        found: Array = tf.ENGINE.run_reference(reference, images, {"logits": head})["logits"]
        return found.reshape(len(images), -1)


@pytest.fixture(scope="module", params=VARIANTS)
def ported(
    request: pytest.FixtureRequest, weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory
) -> Ported:
    folder = tmp_path_factory.mktemp("any") / "port"
    weights = weights_file(request.param, "keras", ".h5")
    porter.convert(
        request.param, "keras", "torch", weights=weights, out=folder, input_size="any", check=False
    )
    return Ported(folder, read_port(folder).build("float64"), request.param)


def near(got: NDArray[np.float64], wanted: NDArray[np.float64]) -> bool:
    return bool(np.linalg.norm(got - wanted) <= 1e-10 * np.linalg.norm(wanted))


def images(size: tuple[int, int]) -> NDArray[np.float64]:
    return make_batch(size, 1, 3, None)


def check_size(ported: Ported, rows: int) -> None:
    size = oblong(rows)
    with torch.inference_mode():
        got = ported.model(torch.from_numpy(images(size))).numpy()
    assert near(got, ported.source(size, images(size)))


@pytest.mark.parametrize("rows", QUICK)
def test_a_port_for_any_size_is_right_at(ported: Ported, rows: int) -> None:
    check_size(ported, rows)


@pytest.mark.full
@pytest.mark.parametrize("rows", [rows for rows in EVERY if rows not in QUICK])
def test_a_port_for_any_size_is_right_everywhere(ported: Ported, rows: int) -> None:
    check_size(ported, rows)


Module = Callable[[torch.Tensor], torch.Tensor]


def traced(model: torch.nn.Module) -> Module:
    with torch.no_grad():
        return torch.jit.trace(model, torch.from_numpy(images((224, 224))))


def exported(model: torch.nn.Module) -> Module:
    # From 64 on: at 32 the last map is one cell, and torch.export takes sizes of 1 for constants.
    height, width = torch.export.Dim("height", min=64, max=512), torch.export.Dim("width", min=64, max=512)
    with torch.no_grad():
        program = torch.export.export(
            model, (torch.from_numpy(images((224, 200))),), dynamic_shapes=({2: height, 3: width},)
        )
    return program.module()


def compiled(model: torch.nn.Module) -> Module:
    """Captured with sizes unknown; the code generator behind it is torch's own matter."""
    torch._dynamo.reset()
    return torch.compile(model, dynamic=True, backend="aot_eager", fullgraph=True)


def check_everywhere(ported: Ported, module: Module, sizes: range) -> None:
    for rows in sizes:
        batch = torch.from_numpy(images(oblong(rows)))
        with torch.no_grad():
            assert near(module(batch).numpy(), ported.model(batch).numpy()), oblong(rows)


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
# Every strided convolution pads as it runs.
@pytest.mark.parametrize("ported", ["mobilenet_v2_0.35"], indirect=True)
def test_it_stays_right_when_traced(ported: Ported) -> None:
    """A whole network is exported and compiled only in `full`, and small ones in CI, by the tests of
    frameworks/torch.
    """
    check_everywhere(ported, traced(ported.model), QUICK)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("capture", [traced, exported, compiled])
def test_it_stays_right_everywhere_when_captured(
    ported: Ported, capture: Callable[[torch.nn.Module], Module]
) -> None:
    check_everywhere(ported, capture(ported.model), EVERY)


def test_a_port_for_one_size_refuses_the_others(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5")
    made = porter.convert(
        "mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False
    )
    assert made.port.record.input.size == (224, 224)
    model = porter.load(tmp_path / "p")
    assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 1000)
    for wrong in ((225, 224), (160, 160), (448, 112)):
        with pytest.raises((ValueError, RuntimeError, PorterError), match="224"):
            model(torch.zeros(2, 3, *wrong))


def test_a_port_for_one_size_refuses_the_others_whatever_its_pads_allow(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file("mobilenet_v2_0.35", "torchvision", ".pth")
    port = porter.convert(
        "mobilenet_v2_0.35", "torchvision", "tf", weights=weights, out=tmp_path / "p", check=False
    ).port
    assert port.record.input.size is None
    # As keras.applications' own classes are built.
    taken = port.record.input.model_copy(update={"size": (160, 160)})
    write_record(tmp_path / "p", port.record.model_copy(update={"input": taken}))
    assert porter.load(tmp_path / "p").input_shape == (None, 160, 160, 3)
    (seen,) = porter.predict(tmp_path / "p", [PHOTO])
    assert seen.fed == "160x160: resized to 183, cropped to 160"


def test_a_port_of_one_size_is_fed_its_protocol_in_proportion(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    variant, weights = "mobilenet_v2_0.35", weights_file("mobilenet_v2_0.35", "keras", ".h5")
    made = {
        size: porter.convert(
            variant, "keras", "torch", weights=weights, input_size=size, out=tmp_path / size, check=False
        )
        for size in ("160", "any", "160x224")
    }
    protocol = made["160"].port.record.preprocess
    assert protocol is not None and (protocol.size, protocol.crop) == (256, 224)
    photo = prepare(open_image(PHOTO), replace(protocol, size=160 * 8 // 7, crop=160))
    for size, fed in (
        ("160", "160x160: resized to 182, cropped to 160"),
        ("any", "224x224: resized to 256, cropped to 224"),
    ):
        (doubt,) = made[size].warnings
        assert re.findall(r"side (\d+) .* centre (\d+)", doubt) == re.findall(
            r"to (\d+), cropped to (\d+)", fed
        )
        (seen,) = porter.predict(tmp_path / size, [PHOTO])
        assert seen.fed == seen.record()["fed"] == fed
        logits = porter.load(tmp_path / size)(torch.from_numpy(photo[np.newaxis]))[0].detach().numpy()
        assert np.array_equal(seen.logits, logits) == (size == "160")
    (tmp_path / "val" / "n02124075").mkdir(parents=True)
    shutil.copy(PHOTO, tmp_path / "val" / "n02124075")
    found = porter.evaluate(tmp_path / "160", tmp_path / "val", workers=0)
    assert found.fed == "160x160: resized to 182, cropped to 160" and "shorter side 182" in found.protocol
    assert found.verdict == "not comparable" and "fed 160x160, published at 224x224" in found.why
    record = read_port(tmp_path / "160").record
    assert (
        record.evaluation is not None
        and record.evaluation["fed"] == found.fed
        and record.preprocess == protocol
    )
    advice = "convert again with input_size=N or any"
    assert (
        made["160x224"].warnings[0]
        == f"the port accepts only 160x224, and predict and eval feed squares: {advice}"
    )
    with pytest.raises(UsageError, match="photos are fed as squares, and this port takes only 160x224"):
        porter.predict(tmp_path / "160x224", [PHOTO])


def test_pad_layers_stand_only_where_torch_has_no_word_for_them(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file("mobilenet_v2_0.35", "keras", ".h5")
    made = porter.convert(
        "mobilenet_v2_0.35", "keras", "torch", weights=weights, out=tmp_path / "p", check=False
    )
    layered = {pad.site for pad in made.port.record.pads if pad.kind != "native"}
    # Every strided conv sees an even map at 224, and SAME puts the odd cell at its end.
    assert layered == {
        "stem/conv",
        "block1/depthwise/conv",
        "block3/depthwise/conv",
        "block6/depthwise/conv",
        "block13/depthwise/conv",
    }
    odd = porter.convert(
        "mobilenet_v2_0.35",
        "keras",
        "torch",
        weights=weights,
        out=tmp_path / "odd",
        input_size="225",
        check=False,
    )
    assert {pad.site for pad in odd.port.record.pads if pad.kind != "native"} == set()
