"""The ops of a graph: what each computes, its shape rule, its tensors, and whether its values can be
negative.

A value is a map, C×H×W, features, C, or an array of other axes, whose last one is its channels.

Tensors are canonical: convolution kernels are (filters, channels / groups, rows,
columns), those of transposed convolutions (channels, filters / groups, rows, columns), dense kernels (units,
features), everything else a vector of channels.
"""

from __future__ import annotations

# isort: off
# The order in which docs/recipes.md lists the ops.
from porter.graph.ops.kinds import *  # noqa: F403
from porter.graph.ops.op import *  # noqa: F403
from porter.graph.ops.windows import *  # noqa: F403
from porter.graph.ops.layers import *  # noqa: F403
from porter.graph.ops.activations import *  # noqa: F403
from porter.graph.ops.elementwise import *  # noqa: F403
from porter.graph.ops.joins import *  # noqa: F403
from porter.graph.ops.axes import *  # noqa: F403
from porter.graph.ops.maps import *  # noqa: F403
from porter.graph.ops.arrays import *  # noqa: F403
from porter.graph.ops.resizing import *  # noqa: F403
