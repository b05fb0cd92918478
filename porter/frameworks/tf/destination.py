"""TensorFlow's ports: Keras 3 models. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from porter.base.dtypes import Array
from porter.frameworks.tf import engine
from porter.frameworks.tf.layout import CAPABILITIES as CAPABILITIES
from porter.frameworks.tf.ports.archive import MODEL_FILE as MODEL_FILE
from porter.frameworks.tf.ports.write import read_port as read_port, write as write
from porter.graph import Graph
from porter.graph.plan import Plan

if TYPE_CHECKING:
    from porter.base.errors import PorterError
    from porter.frameworks import PortEngine

NAME = "tf"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
PACKAGE = "keras"
NAMES_LAYERS = True
ENGINE: PortEngine = engine


def refusals(plan: Plan) -> tuple[PorterError, ...]:
    """None: Keras has layers for every op."""
    return ()


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.keras needs none."""
    return {}


def fillings(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """Empty: Keras's layers have only the tensors that the graph has."""
    return {}
