"""TensorFlow's ports: Keras 3 models. See porter.frameworks.Destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from porter.frameworks.defaults import DestinationDefaults
from porter.frameworks.tf import engine
from porter.frameworks.tf.ports.archive import MODEL_FILE
from porter.frameworks.tf.ports.sites import CAPABILITIES
from porter.frameworks.tf.ports.write import read_port, write

if TYPE_CHECKING:
    from porter.frameworks import PortEngine


class KerasDestination(DestinationDefaults):
    """Writes Keras's ports."""

    NAME = "tf"
    INPUT_LAYOUT: Literal["NCHW", "NHWC"] = "NHWC"
    PACKAGE = "keras"
    NAMES_LAYERS = True
    ENGINE: PortEngine = engine
    MODEL_FILE = MODEL_FILE
    CAPABILITIES = CAPABILITIES

    write = staticmethod(write)
    read_port = staticmethod(read_port)


DESTINATION: KerasDestination = KerasDestination()
