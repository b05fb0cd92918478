"""Every command that a message prints runs, and a program is told the same one as a call.

Each place of porter that makes a command has a case here. The case is asked as somebody types it, and the
commands that are printed then are run, with what the reader has in place of words such as FILE. It is asked
from Python too, and the calls that are advised there have to be these commands.
"""

from __future__ import annotations

import ast
import html
import inspect
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import porter
from porter.base import commands
from porter.base.calls import Command
from porter.base.commands import (
    BATCH,
    COMMANDS,
    CONVERT,
    EVALUATE,
    INSPECT,
    PREDICT,
    RECIPE_CHECK,
    RECIPE_NEW,
    RECIPE_SHOW,
    REPORT,
    STUDY,
)
from porter.base.errors import PorterError
from porter.base.options import Placeholder
from porter.recipe import recipes_folder
from tests.support.checkout import PHOTO, ROOT
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.photo_files import write_photos
from tests.support.slim_files import SlimFile, write_slim
from tests.support.timm_models import small_folder

Values = dict[str, Any]
SIDE = 32
VARIANT = "mobilenet_v1_0.25"
"""What a case is about that needs a recipe's variant, of Keras's zoo."""
SMALL = "mobilenet_v3_small_0.75"
"""A variant that two zoos have with the same tensors."""


class Net(nn.Module):
    """A small network that is in no recipe."""

    def __init__(self, classes: int = 10, heads: int = 1, inputs: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2)
        self.heads = nn.ModuleList(nn.Linear(8, classes) for _ in range(heads))

    def forward(self, *images: torch.Tensor) -> Any:
        values = self.conv(sum(images[1:], images[0])).relu().mean((2, 3))
        found = tuple(head(values) for head in self.heads)
        return found if len(found) > 1 else found[0]


class Pair(Net):
    def forward(self, image: torch.Tensor, other: torch.Tensor) -> Any:  # type: ignore[override]
        return super().forward(image, other)


def torchvision(name: str) -> Any:
    from porter.zoos.torchvision import import_models

    return getattr(import_models(), name)(weights=None)


@dataclass(frozen=True)
class World:
    """What the cases are about; each thing is made once, when the first case wants it."""

    folder: Path
    weights: WeightsMaker

    def path(self, name: str) -> Path:
        (path := self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        return path

    def port(self, name: str, subject: object = None, **options: Any) -> Path:
        """A port that is not checked, of Net if nothing else is said."""
        folder = self.path(name)
        if not folder.exists():
            given = {"input_size": SIDE} if isinstance(subject, nn.Module | None) else {}
            subject = Net().eval() if subject is None else subject
            porter.convert(subject, check=False, out=folder, **given, **options)  # type: ignore[arg-type]
        return folder

    def variant(self, to: str = "torch", **options: Any) -> Path:
        name = "-".join(("port", to, *map(str, options.values())))
        return self.port(name, VARIANT, source="keras", to=to, weights=self.published, **options)

    @cached_property
    def list_of_none(self) -> Path:
        """A list for a batch, of variants that no recipe has."""
        made = self.path("list.csv")
        made.write_text("subject\nnone*\n")
        return made

    @cached_property
    def published(self) -> Path:
        return self.weights(VARIANT, "keras", ".h5")

    def words(self) -> dict[str, object]:
        """What the readers of pages have, in place of words."""
        return {
            "DIR": self.variant(),
            "OTHER": self.variant("onnx"),
            "FILE": self.flowers,
            "--weights FILE": self.published,
            "SOURCE": self.flowers,
            "VARIANT": VARIANT,
            "ZOO": "keras",
            "FRAMEWORK": "torch",
            "PATH": self.photos,
            "PHOTOS": self.photos,
            "IMAGE...": PHOTO,
            "NAME": VARIANT,
            "N": SIDE,
            "flowers.keras": self.flowers,
            "flowers-torch": self.port("flowers-torch", self.flowers),
            "flowers-savedmodel": self.folder / "flowers-savedmodel",
            "tuned.pth": self.of_flowers,
            "frozen.pb": self.frozen,
        }

    def words_of(self, command: str) -> dict[str, object]:
        """What is other than in `words` for one command."""
        own: dict[str, dict[str, object]] = {
            "recipe check": {"FILE": recipes_folder() / "mobilenet_v1.yaml"},
            "recipe new": {"NAME": "fresh"},
            "study padding": {"--weights FILE": self.weights("mobilenet_v3_small", "timm", ".pth")},
            "verify": {"tuned.pth": self.published},
        }
        return own.get(command, {})

    @cached_property
    def flowers(self) -> Path:
        """A model of Keras that was built for one size."""
        import keras

        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input((SIDE, SIDE, 3)),
                layers.Conv2D(8, 3, 2, activation="relu"),
                layers.GlobalAveragePooling2D(),
                layers.Dense(10),
            ]
        )
        model.export(self.path("flowers-savedmodel"), verbose=False)
        model.save(self.path("flowers.keras"))
        return self.path("flowers.keras")

    @cached_property
    def of_flowers(self) -> Path:
        model = porter.load(self.port("flowers-torch", self.flowers))
        torch.save(model.state_dict(), self.path("of-flowers.pth"))
        return self.path("of-flowers.pth")

    @cached_property
    def frozen(self) -> Path:
        write_slim(self.path("slim/frozen"), SlimFile("mobilenet_v1", format="frozen"))
        return next(self.path("slim/any").parent.glob("*.pb"))

    @cached_property
    def mirror(self) -> Path:
        """A folder with the file that is published for VARIANT, without a digest."""
        shutil.copy(self.published, self.path("mirror/mobilenet_2_5_224_tf.h5"))
        return self.folder / "mirror"

    @cached_property
    def onnx(self) -> Path:
        return Path(shutil.copy(self.port("net-onnx", to="onnx") / "model.onnx", self.path("net.onnx")))

    @cached_property
    def pt2(self) -> Path:
        return self.exported("net", Net())

    def exported(self, name: str, module: nn.Module, images: int = 1) -> Path:
        path = self.path(f"{name}.pt2")
        if not path.exists():
            given = (torch.zeros(1, 3, SIDE, SIDE),) * images
            torch.export.save(torch.export.export(module.eval(), given), path)
        return path

    def tuned(self, folder: str) -> Path:
        """Tensors of Net by their names in a port, alone in a folder or beside that port."""
        model = porter.load(self.port(f"{folder}-port" if folder == "alone" else f"{folder}/port"))
        torch.save(model.state_dict(), self.path(f"{folder}/tuned.pth"))
        return self.path(f"{folder}/tuned.pth")

    @cached_property
    def photos(self) -> Path:
        for wnid in ("n01440764", "n01443537"):
            self.path(f"photos/{wnid}/any")
            write_photos(self.folder / "photos" / wnid, 2)
        return self.folder / "photos"

    @cached_property
    def hub(self) -> Path:
        _, write = small_folder("test_resnet", self.path("hub"))
        return write(self.folder, False)

    @cached_property
    def keras(self) -> Path:
        return Path(shutil.copy(self.port("net-tf", to="tf") / "model.keras", self.path("net.keras")))

    @cached_property
    def stated(self) -> Path:
        """Weights whose folder says that they are of another zoo than timm's own."""
        path = self.path("stated/pytorch_model.bin")
        shutil.copy(self.of_timm, path)
        path.with_name("config.json").write_text(json.dumps({"architecture": "tf_mobilenetv3_small_075"}))
        return path

    @cached_property
    def of_timm(self) -> Path:
        return self.weights(SMALL, "timm", ".pth")

    @cached_property
    def nameless(self) -> Path:
        np.savez(self.path("nameless.npz"), a=np.zeros((3, 3)))
        return self.path("nameless.npz")

    @cached_property
    def partial(self) -> Path:
        """A file that lacks tensors of one layer."""
        state = torch.load(self.of_timm)
        torch.save(
            {name: each for name, each in state.items() if "conv_pwl" not in name}, self.path("partial.pth")
        )
        return self.path("partial.pth")

    @cached_property
    def other(self) -> Path:
        """A variant's own graph with another activation in it."""
        import keras

        model = keras.applications.MobileNet(weights=None, alpha=0.25, classes=10)
        layer = model.get_layer("conv_pw_3_relu")
        layer.max_value = None
        model.save(self.path("other.keras"))
        return self.path("other.keras")

    @cached_property
    def two_heads(self) -> Path:
        """A file of weights that has two layers in place of the head."""
        state = torch.load(self.weights("resnet18", "torchvision", ".pth"))
        heads = {
            name.replace("fc", fc): state[name] for name in list(state) if "fc" in name for fc in ("a", "b")
        }
        torch.save(
            {name: each for name, each in state.items() if "fc" not in name} | heads, self.path("two.pth")
        )
        return self.path("two.pth")

    @cached_property
    def longer(self) -> Path:
        """A network whose head comes before its pool, with one layer more behind it."""
        return self.exported("longer", nn.Sequential(torchvision("squeezenet1_1"), nn.Linear(1000, 5)))

    @cached_property
    def wider(self) -> Path:
        """A network with one layer more in its trunk."""
        model = torchvision("resnet18")
        model.layer2 = nn.Sequential(model.layer2, nn.Conv2d(128, 128, 1))
        return self.exported("wider", model)

    @cached_property
    def broken(self) -> Path:
        """A folder of recipes, one of which extends one that cannot be read."""
        self.path("recipes/base.yaml").write_text("architecture: base\ngraph: [\n")
        self.path("recipes/half.yaml").write_text("extends: base\n")
        return self.folder / "recipes"

    @cached_property
    def trained(self) -> Path:
        """A port in whose folder a trained model took the place of porter's."""
        folder = self.port("trained")
        model = porter.load(folder)
        save_file(
            {name: 2 * tensor for name, tensor in model.state_dict().items()}, folder / "model.safetensors"
        )
        return folder


@dataclass(frozen=True)
class Case:
    """What is asked, and the places of porter whose commands are printed then.

    Attributes:
        has: what the reader has, in place of words.
        status: of the commands that are printed.
        instead: whether each of them is instead of the others.
    """

    places: tuple[str, ...]
    command: Command
    asked: Callable[[World], Values]
    has: Callable[[World], Mapping[str, object]]
    status: int = 0
    instead: bool = False


def case(
    places: str,
    command: Command,
    asked: Callable[[World], Values],
    status: int = 0,
    instead: bool = False,
    **has: Any,
) -> Case:
    return Case(
        tuple(places.split()),
        command,
        asked,
        lambda world: {
            world.published.name: world.published,
            **{word: each(world) if callable(each) else each for word, each in has.items()},
        },
        status,
        instead,
    )


CASES = [
    case(
        "batch.jobs._jobs_of", BATCH, lambda world: {"list": world.list_of_none, "out": world.path("batch")}
    ),
    case(
        "reporting.command_lines.convert reporting.command_lines.verify reporting.command_lines.evaluate "
        "reporting.command_lines.reproduce reporting.command_lines.study",
        REPORT,
        lambda world: {"folder": world.variant()},
        PATH=lambda world: world.photos,
    ),
    case(
        "source.advice.advice_without_recipe source.advice.advice_if_trained",
        INSPECT,
        lambda world: {"file": world.tuned("alone")},
        NAME="mine",
        PORT=lambda world: world.port("alone-port"),
        FRAMEWORK="onnx",
    ),
    case("source.ports_beside.line_for_trained", INSPECT, lambda world: {"file": world.tuned("beside")}),
    case("source.inspection._inspect_by_library", INSPECT, lambda world: {"file": world.hub}),
    case("source.inspection._inspect_port", INSPECT, lambda world: {"file": world.port("net-torch")}),
    case("source.inspection._inspect_port", INSPECT, lambda world: {"file": world.variant()}),
    case(
        "source.from_port.convert_model_file",
        INSPECT,
        lambda world: {"file": world.port("tflite", to="tflite")},
    ),
    case("source.inspection._inspect_own_graph", INSPECT, lambda world: {"file": world.pt2}),
    case("source.inspection._inspect_opened", INSPECT, lambda world: {"file": world.published}),
    case(
        "source.place.expect_file",
        CONVERT,
        lambda world: {"subject": "nothing", "to": "tf"},
        VARIANT=VARIANT,
        ZOO="keras",
        FILE=lambda world: world.onnx,
    ),
    case("source.place.expect_file", CONVERT, lambda world: {"subject": VARIANT, "to": "onnx"}, ZOO="keras"),
    case(
        "source.inspection._commands_with_map", INSPECT, lambda world: {"file": world.two_heads}, instead=True
    ),
    case(
        "source.advice.error_without_graph", CONVERT, lambda world: {"subject": world.published, "to": "onnx"}
    ),
    case(
        "source.advice._next_step",
        CONVERT,
        lambda world: {
            "subject": "resnet18",
            "source": "torchvision",
            "to": "tf",
            "weights": world.published,
        },
    ),
    case(
        "evaluation.protocol.expect_square",
        EVALUATE,
        lambda world: {
            "folders": [
                world.port(
                    "one",
                    Net(1).eval(),
                    preprocess="resize=squash,size=32,interpolation=pil_bilinear,divide=255",
                )
            ],
            "data": world.photos,
        },
        PHOTO=lambda world: world.photos / "n01440764" / "0.jpg",
    ),
    case(
        "evaluation.prediction.predict",
        PREDICT,
        lambda world: {"folder": world.variant(), "images": [world.photos / "n01440764"]},
    ),
    case(
        "evaluation.padding_study.between.networks_of_zoos",
        STUDY,
        lambda world: {
            "variant": "resnet18",
            "source": None,
            "data": world.photos,
            "between": ["torchvision", "timm"],
            "weights": world.weights("resnet18", "torchvision", ".pth"),
        },
    ),
    case(
        "conversion.asked._expect_together",
        CONVERT,
        lambda world: {"subject": world.onnx, "to": "torch", "mapped": ["a=b"]},
        VARIANT=VARIANT,
        ZOO="keras",
        FILE=lambda world: world.published,
    ),
    case(
        "conversion.asked._expect_together",
        CONVERT,
        lambda world: {"subject": VARIANT, "source": "keras", "to": "torch", "outputs": ["a"]},
        FILE=lambda world: world.onnx,
    ),
    case(
        "source.origin._deciding_study",
        CONVERT,
        lambda world: {
            "subject": SMALL,
            "source": "timm",
            "to": "onnx",
            "weights": world.of_timm,
            "check": False,
        },
        PHOTOS=lambda world: world.photos,
    ),
    case(
        "source.origin.expect_origin",
        CONVERT,
        lambda world: {"subject": SMALL, "source": "timm", "to": "onnx", "weights": world.stated},
    ),
    case(
        "source.from_port.open_port",
        CONVERT,
        lambda world: {
            "subject": "resnet18",
            "source": "torchvision",
            "to": "tf",
            "weights": world.variant(),
        },
    ),
    case(
        "source.from_port.convert_model_file",
        CONVERT,
        lambda world: {"subject": world.port("tflite", to="tflite"), "to": "torch"},
    ),
    case(
        "source.trained_port._expect_cover",
        CONVERT,
        lambda world: {"subject": world.port("net-torch"), "to": "tf", "weights": world.other},
    ),
    case("recipe.recipe._zoo", CONVERT, lambda world: {"subject": VARIANT, "source": "zoo", "to": "tf"}),
    case(
        "recipe.find_recipes._with_base",
        RECIPE_SHOW,
        lambda world: {"name": "half", "recipes": world.broken},
        status=2,
    ),
    case("recipe.find_recipes.find_recipe", RECIPE_SHOW, lambda world: {"name": world.onnx}),
    case("recipe.find_recipes._advice_for_unknown", RECIPE_SHOW, lambda world: {"name": "zzz"}),
    case(
        "recipe.load._open",
        RECIPE_CHECK,
        lambda world: {"file": recipes_folder() / "zoos" / "tensornets.yaml"},
        ARCHITECTURE="resnet_v1",
    ),
    case(
        "authoring.new_recipe.new_recipe",
        RECIPE_NEW,
        lambda world: {"name": "pair", "model": world.exported("pair", Pair(), 2)},
    ),
    case("authoring.new_recipe.new_recipe", RECIPE_NEW, lambda world: {"name": "own", "model": world.pt2}),
    case(
        "authoring.new_recipe._from_weights",
        RECIPE_NEW,
        lambda world: {"name": "drafted", "weights": world.published},
    ),
    case(
        "authoring.new_recipe._from_weights",
        RECIPE_NEW,
        lambda world: {"name": "nameless", "weights": world.nameless},
    ),
    case(
        "authoring.draft.draft._refuse_unsayable",
        RECIPE_NEW,
        lambda world: {"name": "heads", "model": world.exported("heads", Net(heads=2))},
        FILE=lambda world: world.exported("heads", Net(heads=2)),
        FRAMEWORK="onnx",
    ),
    case(
        "formats.onnx.renewing._all_tensors_hint",
        CONVERT,
        lambda world: {"subject": world.onnx, "to": "torch", "weights": world.nameless},
        FILE=lambda world: world.onnx,
    ),
    case(
        "port.digests.advice_for_other_model",
        CONVERT,
        lambda world: {"subject": world.trained, "to": "tf"},
    ),
    case(
        "port.port_record.rounding",
        CONVERT,
        lambda world: {
            "subject": VARIANT,
            "source": "keras",
            "to": "torch",
            "dtype": "float16",
            "weights": world.published,
        },
        PORT=f"{VARIANT}-keras-torch",
        PHOTOS=lambda world: world.photos,
    ),
    case(
        "port.folder._made_by",
        PREDICT,
        lambda world: {"folder": world.folder / "nothing", "images": [world.folder / "nothing"]},
        VARIANT=VARIANT,
        ZOO="keras",
        FRAMEWORK="onnx",
    ),
    case("port.folder._made_by", PREDICT, lambda world: {"folder": world.onnx, "images": [world.onnx]}),
    case(
        "source.fitting.names_in_file.tensors_hint",
        CONVERT,
        lambda world: {
            "subject": VARIANT,
            "source": "keras",
            "to": "tf",
            "weights": world.published,
            "mapped": ["spam,relu,conv_preds=head/logits"],
        },
    ),
    case(
        "source.fitting.by_names._expect_cover",
        CONVERT,
        lambda world: {"subject": SMALL, "source": "timm", "to": "tf", "weights": world.partial},
    ),
    case(
        "source.advice._line_by_own_graph",
        CONVERT,
        lambda world: {
            "subject": "squeezenet1_1",
            "source": "torchvision",
            "to": "tf",
            "weights": world.longer,
        },
    ),
    case(
        "source.advice._line_by_own_graph",
        CONVERT,
        lambda world: {"subject": VARIANT, "source": "keras", "to": "tf", "weights": world.keras},
    ),
    case(
        "source.fitting.alignment.expect",
        CONVERT,
        lambda world: {
            "subject": "resnet18",
            "source": "torchvision",
            "to": "tf",
            "weights": world.wider,
        },
        FILE=lambda world: world.wider,
    ),
]


@dataclass(frozen=True)
class Made:
    """A command that porter made for a message, and the place that made it."""

    place: str
    text: str


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """What porter makes from here on."""
    found: list[Made] = []

    def recording(method: Callable[..., str]) -> Callable[..., str]:
        def recorded(command: Command, **values: object) -> str:
            text, frame = method(command, **values), sys._getframe(1)
            while frame.f_back is not None and _is_between(frame):
                frame = frame.f_back
            place = f"{frame.f_globals['__name__']}.{frame.f_code.co_name}".removeprefix("porter.")
            found.append(Made(place, text))
            return text

        return recorded

    for name in ("line", "advise"):
        monkeypatch.setattr(Command, name, recording(getattr(Command, name)))
    return found


def _is_between(frame: Any) -> bool:
    """Whether a function only hands on what another one wants said."""
    return (
        frame.f_globals.get("__name__", __name__) in (__name__, "porter.base.calls")
        or frame.f_code.co_name in BETWEEN
    )


BETWEEN = ("convert_command", "<lambda>", "<genexpr>", "<listcomp>")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, weights_file: WeightsMaker) -> World:
    return World(tmp_path_factory.mktemp("world"), weights_file)


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize("asked", CASES, ids=[f"{each.command.name}: {each.places[0]}" for each in CASES])
def test_what_is_printed_runs(
    asked: Case, world: World, cli: Cli, made: list[Made], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PORTER_MIRROR", str(world.mirror))
    values, has = asked.asked(world), {word: str(given) for word, given in asked.has(world).items()}
    made.clear()
    ran = cli(*shlex.split(asked.command.line(**values))[1:])
    written = [Path(line) for line in ran.out.splitlines() if line.endswith(".html")]
    pages = [page.read_text("utf-8") for page in (*written, *tmp_path.glob("*.yaml"))]
    text = "".join((ran.out, ran.err, *(html.unescape(re.sub("<[^>]*>", "", page)) for page in pages)))
    said = [each for each in made[1:] if each.text in text]
    assert {each.place for each in said} >= set(asked.places), f"{text}\n{made[1:]}"

    printed = {_filled(each.text, has): asked.status if each.place in asked.places else 0 for each in said}
    for number, (words, status) in enumerate(printed.items()):
        if asked.instead:
            (tmp_path / str(number)).mkdir()
            monkeypatch.chdir(tmp_path / str(number))
        # Whether a port is its source's function is not the commands' business.
        unchecked = ["--no-check"] if words[1] == "convert" and "--check" not in words else []
        again = cli(*words[1:], *unchecked)
        assert again.status == status, f"{shlex.join(words)}\n{again.out}{again.err}"

    if asked.command.function is not None and ran.status:
        made.clear()
        with pytest.raises(PorterError) as refused:
            getattr(porter, asked.command.function)(**_for_one(asked.command, values))
        for each in made:
            if each.text.startswith("porter.") and each.text in str(refused.value):
                assert _filled(eval(each.text, {"porter": TYPED, **WORDS}), has) in printed


def _filled(line: str, has: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command, with what the reader has in place of words such as FILE."""
    filled = [has.get(word, word) for word in shlex.split(line)]
    return tuple(re.sub("ARCHITECTURE", has.get("ARCHITECTURE", ""), word) for word in filled)


class _Typed(SimpleNamespace):
    """The functions of the API, each of which only gives the line that somebody types for the same."""

    def __getattr__(self, function: str) -> Callable[..., str]:
        command = next(each for each in COMMANDS if each.function == function)
        names = [each.name for each in command.options.values()]
        return lambda *args, **values: command.line(**dict(zip(names, args, strict=False)) | values)


TYPED = _Typed()


WORDS = {str(word): word for word in vars(commands).values() if isinstance(word, Placeholder)}


def _for_one(command: Command, values: Values) -> Values:
    """The arguments of the function: `porter.evaluate` takes one port where `porter eval` takes several."""
    one = {"folder": values["folders"][0]} if command is EVALUATE else {}
    return {name: value for name, value in values.items() if name != "folders"} | one


def test_every_place_that_makes_a_command_has_a_case() -> None:
    places = set()
    for file in (ROOT / "porter").rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and any(
                _makes_command(each) for each in ast.walk(function)
            ):
                places.add(
                    ".".join((*file.relative_to(ROOT / "porter").with_suffix("").parts, function.name))
                )
    assert places - {place for each in CASES for place in each.places} == set()


def _makes_command(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in ("line", "advise"):
        return isinstance(called.value, ast.Name) and called.value.id.isupper()
    return isinstance(called, ast.Name) and called.id == "convert_command"


RUN_WHOLE = ("authoring", "hub", "quickstart", "recipes", "files", "protocols", "study")
"""Pages that other tests run from top to bottom, with files of their own; only their lines about words such
as FILE are run here.
"""
NAMES = "|".join(each.name for each in COMMANDS)
LINE = re.compile(rf"(?:`|^ *(?:\$ )?)porter ((?:{NAMES})\b[^`\n]*)", re.MULTILINE)
WORD = re.compile(r"\b(?:[A-Z]{3,}|DIR)\b")


def lines_of_pages() -> list[str]:
    """The commands with something to work on that pages print, with and without what is in brackets."""
    found = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for line in LINE.findall(page.read_text(encoding="utf-8")):
            line = line.partition("  #")[0].strip()
            rest = line.removeprefix("recipe ")
            whole = " " in rest and "... " not in rest and not rest.endswith("\\")
            if whole and (WORD.search(line) or page.stem not in RUN_WHOLE):
                found |= {re.sub(r" \[[^]]*\]", "", line), re.sub(r"[][]", "", line)}
    return sorted(found)


ABBREVIATED = {
    "convert FILE",
    "convert VARIANT --from gluon",
    "eval --predictions FILE.csv",
    "study padding",
    "convert hf://OWNER/NAME --to tf",  # a test of docs/hub.md has a Hub
    "convert mine --from own --to tf --weights mine.pth --recipes . --reference model.py:Net",
}
"""What names an option where the rest of the line stands beside it, and what needs files of a story."""


def test_pages_abbreviate_no_other_lines() -> None:
    assert set(lines_of_pages()) >= ABBREVIATED


@pytest.mark.full
@pytest.mark.parametrize("line", sorted(set(lines_of_pages()) - ABBREVIATED))
def test_what_pages_print_runs(
    line: str, world: World, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PORTER_MIRROR", str(world.mirror))
    (tmp_path / "net.py").write_text(
        f"from typing import Any\n\nimport torch\nfrom torch import nn\n\n{inspect.getsource(Net)}"
    )
    shutil.copy(PHOTO, tmp_path / "photo.jpg")
    command = re.match(r"(recipe |study )?\w+", line)
    assert command is not None
    has = world.words() | world.words_of(command[0]) | ({"FILE": world.pt2} if "net.py" in line else {})
    words = [re.sub(r"^DIR(?=/)", str(has["DIR"]), word) for word in line.split()]
    typed = [
        str(has.get(f"{flag} {word}", has.get(word, word)))
        for flag, word in zip(("", *words), words, strict=False)
    ]
    if "--from" in typed and "--weights" not in typed and command[0] in ("convert", "study padding"):
        variant, zoo = typed[typed.index("--from") - 1], typed[typed.index("--from") + 1]
        whose = ("keras", ".h5") if zoo in ("tf", "keras") else ("torchvision", ".pth")
        typed += ["--weights", str(world.weights(variant, *whose))]
    if ("--source" in typed or command[0] == "verify") and "--weights" not in typed:
        typed += ["--weights", str(world.published)]
    ran = cli(*typed)
    assert ran.status == 0, f"{shlex.join(typed)}\n{ran.out}{ran.err}"
