"""TensorFlow: Keras 3 models, and the files of Keras and TF-slim. See `porter.frameworks.Framework`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from porter.dtypes import Array
from porter.frameworks.tf.build import build
from porter.frameworks.tf.evaluate import classifier
from porter.frameworks.tf.file_reference import build_file
from porter.frameworks.tf.layout import CAPABILITIES, counted_layers, from_canonical, tensor_names, to_canonical
from porter.frameworks.tf.numbering import numbered_layers
from porter.frameworks.tf.run import run, run_reference
from porter.frameworks.tf.write import MODEL_FILE, read_port, write, write_stock
from porter.graph import Graph
from porter.graph.plan import Plan
from porter.zoos.keras import BY_POSITION, build_reference, own_variables, runs_at_any_size, stock_class

NAME = "tf"
DEFAULT_ZOO = "keras"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
PACKAGE = "keras"
SEPARATOR = "/"
AVERAGE_SUFFIX = "/ExponentialMovingAverage"
NAMES_LAYERS = True
STOCK_TAKES_ANY_SIZE = False

__all__ = [
    "AVERAGE_SUFFIX",
    "BY_POSITION",
    "CAPABILITIES",
    "DEFAULT_ZOO",
    "INPUT_LAYOUT",
    "MODEL_FILE",
    "NAME",
    "NAMES_LAYERS",
    "PACKAGE",
    "SEPARATOR",
    "STOCK_TAKES_ANY_SIZE",
    "build",
    "build_file",
    "build_reference",
    "classifier",
    "code_files",
    "counted_layers",
    "fillings",
    "from_canonical",
    "numbered_layers",
    "own_variables",
    "read_port",
    "run",
    "run_reference",
    "runs_at_any_size",
    "stock_class",
    "tensor_names",
    "to_canonical",
    "twin",
    "write",
    "write_stock",
]


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.keras needs none."""
    return {}


def fillings(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """Empty: Keras's layers have only the tensors that the graph has."""
    return {}


def twin(model: Any, plan: Plan) -> None:
    """None: a Keras layer gets its padding when it is made, and does not share its weights."""
