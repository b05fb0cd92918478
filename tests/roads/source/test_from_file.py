"""Files that carry their own graph, ported without a recipe."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import porter
from porter.formats.reading import read_checkpoint
from porter.graph import LogSoftmax
from porter.port import read_port
from porter.reporting.command_lines import convert as convert_line
from porter.source.fitting import candidate
from porter.source.ranking import rank as ranking
from tests.support.checkout import PHOTO
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.refusals import refused

LAYERS = keras.layers
pytestmark = pytest.mark.usefixtures("one_recipe")


def small(size: int | None = 20) -> keras.Model:
    """A network that no recipe has: its pads depend on the size."""
    image = keras.Input((size, size, 3))
    value = LAYERS.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem")(image)
    value = LAYERS.BatchNormalization(name="norm")(value)
    value = LAYERS.GlobalAveragePooling2D(name="pool")(value)
    return keras.Model(image, LAYERS.Dense(7, activation="softmax", name="out")(value))


def of_two_outputs() -> keras.Model:
    image = keras.Input((20, 20, 3))
    value = LAYERS.Conv2D(4, 3, name="stem")(image)
    return keras.Model(image, [value, LAYERS.GlobalMaxPooling2D(name="pool")(value)])


def of_a_conv_head() -> keras.Model:
    """As MobileNets without their activation."""
    image = keras.Input((20, 20, 3))
    value = LAYERS.Conv2D(5, 1, name="logits")(LAYERS.GlobalAveragePooling2D(keepdims=True)(image))
    return keras.Model(image, LAYERS.Flatten()(value))


def of_a_layer_without_an_op() -> keras.Model:
    image = keras.Input((20, 20, 3))
    return keras.Model(
        image,
        LAYERS.GlobalMaxPooling2D()(LAYERS.Discretization([0.5], name="length", dtype="float32")(image)),
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Small models' files, by name."""
    folder = tmp_path_factory.mktemp("files")
    keras.utils.set_random_seed(0)
    models = {
        "small.keras": small(),
        "small.h5": small(),
        "free.keras": small(None),
        "two.keras": of_two_outputs(),
    }
    models["head.keras"] = of_a_conv_head()
    models["grouped.keras"] = of_a_layer_without_an_op()
    for name, model in models.items():
        model.save(folder / name)
    small().save_weights(folder / "tensors.weights.h5")
    return lambda name: folder / name


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize("name", ["small.keras", "small.h5", "two.keras"])
def test_a_file_is_ported_under_its_own_names_and_proved_against_itself(
    name: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    made = porter.convert(saved(name), to="torch", out=tmp_path / "port", check=True)
    record, verdict = made.port.record, made.verdict
    assert (record.variant, record.zoo, record.architecture, record.check) == (None, None, None, "passed")
    assert verdict is not None and verdict.ok and verdict.proof.reference == "the file's own graph"
    outputs = ("out",) if name.startswith("small") else ("stem", "pool")
    assert made.port.graph.outputs == outputs and not verdict.proof.uncompared
    assert (record.classes, record.activation) == ((7, "softmax") if name.startswith("small") else (0, None))


@pytest.mark.usefixtures("in_double")
def test_the_commands_work_on_such_a_port(saved: Callable[[str], Path], tmp_path: Path, cli: Cli) -> None:
    file, port = saved("small.keras"), tmp_path / "small-torch"
    ran = cli("convert", file, "--to", "torch", "--fold-bn", "--json")
    found = json.loads(ran.out)
    assert ran.status == 0 and found["port"] == "small-torch" and found["variant"] is None
    assert cli("verify", port, "--weights", file, "--float64").status == 0
    refused(cli("verify", port), "made from small.keras", "add --weights")
    refused(cli("predict", port, "photo.jpg"), "nothing says how a photo becomes", "--preprocess")
    assert "small.keras" in (Path(cli("report", port).out.strip())).read_text()
    assert [
        site["site"] for site in json.loads(cli("pads", file, "--to", "torch", "--json").out)["sites"]
    ] == ["stem"]
    (line,) = [line for line in cli("inspect", file).out.splitlines() if "porter convert" in line]
    assert line.split() == ["porter", "convert", str(file), "--to", "torch"]
    again = cli("convert", port, "--to", "tf", "--out", tmp_path / "again", "--input-size", "20")
    assert again.status == 0 and read_port(tmp_path / "again").record.source.format == "port"
    for said in (again.out, cli("verify", tmp_path / "again", "--weights", port).out):
        assert (
            "the original file's own graph is not at hand" in said
            and "own build of the source in torch" in said
        )
    refused(cli("verify", tmp_path / "again"), "made from another port", "--weights with that port")


@pytest.mark.parametrize(("kept", "output"), [(False, "logits"), (True, "probabilities")])
def test_what_a_port_gives_is_said(
    kept: bool, output: str, saved: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    onnx = pytest.importorskip("onnx")
    ran = cli("convert", saved("small.keras"), "--to", "onnx", "--no-check", *["--keep-activation"] * kept)
    assert ("its softmax is taken off: --keep-activation keeps it" in ran.out) == (not kept)
    stated = {
        entry.key: entry.value for entry in onnx.load(tmp_path / "small-onnx" / "model.onnx").metadata_props
    }
    assert stated["porter.output"] == output == read_port(tmp_path / "small-onnx").record.output
    again = porter.convert(tmp_path / "small-onnx", to="torch", out=tmp_path / "again", check=False)
    assert again.record()["output"] == output
    ran = cli("convert small-onnx --to torch --no-check --keep-activation --keep-background")
    if kept:
        assert (
            "--keep-background changes nothing: porter knows no background row among the 7 classes of "
            "model.onnx" in ran.out
        )
    else:
        refused(
            ran,
            "without the softmax of its source",
            "leave out --keep-activation, or convert small.keras, which",
        )


def test_a_file_of_a_recipes_graph_gets_its_names(weights_file: WeightsMaker, tmp_path: Path) -> None:
    file = weights_file("mobilenet_v1_0.25", "keras", ".whole.h5")
    record = porter.convert(file, to="torch", out=tmp_path / "port", check=False).port.record
    assert (record.variant, record.zoo) == ("mobilenet_v1_0.25", "keras") and record.preprocess is not None
    assert any("mobilenet_v1_0.25 from keras" in note for note in record.source.notes)


def test_a_file_without_a_size_is_asked_for_one(
    saved: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    file = saved("free.keras")
    refused(cli("convert", file, "--to", "torch"), "states no input size", "--input-size")
    assert cli("convert", file, "--to", "torch", "--input-size", "17x23").status == 0
    assert read_port(tmp_path / "free-torch").record.input.native_size == (17, 23)
    (line,) = [line for line in cli("inspect", file).out.splitlines() if "porter convert" in line]
    ran = cli(*shlex.split(line)[1:], "--out", tmp_path / "any", "--json")
    assert json.loads(ran.out)["check"] == "passed" and read_port(tmp_path / "any").record.input.size is None


@pytest.mark.parametrize("to", ["onnx", "caffe", "mxnet"])
def test_a_bare_file_of_a_port_says_its_native_size_and_protocol(
    to: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    protocol = "resize=squash,size=17,interpolation=pil_bilinear,divide=99"
    made = porter.convert(
        saved("free.keras"),
        to=to,
        out=tmp_path / "port",
        preprocess=protocol,
        input_size="17x23",
        check=False,
    )
    (made.port.folder / "port.json").unlink()
    file = made.port.folder / made.port.destination.MODEL_FILE
    record = porter.convert(file, to="torch", out=tmp_path / "again", check=False).port.record
    assert (
        record.input.native_size == (17, 23) and record.preprocess == made.port.record.preprocess is not None
    )


def test_a_port_of_any_size_is_compared_at_the_size_that_is_asked_for(
    saved: Callable[[str], Path], tmp_path: Path
) -> None:
    made = porter.convert(
        saved("two.keras"), to="torch", out=tmp_path / "port", check=True, input_size="24x27"
    )
    assert made.port.record.input.size is None and made.verdict is not None
    float32 = next(parity for parity in made.verdict.parities if parity.dtype == "float32")
    assert float32.sizes == ((24, 27),)


def test_a_checkpoints_prefix_names_a_file(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "model.ckpt.index").write_bytes(b"")
    refused(cli("convert model.ckpt --to torch"), "the checkpoint's index is cut short")


def test_inspect_says_why_a_file_cannot_be_ported(saved: Callable[[str], Path]) -> None:
    problem = porter.inspect(saved("grouped.keras")).problem or ""
    assert "'length'" in problem and "Discretization" in problem and problem.count(":") <= 1, problem


RECIPE = """architecture: small
variants: {small: {width: 8}}
options: {classes: 7, bn_epsilon: 1.0e-3}
input: {size: 20}
graph:
  - {conv: stem/conv, filters: =width, kernel: 3, stride: 2, bias: true, pad: same}
  - {relu: stem/relu}
  - {batch_norm: stem/norm}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  own:
    framework: tf
    names: {stem/conv: stem, stem/norm: norm, head/logits: out}
"""
WRONG = {
    "no YAML": ("zoos: [", "2:1: not valid YAML"),
    "an unknown key": (RECIPE.replace("input:", "inptu:"), "4:1: there is no key 'inptu'"),
    "an unknown variable": (RECIPE.replace("=width", "=widht"), "6:32: 'widht' is not a variable"),
    "a node without a name": (
        RECIPE.replace("stem/norm: norm, ", ""),
        "14:5: zoo 'own' does not name 'stem/norm'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recipe_spoils_itself_only_and_is_spoken_of(
    name: str, saved: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "small.yaml").write_text(WRONG[name][0])
    said = f"this recipe was left out: own/small.yaml:{WRONG[name][1]}"
    ran = cli("convert", saved("small.keras"), "--to", "torch", "--recipes", "own", "--no-check")
    assert ran.status == 0 and said in ran.out
    refused(
        cli("convert", saved("free.keras"), "--to", "torch", "--recipes", "own"), "states no input size", said
    )


def test_a_recipe_of_ones_own_is_used_with_its_labels(
    saved: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    (tmp_path / "own").mkdir()
    square = "{resize: squash, size: 20, interpolation: pil_bilinear, divide: 255}"
    (tmp_path / "own" / "small.yaml").write_text(f"{RECIPE}    labels: seven.txt\n    protocol: {square}\n")
    (tmp_path / "own" / "seven.txt").write_text("\n".join(f"kind {letter}" for letter in "abcdefg"))
    (tmp_path / "own" / "wrong.yaml").write_text("zoos: [")
    ran = cli("convert", saved("small.keras"), "--to", "torch", "--recipes", "own", "--no-check")
    assert "it is small from own" in ran.out and "this recipe was left out: own/wrong.yaml:2:1" in ran.out
    cli("convert small-torch --to tf --no-check --out again --recipes own")
    shutil.rmtree(tmp_path / "own")  # a port outlives its recipe
    for port in ("small-torch", "again"):
        said = cli("predict", port, PHOTO)
        assert said.status == 0 and said.out.count("kind ") == 5
    assert (
        cli("report small-torch").status == 0
        and "7, seven.txt" in (tmp_path / "small-torch" / "report.html").read_text()
    )


def test_a_much_larger_variant_is_not_expanded_to_its_end(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of four layers is compared with every recipe in the time of its own layers."""
    named = []
    monkeypatch.setattr(candidate, "name_layers", lambda recipe, *rest: named.append(recipe.architecture))
    assert not ranking.rank(read_checkpoint(saved("small.keras"))).matches and not named


def test_a_convolution_of_one_cell_is_a_head(saved: Callable[[str], Path], tmp_path: Path) -> None:
    record = porter.convert(saved("head.keras"), to="torch", out=tmp_path / "port", check=False).port.record
    assert (record.classes, record.output) == (5, "logits")


@pytest.mark.parametrize(
    ("name", "given"), [("free.keras", ("--input-size", "any")), ("small.keras", ("--keep-activation",))]
)
def test_the_reports_line_makes_the_port_again(
    name: str, given: tuple[str, ...], saved: Callable[[str], Path], tmp_path: Path, cli: Cli
) -> None:
    shutil.copy(saved(name), tmp_path / name)
    assert cli("convert", name, "--to", "torch", "--no-check", "--out", "one", *given).status == 0
    one = read_port(tmp_path / "one").record
    assert cli(*shlex.split(convert_line(one, "two"))[1:], "--no-check").status == 0
    two = read_port(tmp_path / "two").record
    assert (one.graph, one.input, one.model) == (two.graph, two.input, two.model)


REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "a variant without a zoo": (("resnet50",), ("a variant without its zoo", "--from")),
    "no file": (("nowhere",), ("no file", "porter convert FILE")),
    "a missing file": (("nowhere.h5",), ("there is no such file", "check the path")),
    "a zoo for a file": (
        ("small.keras", "--from", "torch"),
        ("is a file, expected a variant", "porter inspect"),
    ),
    "tensors without a graph": (("tensors.weights.h5",), ("no graph",)),
    "a layer without an op": (
        ("grouped.keras",),
        ("no op for 'length' (Discretization)", "port the layers behind them alone", "model.export"),
    ),
    "training pads": (("small.keras", "--padding", "trained"), ("needs a recipe's variant",)),
    "a stock class": (("small.keras", "--stock"), ("no recipe has this graph",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_recipe_is_refused(name: str, saved: Callable[[str], Path], cli: Cli) -> None:
    (subject, *options), words = REFUSED[name]
    file = saved(subject) if saved(subject).exists() else subject
    refused(cli("convert", file, *options, "--to", "torch"), *words)


def test_a_port_gives_what_the_file_gives(saved: Callable[[str], Path], tmp_path: Path) -> None:
    """Several outputs stay several, in the file's order."""
    import torch

    file = saved("two.keras")
    porter.convert(file, to="torch", out=tmp_path / "port", check=False)
    batch = np.random.default_rng(0).standard_normal((2, 20, 20, 3)).astype(np.float32)
    wanted = [np.asarray(value) for value in keras.models.load_model(file)(batch)]
    with torch.no_grad():
        maps, most = porter.load(tmp_path / "port")(torch.from_numpy(batch.transpose(0, 3, 1, 2).copy()))
    assert np.allclose(maps.numpy().transpose(0, 2, 3, 1), wanted[0], atol=1e-5) and np.allclose(
        most.numpy(), wanted[1], atol=1e-5
    )


def test_a_keras_model_without_a_graph_is_told_what_keeps_one(tmp_path: Path, cli: Cli) -> None:
    """Its calls are code of its own, so that its files hold tensors only; what `export` writes is the calls
    themselves.
    """

    class Own(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = LAYERS.Conv2D(4, 3), LAYERS.Dense(5)

        def call(self, image: Any) -> Any:
            return self.two(keras.ops.mean(self.one(image), (1, 2)))

    model, advice = Own(), "model.export('FOLDER') in Keras"
    model(np.zeros((1, 16, 16, 3)))
    model.save(tmp_path / "own.keras")
    model.save_weights(tmp_path / "own.weights.h5")
    for name in ("own.keras", "own.weights.h5"):
        assert advice in str(porter.inspect(tmp_path / name).problem)
        refused(cli("convert", tmp_path / name, "--to", "torch"), "tensors and no graph", advice)
        refused(cli("recipe new own --from-model", tmp_path / name, "--out", tmp_path / "own.yaml"), advice)
    model.export(str(tmp_path / "own"), verbose=False)
    assert "same function as the file's own graph" in cli("convert", tmp_path / "own", "--to", "torch").out


def keras_of_logarithms(path: Path) -> Path:
    small_of_logarithms().save(path / "net.keras")
    return path / "net.keras"


def saved_model_of_logarithms(path: Path) -> Path:
    small_of_logarithms().export(str(path / "net"), verbose=False)
    return path / "net"


def small_of_logarithms() -> keras.Model:
    image = keras.Input((20, 20, 3))
    value = LAYERS.GlobalAveragePooling2D(name="pool")(LAYERS.Conv2D(8, 3, name="stem")(image))
    return keras.Model(image, LAYERS.Dense(7, activation="log_softmax", name="out")(value))


def export_of_logarithms(path: Path) -> Path:
    import torch

    layers = (
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 7),
    )
    model = torch.nn.Sequential(*layers, torch.nn.LogSoftmax(1)).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(1, 3, 20, 20),)), path / "net.pt2")
    return path / "net.pt2"


def onnx_of_logarithms(path: Path) -> Path:
    import onnx

    text = "p = GlobalAveragePool (x) f = Flatten (p) y = LogSoftmax (f)"
    inputs = f'<ir_version: 8, opset_import: ["" : 17]> net (float[n,6,h,w] x) => (float[n,6] y) {{ {text} }}'
    onnx.save(onnx.parser.parse_model(inputs), path / "net.onnx")
    return path / "net.onnx"


@pytest.mark.usefixtures("in_double")
@pytest.mark.parametrize(
    "make", [keras_of_logarithms, saved_model_of_logarithms, export_of_logarithms, onnx_of_logarithms]
)
def test_a_log_softmax_at_the_end_is_taken_off(
    make: Callable[[Path], Path], tmp_path: Path, cli: Cli
) -> None:
    file = make(tmp_path)
    size = ("--input-size", "any") if file.suffix == ".onnx" else ()
    ran = cli("convert", file, "--to", "torch", "--out", "port", *size)
    assert (
        "its log_softmax is taken off" in ran.out
        and "float64: same function as the file's own graph" in ran.out
    ), ran.err
    record = read_port(tmp_path / "port").record
    assert (record.activation, record.output) == ("log_softmax", "logits")
    assert cli("verify port --weights", file).status == 0
    kept = cli("convert", file, "--to", "torch", "--out", "kept", "--keep-activation", *size)
    assert "float64: same function as the file's own graph" in kept.out, kept.err
    port = read_port(tmp_path / "kept")
    assert port.graph.by_path[port.graph.output].op == LogSoftmax()
    assert "--keep-activation" in shlex.split(convert_line(port.record, "again"))
