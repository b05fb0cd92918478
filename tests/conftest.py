from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from porter.base.errors import RecipeError
from porter.base.plugins import plugins
from porter.cli.app import OBJECTS_BETWEEN_COLLECTIONS, main
from porter.files.locks import locked
from porter.formats.triton import load_triton
from porter.recipe import known_variants, recipes_folder
from porter.recipe.find_recipes import KnownVariant
from porter.source.ranking import rank as ranking
from tests.support.durations import Recorder, longest_first
from tests.support.examples import install_examples
from tests.support.fixtures import Cli, FineTunedMaker, Ran, SlimMaker, WeightsMaker
from tests.support.quick import FRAMEWORKS, NoPython, Quick, skip_frameworks

if TYPE_CHECKING:
    from porter.verification.check import Check
    from tests.support.finetuned_keras import FineTuned
    from tests.support.slim_files import SlimFile

# TensorFlow itself takes oneDNN on some processors only; on others its CPU has no convolution with channels
# first, and rounds more.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# What XLA compiles for a test runs a few times only: optimising it takes longer. JAX can do without any;
# TensorFlow's grouped convolutions, which XLA compiles too, would take minutes.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false",
)
load_triton()  # before the tests that import Keras themselves

gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
MANY_MODULES = 100

# A busy machine is no fault.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick", action="store_true", help="without the frameworks: tests that import one are skipped"
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="writes how long each file takes into tests/durations.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        skip_frameworks()
        config.pluginmanager.register(Quick())
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.fixture(scope="session", autouse=True)
def one_python(pytestconfig: pytest.Config) -> Iterator[None]:
    """In the quick tier, a test that starts another Python is skipped: that one could import a framework."""
    with pytest.MonkeyPatch.context() as patch:
        if pytestconfig.getoption("--quick"):
            patch.setattr(subprocess, "Popen", NoPython)
        yield


@pytest.fixture(scope="module", autouse=True)
def drop_models() -> Iterator[None]:
    """Models refer to themselves, so that only a collection frees them; what a module leaves is not looked at
    again. Without a framework, as in the quick tier, there are no models.
    """
    yield
    if not FRAMEWORKS.isdisjoint(sys.modules):
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def imported() -> Iterator[None]:
    """A framework's modules are not looked through for garbage again: TensorFlow, Keras and torch are most of
    what Python knows.
    """
    before = len(sys.modules)
    yield
    if len(sys.modules) - before >= MANY_MODULES:
        gc.freeze()


@pytest.fixture
def one_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of porter's own recipes, files are compared with MobileNet v1 only: all of them take seconds for a file
    of many layers.
    """

    def known(recipes: Path | None) -> tuple[list[KnownVariant], tuple[RecipeError, ...]]:
        variants, faults = known_variants(recipes)
        own = recipes_folder()
        return [
            each for each in variants if each.files[0].parent != own or each.files[0].stem == "mobilenet_v1"
        ], faults

    monkeypatch.setattr(ranking, "known_variants", known)


@pytest.fixture
def in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ports are proved in float64 only, as with `verify --float64`: for tests of what a reader makes of a
    file, which is the same function in float32, and of what is said of ports. The tests of verification and
    of frameworks have both types; and so has ONNX here, which onnxruntime runs in float32 only.
    """
    from porter.verification import proving

    own = proving.prove_against

    def prove_against(check: Check, *arguments: Any) -> Any:
        record = check.port.record
        if "onnx" not in (record.framework, record.source.format):
            check = replace(check, dtypes=("float64",))
        return own(check, *arguments)

    monkeypatch.setattr(proving, "prove_against", prove_against)


@pytest.fixture(scope="session")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> WeightsMaker:
    """Makes stand-in weights files, each once per session, whichever worker is the first to want it.

    `.h5` and `.weights.h5` hold only weights, as keras.applications publishes them; `.whole.h5` and `.keras`
    carry the graph too; `.pth` is torch's.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "weights"
    (unfinished := folder / "unfinished").mkdir(parents=True, exist_ok=True)

    def make(variant: str, zoo: str, suffix: str, classes: int = 1000) -> Path:
        from tests.support.weights_files import write_weights

        path = folder / f"{variant}-{zoo}-{classes}{suffix}"
        with locked(unfinished / f"{path.name}.lock"):
            if not path.exists():
                write_weights(unfinished / path.name, variant, zoo, classes)
                (unfinished / path.name).rename(path)
        return path

    return make


@pytest.fixture(scope="session")
def slim_file(tmp_path_factory: pytest.TempPathFactory) -> SlimMaker:
    """Makes files of TF-slim's own networks with stand-in weights, each once per session."""
    made: dict[SlimFile, Path] = {}
    folder = tmp_path_factory.mktemp("slim")

    def make(file: SlimFile) -> Path:
        from tests.support.slim_files import write_slim

        if file not in made:
            made[file] = write_slim(folder / f"model-{len(made)}", file)
        return made[file]

    return make


@pytest.fixture(scope="session")
def installed_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the packages of examples/ are installed."""
    return install_examples(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def example_packages(installed_examples: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the packages of examples/ be found."""
    monkeypatch.syspath_prepend(installed_examples)
    plugins.cache_clear()
    yield
    plugins.cache_clear()


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> FineTunedMaker:
    """Makes fine-tuned models of Keras, each once per module: its models are let go with it."""
    made: dict[str, FineTuned] = {}
    folder = tmp_path_factory.mktemp("finetuned")

    def make(name: str) -> FineTuned:
        from tests.support.finetuned_keras import make_finetuned

        if name not in made:
            made[name] = make_finetuned(name, folder)
        return made[name]

    return make


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs a command as it is typed: its first words are one text, and others, such as paths, follow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))

    def run(command: str = "", *arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["porter", *command.split(), *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = capsys.readouterr()
        return Ran(int(exited.value.code or 0), captured.out, captured.err)

    return run
