"""TensorFlow: Keras 3 models, and the files of Keras and TF-slim. See `porter.frameworks.Framework`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from porter.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.tf.build import build as build
from porter.frameworks.tf.evaluate import classifier as classifier
from porter.frameworks.tf.file_reference import build_file as build_file
from porter.frameworks.tf.layout import CAPABILITIES as CAPABILITIES
from porter.frameworks.tf.run import run as run, run_reference as run_reference
from porter.frameworks.tf.write import MODEL_FILE as MODEL_FILE, read_port as read_port, write as write
from porter.graph import Graph
from porter.graph.plan import Plan

NAME = "tf"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
PACKAGE = "keras"
NAMES_LAYERS = True


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a model.keras needs none."""
    return {}


def fillings(graph: Graph, tensors: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    """Empty: Keras's layers have only the tensors that the graph has."""
    return {}


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """None: TensorFlow is the only one that runs these files."""


def twin(model: Any, plan: Plan) -> None:
    """None: a Keras layer gets its padding when it is made, and does not share its weights."""
