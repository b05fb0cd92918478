"""TensorFlow's ports: Keras 3 models. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import code_files as code_files, fillings as fillings, refusals as refusals
from porter.frameworks.tf import engine
from porter.frameworks.tf.ports.archive import MODEL_FILE as MODEL_FILE
from porter.frameworks.tf.ports.sites import CAPABILITIES as CAPABILITIES
from porter.frameworks.tf.ports.write import read_port as read_port, write as write

if TYPE_CHECKING:
    from porter.frameworks import PortEngine

NAME = "tf"
INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
PACKAGE = "keras"
NAMES_LAYERS = True
ENGINE: PortEngine = engine
