"""What a file of weights does not say: what is assumed, who publishes it, and under which licence."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from markupsafe import escape
from safetensors.numpy import save_file

import porter
from porter.base.errors import RecipeError, UsageError
from porter.cli import port_text
from porter.files import digest
from porter.port import read_port
from porter.recipe import find_recipe, load_recipe
from porter.source.by_recipe import open_candidate
from porter.source.fitting.candidate import Candidate
from porter.source.reopening import reopen_source
from porter.verification.check import Check
from porter.verification.references.source_references import references_of
from porter.verification.sizes import Sizes
from tests.support.fixtures import WeightsMaker
from tests.support.recipe.recipes import VALID, copied, write
from tests.support.standin_files import source_checkpoint

pytestmark = pytest.mark.usefixtures("in_double")

NARROW = "mobilenet_v2_0.35"
TRANSFORM = (
    "transform_input is true: torchvision switches it on for its published weights, and off for a "
    "model that is built"
)
BUILT = (
    "the model was built for 224x224: the pads depend on the size that the model was built for; if "
    "yours differs, add input_size=N"
)


@dataclass(frozen=True)
class Case:
    """A conversion, and how the lines of what it assumes begin."""

    variant: str
    zoo: str
    suffix: str
    arguments: dict[str, Any]
    assumed: tuple[str, ...]


CASES = [
    Case("inception_v3", "torchvision", ".pth", {}, (TRANSFORM,)),
    Case("inception_v3", "torchvision", ".pth", {"options": {"transform_input": True}}, ()),
    Case("inception_v3", "timm", ".pth", {}, ()),
    Case(NARROW, "keras", ".h5", {}, (BUILT,)),
    Case(NARROW, "keras", ".h5", {"input_size": "160"}, ()),
    Case(NARROW, "keras", ".h5", {"input_size": "any"}, ()),
    Case(NARROW, "keras", ".keras", {}, ()),
    Case(NARROW, "torchvision", ".pth", {}, ()),
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.zoo}{case.suffix}-{'-'.join(case.arguments) or 'nothing'}"
)
def test_what_the_file_does_not_say_is_said(case: Case, weights_file: WeightsMaker, tmp_path: Path) -> None:
    origin = "torchvision" if case.zoo == "timm" else case.zoo  # the names of the two are the same
    weights = weights_file(case.variant, origin, case.suffix)
    made = porter.convert(
        case.variant, case.zoo, "torch", weights=weights, out=tmp_path / "port", check=False, **case.arguments
    )
    said = made.port.record.assumed
    assert len(said) == len(case.assumed) and all(map(str.startswith, said, case.assumed))
    assert made.record()["assumed"] == list(said)
    assert [line for line in port_text.conversion(made) if "  assumed  " in line] == [
        f"  assumed  {line}" for line in said
    ]
    page = porter.report(tmp_path / "port").path.read_text(encoding="utf-8")
    assert all(str(escape(line)) in page for line in said)
    if said:
        again = porter.convert(
            case.variant, case.zoo, "torch", weights=tmp_path / "port", out=tmp_path / "again", check=False
        )
        assert again.port.record.assumed == said
        with pytest.raises(UsageError, match="a port has the layers that it was made with"):
            porter.convert(
                case.variant,
                case.zoo,
                "torch",
                weights=tmp_path / "port",
                mapped=["a=stem/conv"],
                out=tmp_path / "third",
            )


@pytest.mark.parametrize(
    ("variant", "zoo", "suffix", "said", "path"),
    [
        ("inception_v3", "torchvision", ".pth", TRANSFORM, "transform_input"),
        pytest.param(
            "mobilenet_v3_small_0.5",
            "keras",
            ".h5",
            "include_preprocessing is true: ",
            "rescaling",
            marks=pytest.mark.full,
        ),
    ],
)
def test_what_is_assumed_can_be_set_and_is_proved(
    variant: str, zoo: str, suffix: str, said: str, path: str, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights, option = weights_file(variant, zoo, suffix), said.partition(" ")[0]
    assert [line.startswith(said) for line in porter.inspect(weights).record()["assumed"]] == [True]
    settings = {"weights": weights, "options": {option: "false"}, "input_size": "any", "check": False}
    made = porter.convert(variant, zoo, "torch", out=tmp_path / "port", **settings)  # type: ignore[arg-type]
    assert path not in made.port.graph.by_path and made.port.record.chosen == {option: False}
    (reference,) = references_of(reopen_source(made.port, weights, None), "float32")
    verdict = Check(made.port, ("float64",)).prove(reference, Sizes(((96, 76),), ()))
    assert verdict.ok and verdict.proof.reference == zoo


@pytest.mark.parametrize("suffix", [".h5", ".weights.h5"])
def test_layers_that_scale_the_input_are_left_out_and_said(
    suffix: str, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights, numbers = tmp_path / f"own{suffix}", {"mean": [9.0, 8, 7], "variance": [3.0, 2, 1], "count": 0}
    shutil.copy(weights_file(NARROW, "keras", suffix), weights)
    with h5py.File(weights, "r+") as file:
        if suffix == ".h5":
            names = ["rescaling_1", "normalization", *file.attrs["layer_names"], "tf.math.multiply"]
            file.attrs["layer_names"] = [str(name).encode() for name in names]
            for name in ("rescaling_1", "tf.math.multiply"):
                file.create_group(name).attrs["weight_names"] = []
            group = file.create_group("normalization")
            group.attrs["weight_names"] = [f"normalization/{name}:0".encode() for name in numbers]
            for name, value in numbers.items():
                group[f"normalization/{name}:0"] = value
        else:
            file.create_group("layers/rescaling_1/vars")
            for place, value in enumerate(numbers.values()):
                file[f"layers/normalization/vars/{place}"] = value
    options = {"weights": weights, "out": tmp_path / "port", "input_size": "224", "check": False}
    record = porter.convert(NARROW, "keras", "torch", **options).port.record  # type: ignore[arg-type]
    (said,) = record.assumed
    assert said.startswith("the input is what the zoo's own model takes: ") and "give the whole model" in said
    assert "'rescaling_1'" in said and "'normalization'" in said and "multiply" not in said
    assert set(record.tensors.ignored) == {f"normalization/{name}" for name in numbers}


def test_layers_that_scale_in_the_zoos_own_model_are_not_left_out() -> None:
    """Of several that Keras numbers, the last is the zoo's own."""
    variant, recipe = "mobilenet_v3_small_0.5", find_recipe("mobilenet_v3_small_0.5")
    scaling = ("rescaling_3", "normalization", "rescaling_4", "expanded_conv_squeeze_excite_mul")
    checkpoint = replace(source_checkpoint(variant, "keras"), dialect="tf", scaling=scaling)
    opened = open_candidate(Candidate.of(recipe.member(variant, "keras"), checkpoint))
    said, preprocessing = opened.facts.assumed
    assert "model takes: 'rescaling_3', 'normalization' in the file is left out" in said
    assert preprocessing.startswith("include_preprocessing is true: ") and "rescaling" in opened.graph.by_path


def test_an_assumption_of_no_option_is_no_recipe(tmp_path: Path) -> None:
    text = VALID.replace("    framework: torch\n", "    framework: torch\n    assumed: {stem_pol: why}\n")
    with pytest.raises(RecipeError, match="there is no option 'stem_pol'") as caught:
        load_recipe(write(tmp_path, text))
    assert caught.value.next == "did you mean 'stem_pool'?"


NC = "CC BY-NC 4.0"
LICENSED = f"the weights are licensed {NC}: not for commercial use"
OWN = f"torchvision's own weights are licensed {NC}: weights trained from them are not for commercial use"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.safetensors"
    tensors = source_checkpoint(NARROW, "torchvision").tensors
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def published(folder: Path, weights: Path | None, *pins: str) -> Path:
    """Recipes in which torchvision's weights are not for commercial use, and `weights`, if any, its NARROW
    with these digests.
    """
    row = f"      {NARROW}: {{{', '.join((f'file: {weights.as_uri()}', *pins))}}}\n" if weights else ""
    changes = {"licence: BSD-3-Clause": f"licence: {NC}", "  mobilenet_v2:\n    weights:\n": f"\\g<0>{row}"}
    return copied(folder, changes, "mobilenet_v2", "zoos/torchvision")


def test_only_the_published_file_has_the_published_licence(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))

    def convert(recipes: Path, weights: Path | None) -> tuple[bool | None, str | None, str]:
        out = tmp_path / "port"
        made = porter.convert(
            NARROW,
            "torchvision",
            "torch",
            weights=weights,
            out=out,
            recipes=recipes,
            check=False,
            overwrite=True,
        )
        record = made.port.record
        assert f"  licence  {record.licence or 'unknown'}" in port_text.conversion(made)
        return (
            record.source.published,
            record.licence,
            next(said for said in made.warnings if "licensed" in said),
        )

    sha256, md5 = digest(own), hashlib.md5(own.read_bytes()).hexdigest()
    for place, pin in enumerate([f"sha256: {sha256}", f"sha256_prefix: {sha256[:8]}", f"md5: {md5}"]):
        assert convert(published(tmp_path / f"pinned{place}", own, pin), own) == (True, NC, LICENSED)
    for place, pins in enumerate([(), ('sha256_prefix: "00000000"',), ('md5: "' + "0" * 32 + '"',)]):
        assert convert(published(tmp_path / f"other{place}", own, *pins), own) == (False, None, OWN)
    assert convert(published(tmp_path / "none", None), own) == (False, None, OWN)
    unpinned = tmp_path / "other0"
    assert convert(unpinned, None) == (True, NC, LICENSED)  # fetched; from then on the cache knows the file
    assert convert(unpinned, own) == (True, NC, LICENSED)
    assert porter.verify(tmp_path / "port", recipes=unpinned).ok

    port = read_port(tmp_path / "port")
    silent = port.record.source.model_copy(update={"published": None})
    older = replace(port, record=port.record.model_copy(update={"source": silent}))
    assert reopen_source(older, None, tmp_path / "pinned1").file.sha256 == sha256
    for recipes, words in (
        ("other1", "the zoo does not publish"),
        ("other0", "not record whether the zoo publishes it"),
    ):
        with pytest.raises(UsageError, match=words) as caught:
            reopen_source(older, None, tmp_path / recipes)
        assert "add --weights" in (caught.value.next or "")
