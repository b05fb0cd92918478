"""TF-slim's own code, unchanged from its packages, on a TensorFlow that has no `tf.contrib` any more.

tf-slim is slim itself. The only package with MobileNet v1 and v2 of tensorflow/models (research/slim/nets) is
the wheel of mmdnn 0.3.1, under conversion/examples/tensorflow/models; mmdnn itself is not imported.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from porter.base.errors import NotInstalled
from porter.formats.tensorflow import import_tensorflow

_MODELS = "mmdnn/conversion/examples/tensorflow/models"
_MOBILENET = "mmdnn.conversion.examples.tensorflow.models.mobilenet"
# Where TensorFlow looks for its old batch norm (tensorflow/python/layers/normalization.py), and where
# tf_keras has it.
_NORMALISATION = ("tf_keras.legacy_tf_layers.normalization", "tf_keras.src.legacy_tf_layers.normalization")


@cache
def import_slim() -> Any:
    """Import `tf_slim`, with the module of TensorFlow that its batch norms need and that TensorFlow no
    longer has: tf_keras's stands in for it.

    Raises:
        NotInstalled: tf-slim or tf_keras is not installed.
    """
    import_tensorflow()
    old_name, present_name = _NORMALISATION
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with modules_as({old_name: import_module(present_name)}):
                # Looked up, so that TensorFlow's lazy loader keeps the module that it finds now.
                _ = import_module("tensorflow.python.layers.normalization").BatchNormalization
            return import_module("tf_slim")
    except (ImportError, AttributeError) as error:
        raise NotInstalled(f"tf-slim cannot be imported: {error}", next=pip_line()) from None


@cache
def import_net(name: str) -> ModuleType:
    """Import `tf_slim.nets.NAME`: the networks that were part of slim itself.

    Raises:
        NotInstalled: tf-slim or tf_keras is not installed.
    """
    import_slim()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return import_module(f"tf_slim.nets.{name}")
        except (ImportError, AttributeError) as error:
            raise NotInstalled(f"tf-slim's {name} cannot be imported: {error}", next=pip_line()) from None


@cache
def import_mobilenet_v1() -> ModuleType:
    """Import `nets.mobilenet_v1` of tensorflow/models.

    Raises:
        NotInstalled: tf-slim, tf_keras or mmdnn is not installed.
    """
    with old_tensorflow(import_slim()):
        return _load_file("mobilenet_v1.py")


@cache
def import_mobilenet_v2() -> ModuleType:
    """Import `nets.mobilenet.mobilenet_v2` of tensorflow/models.

    Raises:
        NotInstalled: tf-slim, tf_keras or mmdnn is not installed.
    """
    package = ModuleType(_MOBILENET)
    with old_tensorflow(import_slim()), modules_as({_MOBILENET: package}):
        for name in ("conv_blocks", "mobilenet"):
            setattr(package, name, _load_file(f"mobilenet/{name}.py"))
        return _load_file("mobilenet/mobilenet_v2.py")


def pip_line(package: str = "mmdnn==0.3.1") -> str:
    """Return what to type: without dependencies, because theirs would install a second TensorFlow beside
    tensorflow-cpu.
    """
    minor = ".".join(import_tensorflow().__version__.split(".")[:2])
    return f"pip install --no-deps tf-slim==1.1.0 'tf_keras=={minor}.*' {package}"


def _load_file(file: str) -> ModuleType:
    """Load a module of the models from its file, without the packages around it."""
    try:
        path = Path(str(distribution("mmdnn").locate_file(f"{_MODELS}/{file}")))
    except PackageNotFoundError:
        raise NotInstalled("mmdnn, which has slim's MobileNets, is not installed", next=pip_line()) from None
    spec = spec_from_file_location(f"slim_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise NotInstalled("this version of mmdnn lacks slim's MobileNets", where=path, next=pip_line())
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _OldTensorflow(ModuleType):
    """TensorFlow 1's names, also `contrib.slim` and `contrib.layers`."""

    def __init__(self, tensorflow: Any, slim: Any) -> None:
        super().__init__("tensorflow")
        self._names = tensorflow.compat.v1
        self.contrib = SimpleNamespace(slim=slim, layers=slim)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)


@contextmanager
def old_tensorflow(slim: Any) -> Iterator[None]:
    """Let modules that are imported inside this context see TensorFlow 1."""
    with modules_as({"tensorflow": _OldTensorflow(import_tensorflow(), slim)}):
        yield


@contextmanager
def modules_as(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Put these modules into `sys.modules`, and restore it afterwards."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
