"""`porter convert resnet50v2 --from tf --to torch`, from the download to the report."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.checkout import PHOTO, ROOT
from tests.support.fixtures import Cli, WeightsMaker
from tests.support.recipe.recipes import copied


@dataclass(frozen=True)
class Mission:
    """What a port of Keras's published file must say of itself.

    Attributes:
        file: its name where Keras publishes it.
        sizes: what convert says of the sizes: that it takes, and that it was proved at in float64.
        options: some of the graph's.
        pad: a site, and how torch says its pads.
    """

    architecture: str
    variant: str
    file: str
    sizes: tuple[str, str]
    options: Mapping[str, object]
    pad: tuple[str, str]

    @property
    def port(self) -> str:
        return f"{self.variant}-keras-torch"


RESNET = Mission(
    "resnet_v2",
    "resnet50v2",
    "resnet50v2_weights_tf_dim_ordering_tf_kernels.h5",
    ("any input size", "128x97, 97x128"),
    {"classes": 1000, "bn_epsilon": 1.001e-5, "stride_in": "last", "stem_norm": False},
    ("stem/pool", "pad 1 with 0, then valid"),
)
MOBILENET = Mission(
    "mobilenet_v1",
    "mobilenet_v1_0.25",
    "mobilenet_2_5_224_tf.h5",
    ("input 224x224 only", "224x224"),
    {"classes": 1000, "bn_epsilon": 1e-3},
    ("stem/conv", "pad ((0,1),(0,1)) with 0, then valid"),
)
Served = Callable[[Mission], Path]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(weights_file: WeightsMaker, tmp_path: Path) -> Iterator[Served]:
    """Makes a folder with one of porter's recipes and Keras's zoo, which has the address and md5 of stand-in
    weights.
    """
    folder = tmp_path / "server"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def serve(mission: Mission) -> Path:
        shutil.copy(weights_file(mission.variant, "keras", ".h5"), folder / mission.file)
        address = f"http://127.0.0.1:{server.server_address[1]}/{mission.file}"
        md5 = hashlib.md5((folder / mission.file).read_bytes()).hexdigest()
        published = rf"file: \S+/{re.escape(mission.file)},(\s+md5: \w+,)?"
        return copied(
            tmp_path / "recipes",
            {published: f"file: '{address}', md5: {md5},"},
            mission.architecture,
            "zoos/keras",
        )

    yield serve
    server.shutdown()
    server.server_close()


def porter(tmp_path: Path, command: str, recipes: Path) -> str:
    """What the program prints in an environment of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "porter", *command.split(), "--recipes", recipes],
        cwd=tmp_path,
        env={
            "PATH": "",
            "PORTER_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


# CI's mission is a small one: that of the file of 100 MB takes twice as long.
@pytest.mark.parametrize(
    "mission", [MOBILENET, pytest.param(RESNET, marks=pytest.mark.full)], ids=lambda mission: mission.variant
)
def test_the_sentence_of_the_mission(mission: Mission, served: Served, tmp_path: Path, cli: Cli) -> None:
    recipes, port = served(mission), mission.port
    shared = ("--recipes", recipes)

    def said_here(command: str, *arguments: str | Path) -> str:
        """By the same program in this process, which has the frameworks already."""
        ran = cli(command, *arguments)
        assert ran.status == 0, ran.err
        return ran.out

    fetched = Path(porter(tmp_path, f"fetch {mission.variant} --from tf", recipes).strip())
    assert fetched.is_relative_to(tmp_path / "cache") and fetched.name == mission.file
    said = said_here(f"convert {mission.variant} --from tf --to torch --check", *shared)
    taken, proved = mission.sizes
    assert taken in said and f"float64: same function as keras at {proved};" in said
    record = json.loads((tmp_path / port / "port.json").read_text())
    assert (
        record["check"] == "passed"
        and record["parity"]["logits"]["rel_l2"] <= 1e-10
        and not record["parity"]["uncompared"]
    )
    assert record["options"].items() >= mission.options.items()
    assert mission.pad in {(pad["site"], pad["realised"]) for pad in record["pads"]}
    source = (tmp_path / port / "model.py").read_text()
    assert len(source.splitlines()) < 130 and "import tensorflow" not in source
    print("\n" + said + "\n" + source)

    assert "float64: same function as keras" in said_here(f"verify {port} --float64", *shared)
    photo = tmp_path / "photos" / "n02124075" / "chelsea.png"
    photo.parent.mkdir(parents=True)
    shutil.copy(PHOTO, photo)
    assert "logit" in said_here("predict", port, photo)
    evaluated = said_here(f"eval {port} --data photos --source --workers 0", *shared)
    assert "agreement  1 of 1 photos with keras" in evaluated
    said_here("report", port)
    page = (tmp_path / port / "report.html").read_text()
    assert mission.variant in page and "same function" in page and "1 of 1" in page


@pytest.mark.full
def test_it_may_be_padded_as_it_was_trained(served: Served, tmp_path: Path) -> None:
    recipes = served(RESNET)
    said = porter(tmp_path, "convert resnet50v2 --from tf --to torch --padding trained --check", recipes)
    print("\n" + said)
    record = json.loads((tmp_path / RESNET.port / "port.json").read_text())
    assert record["padding"] == "trained"
    assert record["parity"]["shipped"]["rel_l2"] >= 1e-3
