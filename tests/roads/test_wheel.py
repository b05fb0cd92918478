"""The wheel, installed without the checkout: alone at the oldest packages that it declares, and with extras.

Building and installing ask the package index, so that these tests are in the tier `full`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from porter.base.package import __version__
from tests.support.checkout import ROOT

pytestmark = pytest.mark.full
MODEL = """
import keras
image = keras.Input((32, 32, 3))
value = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu", name="stem")(image)
value = keras.layers.Dense(5, name="kinds")(keras.layers.GlobalAveragePooling2D()(value))
keras.Model(image, value).save("net.keras")
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uv, folder = shutil.which("uv", path=Path(sys.executable).parent), tmp_path_factory.mktemp("dist")
    assert uv is not None, "scripts/environment installs it"
    run(uv, "build", "--quiet", "--out-dir", folder, ROOT, cwd=folder)
    assert {path.suffix for path in folder.iterdir()} >= {".whl", ".gz"}
    (built,) = folder.glob("*.whl")
    return built


def installed(place: Path, wheel: Path, extras: str, *options: str | Path) -> Path:
    """The `porter` of a fresh environment with the wheel."""
    run(sys.executable, "-m", "venv", place / "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *options,
        f"{wheel}{extras}",
        cwd=place,
    )
    return python.with_name("porter")


def test_it_has_modules_recipes_and_pages_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"porter", f"zoo_porter-{__version__}.dist-info"}
    assert {"porter/recipes/zoos/keras.yaml", "porter/docs/twins.md"} <= set(names)


def test_it_works_without_extras_at_the_oldest_packages(wheel: Path, tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = project.partition("dependencies = [")[2].partition("]")[0]
    (tmp_path / "oldest.txt").write_text(declared.replace(">=", "==").replace('"', "").replace(",", ""))
    porter = installed(tmp_path, wheel, "", "--constraint", tmp_path / "oldest.txt")
    assert __version__ in run(porter, "--version", cwd=tmp_path)
    run(sys.executable, "-c", MODEL, cwd=tmp_path)
    assert "stem" in run(porter, "inspect", "net.keras", "--tensors", cwd=tmp_path)
    run(porter, "convert", "net.keras", "--to", "caffe", cwd=tmp_path)
    assert (tmp_path / "net-caffe" / "model.caffemodel").is_file()
    eval = [str(porter), "eval", "net-caffe", "--data", "none"]
    refused = subprocess.run(eval, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and refused.stderr.startswith("error: ")


def test_it_proves_a_port_with_the_extras(wheel: Path, tmp_path: Path) -> None:
    porter = installed(tmp_path, wheel, "[torch,tf]", "--constraint", ROOT / "constraints.txt")
    run(porter.with_name("python"), "-c", MODEL, cwd=tmp_path)
    printed = run(porter, "convert", "net.keras", "--to", "torch", cwd=tmp_path)
    assert "float64: same function as the file's own graph" in printed
    run(porter, "verify", "net-torch", "--weights", "net.keras", cwd=tmp_path)


def test_uvx_and_pipx_run_it_without_installing(wheel: Path, tmp_path: Path) -> None:
    uvx = shutil.which("uvx", path=Path(sys.executable).parent)
    assert uvx is not None, "scripts/environment installs it"
    assert __version__ in run(uvx, "--from", wheel, "porter", "--version", cwd=tmp_path)
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pipx", cwd=tmp_path)
    pipx = python.with_name("pipx")
    assert __version__ in run(pipx, "run", "--spec", wheel, "porter", "--version", cwd=tmp_path)
