"""What an error says next about a file that does not fit."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from torch import nn

import porter
from porter.base.errors import MappingError, RecipeError, UsageError
from porter.recipe import find_recipe
from porter.source.open import open_source
from porter.source.place import expect_file, find
from porter.source.wishes import Wishes
from tests.support.recipe.recipes import VALID, write
from tests.support.standin_files import source_checkpoint

VARIANT = "mobilenet_v2_0.35"


def refused(folder: Path, variant: str, zoo: str) -> str | None:
    """What follows the refusal of torchvision's tensors and one more."""
    path, recipe = folder / "model.safetensors", find_recipe(variant)
    tensors = {
        name: np.ascontiguousarray(array)
        for name, array in source_checkpoint(VARIANT, "torchvision").tensors.items()
    }
    save_file({**tensors, "features.18.0.more": np.zeros(4, np.float32)}, path)
    with pytest.raises(MappingError) as caught:
        open_source(find(path), member=recipe.member(variant, zoo))
    return caught.value.next


@pytest.mark.parametrize(
    ("variant", "zoo"), [(VARIANT, "timm"), ("mobilenet_v2", "torchvision"), ("mobilenet_v1", "keras")]
)
def test_a_file_of_another_variant_or_zoo_is_told(tmp_path: Path, variant: str, zoo: str) -> None:
    line = f"porter convert {VARIANT} --from torchvision --to FRAMEWORK --weights "
    assert f"it looks like {VARIANT} from torchvision: {line}" in str(refused(tmp_path, variant, zoo))


def test_the_zoo_of_a_file_is_told_before_its_head_is_asked_for(tmp_path: Path) -> None:
    recipe, path = find_recipe("mobilenet_v1_0.25"), tmp_path / "weights.npz"
    np.savez(path, allow_pickle=False, **dict(source_checkpoint("mobilenet_v1_0.25", "tensornets").tensors))
    with pytest.raises(MappingError) as caught:
        open_source(find(path), member=recipe.member("mobilenet_v1_0.25", "slim"))
    assert "it looks like mobilenet_v1_0.25 from tensornets" in str(caught.value.next)


def test_every_map_that_is_offered_opens_the_file(tmp_path: Path) -> None:
    recipe, path = find_recipe(VARIANT), tmp_path / "model.safetensors"
    tensors = {
        name: np.ascontiguousarray(array)
        for name, array in source_checkpoint(VARIANT, "torchvision").tensors.items()
    }
    kernel = tensors.pop("classifier.1.weight")
    tensors |= {
        "classifier.1.weight": kernel[:64].copy(),
        "classifier.1.bias": tensors.pop("classifier.1.bias")[:64].copy(),
    }
    tensors |= {
        "classifier.4.weight": np.ones((3, 64), np.float32),
        "classifier.4.bias": np.ones(3, np.float32),
    }

    def offered(settings: tuple[str, ...] = ()) -> MappingError:
        save_file(tensors, path)
        with pytest.raises(MappingError) as caught:
            open_source(find(path), Wishes(map=settings), recipe.member(VARIANT, "torchvision"))
        return caught.value

    for settings in ((), ("classifier.9=head/logits",)):
        maps = offered(settings).maps
        assert maps
        for setting in maps:
            open_source(find(path), Wishes(map=(setting,)), recipe.member(VARIANT, "torchvision"))
    tensors |= {
        f"classifier.2.{name}": np.ones(64, np.float32)
        for name in ("weight", "bias", "running_mean", "running_var")
    }
    between = offered()
    assert "follow each other" in between.message and between.maps == ()
    assert str(between.next).startswith("no --map settles it")


@pytest.mark.parametrize("zoo", ["torchvision", "torchvision_v2"])
def test_nobody_is_told_to_type_what_was_typed(tmp_path: Path, zoo: str) -> None:
    assert "porter convert" not in str(refused(tmp_path, VARIANT, zoo))


def test_a_background_row_that_is_not_there_is_not_kept_in_silence(tmp_path: Path) -> None:
    recipe, path = find_recipe(VARIANT), tmp_path / "model.safetensors"
    save_file(
        {
            name: np.ascontiguousarray(array)
            for name, array in source_checkpoint(VARIANT, "torchvision").tensors.items()
        },
        path,
    )
    member = recipe.member(VARIANT, "torchvision")
    assert open_source(find(path), member=member).warnings == ()
    (said,) = open_source(find(path), Wishes(background=True), member).warnings
    assert said == (
        "--keep-background changes nothing: porter knows no background row among the 1000 classes of "
        "model.safetensors"
    )


@pytest.mark.parametrize("last", ["relu: head/relu", "max_pool: head/pool, kernel: 1"])
def test_a_recipe_that_ends_in_no_dense_layer_is_refused_by_name(tmp_path: Path, last: str) -> None:
    text = VALID.replace("  - {global_avg_pool: head/pool}\n", "").replace(
        "dense: head/logits, units: =classes", last
    )
    path = write(
        tmp_path, text.replace("      head/logits: {name: fc, transforms: [conv1x1_to_dense]}\n", "")
    )
    weights = tmp_path / "w.safetensors"
    save_file({"conv1.weight": np.zeros((8, 3, 3, 3), np.float32)}, weights)
    with pytest.raises(RecipeError, match="the graph ends in 'head/") as caught:
        porter.convert("tiny", "home", "torch", weights=weights, recipes=tmp_path, out=tmp_path / "p")
    assert caught.value.where == f"{path}:{text[: text.index(last)].count(chr(10)) + 1}:5"
    assert porter.inspect(weights, tmp_path).matches == ()


def test_a_missing_file_is_told_with_the_name_that_was_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flowers.keras").touch()
    for name, next in (("flower.keras", "did you mean 'flowers.keras'?"), ("x.onnx", "check the path")):
        with pytest.raises(UsageError, match="there is no such file") as caught:
            expect_file(name, None)
        assert caught.value.next == next
    with pytest.raises(UsageError, match=r"'mobilenet_v1_0\.35' is no file and no variant"):
        expect_file("mobilenet_v1_0.35", None)


@pytest.mark.parametrize(("to", "net"), [("caffe", "model.prototxt"), ("mxnet", "model-symbol.json")])
def test_both_files_of_a_port_are_the_port(to: str, net: str, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU()).eval()
    made = porter.convert(module, to=to, input_size=16, out=tmp_path / to, check=False)
    again = porter.convert(
        made.folder / net,
        to="torch",
        weights=made.folder / made.port.destination.MODEL_FILE,
        out=tmp_path / "torch",
        check=False,
    )
    assert again.port.graph == made.port.graph
    listed = porter.inspect(made.folder)
    assert listed.bytes == sum((made.folder / name).stat().st_size for name in made.port.record.model)
