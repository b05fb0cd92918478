"""Triton beside TensorFlow in one process (porter.formats.triton): stand-ins of both note that they are
imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import porter
from porter.data.labels import imagenet_classes
from tests.support.checkout import ROOT
from tests.support.evaluation.padding_study import studies
from tests.support.fixtures import WeightsMaker
from tests.support.photo_files import write_photos
from tests.support.standin import calibrated_tensors

VARIANT = "mobilenet_v1_0.25"
STAND_INS = {
    "notes.py": """
import os
def note(words):
    with open(os.environ["NOTES"], "a") as file:
        print(words, file=file)
""",
    # A process has shown what it does once both are there, and ends; so it loads neither framework.
    "tensorflow/__init__.py": """
import os, notes
notes.note("tensorflow")
os._exit(0)
""",
    # torch does without a triton that cannot be imported.
    "triton/__init__.py": """
import os, sys, notes
notes.note("triton, its own symbols first" if sys.getdlopenflags() & os.RTLD_DEEPBIND else "triton")
if "tensorflow" in sys.modules:
    os._exit(0)
raise ImportError("a stand-in")
""",
    "code.py": """
import notes
notes.note("own code")
import keras
def build():
    return keras.Sequential([])
""",
}
COMMAND = "from porter.cli.app import main; main()"
LOAD = "import sys, porter; porter.load(sys.argv[1])"
CODE = (
    "import sys; from pathlib import Path; from porter.verification.references.user_code import load_maker; "
    "load_maker(Path(sys.argv[1]), 'build')"
)
TORCHVISION = "from porter.zoos.torchvision import import_models; import_models()"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; "
LATE = "import sys, types; sys.modules['tensorflow'] = types.ModuleType('tensorflow'); "
"""A notebook has imported TensorFlow already."""
FIRST, OWN_SYMBOLS = ["triton", "tensorflow"], ["triton, its own symbols first"]
STUDY = "study padding {variant} --from keras --weights {h5} --data {photos} --workers 1"
USES = {
    "convert to torch": (
        COMMAND,
        "convert {variant} --from keras --weights {h5} --to torch --out {out}",
        FIRST,
    ),
    "convert to tf": (COMMAND, "convert strided {strided} --to tf --out {out}", FIRST),
    "verify": (COMMAND, "verify {tf} --weights {h5}", FIRST),
    "predict": (COMMAND, "predict {tf} {photo}", FIRST),
    "eval --source": (COMMAND, "eval {torch} --source --weights {h5} --data {photos} --workers 1", FIRST),
    "study": (WITHOUT_TORCH + COMMAND, STUDY, FIRST),
    "load": (LOAD, "{tf}", FIRST),
    "code": (
        COMMAND,
        "convert strided {strided} --to torch --out {out} --reference {code}:build",
        ["triton", "own code", "tensorflow"],
    ),
    "load, late": (LATE + LOAD, "{torch}", OWN_SYMBOLS),
    "load tf, late": (LATE + LOAD, "{tf}", OWN_SYMBOLS),
    "torchvision, late": (LATE + TORCHVISION, "", OWN_SYMBOLS),
    "code, late": (LATE + CODE, "{code}", OWN_SYMBOLS),
}
"""A program, its arguments with names of `files`, and what the stand-ins note."""
ALIKE = ("verify", "predict", "study", "load", "load, late")
"""What imports a framework where another one of USES does, too."""


@pytest.fixture(scope="module")
def files(weights_file: WeightsMaker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths and options by the names in USES."""
    folder = tmp_path_factory.mktemp("triton")
    h5 = weights_file(VARIANT, "keras", ".h5")
    for to in ("tf", "torch"):
        porter.convert(VARIANT, "keras", to, weights=h5, out=folder / to, check=False)
    of_class = folder / "photos" / imagenet_classes()[0].wnid
    of_class.parent.mkdir()
    write_photos(of_class, 1)
    for name, text in STAND_INS.items():
        (folder / "modules" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "modules" / name).write_text(text)
    recipes = studies.write_recipes(folder / "recipes")
    tensors = calibrated_tensors(studies.model(recipes)[1], (studies.SIDE, studies.SIDE), studies.SEED)
    weights = studies.write_weights(folder / "strided.safetensors", recipes, tensors)
    named = {name: str(folder / name) for name in ("tf", "torch", "photos", "modules", "out")}
    named |= {
        "variant": VARIANT,
        "h5": str(h5),
        "photo": str(of_class / "0.jpg"),
        "code": str(folder / "modules" / "code.py"),
    }
    return {**named, "strided": f"--from {studies.ZOO} --weights {weights} --recipes {recipes}"}


@pytest.mark.parametrize(
    "use", [pytest.param(use, marks=pytest.mark.full if use in ALIKE else ()) for use in USES]
)
def test_triton_comes_before_tensorflow_or_binds_to_itself(
    use: str, files: dict[str, str], tmp_path: Path
) -> None:
    program, arguments, wanted = USES[use]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([files["modules"], str(ROOT)]),
        "NOTES": str(tmp_path / "notes"),
    }
    command = [sys.executable, "-c", program, *arguments.format(**files).split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "notes").read_text().splitlines() == wanted


TOGETHER = """
import sys, tensorflow
from porter.formats.triton import load_triton
flags = sys.getdlopenflags()
load_triton()
assert sys.getdlopenflags() == flags
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from tests.support.formats.kernel import double
weight = torch.nn.Parameter(torch.ones(3))
torch.optim.SGD([weight], lr=0.1).step()
torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
source = ASTSource(fn=double, signature={"x": "*fp32", "count": "constexpr"}, constexprs={(1,): 16})
assert b"double" in triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]
assert tensorflow.function(lambda x: x + x, jit_compile=True)(1.0) == 2.0
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="torch's CPU build has no triton")
def test_tensorflow_then_triton_compile_each_their_own(tmp_path: Path) -> None:
    """Both compile with LLVM, and neither with that of the other."""
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
