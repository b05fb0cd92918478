"""What float32's errors are measured by where values are far smaller than the numbers that they come from.

A detector's sigmoids lie near 1e-8 where nothing is to be seen. Float32 computes them to 1e-7, one runtime
otherwise than another, and what follows them inherits that. So a port is run once more in float64, with such
errors put in where they arise, which shows how far they reach.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from porter.base.dtypes import Array, NamedArrays
from porter.base.errors import PorterError
from porter.filegraph.names import unused_name
from porter.frameworks import Destination, OwnTensors, Tensors, get_destination
from porter.graph import INPUT, AddArray, Affine, Graph, Node
from porter.graph.plan import make_plan
from porter.graph.rounding import absolute_error
from porter.port import StoredPort
from porter.verification.numbers import norm, norms


@dataclass(frozen=True)
class Absolute:
    """How far the errors of float32 reach in a port: it is run in float64 with such errors added to values.

    Attributes:
        tensors: the port's before they were rounded; None for those that it stores. See
            porter.verification.check.Check.
    """

    port: StoredPort
    tensors: Tensors | None

    def errors(self, batch: Array) -> dict[str, float]:
        """Return by path how far the errors of float32 move each value of the first image: the norm of the
        change.

        Args:
            batch: N x C x H x W.
        """
        graph, destination = self.port.graph, self.port.destination
        image = batch[:1].astype(np.float64)
        exact = self._run(destination, graph, {}, image)
        errors = _float32_errors(graph, {INPUT: image, **exact})
        largest = {path: norm(error) for path, error in errors.items()}
        if not errors:
            return largest
        generator = np.random.default_rng(0)
        with_random_signs = {
            path: error * generator.choice([-1.0, 1.0], error.shape) for path, error in errors.items()
        }
        # Errors of one sign add up where others cancel out, but a norm takes them away: both are tried.
        for added in (errors, with_random_signs):
            # Caffe and MXNet add no arrays. The first engine that can hold the added arrays is enough.
            for running in (destination, get_destination("onnx")):
                with suppress(PorterError):
                    moved = self._run(running, *_with_errors(graph, added), image)
                    for path, value in exact.items():
                        difference = norms(value, moved[path]).difference
                        difference = difference if np.isfinite(difference) else 0.0
                        largest[path] = max(largest.get(path, 0.0), difference)
                    break
        return largest

    def _run(self, destination: Destination, graph: Graph, added: Tensors, image: Array) -> NamedArrays:
        """Return the values of the port's nodes in a graph that may have more tensors than the port, run in
        float64.

        Args:
            destination: its engine runs the graph.
            added: by path and role, the tensors that the port lacks.
            image: 1 x C x H x W.
        """
        tensors = {**(self.tensors or self.port.tensors()), **added}
        plan = make_plan(graph, (image.shape[2], image.shape[3]), destination.CAPABILITIES)
        model = destination.ENGINE.build(plan, tensors, {}, "float64")
        return destination.ENGINE.run(model, image, [node.path for node in self.port.graph.nodes])


def _float32_errors(graph: Graph, known: NamedArrays) -> dict[str, NDArray[np.float64]]:
    """Return by path how much float32 may be off in each number of a value, without the batch.

    Args:
        known: values of one image by path.
    """
    by_path = (
        (node.path, absolute_error(type(node.op), known[node.source].astype(np.float64)))
        for node in graph.nodes
        if node.source in known
    )
    return {path: error[0] for path, error in by_path if error is not None}


def _with_errors(graph: Graph, errors: NamedArrays) -> tuple[Graph, OwnTensors]:
    """Return a graph in which errors are added to values, by their paths, and the tensors that hold the
    errors.

    The value without its error moves to the path `..._right`, so that all that read it get the sum.
    """
    nodes = list[Node]()
    tensors = dict[str, dict[str, Array]]()
    for node in graph.nodes:
        error = errors.get(node.path)
        if error is None:
            nodes.append(node)
            continue
        right = unused_name(f"{node.path}_right", graph.by_path)
        nodes.append(replace(node, path=right))
        if error.size > 1:
            nodes.append(Node(node.path, AddArray(error.shape), (right,)))
            tensors[node.path] = {"value": error}
        else:  # one number, which needs no tensor
            nodes.append(Node(node.path, Affine((1.0,), (error.item(),)), (right,)))
    return replace(graph, nodes=tuple(nodes), scopes=()), tensors
