"""The framework-neutral form of a model: its ops, the graph, and the plan of it for a destination."""

from __future__ import annotations

from porter.graph.graph import *  # noqa: F403
from porter.graph.ops import *  # noqa: F403
