"""A package that is missing, and an implementation that does not run, are told from each other, each with its
own error: a check goes on without them, and not without what contradicts it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import CannotRun, NotInstalled
from porter.evaluation import distributed
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import witness
from porter.formats.reading import read_checkpoint
from porter.formats.torch_export.nodes import AtenNode
from porter.frameworks import get_engine
from porter.frameworks.numpy import engine as numpy_engine
from porter.frameworks.onnx import session
from porter.frameworks.tf.runtime import import_keras
from porter.frameworks.torch import exported
from porter.port import OWN_BUILD
from porter.verification.references.user_code import load_maker
from porter.verification.sizes import sizes_to_compare
from porter.zoos import keras_hub, transformers
from porter.zoos.implementation import BuildRequest, get_implementation
from porter.zoos.slim import tf_slim
from tests.roads.verification.test_given import frozen_graph, keras_file, onnx_file

NOTHING = Checkpoint(Path("weights"), "onnx", "torch", {})
"""A file without a graph."""


@pytest.mark.parametrize(
    ("reference", "variant"),
    [
        ("keras", "mobilenet_v2_0.35"),
        ("tf_slim", "inception_v3"),
        ("timm_bit", "bit_r50x1"),
        ("timm_jax", "vit_ti_16"),
        ("torchvision", "mobilenet_v2"),
        ("transformers", "mobilenet_v2"),
    ],
)
def test_an_option_that_a_zoo_s_code_lacks(reference: str, variant: str) -> None:
    build = get_implementation(reference).build
    with pytest.raises(CannotRun, match=r"with another value of strange .*--reference FILE\.py:CALLABLE"):
        build(BuildRequest(variant, 10, (32, 32), NOTHING, "float32", {"strange": 1}))


IMPORTS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "keras_hub": (keras_hub, keras_hub.import_keras_hub),
    "transformers": (transformers, transformers.import_transformers),
    "tf_slim.nets.inception_v3": (tf_slim, lambda: tf_slim.import_net.__wrapped__("inception_v3")),
    "onnxruntime": (session, lambda: session.make_session(None, {}, optimised=False)),
}
"""By name: the module of porter that imports a package, and the function of it that does."""


@pytest.mark.parametrize("name", IMPORTS)
def test_a_package_that_cannot_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(each: str) -> ModuleType:
        if each == name:
            raise ImportError("it is broken")
        return import_module(each)

    module, function = IMPORTS[name]
    monkeypatch.setattr(module, "import_module", broken)
    with pytest.raises(NotInstalled, match=r"cannot be imported: it is broken.*pip install"):
        function()


def test_a_version_of_a_package_that_lacks_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty:
        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    monkeypatch.setattr(tf_slim, "distribution", lambda name: Empty())
    with pytest.raises(NotInstalled, match="this version of mmdnn lacks slim's MobileNets"):
        tf_slim._load_file("mobilenet_v1.py")


def test_several_processes_need_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: None)
    with pytest.raises(NotInstalled, match="several processes need torch"):
        distributed._join(distributed.Process(0, 0, 2), 1.0)


def test_code_of_a_user_s_that_needs_a_package(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')\ndef build(): pass\n")
    with pytest.raises(NotInstalled, match=r"No module named 'jax'.*pip install"):
        load_maker(file, "build")


def test_a_witness_that_does_not_read_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object) -> None:
        raise ValueError("h5py does not read it in 6 seconds")

    monkeypatch.setattr("porter.formats.apart.run_apart", ended)
    file = keras_file(".h5", False)(tmp_path / "model")
    with pytest.raises(CannotRun, match="h5py does not read it in 6 seconds"):
        witness.disagreement(read_checkpoint(file), (12, 11), True)
    made = porter.convert(file, out=tmp_path / "port", input_size="12x11")
    assert made.verdict is not None and "by porter's reading only" in made.verdict.held[0]


def test_engines_of_other_files(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    checkpoint = read_checkpoint(onnx_file(tmp_path / "model"))
    with pytest.raises(CannotRun, match="porter's own engine does not run onnx files"):
        numpy_engine.build_file(checkpoint, "float64", (12, 11))
    with pytest.raises(CannotRun, match="porter runs its own ports in this framework, and no onnx file"):
        get_engine("flax").build_file(checkpoint, "float64", (12, 11))
    run = session.make_session(onnx.load(checkpoint.path), {}, optimised=False)
    with pytest.raises(CannotRun, match="onnxruntime cannot run this model"):
        run(np.zeros((1, 3, 2, 2), np.float32))


def test_a_node_that_this_torch_lacks_or_does_not_take() -> None:
    with pytest.raises(CannotRun, match=r"porter does not run 'aten\.strange\.default' with this torch"):
        exported._op_function(AtenNode("node", "strange", target="aten.strange.default"))
    node = AtenNode("node", "relu", target="aten.relu.default")
    with pytest.raises(CannotRun, match=r"torch cannot run 'aten\.relu\.default' as the program has it"):
        exported._call_op(node, exported._op_function(node), {"self": None})


def test_a_graph_that_tensorflow_lacks_a_kernel_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = pytest.importorskip("tensorflow").errors

    def lacking(*_: object) -> None:
        raise errors.UnimplementedError(None, None, "no kernel")

    checkpoint = read_checkpoint(frozen_graph(tmp_path / "model"))
    model = get_engine("tf").build_file(checkpoint, "float64", (12, 11))
    monkeypatch.setattr(model, "_session", SimpleNamespace(run=lacking))
    with pytest.raises(CannotRun, match=r"TensorFlow \S+ cannot run this graph: no kernel"):
        model(np.zeros((1, 3, 12, 11)), ("end",))


def test_a_layer_that_this_keras_cannot_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise ValueError("it takes no such kernel")

    checkpoint = read_checkpoint(keras_file(".keras", False)(tmp_path / "model"))
    monkeypatch.setattr(import_keras().layers, "Conv2D", refused)
    with pytest.raises(CannotRun, match=r"Keras \S+ cannot build layer 'conv\w*': it takes no such kernel"):
        get_engine("tf").build_file(checkpoint, "float64", (12, 11))


def test_a_reference_that_takes_another_size_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verdict names it, with the reason, and stands in port.json."""
    right, sizes = sizes_to_compare, []

    def of_own_build_only(plan: Any, native: Any, source: Any, *rest: Any) -> Any:
        sizes.append(source.name)
        return right(plan, native, source, *rest) if source.name == OWN_BUILD else None

    monkeypatch.setattr("porter.verification.proving.sizes_to_compare", of_own_build_only)
    file = keras_file(".keras", False)(tmp_path / "model")
    made = porter.convert(file, to="torch", out=tmp_path / "port", input_size="12x11")
    said = "the file's own graph was not run: the file's own graph cannot be run at the port's size"
    assert sizes == ["the file's own graph", OWN_BUILD] and made.verdict is not None
    assert made.verdict.not_run[0].startswith(said) and made.warnings[0].startswith(said)
    parity = made.port.record.parity
    assert parity is not None and parity["not_run"] == [*made.verdict.not_run]
