"""The graph that a file carries, in porter's terms: what its layers compute, under the names that the file gives them.

A reader flattens what is nested, puts a pad layer into the windowed layer that it feeds, parts an activation from the layer that
applies it, and leaves out what does nothing in inference (dropout, augmentation, reshapes of what is one value per channel).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from porter.graph import Op
from porter.windows import Size


@dataclass(frozen=True)
class OutputActivation:
    """What turns logits into probabilities."""

    kind: Literal["softmax", "sigmoid"]


@dataclass(frozen=True)
class Foreign:
    """A layer that porter has no op for, as its framework calls it: `LeakyReLU`, `Conv2D with padding 'causal'`."""

    kind: str


@dataclass(frozen=True)
class FileNode:
    """One step of a file's graph.

    Attributes:
        name: unique; a layer's own name, which its tensors carry too.
        inputs: names of earlier nodes, or porter.graph.INPUT.
        tensors: role (porter.graph.tensor_shapes) to the name of the checkpoint's tensor.
        tap: the name under which the framework shows this node's value when it runs the file's graph; None where it does not.
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
        nodes: in topological order; each leads to an output, or would without a choice among outputs.
        outputs: names of the nodes that the model gives.
        channels: of the input.
        size: rows and columns that the model was built for; None where they are free.
        resizable: the framework can build the same layers for another size, pads as they are.
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
        """Names of the nodes that these nodes are computed from, and their own."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in self.by_name and name not in found:
                found.add(name)
                waiting += self.by_name[name].inputs
        return found
