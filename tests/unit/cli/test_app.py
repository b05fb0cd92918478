"""The command line as a user meets it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import porter
from porter.base.errors import ChecksumError
from porter.files.published_weights import Fetched
from tests.support.arrays import Array
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.recipe.recipes import copied
from tests.support.refusals import refused
from tests.support.standin_files import sign


@pytest.fixture(scope="session")
def torch_file(weights_file: WeightsMaker) -> Path:
    return weights_file("mobilenet_v1_0.25", "keras", ".h5")


def tensors_of(path: Path) -> dict[str, Array]:
    import torch

    return {name: tensor.numpy() for name, tensor in torch.load(path, weights_only=True).items()}


@pytest.fixture(scope="session")
def state(weights_file: WeightsMaker) -> dict[str, Array]:
    return tensors_of(weights_file("mobilenet_v2", "torchvision", ".pth"))


ROLES = ("weight", "bias")
CONVERT = "convert mobilenet_v2 --from torchvision --to torch --no-check --out port --weights"


def test_wrong_file_type(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "weights.pth").write_bytes(b"\xff\xd8\xff\xe0" + bytes(1000))
    refused(cli(CONVERT, "weights.pth"), "weights.pth")
    assert not (tmp_path / "port").exists()


def test_truncated_file(cli: Cli, tmp_path: Path, weights_file: WeightsMaker) -> None:
    whole = weights_file("mobilenet_v2", "torchvision", ".pth").read_bytes()
    (tmp_path / "cut.pth").write_bytes(whole[: len(whole) // 2])
    refused(cli(CONVERT, "cut.pth"), "cut.pth")
    assert not (tmp_path / "port").exists()


def test_missing_and_extra_tensors_are_listed_together(
    cli: Cli, tmp_path: Path, state: dict[str, Array]
) -> None:
    changed = {name: value for name, value in state.items() if name != "features.1.conv.0.0.weight"}
    save_file({**changed, "stray.weight": np.zeros(3, np.float32)}, "changed.safetensors")
    refused(cli(CONVERT, "changed.safetensors"), "features.1.conv.0.0.weight 32x1x3x3", "stray.weight")
    assert not (tmp_path / "port").exists()


def test_wrong_shape(cli: Cli, tmp_path: Path, state: dict[str, Array]) -> None:
    save_file({**state, "features.0.0.weight": np.zeros((32, 3, 5, 5), np.float32)}, "shape.safetensors")
    refused(cli(CONVERT, "shape.safetensors"), "features.0.0.weight is 32x3x5x5", "32x3x3x3")
    assert not (tmp_path / "port").exists()


def test_weights_of_another_variant_say_which(cli: Cli, weights_file: WeightsMaker, tmp_path: Path) -> None:
    other = weights_file("mobilenet_v1_0.25", "keras", ".h5")
    ran = cli("convert mobilenet_v2 --from keras --to torch --no-check --weights", other, "--out", "port")
    refused(ran, "mobilenet_v1_0.25", "keras")
    assert not (tmp_path / "port").exists()


def test_weights_of_another_framework_say_which(cli: Cli, weights_file: WeightsMaker) -> None:
    other = weights_file("mobilenet_v2", "torchvision", ".pth")
    refused(cli("convert mobilenet_v2 --from keras --to tf --weights", other), "--from torchvision")


def test_an_unknown_variant_gets_the_nearest(cli: Cli) -> None:
    refused(cli("convert mobilnet_v2 --from tf --to torch"), "mobilnet_v2", "mobilenet_v2")


@pytest.mark.parametrize(
    ("option", "value"),
    [("--to", "tourch"), ("--from", "kerras"), ("--input-size", "big"), ("--dtype", "int8")],
)
def test_unknown_values(cli: Cli, option: str, value: str) -> None:
    arguments = {"--from": "tf", "--to": "torch", option: value}
    refused(cli("convert mobilenet_v2", *(word for pair in arguments.items() for word in pair)), value)


def test_a_wrong_zoo_is_told_as_the_argument_that_it_is(cli: Cli) -> None:
    refused(
        cli("convert resnet50v2 --from kears --to torch"), "error: --from kears: ", "did you mean 'keras'?"
    )


def test_arguments_that_are_missing_point_to_the_help_of_their_command(cli: Cli) -> None:
    refused(cli("convert"), "see porter convert --help")
    refused(cli("study padding"), "see porter study padding --help")
    refused(cli("--nothing"), "see porter --help")


@pytest.mark.parametrize("words", [(), ("recipe",), ("study",)])
def test_help_says_every_command_in_a_whole_sentence(words: tuple[str, ...], cli: Cli) -> None:
    _, listed = cli(*words, "--help").out.split("Commands:\n")
    assert all(line.endswith(".") and "..." not in line for line in listed.strip().splitlines())


def test_the_help_of_map_spells_layers_in_a_row(cli: Cli) -> None:
    assert "FIRST,relu,LAST=head/logits" in cli("convert --help").out


def test_a_size_beyond_the_bound_is_told_it(cli: Cli) -> None:
    refused(cli("pads mobilenet_v2 --from tf --to torch --input-size 99999"), "99999", "at most 8192")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which even root cannot write")
def test_an_unwritable_folder(cli: Cli, torch_file: Path) -> None:
    arguments = ("convert mobilenet_v1_0.25 --from tf --to torch --weights", torch_file)
    refused(cli(*arguments, "--out", "/proc/port"), "/proc")


def test_a_file_where_the_folder_should_be(cli: Cli, tmp_path: Path, torch_file: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in ("file", "file/port"):
        refused(
            cli("convert mobilenet_v1_0.25 --from tf --to torch --weights", torch_file, "--out", out), "file"
        )
    assert (tmp_path / "file").read_text() == "mine"


def test_an_existing_port_stays_without_overwrite(cli: Cli, tmp_path: Path, torch_file: Path) -> None:
    arguments = (
        "convert mobilenet_v1_0.25 --from tf --to torch --no-check --weights",
        torch_file,
        "--out",
        "p",
    )
    assert cli(*arguments).status == 0
    before = (tmp_path / "p" / "port.json").read_bytes()
    refused(cli(*arguments), "--overwrite")
    assert (tmp_path / "p" / "port.json").read_bytes() == before
    assert cli(*arguments, "--overwrite").status == 0


def test_versions_are_those_of_the_packages_that_are_named(
    cli: Cli, tmp_path: Path, torch_file: Path
) -> None:
    for framework, package in (("torch", "torch"), ("tf", "keras")):
        arguments = (
            "--from",
            "tf",
            "--to",
            framework,
            "--no-check",
            "--weights",
            torch_file,
            "--out",
            framework,
        )
        assert cli("convert mobilenet_v1_0.25", *arguments).status == 0
        versions = json.loads((tmp_path / framework / "port.json").read_text())["versions"]
        assert {name: version(name) for name in versions if name != "porter"}.keys() == {"numpy", package}
        assert versions[package] == version(package)


def test_no_network_says_where_to_put_the_file(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PORTER_MIRROR", "http://127.0.0.1:9")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    ran = cli("fetch mobilenet_v2_1.4 --from keras")
    refused(ran, "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.4_224.h5", str(tmp_path / "cache"))


def test_a_whole_module_pickle_is_refused_unexecuted(cli: Cli, tmp_path: Path) -> None:
    import torch

    torch.save(torch.nn.Linear(2, 2), "module.pth")
    refused(cli(CONVERT, "module.pth"), "model.state_dict()")
    assert not (tmp_path / "port").exists()


def test_errors_as_json(cli: Cli) -> None:
    ran = cli("convert mobilnet_v2 --from tf --to torch --json")
    error = json.loads(ran.out)["error"]
    assert ran.status == 2 and set(error) == {"code", "message", "where", "next"}
    assert json.loads(cli("convert --json").out)["error"]["code"] == "usage"


def test_convert_json_has_the_fixed_fields(cli: Cli, torch_file: Path) -> None:
    ran = cli(
        "convert mobilenet_v1_0.25 --from tf --to torch --no-check --weights",
        torch_file,
        "--out",
        "p",
        "--json",
    )
    found = json.loads(ran.out)
    fields = [
        "port",
        "variant",
        "zoo",
        "framework",
        "classes",
        "source_classes",
        "tensors",
        "pads",
        "parity",
        "check",
        "warnings",
    ]
    assert ran.status == 0 and set(fields) <= set(found)
    assert found["classes"] == found["source_classes"] == 1000
    assert found["tensors"] == {
        "used": 137,
        "ignored": 0,
        "filled": 27,
        "reasons": {},
        "fillings": {"num_batches_tracked = 0": 27},
    }
    assert (found["source"]["file"], found["source"]["format"], found["licence"]) == (
        torch_file.name,
        "keras-h5",
        None,
    )
    assert (found["padding"], found["input"]["size"], found["input"]["native_size"]) == (
        "shipped",
        [224, 224],
        [224, 224],
    )
    assert (found["stock_arguments"], found["absorbed"]) == ({}, {})
    assert all({"site", "source", "realised", "why"} <= set(pad) for pad in found["pads"])


def test_pads_inspect_and_recipes_as_json(cli: Cli, torch_file: Path) -> None:
    pads = json.loads(cli("pads mobilenet_v2 --from tf --to torch --json").out)["sites"]
    stem = next(pad for pad in pads if pad["site"] == "stem/conv")
    assert stem["source"] == "same" and "(0,1)" in stem["realised"] and stem["trained"] is None
    inspected = json.loads(cli("inspect", torch_file, "--json").out)
    assert {"format", "framework", "classes", "size", "head", "convert", "tensors", "matches"} <= set(
        inspected
    )
    assert (inspected["classes"], inspected["size"], inspected["head"]) == (1000, [224, 224], "conv_preds")
    assert (inspected["source_classes"], inspected["activation"], inspected["differs"]) == (
        1000,
        "softmax",
        [],
    )
    assert inspected["commands"] == [inspected["convert"]]
    assert (
        inspected["convert"]
        == f"porter convert mobilenet_v1_0.25 --from keras --to torch --weights {torch_file}"
    )
    assert (inspected["matches"][0]["variant"], inspected["matches"][0]["zoo"]) == (
        "mobilenet_v1_0.25",
        "keras",
    )
    assert inspected["matches"][0]["score"] == 1.0 and all(
        match["score"] >= 0.98 for match in inspected["matches"]
    )
    listed = json.loads(cli("recipe list --json").out)["recipes"]
    assert {"mobilenet_v1", "mobilenet_v2"} <= {recipe["architecture"] for recipe in listed}


def test_pads_hides_the_sites_that_pad_nothing(cli: Cli) -> None:
    arguments = ("pads mobilenet_v2 --from tf --to torch",)
    sites = json.loads(cli(*arguments, "--json").out)["sites"]
    telling = [site for site in sites if not site["source"] == site["realised"] == "valid"]
    assert (len(sites), len(telling)) == (52, 18)
    shown, every = cli(*arguments).out.splitlines(), cli(*arguments, "--all").out.splitlines()
    assert [line.split()[0] for line in shown[1:-2]] == [site["site"] for site in telling]
    assert shown[-2].startswith("34 more, ") and [line.split()[0] for line in every[1:-1]] == [
        site["site"] for site in sites
    ]


def test_convert_says_what_was_ignored_and_filled_where_something_was(
    cli: Cli, torch_file: Path, state: dict[str, Array]
) -> None:
    to_torch = cli(CONVERT_TF, torch_file)
    assert "  tensors  137 used\n" in to_torch.out
    save_file(state, "whole.safetensors")
    assert "  tensors  314 used\n" in cli(CONVERT, "whole.safetensors").out


def test_pads_of_training_have_to_be_known(cli: Cli) -> None:
    refused(cli("convert mobilenet_v1_0.25 --from tf --to torch --padding trained"), "no pads of training")
    pads = cli("pads resnet50v2 --from keras --to torch").out.splitlines()
    stem = next(number for number, line in enumerate(pads) if line.startswith("stem/pool"))
    assert pads[stem + 1].split()[:4] == ["as", "trained", "same,", "-inf"]


def small_keras(path: Path) -> Path:
    """A whole MobileNet of an input into which other recipes' windows do not fit."""
    from porter.frameworks.tf.runtime import import_keras

    import_keras().applications.MobileNet(input_shape=(32, 32, 3), alpha=0.25, classes=10, weights=None).save(
        path
    )
    return path


def test_the_lines_that_inspect_prints_work_as_they_are_typed(
    cli: Cli, torch_file: Path, state: dict[str, Array], tmp_path: Path
) -> None:
    trunk = {name: array for name, array in state.items() if not name.startswith("classifier.")}
    heads = {
        f"{name}.{role}": np.zeros((n, 1280)[: 2 - (role == "bias")], np.float32)
        for name, n in (("age", 3), ("breed", 5))
        for role in ROLES
    }
    save_file(trunk | heads, tmp_path / "two heads.safetensors")
    cli(CONVERT_TF, torch_file)
    cases: dict[Path, tuple[str, str, str, list[str]]] = {
        torch_file: (
            "mobilenet_v1_0.25 --from keras --to torch",
            "224x224, as the recipe has it",
            "1000",
            [],
        ),
        small_keras(tmp_path / "small.keras"): (
            "mobilenet_v1_0.25 --from keras --to torch",
            "32x32",
            "10",
            [],
        ),
        tmp_path / "p": ("mobilenet_v1_0.25 --from keras --to tf", "224x224", "1000", []),
        tmp_path / "two heads.safetensors": (
            "mobilenet_v2 --from torchvision --to tf",
            "224x224",
            "",
            ["age", "breed"],
        ),
    }
    for path, (what, size, classes, maps) in cases.items():
        lines = cli("inspect", path).out.splitlines()
        typed = [line.strip() for line in lines if line.startswith("  porter convert ")]
        ends = [f" --map {layer}=head/logits" for layer in maps] or [""]
        assert typed == [f"porter convert {what} --weights {shlex.quote(str(path))}{end}" for end in ends]
        said = {line[2:13].rstrip(): line[13:] for line in lines[1:]}
        assert len(lines) <= 12 and said["input"].startswith(size) and said.get("classes", "") == classes
        for number, line in enumerate(typed):
            assert (
                cli(*shlex.split(line)[1:], "--no-check", "--out", tmp_path / f"{path.stem}-{number}").status
                == 0
            )


def test_inspect_says_that_no_recipe_fits_and_prints_no_line(cli: Cli, state: dict[str, Array]) -> None:
    save_file(
        {"features.0.1.bias": state["features.0.1.bias"], "own.weight": np.zeros((5, 5), np.float32)},
        "own.safetensors",
    )
    ran, found = (cli("inspect own.safetensors"), json.loads(cli("inspect own.safetensors --json").out))
    assert (
        ran.status == 0
        and "no recipe fits" in ran.out
        and "porter recipe list" in ran.out
        and "to port it" not in ran.out
    )
    assert "porter convert PORT --weights own.safetensors" in ran.out
    assert found["convert"] is None and found["matches"] == []
    refused(cli(CONVERT, "own.safetensors"), "no recipe fits this file")


def test_verify_passes_and_fails_by_status(cli: Cli, torch_file: Path, tmp_path: Path) -> None:
    arguments = (
        "--from",
        "tf",
        "--to",
        "torch",
        "--no-check",
        "--input-size",
        "32",
        "--weights",
        torch_file,
        "--out",
        "p",
    )
    assert cli("convert mobilenet_v1_0.25", *arguments).status == 0
    good = cli("verify p --weights", torch_file, "--float64", "--layers", "--json")
    found = json.loads(good.out)
    assert good.status == 0 and found["ok"] and found["reference"] == "keras" and found["dtype"] == "float64"
    assert found["notes"] == []
    assert {"max_abs", "l1", "rel_l2", "snr_db", "psnr_db", "argmax_equal"} <= set(found["logits"])
    damage(tmp_path / "p", "stem.conv.weight")
    infect(tmp_path / "p")
    sign(tmp_path / "p")
    bad = cli("verify p --weights", torch_file, "--float64", "--json")
    found = json.loads(bad.out)
    assert bad.status == 1 and not found["ok"] and found["first_bad"]["path"] == "stem/conv"
    assert [note.split(",")[0] for note in found["notes"]] == [
        "model.py is not what this porter writes for the port"
    ]


def damage(port: Path, key: str) -> None:
    """Changes one weight."""
    tensors = load_file(port / "model.safetensors")
    tensors[key] = tensors[key] * np.float32(1.01)
    save_file(tensors, port / "model.safetensors")


def infect(port: Path) -> None:
    path = port / "model.py"
    path.write_text('import os\n\nos.system("echo ran")\n' + path.read_text())


def test_verify_wants_the_file_that_the_port_was_made_from(
    cli: Cli, torch_file: Path, weights_file: WeightsMaker
) -> None:
    cli("convert mobilenet_v1_0.25 --from tf --to torch --no-check --weights", torch_file, "--out", "p")
    keras3 = weights_file("mobilenet_v1_0.25", "keras", ".keras")
    refused(cli("verify p --weights", keras3), torch_file.name)


def imported_by(command: str, *arguments: str | Path) -> set[str]:
    code = (
        "import sys\nfrom porter.cli.app import main\ntry:\n main()\nfinally:\n "
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *command.split(), *map(str, arguments)], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return set(ran.stderr.split())


def test_help_imports_no_framework_and_nothing_heavy() -> None:
    assert not imported_by("--help") & {
        "torch",
        "triton",
        "tensorflow",
        "keras",
        "numpy",
        "pydantic",
        "yaml",
        "h5py",
        "rich",
    }


def test_a_variants_pads_are_made_without_arrays() -> None:
    modules = imported_by("pads", "resnet50v2", "--from", "keras", "--to", "torch")
    assert not modules & {"torch", "triton", "tensorflow", "numpy", "h5py"}


TENSORS_ONLY = [  # each reader and each writer
    ("mobilenet_v1_0.25", "keras", ".h5", "torch", "model.safetensors"),
    ("mobilenet_v1_0.25", "keras", ".keras", "tf", "model.keras"),
    ("mobilenet_v2", "torchvision", ".pth", "torch", "model.safetensors"),
]


@pytest.mark.parametrize(("variant", "zoo", "suffix", "destination", "file"), TENSORS_ONLY)
def test_converting_without_a_check_imports_no_framework(
    variant: str,
    zoo: str,
    suffix: str,
    destination: str,
    file: str,
    weights_file: WeightsMaker,
    tmp_path: Path,
) -> None:
    weights = weights_file(variant, zoo, suffix)
    arguments = ("convert", variant, "--from", zoo, "--to", destination, "--no-check", "--weights", weights)
    assert not imported_by(*arguments, "--out", tmp_path / "p") & {"torch", "triton", "tensorflow", "keras"}
    assert (tmp_path / "p" / file).exists()


def test_without_tensorflow_a_keras_port_is_written_and_not_checked(
    cli: Cli, tmp_path: Path, weights_file: WeightsMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tensorflow", "keras"):
        monkeypatch.setitem(sys.modules, name, None)
    weights = weights_file("mobilenet_v2_0.35", "torchvision", ".pth")
    arguments = (
        "convert mobilenet_v2_0.35 --from torchvision --to tf --input-size 32 --weights",
        weights,
        "--out",
        tmp_path / "p",
    )
    ran = cli(*arguments)
    assert ran.status == 0 and (tmp_path / "p" / "model.keras").exists()
    assert json.loads((tmp_path / "p" / "port.json").read_text())["check"].startswith(
        "skipped: TensorFlow cannot be imported"
    )
    assert cli(*arguments, "--overwrite", "--check").status == 2


def test_converting_only_weights_imports_no_reader_of_graphs(
    weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file("mobilenet_v1_0.25", "keras", ".h5")
    arguments = ("convert mobilenet_v1_0.25 --from tf --to torch --no-check --weights", weights)
    unneeded = {
        "ml_dtypes",
        "porter.source.fitting.by_graph",
        "porter.formats.keras.graph",
        "porter.verification.references.reference",
    }
    assert not imported_by(*arguments, "--out", tmp_path / "p") & unneeded


CONVERT_TF = "convert mobilenet_v1_0.25 --from tf --to torch --no-check --out p --weights"


def test_overwriting_never_takes_what_porter_did_not_write(
    cli: Cli, tmp_path: Path, torch_file: Path
) -> None:
    cli(CONVERT_TF, torch_file)
    (tmp_path / "p" / "notes.txt").write_text("mine")
    refused(cli(CONVERT_TF, torch_file, "--overwrite"), "notes.txt")
    assert (tmp_path / "p" / "notes.txt").read_text() == "mine"


def test_only_a_ports_own_files_stand_for_the_port(cli: Cli, torch_file: Path) -> None:
    cli(CONVERT_TF, torch_file)
    refused(cli(CONVERT_TF, "p/absent.h5", "--overwrite"), "absent.h5")


def test_a_port_json_that_lists_another_file_is_not_that_files(
    cli: Cli, tmp_path: Path, torch_file: Path
) -> None:
    shutil.copy(torch_file, "model.h5")
    for record in (
        b"{}",
        b"no JSON",
        b"[1]",
        b'{"model": ["a"]}',
        b'{"model": {"other.h5": "0"}}',
        b"[" * 10**5,
    ):
        (tmp_path / "port.json").write_bytes(record)
        assert "mobilenet_v1_0.25 from keras" in cli("inspect model.h5").out
    cli(CONVERT_TF, "model.h5")
    assert "a port of mobilenet_v1_0.25" in cli("inspect p/model.safetensors").out


def test_weights_that_are_not_finite_prove_nothing(
    cli: Cli, tmp_path: Path, weights_file: WeightsMaker
) -> None:
    where = ("--input-size", "64", "--out", "q", "--weights", "bad.safetensors")
    arguments = ("convert squeezenet1_1 --from torchvision --to torch", *where)
    state = tensors_of(weights_file("squeezenet1_1", "torchvision", ".pth"))
    state["features.0.weight"][:] = np.inf
    save_file(state, "bad.safetensors")
    refused(cli(*arguments), "not finite", status=1)
    state["features.0.weight"][:] = np.nan
    save_file(state, "bad.safetensors")
    refused(cli(*arguments, "--no-check"), "'features.0.weight' are NaN")
    assert not (tmp_path / "q").exists()


def test_a_tolerance_is_a_small_positive_number(cli: Cli, torch_file: Path) -> None:
    cli(CONVERT_TF, torch_file)
    for tolerance in ("0", "nan", "2"):
        refused(cli("verify p --weights", torch_file, "--tolerance", tolerance), "tolerance")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("input", {"layout": "NCHW", "size": [10**6, 10**6], "native_size": [0, -5], "channels": 3}),
        ("batches", {"stem/norm": 10**30}),
        ("classes", 7),
        ("model", {"../../secret": "0" * 64}),
        ("model", {"model.py": "0" * 64}),
        ("graph", {"nodes": []}),
    ],
)
def test_a_forged_record_is_refused(
    cli: Cli, tmp_path: Path, torch_file: Path, key: str, value: object
) -> None:
    cli(CONVERT_TF, torch_file)
    record = json.loads((tmp_path / "p" / "port.json").read_text())
    (tmp_path / "p" / "port.json").write_text(json.dumps({**record, key: value}))
    refused(cli("verify p --weights", torch_file), "p/port.json")


READERS = [
    ("verify", "p"),
    ("predict", "p", "absent.jpg"),
    ("eval", "p", "--data", "."),
    ("report", "p"),
    ("inspect", "p"),
    ("convert", "mobilenet_v1_0.25", "--from", "keras", "--to", "tf", "--weights", "p"),
]


def test_every_file_of_a_port_is_held_to_its_digest(cli: Cli, tmp_path: Path, torch_file: Path) -> None:
    cli(CONVERT_TF, torch_file)
    (tmp_path / "p" / "README.md").write_text("a file of the user's own, which is not the port's")
    assert "  is         a port of mobilenet_v1_0.25 from keras" in cli("inspect p").out
    infect(tmp_path / "p")
    for arguments in READERS:
        refused(
            cli(*arguments),
            "p/model.py: this is not the file that porter wrote: its sha256 is",
            "port.json says",
            status=1,
        )
    with pytest.raises(ChecksumError):
        porter.load("p")
    (tmp_path / "p" / "model.py").unlink()
    refused(cli("inspect p"), "p/model.py: port.json lists this file")
    os.mkfifo(tmp_path / "p" / "model.py")
    refused(cli("inspect p"), "p/model.py: port.json lists this file")


def test_without_a_reference_a_build_is_not_compared_with_itself(
    cli: Cli, weights_file: WeightsMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = weights_file("mobilenet_v2", "torchvision", ".pth")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setattr(
        "porter.base.package.find_spec", lambda name: None if name == "torchvision" else object()
    )
    arguments = ("convert mobilenet_v2 --from torchvision --to torch --weights", weights, "--out", "p")
    ran = cli(*arguments, "--json")
    assert (
        ran.status == 0
        and json.loads(ran.out)["parity"] is None
        and json.loads(ran.out)["check"].startswith("skipped")
    )
    said = cli(*arguments, "--overwrite").out
    assert said.count("skipped: ") == 1 and said.count("torchvision cannot") <= 1
    assert said.count("  warning  ") == said.count("  warning  photos are prepared as torchvision's") == 1
    refused(cli(*arguments, "--overwrite", "--check"), "torchvision")


def test_the_digest_picks_the_protocol(cli: Cli, tmp_path: Path, weights_file: WeightsMaker) -> None:
    """A recipe that pins this stand-in as torchvision's file finds it under torchvision_v2 as well."""
    from porter.files import digest

    weights = weights_file("mobilenet_v2", "torchvision", ".pth")
    changes = {"sha256_prefix: b0353104": f"sha256_prefix: '{digest(weights)[:8]}'"}
    copied(tmp_path / "recipes", changes, "mobilenet_v2", "zoos/torchvision")
    ran = cli(
        "convert mobilenet_v2 --from torchvision_v2 --to torch --no-check --weights",
        weights,
        "--out",
        "p",
        "--recipes",
        "recipes",
        "--json",
    )
    found = json.loads(ran.out)
    assert found["zoo"] == "torchvision" and "torchvision" in found["warnings"][0]
    assert json.loads((tmp_path / "p" / "port.json").read_text())["preprocess"]["size"] == 256


def test_inspect_knows_a_port(cli: Cli, torch_file: Path) -> None:
    cli(CONVERT_TF, torch_file)
    for path in ("p", "p/port.json", "p/model.safetensors"):
        found = json.loads(cli("inspect", path, "--json").out)
        assert (found["format"], found["framework"]) == ("port", "torch")
        assert (found["matches"][0]["variant"], found["matches"][0]["zoo"]) == ("mobilenet_v1_0.25", "keras")
    assert "porter convert mobilenet_v1_0.25 --from keras --to tf --weights p" in cli("inspect p").out


def test_inspect_names_what_the_best_match_lacks_and_has_besides(cli: Cli, state: dict[str, Array]) -> None:
    head = {"classifier.1.weight", "classifier.1.bias"}
    save_file(
        {name: array for name, array in state.items() if name not in head} | {"own": np.zeros(3)},
        "other.safetensors",
    )
    lines = cli("inspect other.safetensors").out.splitlines()
    assert lines[-4:] == [
        "  problem    1 tensors unexpected: own",
        "  missing    classifier.1.weight, or it has another shape",
        "  missing    classifier.1.bias, or it has another shape",
        "  unexpected own",
    ]


def test_recipe_show_says_what_the_weights_are_licensed_as(cli: Cli) -> None:
    lines = cli("recipe show resnext50_32x4d").out.splitlines()
    zoos = {line.split()[0]: line.split()[-1].partition(":")[0] for line in lines[4:8]}
    assert zoos == {
        zoo: f"zoos/{zoo}.yaml" for zoo in ("keras", "tensornets", "torchvision", "torchvision_v2")
    }
    assert any(line.startswith("keras ") and "CC BY-NC 4.0" in line for line in lines)
    assert any(line.startswith("torchvision ") and "BSD-3-Clause" in line for line in lines)


def test_recipe_show_says_the_same_as_json(cli: Cli) -> None:
    shown = json.loads(cli("recipe show resnet18 --json").out)
    assert (shown["paper"], shown["variant"], shown["nodes"][0]["output"]) == (
        "arXiv:1512.03385",
        "resnet18",
        [64, 112, 112],
    )
    assert {"zoo": "torchvision", "framework": "torch", "top1": 69.758, "top5": 89.078}.items() <= shown[
        "weights"
    ][0].items()
    words = {
        str(value)
        for row in (*shown["weights"], *shown["nodes"])
        for key, value in row.items()
        if key != "output" and value
    }
    said = cli("recipe show resnet18").out
    assert words == {word for word in words if word.removesuffix("0") in said}


HOSTILE = "\x1b]0;owned\x07\u202estem\nerror: none\x7f"
WRITTEN_OUT = "\\x1b]0;owned\\x07\\u202estem\\nerror: none\\x7f"


def test_tensor_names_cannot_write_to_the_terminal(cli: Cli) -> None:
    save_file({HOSTILE: np.zeros(3, np.float32), "größe.重": np.zeros(3, np.float32)}, "hostile.safetensors")
    out = cli("inspect hostile.safetensors --tensors").out
    assert (
        f"\n{WRITTEN_OUT} " in out
        and "\ngröße.重 " in out
        and all(line.isprintable() for line in out.splitlines())
    )


def test_recipes_cannot_write_to_the_terminal(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "r.yaml").write_text(json.dumps({"architecture": "a", HOSTILE: 1}))
    arguments = ("recipe show a --recipes recipes",)
    refused(cli(*arguments), WRITTEN_OUT)
    out = cli(*arguments, "--json").out
    assert HOSTILE in json.loads(out)["error"]["message"] and all(
        line.isprintable() for line in out.splitlines()
    )


def test_a_name_that_is_no_text_is_an_error_like_others(cli: Cli) -> None:
    refused(cli("inspect", os.fsdecode(b"no\xff\x1bsuch.pth")), "no\\udcff\\x1bsuch.pth")


def test_warnings_cannot_write_to_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Fetched(Path("weights.h5"), "0" * 64, (HOSTILE,))
    monkeypatch.setattr("porter.source.place.fetch_published", lambda *_: found)
    ran = cli("fetch mobilenet_v2 --from keras")
    assert (ran.out, ran.err) == ("weights.h5\n", f"warning: {WRITTEN_OUT}\n")
