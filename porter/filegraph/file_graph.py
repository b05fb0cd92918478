"""The graph that a file carries, in porter's terms: what its layers compute, under the names that the file gives them.

A reader flattens nested models, merges a pad layer into the windowed layer that it feeds, separates an activation from the layer
that applies it, and leaves out layers that do nothing in inference (dropout, augmentation, reshapes of one value per channel).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from porter.graph import Op
from porter.padding import Size


@dataclass(frozen=True)
class OutputActivation:
    """The activation that turns logits into probabilities."""

    kind: Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class Foreign:
    """A layer that porter has no op for, by its framework's name: `LeakyReLU`, `Conv2D with padding 'causal'`."""

    kind: str


@dataclass(frozen=True)
class FileNode:
    """One step of a file's graph.

    Attributes:
        name: unique; a layer's own name, which its tensors' names begin with.
        inputs: names of earlier nodes, or porter.graph.INPUT.
        tensors: role (porter.graph.tensor_shapes) to the name of the checkpoint's tensor.
        tap: the framework's name for this node's value when it runs the file's graph; None where it does not give the value.
    """

    name: str
    op: Op | OutputActivation | Foreign
    inputs: tuple[str, ...]
    tensors: Mapping[str, str] = field(default_factory=dict)
    tap: str | None = None


@dataclass(frozen=True)
class FileGraph:
    """A file's graph.

    Attributes:
        nodes: in topological order; each leads to an output.
        outputs: names of the nodes whose values the model gives.
        channels: of the input.
        size: rows and columns that the model was built for; None where they are free.
        resizable: the framework can build the same layers, with the same pads, for another size.
        definition: the graph as the file states it (a Keras config as JSON, a serialised GraphDef), for its framework to run.
    """

    nodes: tuple[FileNode, ...]
    outputs: tuple[str, ...]
    channels: int
    size: Size
    resizable: bool = False
    definition: bytes = field(default=b"", repr=False)

    @cached_property
    def by_name(self) -> Mapping[str, FileNode]:
        return {node.name: node for node in self.nodes}

    def leading_to(self, names: Iterable[str]) -> set[str]:
        """Names of these nodes and of all nodes that they are computed from."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.by_name and name not in found:
                found.add(name)
                waiting += self.by_name[name].inputs
        return found
