"""The names and the axis order of Keras and of TF-slim. See porter.frameworks.dialects.Dialect."""

from porter.frameworks.tf.layout import from_canonical, port_keys, tensor_names, to_canonical
from porter.frameworks.tf.numbering import counted_layers, numbered_layers

__all__ = ["counted_layers", "from_canonical", "numbered_layers", "port_keys", "tensor_names", "to_canonical"]

SEPARATOR = "/"
AVERAGE_SUFFIX = "/ExponentialMovingAverage"
