"""TensorNets' own networks, the implementation of the zoo `tensornets`, on a TensorFlow that has no
`tf.contrib` any more.

The networks are the unchanged modules of the package tensornets 0.4.6. Their layers are tf-slim's, which are
`tf.contrib`'s under another name: TensorNets uses these if TensorFlow has them, otherwise its own copy, which
needs Keras 2's internals.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from types import ModuleType
from typing import Any

from porter.base.dtypes import Array
from porter.base.errors import NotInstalled, UsageError
from porter.formats.tensorflow import import_tensorflow
from porter.zoos.slim.network import SlimNetwork, graph_variables, implementation, old_variables
from porter.zoos.slim.tf_slim import import_slim, modules_as, old_tensorflow, pip_line
from porter.zoos.tables import TENSORNETS

_RELEASE = "0.4.6"
_LEAST_EPSILON = 1.001e-5
"""The least epsilon of TensorFlow 1's fused norm (1.15's python/ops/nn_impl.py, `min_epsilon`); TensorNets'
ResNets state 1e-5.
"""
_PACKAGE = "porter_tensornets"
"""The modules' name here: another import of tensornets in this process gets it unchanged."""
_KERAS = "tensorflow.python.keras"


def construct(variant: str, images: Any, classes: int) -> SlimNetwork:
    """Run TensorNets' code, for inference, in the current graph of TensorFlow 1: `images` is N×H×W×3.

    Its variables are of the old kind, and the graph may not have others yet.

    Raises:
        UsageError: no such variant.
        NotInstalled: TensorFlow, tf-slim, tf_keras or tensornets is not installed.
    """
    if variant not in TENSORNETS:
        raise UsageError(
            f"reference 'tensornets' has no variant '{variant}'", next=f"it has {', '.join(TENSORNETS)}"
        )
    module, function = TENSORNETS[variant]
    code = getattr(_import_networks(module), function)
    with old_variables():
        probabilities = code(images, classes=classes)
    return SlimNetwork(probabilities.logits.op.name, probabilities.op.name, graph_variables(), {})


@cache
def _import_networks(name: str) -> ModuleType:
    """Import a module of networks, without the package around it, because that imports detectors and data
    sets too.
    """
    slim = import_slim()
    try:
        installed = distribution("tensornets")
    except PackageNotFoundError:
        message = "tensornets, TensorNets' own code, is not installed"
        raise NotInstalled(message, next=pip_line(f"tensornets=={_RELEASE}")) from None
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(installed.locate_file("tensornets"))]
    # For ever, because its code imports more of itself when a network is made.
    sys.modules.setdefault(_PACKAGE, package)
    # Whatever version its code compares with, TensorFlow is a later one.
    versions = _stand_in(tf_later_than=lambda _: True, tf_equal_to=lambda _: False)
    stand_ins = {
        f"{_PACKAGE}.version_utils": versions,  # it uses distutils, which Python 3.12 lacks
        f"{_PACKAGE}.contrib_layers": _stand_in(**vars(slim) | {"batch_norm": _with_least_epsilon(slim)}),
        f"{_PACKAGE}.contrib_layers.utils": import_module("tf_slim.layers.utils"),
        f"{_PACKAGE}.contrib_framework": slim,
        # They print predictions and fetch files, which is not needed here.
        f"{_KERAS}.applications.imagenet_utils": _stand_in(decode_predictions=None),
        f"{_KERAS}.utils.data_utils": _stand_in(get_file=None),
    }
    with warnings.catch_warnings(), old_tensorflow(slim), modules_as(stand_ins):
        warnings.simplefilter("ignore")
        try:
            for part in ("middles", "preprocess", "pretrained"):
                import_module(f"{_PACKAGE}.{part}")
            vars(import_module(f"{_PACKAGE}.layers"))["tf"] = _SharedConstants(import_tensorflow().compat.v1)
            return import_module(f"{_PACKAGE}.{name}")
        except (ImportError, AttributeError) as error:
            message = f"tensornets {installed.version} cannot be imported: {error}"
            raise NotInstalled(message, next=pip_line(f"tensornets=={_RELEASE}")) from None


class _SharedConstants(ModuleType):
    """TensorFlow with each constant only once in a graph. Every block of a ResNeXt has the kernel that sums
    its groups; those of a ResNeXt-101 (64x4d) are 3 GB, more than a GraphDef can hold.
    """

    def __init__(self, tensorflow: Any) -> None:
        super().__init__("tensorflow")
        self._names = tensorflow

    def __getattr__(self, name: str) -> Any:
        return getattr(self._names, name)

    def constant(self, value: Array) -> Any:
        """Return the constant of this value in the current graph, which is made once."""
        constants = self._names.get_default_graph().get_collection_ref(_PACKAGE)
        key = (value.dtype.str, value.shape, hashlib.sha256(value.data).digest())
        if key not in dict(constants):
            constants.append((key, self._names.constant(value)))
        return dict(constants)[key]


def _with_least_epsilon(slim: Any) -> Any:
    """Return tf-slim's `batch_norm` with TensorFlow 1's least epsilon."""

    def batch_norm(inputs: Any, epsilon: float = 0.001, **settings: Any) -> Any:
        return slim.batch_norm(inputs, epsilon=max(epsilon, _LEAST_EPSILON), **settings)

    return slim.add_arg_scope(batch_norm)


def _stand_in(**names: object) -> ModuleType:
    """Make a module that has these names only."""
    module = ModuleType("stand_in")
    vars(module).update(names)
    return module


IMPLEMENTATION = implementation("tensornets", construct, by_position=True)
