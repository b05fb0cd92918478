"""Runs Keras models, and the graphs of TensorFlow's files. See porter.frameworks.PortEngine."""

from __future__ import annotations

from typing import Any

from porter.base.dtypes import Array
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks.tf.build import build as build
from porter.frameworks.tf.evaluate import classifier as classifier
from porter.frameworks.tf.file_reference import build_file as build_file
from porter.frameworks.tf.run import run as run, run_reference as run_reference
from porter.graph.plan import Plan

NAME = "tf"


def disagreement(checkpoint: Checkpoint, batch: Array) -> None:
    """None: TensorFlow is the only one that runs these files."""


def twin(model: Any, plan: Plan) -> None:
    """None: a Keras layer gets its padding when it is made, and does not share its weights."""
