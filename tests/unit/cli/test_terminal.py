"""How the command ends: without a command, where nobody reads it, on a full disk, at Ctrl-C."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import porter
from porter.base.errors import FileError
from porter.cli.terminal import BROKEN_PIPE, EX_SOFTWARE, INTERRUPTED, stems_from_interrupt
from porter.evaluation.prediction import Prediction
from porter.verification.inputs import SIGNED
from porter.verification.results import Distance, NodeDistance, Parity
from porter.verification.verdict import Verdict
from tests.support.checkout import ROOT
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.refusals import refused

RUN = "import sys; sys.argv[0] = 'porter'; from porter.cli.app import main; main()"


@pytest.mark.parametrize("group", [(), ("recipe",), ("study",)])
def test_without_a_command_it_prints_the_help(cli: Cli, group: tuple[str, ...]) -> None:
    ran = cli(*group)
    assert ran == cli(*group, "--help")
    assert (
        ran.status == 0
        and ran.out.startswith("Usage: ")
        and "\nCommands:\n" in ran.out
        and "\\n" not in ran.out
    )


def test_the_readme_has_every_status() -> None:
    line = (ROOT / "README.md").read_text(encoding="utf-8").partition("Exit status: ")[2].partition("\n\n")[0]
    assert {int(word) for word in line.split() if word.isdigit()} == {
        0,
        1,
        2,
        EX_SOFTWARE,
        INTERRUPTED,
        BROKEN_PIPE,
    }


def test_the_version(cli: Cli) -> None:
    assert cli("--version").out == f"porter {porter.__version__}\n"


def test_dir_lists_the_api() -> None:
    assert dir(porter) == sorted([*porter.__all__, "__version__"])
    assert all(callable(getattr(porter, name)) and getattr(porter, name).__doc__ for name in porter.__all__)
    assert not hasattr(porter, "absent")


def test_what_the_api_gives_fits_on_a_screen(weights_file: WeightsMaker, tmp_path: Path) -> None:
    weights = weights_file("mobilenet_v1_0.25", "keras", ".h5", 10)
    made = porter.convert(
        "mobilenet_v1_0.25", "keras", "torch", weights=weights, out=tmp_path / "p", check=False
    )
    node = NodeDistance("stem/conv", rel_l2=0.0, max_abs=0.0, limit=1e-10)
    logits = Distance(max_abs=0.0, l1=0.0, rel_l2=0.0, snr_db=None, psnr_db=None, argmax_equal=True)
    verdict = Verdict(
        (Parity(True, "keras", "float64", ((224, 224),), 2, 1e-10, 0.0, logits, None, (node,) * 200, ()),),
        SIGNED,
    )
    prediction = Prediction(image=Path("cat.png"), fed="224x224", top5=(), logits=np.zeros(1000))
    for result in (made, verdict, porter.inspect(weights), prediction):
        assert len(repr(result)) < 1200 and "array" not in repr(result)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_names_that_the_terminals_encoding_lacks_are_escaped(encoding: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "inspect", str(tmp_path / "\u65e5.onnx")],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        encoding=encoding,
    )
    assert ran.returncode == 2 and "\\u65e5.onnx" in ran.stderr and not ran.stdout
    (tmp_path / "list.csv").write_text("subject\n\u65e5.onnx\n", encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", RUN, "batch", "list.csv", "--out", "out"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        encoding=encoding,
    )
    assert ran.returncode == 1 and "\\u65e5.onnx" in ran.stdout


def test_the_shell_completes_commands() -> None:
    typed = {"_PORTER_COMPLETE": "complete_bash", "COMP_WORDS": "porter rec", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", RUN], env={**os.environ, **typed}, capture_output=True, text=True
    )
    assert ran.stdout.split() == ["recipe"]


def test_where_nobody_reads_on_it_ends_quietly() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, "recipe", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        running.stdout.close()  # type: ignore[union-attr]
        said = running.stderr.read()  # type: ignore[union-attr]
    assert (running.returncode, said) == (BROKEN_PIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("arguments", [("recipe", "list"), ("recipe", "list", "--json")])
def test_output_to_a_full_disk(arguments: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", RUN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ran.returncode == 2
    assert (
        "json" in str(arguments)
        or ran.stderr == "error: <stdout>: cannot be written: No space left on device\n"
    )


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """No file can have more bytes, as on a disk that becomes full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize("size", [1000, 100_000])
def test_a_disk_that_becomes_full_leaves_nothing(
    cli: Cli, framework: str, size: int, weights_file: WeightsMaker, tmp_path: Path
) -> None:
    weights = weights_file("mobilenet_v1_0.25", "keras", ".h5", 10)
    with full_after(size):
        ran = cli(
            "convert mobilenet_v1_0.25 --from keras --to", framework, "--no-check", "--weights", weights
        )
    refused(ran, "mobilenet_v1_0.25-keras-", "cannot be written: ")
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".porter-lock")] == []


LONG = "a" * 5000
UNREADABLE = {
    "recipes": ("recipe", "list", "--recipes", LONG),
    "a subject": ("convert", "--to", "torch", LONG),
    "a file": ("inspect", LONG),
    "a port": ("verify", LONG),
    "a folder of photos": ("predict", "port", LONG),
    "weights": ("convert", "vgg16", "--from", "torchvision", "--to", "torch", "--weights", LONG),
    "a reference": (
        "convert",
        "vgg16",
        "--from",
        "torchvision",
        "--to",
        "torch",
        "--reference",
        f"{LONG}.onnx",
    ),
    "a port to be": (
        "convert",
        "vgg16",
        "--from",
        "torchvision",
        "--to",
        "torch",
        "--weights",
        "x",
        "--out",
        LONG,
    ),
    "links in a loop": (
        "convert",
        "vgg16",
        "--from",
        "torchvision",
        "--to",
        "torch",
        "--weights",
        "x",
        "--out",
        "loop",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_path_that_the_system_refuses_is_told_as_itself(name: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    ran = cli(*UNREADABLE[name])
    refused(ran, UNREADABLE[name][-1])
    assert "choose another --out" not in ran.err


def test_where_memory_ends_it_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect(**arguments: object) -> None:
        raise MemoryError("Unable to allocate 9 TiB")

    monkeypatch.setattr("porter.source.inspection.inspect", inspect)
    refused(cli("inspect model.onnx"), "there is not enough memory: Unable to allocate 9 TiB")


def test_an_error_after_a_handled_interrupt_is_told() -> None:
    """`eval` keeps what it measured until Ctrl-C; what fails later is another thing."""
    assert stems_from_interrupt(ImportError()) and not stems_from_interrupt(FileError("cannot be written"))
    try:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise FileError("half")  # noqa: B904
    except FileError as error:
        assert stems_from_interrupt(error)


INTERRUPT = """
import signal, sys
# A shell's background jobs inherit that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(self, name, path, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
from porter.cli.app import main
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("module", ["numpy.exceptions", "pydantic_core._pydantic_core", "yaml"])
def test_ctrl_c_during_an_import(module: str, tmp_path: Path) -> None:
    """The compiled part of numpy prints what interrupted its own import, and raises an ImportError
    instead.
    """
    file = tmp_path / "weights.h5"
    file.write_bytes(b"\x89HDF\r\n\x1a\n")
    program, arguments = INTERRUPT.replace("MODULE", repr(module)), ("inspect", file)
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert ran.returncode == INTERRUPTED and "a fault of porter" not in ran.stderr
