"""Where weights come from: what states it, what is believed, and what is refused. Tensors cannot tell twins
apart.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import porter
from porter.authoring.trial import try_weights
from porter.base.errors import CannotRun, FileError, UsageError
from porter.frameworks.dialects import get_dialect
from porter.graph import tensor_shapes
from porter.port import Origin
from porter.recipe import Member, expand, find_member, find_recipe, layer_names, recipes_folder
from porter.recipe.twins import FILE
from porter.source.hub_folder import read_sidecars
from porter.source.open import open_source
from porter.source.origin import _origin_in_recipe
from porter.source.origin_statements import statement_in_config
from porter.source.place import file_at, find
from porter.source.reading import read
from porter.source.stated_photos import facts_beside
from porter.source.wishes import Wishes
from porter.verification import proving
from porter.zoos.tables import REFERENCES, TIMM, TIMM_TF
from porter.zoos.transformers import import_transformers
from tests.support.evaluation.padding_study.studies import RECIPE, write_recipes

pytestmark = pytest.mark.usefixtures("in_double")

VARIANT = "mobilenet_v3_small"
PLAIN, SAME = "mobilenetv3_small_100", "tf_mobilenetv3_small_100"
ALL = [
    (variant, zoo, twin["zoo"])
    for variants in json.loads((recipes_folder() / FILE).read_text(encoding="utf-8"))["twins"].values()
    for variant, zoos in variants.items()
    for zoo, listed in zoos.items()
    for twin in listed
]
"""Every pair of twins of every recipe, both ways."""
SET_BY_TRANSFORMERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "bit": ({}, {}),
    "convnext": ({"layer_norm_eps": 1e-4}, {"head_epsilon": 1e-4}),
    "efficientnet": ({"batch_norm_eps": 1e-4}, {"bn_epsilon": 1e-4}),
    "mobilenet_v1": ({"layer_norm_eps": 1e-4, "hidden_act": "relu"}, {"bn_epsilon": 1e-4, "relu6": False}),
    "mobilenet_v2": ({"layer_norm_eps": 1e-4}, {"bn_epsilon": 1e-4}),
    "regnet": ({}, {}),
    "resnet": ({}, {}),
    "vit": ({"image_size": 64}, {"side": 64}),
}
"""By `model_type`, settings of transformers and the options that they set."""
FEW = [
    ("mobilenet_v1", "timm_tf", "timm"),
    ("efficientnet_lite0", "timm", "timm_tf"),
    ("inception_v3", "timm", "torchvision"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Makes a file of a variant's tensors by a zoo's names, each once, in a folder of its own."""

    @cache
    def make(variant: str, zoo: str) -> Path:
        file = tmp_path_factory.mktemp(variant) / "model.safetensors"
        save_file(ones(find_member(variant, zoo)), file)
        return file

    return make


def ones(member: Member) -> dict[str, Any]:
    """A variant's tensors by the zoo's names: of weights, only names and shapes count here."""
    graph, dialect = expand(member), get_dialect("torch")
    layers, found = layer_names(member, graph), {}
    for path, roles in tensor_shapes(graph).items():
        spelled = dialect.tensor_names(graph, graph.by_path[path], layers[path].name)
        for role, shape in roles.items():
            stored = dialect.from_canonical(graph, graph.by_path[path], role, np.ones(shape, np.float32))
            flat = role == "kernel" and "conv1x1_to_dense" in layers[path].transforms
            found[spelled[role][0]] = np.ascontiguousarray(stored[..., None, None] if flat else stored)
    return found


def placed(
    file: Path, folder: Path, name: str = "model.safetensors", config: dict[str, Any] | None = None
) -> Path:
    """The file under a name, with a config.json beside it."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.hardlink_to(file)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return path


def origin_of(path: Path, zoo: str, variant: str = VARIANT, **wishes: Any) -> Origin | None:
    return open_source(find(path), Wishes(**wishes), find_member(variant, zoo)).facts.origin


@pytest.mark.parametrize(
    ("variant", "zoo", "twin"),
    [*FEW, *(pytest.param(*pair, marks=pytest.mark.full) for pair in ALL if pair not in FEW)],
)
def test_the_origin_is_right_and_twins_are_said(
    variant: str, zoo: str, twin: str, made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """Asked as a user asks: of a folder that says what it is, of a released name, and of tensors without
    either.
    """
    file = made(variant, zoo)
    bare = porter.inspect(placed(file, tmp_path / "bare"))
    assert bare.match is not None and bare.origin is None
    assert {bare.match.member.zoo.name, *(each.zoo for each in bare.twins)} >= {zoo, twin}
    assert {line.split()[4] for line in bare.commands} >= {zoo, twin}
    called = {"timm": TIMM, "timm_tf": TIMM_TF}.get(zoo, {}).get(variant)
    if called is None:  # torchvision's files have no config.json
        return
    config = {
        "architecture": called[0],
        "model_args": dict(called[1]),
        "num_classes": 1000,
        "global_pool": "avg",
    }
    said = porter.inspect(placed(file, tmp_path / "folder", config=config))
    assert said.origin is not None and (said.origin.by, said.origin.variant) == ("config.json", variant)
    if (zoo, twin) != ("timm_tf", "torchvision"):  # timm has one Inception v3
        assert said.match is not None and said.match.member.zoo.name == zoo == said.origin.zoo
    with pytest.raises(UsageError) as refused:
        open_source(find(tmp_path / "folder"), member=find_member(variant, twin))
    assert called[0] in str(refused.value) and f"{variant} from {twin}" in refused.value.message
    if not called[1] and variant != "inception_v3":
        named = porter.inspect(placed(file, tmp_path / "named", f"{called[0]}-0a1b2c3d.safetensors"))
        assert named.origin is not None and (named.origin.by, named.origin.zoo) == ("file name", zoo)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"architecture": SAME}, (SAME, "timm_tf")),
        ({"architecture": f"{SAME}.in1k", "global_pool": "avg"}, (SAME, "timm_tf")),
        ({"model_type": "timm_wrapper", "architecture": PLAIN}, (PLAIN, "timm")),
        ({"architecture": PLAIN, "model_args": {"in_chans": 3, "pad_type": ""}}, (PLAIN, "timm")),
        ({"architecture": PLAIN, "model_args": {"act_layer": "relu"}}, (f"{PLAIN} (act_layer relu)", None)),
        ({"architecture": PLAIN, "global_pool": "max"}, (f"{PLAIN} (global_pool max)", None)),
        ({"architecture": "resnet18"}, ("resnet18", None)),
        ({"architecture": "tf_mobilenetv3_large_100"}, ("tf_mobilenetv3_large_100", "timm_tf")),
        ({"model_type": "mobilenet_v1", "tf_padding": False}, ("mobilenet_v1 (tf_padding False)", None)),
        ({"model_type": "convnext", "hidden_act": "gelu"}, ("convnext", None)),
        ({"module": "keras_hub.src.models", "class_name": "ResNetBackbone"}, ("ResNetBackbone", None)),
    ],
)
def test_a_config_is_believed(
    config: dict[str, Any], said: tuple[str, str | None], made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    name, zoo = said
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config=config)
    for asked in ("timm", "timm_tf"):
        if asked == zoo and "large" not in name:
            assert origin_of(path, asked) == Origin(
                by="config.json", says=f"timm's {name}", variant=VARIANT, zoo=zoo
            )
        else:
            with pytest.raises(UsageError) as refused:
                origin_of(path, asked)
            assert f" {name}" in refused.value.message and f"{VARIANT} from {asked}" in refused.value.message
            assert f"--origin {asked}" in str(refused.value.next)
        assert origin_of(path, asked, origin=asked) == Origin(
            by="user", says=f"{VARIANT} from {asked}", variant=VARIANT, zoo=asked
        )


@pytest.mark.parametrize("zoo", ["transformers", "transformers_torch"])
def test_settings_that_transformers_writes_name_one_variant(zoo: str, tmp_path: Path) -> None:
    library, file = import_transformers(), tmp_path / "model.safetensors"
    save_file({"one": np.ones(1, np.float32)}, file)
    for variant, (kind, settings) in REFERENCES["torch"][zoo].items():
        recipe = find_recipe(variant)
        others = [other for other in recipe.variants if zoo in recipe.zoos_of(other) and other != variant]
        asked = [recipe.member(name, zoo) for name in (variant, *others[-1:])]
        for changed, known in (({}, {}), SET_BY_TRANSFORMERS[kind]):
            library.AutoConfig.for_model(kind, **settings, **changed).save_pretrained(tmp_path)
            statement = statement_in_config(read(file_at(file)))
            assert statement is not None
            for found in (_origin_in_recipe(member, statement) for member in asked):
                assert found.origin is not None and (found.origin.variant, found.origin.zoo) == (variant, zoo)
                assert found.options == known


@pytest.mark.parametrize(
    "config", [{}, {"architecture": 3}, {"architecture": ""}, {"lr": 0.1, "model_type": None}, [], 7]
)
def test_a_config_of_something_else_says_nothing(
    config: Any, made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    assert origin_of(placed(made(VARIANT, "timm"), tmp_path / "folder", config=config), "timm") is None


def test_of_zoos_that_compute_the_same_the_stated_one_has_the_weights(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """It was the first zoo of the recipe, also where a config.json says that the weights are timm's."""
    file = made("resnet18", "torchvision")
    for zoo, config in (("torchvision", None), ("timm", {"architecture": "resnet18"})):
        match = porter.inspect(placed(file, tmp_path / zoo, config=config)).match
        assert match is not None and match.member.zoo.name == zoo


def test_a_name_of_any_length_is_said_short(made: Callable[[str, str], Path], tmp_path: Path) -> None:
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config={"architecture": "a" * 100_000})
    with pytest.raises(UsageError) as refused:
        origin_of(path, "timm")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("epsilon", ["NaN", "-1", "0", "1e999", "1" + "0" * 400])
def test_an_epsilon_that_is_none_is_refused(
    epsilon: str, made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config={})
    (path.parent / "config.json").write_text(
        f'{{"architecture": "{PLAIN}", "model_args": {{"bn_eps": {epsilon}}}}}'
    )
    with pytest.raises(UsageError, match="bn_eps"):
        origin_of(path, "timm")


def test_a_port_has_the_origin_that_it_was_made_with(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    porter.convert(
        VARIANT,
        "timm",
        "onnx",
        weights=made(VARIANT, "timm"),
        out=tmp_path / "port",
        origin="timm",
        check=False,
    )
    assert (
        origin_of(tmp_path / "port", "timm")
        == origin_of(tmp_path / "port", "timm", origin="timm")
        is not None
    )
    with pytest.raises(UsageError, match="--origin says timm_tf"):
        origin_of(tmp_path / "port", "timm", origin="timm_tf")


def test_who_insists_on_the_stated_zoo_keeps_what_else_is_stated(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    config = {"architecture": PLAIN, "model_args": {"bn_eps": 0.01}}
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config=config)
    for insisted in (None, "timm"):
        assert open_source(find(path), Wishes(origin=insisted), find_member(VARIANT, "timm")).chosen == {
            "bn_epsilon": 0.01
        }
    other = open_source(find(path), Wishes(origin="timm_tf"), find_member(VARIANT, "timm_tf"))
    assert not other.chosen


@pytest.mark.parametrize(
    ("name", "zoo"),
    [
        ("tf_mobilenetv3_small_100-37f49e2b.pth", "timm_tf"),
        ("mobilenetv3_small_100_lamb-266a294c.pth", "timm"),
        ("tf_mobilenetv3_small_100-0a1b2c3d4e.pth", "timm_tf"),
        ("mobilenetv3_small_100-37f49e2b (1).pth", None),
        ("best-0a1b2c3d.pth", None),
        ("mobilenetv3_small.pth", None),
    ],
)
def test_a_released_name_is_believed(
    name: str, zoo: str | None, made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """It is believed although the digest in it is not the file's: people train released files further."""
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", name.replace(".pth", ".safetensors"))
    found = {asked: _origin_or_none(path, asked) for asked in ("timm", "timm_tf")}
    if zoo is None:
        assert set(found.values()) == {None}
    else:
        (known,) = (each for each in found.values() if isinstance(each, Origin))
        assert (known.by, known.zoo, found[zoo]) == ("file name", zoo, known)


def _origin_or_none(path: Path, zoo: str) -> Origin | str | None:
    try:
        return origin_of(path, zoo)
    except UsageError as error:
        return error.message


def test_a_training_script_says_the_name_of_its_model(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    state = load_file(made(VARIANT, "timm"))
    for arch, zoo in ((SAME, "timm_tf"), (PLAIN, "timm"), ("mobilenetv3", None)):
        torch.save({"arch": arch, "state_dict": state, "epoch": 3}, tmp_path / "last.pth")
        found = {asked: _origin_or_none(tmp_path / "last.pth", asked) for asked in ("timm", "timm_tf")}
        if zoo is None:
            assert set(found.values()) == {None}
        else:
            assert found[zoo] == Origin(by="metadata", says=f"'{arch}'", variant=VARIANT, zoo=zoo)
            assert sum(isinstance(each, Origin) for each in found.values()) == 1
    # Only timm's script writes averages under this key: the name is timm's, though torchvision has it too.
    averages = load_file(made("resnet18", "timm"))
    torch.save(
        {"arch": "resnet18", "state_dict": averages, "state_dict_ema": averages}, tmp_path / "last.pth"
    )
    wanted = Origin(by="metadata", says="timm's resnet18", variant="resnet18", zoo="timm")
    assert porter.inspect(tmp_path / "last.pth").origin == wanted


def test_twins_that_no_recipe_has_are_refused(made: Callable[[str, str], Path], tmp_path: Path) -> None:
    """timm's resnetblur50 has the tensors of ResNet-50: what blurs is not stored
    (timm/layers/blur_pool.py).
    """
    file = made("resnet18", "torchvision")
    for name, config in (
        ("model.safetensors", {"architecture": "resnetblur18"}),
        ("resnetblur18-84f4748f.safetensors", None),
    ):
        path = placed(file, tmp_path / name, name, config)
        found = porter.inspect(path)
        if config is None:
            assert found.commands == () and "resnetblur18, which recipe resnet_v1 does not have" in str(
                found.problem
            )
        else:
            assert found.commands == (f"porter convert {path.parent} --to tf",), "timm builds it"
        with pytest.raises(UsageError, match="resnetblur18"):
            origin_of(path, "torch", "resnet18")


def test_a_model_of_another_recipe_is_told_with_its_line(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = placed(made("resnet18", "torchvision"), tmp_path / "folder", config={"architecture": PLAIN})
    with pytest.raises(
        UsageError, match=f"which is {VARIANT} from timm, not resnet18 from torchvision"
    ) as refused:
        origin_of(path, "torch", "resnet18")
    assert f"porter convert {VARIANT} --from timm --to FRAMEWORK --weights {path}" in str(refused.value.next)


def test_a_file_that_fits_no_recipe_shows_what_it_is_stated_to_be(tmp_path: Path) -> None:
    save_file({"stem.weight": np.ones((4, 3, 3, 3), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "tf_efficientnet_b0"}))
    assert porter.inspect(tmp_path).origin == Origin(by="config.json", says="timm's tf_efficientnet_b0")


def test_recipes_of_a_user_have_origins_and_twins_too(tmp_path: Path) -> None:
    """Zoos of these names are timm's, whose TensorFlow models begin with tf_."""
    first, _, home = RECIPE.replace("strided", "efficientnet_b0").partition("zoos:\n  home:\n")
    other = (
        "{extends: timm, options: {bn_epsilon: 0.01}, protocol: {resize: squash, size: 32, "
        "interpolation: pil_bilinear}}"
    )
    text = f"{first}zoos:\n  timm:\n{home}  timm_tf: {other}\n"
    folder = write_recipes(tmp_path / "recipes", text)
    tensors = ones(find_member("efficientnet_b0", "timm", folder))
    for name, zoo in (
        ("efficientnet_b0_ra-3dd342df", "timm"),
        ("tf_efficientnet_b0_aa-827b6e33", "timm_tf"),
        ("efficientnet_b0", None),
    ):
        save_file(tensors, tmp_path / f"{name}.safetensors")
        found = porter.inspect(tmp_path / f"{name}.safetensors", recipes=folder)
        assert found.match is not None and found.twins and (found.origin and found.origin.zoo) == zoo
        assert zoo is None or found.match.member.zoo.name == zoo


def test_advice_follows_the_origin(
    made: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = placed(made(VARIANT, "timm"), tmp_path / "said", config={"architecture": SAME})
    bare = placed(made(VARIANT, "timm"), tmp_path / "bare")
    blurred = placed(
        made("resnet18", "torchvision"), tmp_path / "blurred", "resnetblur18-84f4748f.safetensors"
    )
    assert porter.convert(said, out=tmp_path / "said port", check=False).port.record.zoo == "timm_tf"
    for path, next in ((bare, f'porter.inspect("{bare}")'), (blurred, "torch.export")):
        with pytest.raises(UsageError) as refused:
            porter.convert(path, out=tmp_path / "port")
        assert next in str(refused.value.next)

    def skipped(*_: object) -> None:
        raise CannotRun("not compared here")

    monkeypatch.setattr(proving, "prove_against", skipped)
    tried = try_weights(find_recipe(VARIANT), said)
    assert (
        tried.opened is not None
        and tried.opened.member is not None
        and tried.opened.member.zoo.name == "timm_tf"
    )


def test_another_zoo_with_the_same_function_is_no_contradiction(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = placed(made("resnet18", "torchvision"), tmp_path / "folder", config={"architecture": "resnet18"})
    for asked in ("torchvision", "timm"):
        known = origin_of(path, asked, "resnet18")
        assert known is not None and (known.variant, known.zoo) == ("resnet18", "timm")


def test_a_config_beside_several_files_is_that_of_the_usual_one(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    own = placed(made(VARIANT, "timm"), tmp_path / "folder", "mine.safetensors", {"architecture": SAME})
    assert origin_of(own, "timm_tf") is not None, "it is the only one"
    placed(made(VARIANT, "timm"), tmp_path / "folder")
    assert origin_of(own, "timm") is None and origin_of(tmp_path / "folder", "timm_tf") is not None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 10**5, '{"a": ' * 10**5, f'{{"a": "{"a" * (17 << 20)}"}}'],
    ids=["nothing", "half", "deep lists", "deep objects", "too large"],
)
def test_a_config_that_is_damaged_is_named(
    text: str, made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config={})
    (path.parent / "config.json").write_text(text)
    with pytest.raises(FileError, match="which names the network of the weights") as refused:
        porter.convert(path.parent, to="torch", out=tmp_path / "port", check=False)
    assert refused.value.where == str(path.parent / "config.json") and not (tmp_path / "port").exists()


def test_a_config_names_as_many_classes_as_imagenet_21k_has(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    names = [f"{number:05d}, {'a name of the length that WordNet has' * 2}" for number in range(21_841)]
    listed = {"id2label": dict(enumerate(names)), "label2id": {name: n for n, name in enumerate(names)}}
    path = placed(made(VARIANT, "timm"), tmp_path / "folder", config=listed)
    photos, warnings = facts_beside(read_sidecars(path))
    assert (path.parent / "config.json").stat().st_size > 3 << 20
    assert photos.labels is not None and photos.labels.names == tuple(names) and not warnings


def test_an_epsilon_that_a_config_states_is_the_ports(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    """`--stock timm` writes it for norms of another epsilon than the model's own."""
    config = {"architecture": "mobilenetv2_035", "model_args": {"bn_eps": 0.002}}
    path = placed(made("mobilenet_v2_0.35", "timm"), tmp_path / "folder", config=config)
    made_port = porter.convert(
        "mobilenet_v2_0.35", "timm", "torch", weights=path.parent, out=tmp_path / "port", check=False
    )
    epsilons = {
        node["epsilon"] for node in made_port.port.record.graph["nodes"] if node["op"] == "batch_norm"
    }
    assert epsilons == {0.002} and made_port.port.record.chosen == {"bn_epsilon": 0.002}


def test_a_request_against_the_origin_is_status_2_and_a_bare_file_is_warned_of(
    made: Callable[[str, str], Path], tmp_path: Path
) -> None:
    path = placed(made(VARIANT, "timm"), tmp_path / "bare")
    bare = porter.convert(VARIANT, "timm", "torch", weights=path, out=tmp_path / "port", check=False)
    (said,) = (warning for warning in bare.warnings if "nothing states" in warning)
    assert (
        "mobilenet_v3_small from timm_tf" in said
        and f'source=None, weights="{path}", data=PHOTOS, between=["timm", "timm_tf"]' in said
    )
    record: Any = bare.record()
    assert record["origin"] is None and [twin["zoo"] for twin in record["twins"]] == ["timm_tf"]
    stored = json.loads((tmp_path / "port" / "port.json").read_text())
    assert stored["origin"] is None and stored["twins"] == json.loads(json.dumps(record["twins"]))
    report = porter.report(tmp_path / "port").path.read_text(encoding="utf-8")
    assert "Nothing states whether" in report and "mobilenet_v3_small from timm_tf" in report
    again = porter.convert(
        VARIANT,
        "timm",
        "torch",
        weights=path,
        out=tmp_path / "port",
        overwrite=True,
        check=False,
        origin="timm",
    )
    assert not any("nothing states" in warning for warning in again.warnings)
    told: Any = again.record()
    assert told["origin"]["by"] == "user" and told["twins"] == record["twins"]
    with pytest.raises(UsageError, match="origin says timm_tf"):
        porter.convert(VARIANT, "timm", "torch", weights=path, out=tmp_path / "other", origin="timm_tf")
    with pytest.raises(UsageError, match="needs a recipe's variant"):
        porter.convert(path, out=tmp_path / "other", origin="timm")
    shutil.copy(path, tmp_path / "copy.safetensors")
    onwards = porter.convert(
        VARIANT, "timm", "tf", weights=tmp_path / "port", out=tmp_path / "tf", check=False
    )
    assert onwards.record()["origin"] == again.record()["origin"], "a port keeps what is known"
