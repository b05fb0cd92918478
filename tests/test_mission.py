"""`porter convert resnet50v2 --from tf --to torch`, from the download to the report."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Cli, WeightsMaker

PUBLISHED = "resnet50v2_weights_tf_dim_ordering_tf_kernels.h5"
RECIPES = Path(__file__).parents[1] / "recipes"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def recipes(weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory):
    """porter's recipes, with one address and one checksum changed: a local server has stand-in weights in the file's place."""
    folder, copies = tmp_path_factory.mktemp("server"), tmp_path_factory.mktemp("recipes")
    shutil.copy(weights_file("resnet50v2", "keras", ".h5"), folder / PUBLISHED)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    text = (RECIPES / "resnet_v2.yaml").read_text()
    address = f"http://127.0.0.1:{server.server_address[1]}/{PUBLISHED}"
    text = re.sub(rf"https://\S+/{re.escape(PUBLISHED)}", address, text)
    text = text.replace("3ef43a0b657b3be2300d5770ece849e0", hashlib.md5((folder / PUBLISHED).read_bytes()).hexdigest())
    (copies / "resnet_v2.yaml").write_text(text)
    yield copies
    server.shutdown()
    server.server_close()


def porter(tmp_path: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "porter", *arguments],
        cwd=tmp_path,
        env={"PATH": "", "PORTER_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(RECIPES.parent), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_sentence_of_the_mission(recipes: Path, tmp_path: Path, cli: Cli) -> None:
    said = porter(tmp_path, "convert", "resnet50v2", "--from", "tf", "--to", "torch", "--recipes", str(recipes), "--check")
    assert "float64: same function as keras at 128x97, 97x128" in said and "any input size" in said
    record = json.loads((tmp_path / "resnet50v2-keras-torch" / "port.json").read_text())
    assert record["check"] == "passed" and record["parity"]["logits"]["rel_l2"] <= 1e-10 and not record["parity"]["uncompared"]
    assert record["options"].items() >= {"classes": 1000, "bn_epsilon": 1.001e-5, "stride_in": "last", "stem_norm": False}.items()
    assert next(pad for pad in record["pads"] if pad["site"] == "stem/pool")["realised"] == "pad 1 with 0, then valid"
    source = (tmp_path / "resnet50v2-keras-torch" / "model.py").read_text()
    assert len(source.splitlines()) < 130 and "import tensorflow" not in source
    print("\n" + said + "\n" + source)

    port, shared = "resnet50v2-keras-torch", ("--recipes", str(recipes))

    def said_here(*arguments: str) -> str:
        """By the same command in this process, which has the frameworks already."""
        ran = cli(*arguments)
        assert ran.status == 0, ran.err
        return ran.out

    assert "float64: same function as keras" in said_here("verify", port, "--float64", *shared)
    photo = tmp_path / "photos" / "n02124075" / "chelsea.png"
    photo.parent.mkdir(parents=True)
    shutil.copy(RECIPES.parent / "scripts" / "photos" / "chelsea.png", photo)
    assert "logit" in said_here("predict", port, str(photo))
    evaluated = said_here("eval", port, "--data", "photos", "--source", "--workers", "0", *shared)
    assert "agreement  1 of 1 photos with keras" in evaluated
    said_here("report", port)
    page = (tmp_path / port / "report.html").read_text()
    assert "resnet50v2" in page and "same function" in page and "1 of 1" in page


@pytest.mark.full
def test_it_may_be_padded_as_it_was_trained(recipes: Path, tmp_path: Path) -> None:
    port = ("convert", "resnet50v2", "--from", "tf", "--to", "torch", "--recipes", str(recipes), "--padding", "trained", "--check")
    said = porter(tmp_path, *port)
    print("\n" + said)
    record = json.loads((tmp_path / "resnet50v2-keras-torch" / "port.json").read_text())
    assert record["padding"] == "trained"
    assert record["parity"]["shipped"]["rel_l2"] >= 1e-3
