"""What other packages add to porter (examples/, docs/guides/plug-ins.md)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from porter_toy_zoo.networks import toynet

import porter
from porter.base.errors import FileError, PluginError, UsageError
from porter.base.plugins import plugins
from porter.formats.recognition import known_format
from porter.frameworks import get_destination
from tests.support.fixtures import Cli
from tests.support.toy_files import write_toy


def package(folder: Path, name: str, entries: str, code: str = "") -> None:
    """Make an installed package of one module: its metadata, and its code."""
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entries)
    (folder / f"{name}.py").write_text(code)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path for packages that porter looks for from now on."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    plugins.cache_clear()
    yield
    plugins.cache_clear()


def test_a_format_and_a_destination_of_installed_packages_port_a_model(
    installed_examples: Path, tmp_path: Path
) -> None:
    write_toy(tmp_path / "model.toy")
    paths = os.pathsep.join((str(installed_examples), str(Path(porter.__file__).parents[1])))
    ran = subprocess.run(
        [sys.executable, "-m", "porter", "convert", "model.toy", "--to", "toy", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["parity"] is not None
    record = json.loads((tmp_path / "model-toy" / "port.json").read_text())
    assert record["framework"] == "toy" and record["source"]["format"] == "toy"
    assert {"porter-toy-format": "0.1.0", "porter-toy-destination": "0.1.0"}.items() <= record[
        "versions"
    ].items()
    with pytest.raises(FileError, match=r"written for 'toy', .*porter-toy-destination or porter-toy-format"):
        porter.verify(tmp_path / "model-toy", weights=tmp_path / "model.toy")


@pytest.mark.usefixtures("example_packages")
def test_a_zoo_of_a_package_is_ported_and_proved_by_its_own_code(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = toynet(10).train()
    with torch.no_grad():
        model.norm.momentum = None
        model(torch.randn(64, 3, 32, 32))
    torch.save(model.eval().state_dict(), tmp_path / "toynet.pth")
    assert porter.inspect(tmp_path / "toynet.pth").record()["matches"][0]["zoo"] == "toy_zoo"
    made = porter.convert(
        "toynet", "toy_zoo", "torch", weights=tmp_path / "toynet.pth", out=tmp_path / "port"
    )
    assert made.verdict is not None and made.verdict.ok and made.verdict.proof.reference == "toy_zoo"


@pytest.mark.usefixtures("example_packages")
def test_version_names_them(cli: Cli) -> None:
    found = json.loads(cli("--version --json").out)
    assert {(each["kind"], each["name"], each["package"]) for each in found["plugins"]} == {
        ("formats", "toy", "porter-toy-format"),
        ("destinations", "toy", "porter-toy-destination"),
        ("zoos", "toy_zoo", "porter-toy-zoo"),
        ("recipes", "toy_zoo", "porter-toy-zoo"),
    }
    assert "  formats: toy (porter-toy-format 0.1.0)" in cli("--version").out.splitlines()


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("formats", "raise ValueError('no')", "the plug-in fails: ValueError: no"),
        ("formats", "ADDED = 3", "expected a porter.formats.format.Format, got int"),
        (
            "formats",
            "from porter.formats.format import Format\nADDED = Format('x', 'an x', lambda content: False)",
            "expected a format called 'strange', got 'x'",
        ),
        ("destinations", "ADDED = 3", "int lacks fillings, .*, NAME, INPUT_LAYOUT"),
        ("zoos", "ADDED = 3", "expected a porter.zoos.added.AddedZoo, got int"),
    ],
)
def test_what_is_no_plug_in_is_refused_by_its_name(kind: str, code: str, said: str, added: Path) -> None:
    module = f"strange_{kind}_{len(code)}"
    package(added, module, f"[porter.{kind}]\nstrange = {module}:ADDED\n", code)
    from porter.zoos.added import added_zoo

    find = {"formats": known_format, "destinations": get_destination, "zoos": added_zoo}[kind]
    with pytest.raises(PluginError, match=said) as refused:
        find("strange")
    assert refused.value.where == f"{module} 1.0 (porter.{kind}: strange)"


def test_an_error_of_its_code_names_it(added: Path, tmp_path: Path) -> None:
    code = (
        "from porter.formats.format import Format\n"
        "def read(path, *given, **more): raise KeyError('layers')\n"
        "ADDED = Format('broken', 'a broken one', lambda content: content.head == b'broken', read)\n"
    )
    package(added, "breaking", "[porter.formats]\nbroken = breaking:ADDED\n", code)
    (tmp_path / "model.bin").write_bytes(b"broken")
    with pytest.raises(PluginError, match="the plug-in fails: KeyError: 'layers'"):
        porter.inspect(tmp_path / "model.bin")


def test_two_packages_of_one_name_are_refused(added: Path) -> None:
    for name in ("first_one", "second_one"):
        package(added, name, f"[porter.destinations]\nsame = {name}:ADDED\n")
    with pytest.raises(PluginError, match="adds this name, too"):
        get_destination("same")


def test_a_folder_without_recipes_is_refused(added: Path, cli: Cli) -> None:
    package(added, "empty_recipes", "[porter.recipes]\nempty = empty_recipes\n")
    ran = cli("recipe list")
    assert ran.status == 2 and "empty_recipes 1.0 (porter.recipes: empty)" in ran.err


def test_another_name_is_looked_for_among_plug_ins() -> None:
    with pytest.raises(UsageError, match="other packages may add some"):
        get_destination("toy")
