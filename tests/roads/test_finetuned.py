"""Fine-tuned models made the way tutorials make them, ported to the other framework with the same answers."""

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import porter
from porter.base.errors import MappingError
from porter.cli import port_text
from porter.frameworks import get_destination
from tests.support.arrays import Array
from tests.support.checkout import PHOTO
from tests.support.finetuned_keras import KINDS, SIZE, WHOLE
from tests.support.finetuned_torch import MAKERS, VARIANT
from tests.support.fixtures import FineTunedMaker
from tests.support.standin import smooth_images

REFUSED = {"sequential-weights": "follow each other"}
"""Files that hold only weights, of a head whose activations nothing states."""


def activated(logits: NDArray[np.float64], activation: str | None) -> NDArray[np.float64]:
    """What the source's own last activation makes of a port's logits."""
    if activation == "softmax":
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)
    return 1 / (1 + np.exp(-logits)) if activation == "sigmoid" else logits


def answers(made: porter.Ported, batch: NDArray[np.float32]) -> NDArray[np.float64]:
    record, output = made.port.record, made.port.graph.output
    logits: Array = get_destination(record.framework).ENGINE.run(
        made.port.build("float64"), batch.astype(np.float64), [output]
    )[output]
    return activated(logits, record.activation)


def near(got: NDArray[np.float64], wanted: NDArray[np.float64]) -> bool:
    """Keras rounds some constants to float32 in any type, such as the numbers of a Normalization."""
    return got.shape == wanted.shape and bool(np.linalg.norm(got - wanted) <= 1e-6 * np.linalg.norm(wanted))


PROVED = ("tutorial-keras", "several-dense-folder")
"""In CI, the one whose file is a graph of TensorFlow: porter's own check compares its port node by node. All
ports are compared with the answers of the model that was saved, and
tests/unit/frameworks/tf/keras_files/test_build.py compares the nodes of other kinds.
"""


REPEATED = (
    "tutorial-h5",
    "sequential-keras",
    "several-dense-old-h5",
    "tutorial-old-folder",
    "own-classes-weights",
    "tutorial-keras",
)
"""For `full`: CI ports the same model in another format, and another model in the same one."""


def proved() -> Iterator[Any]:
    """Each kind as CI ports it, and with porter's own check."""
    for name in KINDS.keys() - REFUSED.keys():
        yield pytest.param(
            name, name in PROVED, id=name, marks=[pytest.mark.full] if name in REPEATED else []
        )
        if name not in PROVED:
            yield pytest.param(name, True, id=f"{name}-checked", marks=pytest.mark.full)


@pytest.mark.parametrize(("name", "check"), sorted(proved(), key=attrgetter("id")))
def test_a_finetuned_keras_model_gives_the_same_answers_in_torch(
    name: str, check: bool, finetuned: FineTunedMaker, tmp_path: Path
) -> None:
    own, out = finetuned(name), tmp_path / "port"
    made = porter.convert(
        own.variant, "keras", "torch", weights=own.path, out=out, input_size="160", check=check
    )
    record, batch = made.port.record, own.images()
    assert (record.classes, record.output) == (own.classes, "logits" if own.classes else "features")
    assert record.labels is None
    weights_only = own.path.name.endswith(".weights.h5")
    assert record.input.native_size == ((224, 224) if weights_only else SIZE)
    assert any("the model ends in" in line for line in record.assumed) == weights_only
    wanted = own.answers(batch)
    if own.classes == 0:
        wanted = wanted.mean(axis=(2, 3)) if wanted.ndim == 4 else wanted
    assert wanted.std(axis=0).mean() >= 1e-3 * np.abs(wanted).mean(), "the answers hardly depend on the image"
    assert near(answers(made, batch), wanted)
    if check:
        assert made.verdict is not None and made.verdict.proof.reference != "self", made.warnings
        assert all(node.rel_l2 <= 1e-10 for node in made.verdict.proof.nodes)
        assert made.verdict.proof.reference == "the file's own graph" or name not in WHOLE
    if own.pixels:
        assert record.preprocess is not None and (record.preprocess.divide, record.preprocess.mean) == (
            1.0,
            (0.0, 0.0, 0.0),
        )


def test_a_port_that_takes_any_size_is_fed_what_the_file_was_built_for(
    finetuned: FineTunedMaker, tmp_path: Path
) -> None:
    own, folder = finetuned("rescaled-keras"), tmp_path / "port"
    made = porter.convert(
        own.variant, "keras", "torch", weights=own.path, out=folder, input_size="any", check=False
    )
    assert made.port.record.input.size is None
    assert any("any input size, native 160x160" in line for line in port_text.conversion(made))
    again = porter.convert(own.variant, "keras", "tf", weights=folder, out=tmp_path / "again", check=False)
    assert again.port.record.input == made.port.record.input.model_copy(update={"layout": "NHWC"})
    for port in (folder, tmp_path / "again"):
        assert porter.predict(port, [PHOTO])[0].fed == "160x160: resized to 182, cropped to 160"


@pytest.mark.parametrize("name", REFUSED)
def test_a_head_that_the_file_does_not_tell_is_refused_with_what_settles_it(
    name: str, finetuned: FineTunedMaker, tmp_path: Path
) -> None:
    own = finetuned(name)
    with pytest.raises(MappingError, match=REFUSED[name]) as caught:
        porter.convert(own.variant, "keras", "torch", weights=own.path, out=tmp_path / "port", check=False)
    assert f'mapped="{caught.value.maps[0]}"' in str(caught.value.next) and not (tmp_path / "port").exists()
    made = porter.convert(
        own.variant,
        "keras",
        "torch",
        weights=own.path,
        out=tmp_path / "port",
        mapped=caught.value.maps[:1],
        input_size="160",
    )
    assert made.port.record.classes == own.classes and near(
        answers(made, own.images()), own.answers(own.images())
    )
    assert (
        made.verdict is not None
        and made.verdict.proof.reference == "keras"
        and made.verdict.proof.logits.rel_l2 <= 1e-10
    )


INSPECTED = (
    "rescaled-keras",
    "sequential-weights",
    "sequential-old-h5",
    "several-dense-folder",
    "last_layer",
    "data_parallel",
    "timm",
    "student_and_teacher",
)
"""In CI, one in each format and wrapping; `full` inspects all, and CI ports all."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in INSPECTED else pytest.mark.full) for name in KINDS]
)
def test_inspect_knows_a_finetuned_keras_model(name: str, finetuned: FineTunedMaker) -> None:
    own = finetuned(name)
    best = porter.inspect(own.path).matches[0]
    assert best.member.is_a == (own.variant, "keras")


def logits(made: porter.Ported, batch: NDArray[np.float32]) -> NDArray[np.float64]:
    """A port's logits, computed in double precision from the weights as it stores them."""
    port, output = made.port, made.port.graph.output
    engine = port.destination.ENGINE
    return np.asarray(engine.run(port.build("float64"), batch.astype(np.float64), [output])[output])


CHECKED = ("timm", "sequential", "two_layers")
"""Under `full`, those whose ports in tf are proved too. All wrap the same tensors in some way: CI ports them
to torch.
"""


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        pytest.param(name, framework, marks=pytest.mark.full if framework == "tf" else ())
        for name in MAKERS
        for framework in ("tf", "torch")
    ],
)
def test_a_finetuned_torch_model_gives_the_same_logits(name: str, framework: str, tmp_path: Path) -> None:
    own = MAKERS[name](tmp_path)
    # As the reference, torchvision's or timm's own class proves every port to tf; in torch the model itself
    # is at hand.
    made = porter.convert(
        VARIANT,
        own.zoo,
        framework,
        weights=own.path,
        out=tmp_path / "port",
        dtype="float64",
        mapped=own.maps,
        check=framework == "tf" and name in CHECKED,
        input_size="96",
    )
    assert made.port.record.classes == own.classes
    assert made.port.record.labels == ("imagenet-1000" if own.classes == 1000 else None)
    batch = smooth_images(3, (96, 96), 11, 4)
    wanted = own.logits(batch)
    assert wanted.std(axis=0).mean() >= 1e-3 * np.abs(wanted).mean(), "the logits hardly depend on the image"
    got = logits(made, batch)
    assert got.shape == wanted.shape and np.linalg.norm(got - wanted) <= 1e-10 * np.linalg.norm(wanted)


def test_dense_layers_in_a_row_in_torch_are_refused(tmp_path: Path) -> None:
    own = MAKERS["two_layers"](tmp_path)
    with pytest.raises(MappingError, match="follow each other") as caught:
        porter.convert(VARIANT, own.zoo, "tf", weights=own.path, out=tmp_path / "port", check=False)
    rows = [f"classifier.1,{word},classifier.3=head/logits" for word in ("relu", "relu6", "none")]
    assert str(caught.value.next).splitlines()[1:] == [f'mapped="{row}"' for row in rows] and own.maps == (
        rows[0],
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in INSPECTED else pytest.mark.full) for name in MAKERS]
)
def test_inspect_knows_a_finetuned_torch_model(name: str, tmp_path: Path) -> None:
    own = MAKERS[name](tmp_path)
    best = porter.inspect(own.path).matches[0]
    assert best.member.variant == VARIANT and best.member.zoo.name in (own.zoo, f"{own.zoo}_v2")
