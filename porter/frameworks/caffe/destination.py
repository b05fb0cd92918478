"""Caffe's ports: a net as text, and its weights. See porter.frameworks.Destination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from porter.frameworks.caffe import engine
from porter.frameworks.caffe.layout import CAPABILITIES as CAPABILITIES, MODEL_FILE as MODEL_FILE
from porter.frameworks.caffe.net import fillings as fillings, refusals as refusals
from porter.frameworks.caffe.port_files import read_port as read_port, write as write
from porter.graph.plan import Plan

if TYPE_CHECKING:
    from porter.frameworks import PortEngine

NAME = "caffe"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NCHW"
PACKAGE = "numpy"
NAMES_LAYERS = False
ENGINE: PortEngine = engine


def code_files(plan: Plan, layers: Mapping[str, str]) -> dict[str, bytes]:
    """Empty: a net is not code, and `read_port` compares it with the plan."""
    return {}
