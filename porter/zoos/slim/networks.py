"""TF-slim's own implementations of the zoo `slim`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from porter.base.errors import UsageError
from porter.zoos.slim.network import SlimNetwork, graph_variables, implementation, old_variables
from porter.zoos.slim.tf_slim import import_mobilenet_v1, import_mobilenet_v2, import_net, import_slim
from porter.zoos.tables import TF_SLIM

_MOST_POOLED = 7 * 32
"""Up to this size slim's MobileNet v1 pools the whole last map; above it, a 7x7 pool leaves several cells and
squeeze fails.
"""

_MOST_INCEPTION = 330
"""Up to this size slim's Inception v3 has a last map of at most 8x8, which its only average covers; above it,
squeeze refuses.
"""


def construct(variant: str, images: Any, classes: int) -> SlimNetwork:
    """Run slim's code, for inference, in the current graph of TensorFlow 1: `images` is N×H×W×3.

    Its variables are of the old kind, and the graph may not have others yet.

    Raises:
        UsageError: no such variant.
        NotInstalled: tf-slim, tf_keras or mmdnn is not installed.
    """
    if variant not in TF_SLIM:
        raise UsageError(
            f"reference 'tf_slim' has no variant '{variant}'", next=f"it has {', '.join(TF_SLIM)}"
        )
    name, arguments = TF_SLIM[variant]
    with old_variables():
        logits, points = _NETWORKS[name](images, classes, arguments)
    probabilities = points.pop("Predictions" if "Predictions" in points else "predictions")
    ops = {name: tensor.op.name for name, tensor in points.items()}
    return SlimNetwork(logits.op.name, probabilities.op.name, graph_variables(), ops)


def _mobilenet_v1(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    """Return the logits and the end points (values by the code's names) of MobileNet v1. Its pool has
    another name for large images; here it is `global_pool` at every size.
    """
    slim, code = import_slim(), import_mobilenet_v1()
    with slim.arg_scope(code.mobilenet_v1_arg_scope(is_training=False)):
        large = max(images.shape.as_list()[1:3]) > _MOST_POOLED
        logits, points = code.mobilenet_v1(images, classes, is_training=False, global_pool=large, **arguments)
    if not large:
        points = points | {"global_pool": points["AvgPool_1a"]}
    return logits, points


def _mobilenet_v2(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    """Return the logits and the end points (values by the code's names) of MobileNet v2."""
    slim, code = import_slim(), import_mobilenet_v2()
    with slim.arg_scope(code.training_scope(is_training=False)):
        return code.mobilenet(images, classes, **arguments)


def _inception_v3(images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    """Return what slim's code gives for a batch of images: the logits, and the end points by name, with the
    network added to the current TensorFlow graph.

    Raises:
        UsageError: the images are larger than the network's fixed pool can take.
    """
    rows, columns = images.shape.as_list()[1:3]
    if max(rows, columns) > _MOST_INCEPTION:
        raise UsageError(
            f"slim's Inception v3 takes images up to {_MOST_INCEPTION} rows and columns, got {rows}x{columns}"
        )
    slim = import_slim()
    code = import_net("inception_v3")
    with slim.arg_scope(code.inception_v3_arg_scope()):
        return code.inception_v3(images, classes, is_training=False, create_aux_logits=False, **arguments)


def _resnet(version: str, images: Any, classes: int, arguments: Mapping[str, Any]) -> Any:
    """Return the logits and the end points (values by the code's names) of a ResNet of a version, such as
    `resnet_v2`, and of the layers that `arguments` state.
    """
    slim = import_slim()
    code = import_net(version)
    with slim.arg_scope(code.resnet_arg_scope()):
        return getattr(code, f"{version}_{arguments['layers']}")(images, classes, is_training=False)


_NETWORKS: Mapping[str, Callable[[Any, int, Mapping[str, Any]], Any]] = {
    "inception_v3": _inception_v3,
    "mobilenet_v1": _mobilenet_v1,
    "mobilenet_v2": _mobilenet_v2,
    "resnet_v1": partial(_resnet, "resnet_v1"),
    "resnet_v2": partial(_resnet, "resnet_v2"),
}

IMPLEMENTATION = implementation("tf_slim", construct)
