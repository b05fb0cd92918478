"""Makes the layers of one net. See porter.frameworks.numpy.nets.Maker."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from porter.filegraph.names import Names
from porter.formats.caffe.net import parameters_field
from porter.frameworks.numpy.nets import Maker, NetArray, PortTensor
from porter.frameworks.spelled import OpT, Spelled
from porter.graph import INPUT, BatchNorm, Graph
from porter.graph.plan import Plan
from porter.padding import ANY, Pads, Size

CaffeParameter: TypeAlias = bool | int | float | str | Sequence[int] | Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class WrittenLayer:
    """A layer of a net.

    Attributes:
        words: its name, class, inputs (`bottom`) and values (`top`), as the text and the message have them.
        parameters: as text.
        blobs: the names of its tensors.
    """

    words: Mapping[str, Sequence[str]]
    parameters: str
    blobs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The layer in protobuf's text format: `layer { name: "relu1" type: "ReLU" bottom: "conv1" ... }`."""
        words = [f'{key}: "{word}"' for key, words_of_key in self.words.items() for word in words_of_key]
        return f"layer {{ {' '.join(filter(None, (*words, self.parameters)))} }}"


class CaffeMaker(Maker):
    """A layer's value has its name, and its blobs are named by their places: `conv1/0`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.layers: list[WrittenLayer] = []

    @classmethod
    def name_values(cls, graph: Graph) -> tuple[dict[str, str], Names]:
        """Name the values as every net does, and also the layers that only normalise."""
        values, used_names = super().name_values(graph)
        norms = [norm_name(node.path) for node in graph.nodes if isinstance(node.op, BatchNorm)]
        return values | {name: used_names.take(cls.escape_name(name)) for name in norms}, used_names

    @staticmethod
    def escape_name(name: str) -> str:
        """Return a name as it may stand between quotes."""
        return re.sub(r'["\\\s]', "_", name)

    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        """Write the net; see Maker. It states no size where that is open, and facts stand in its first
        lines.
        """
        facts = [f"# {name}: {' '.join(fact.split())}" for name, fact in (about or {}).items()]
        name, image = self.escape_name((about or {}).get("porter.variant", "port")), self.values[INPUT]
        input_axes = self.graph.axes or (self.graph.channels, *size)
        dims = " ".join(f"dim: {n}" for n in (1, *input_axes))
        shape = "" if None in input_axes else f" input_param {{ shape {{ {dims} }} }}"
        input_layer = f'layer {{ name: "{image}" type: "Input" top: "{image}"{shape} }}'
        return (
            "\n".join([*facts, f'name: "{name}"', input_layer, *(layer.text for layer in self.layers)]) + "\n"
        )

    def add(
        self,
        kind: str,
        name: str,
        /,
        *inputs: str,
        blobs: Sequence[NetArray] = (),
        **parameters: CaffeParameter,
    ) -> str:
        """Add a layer of values and return its value's name, which is the layer's. A path in `inputs` or as
        `name` stands for the value of that path; a parameter with several numbers is stated for each.
        """
        sources = [self.values.get(source, source) for source in inputs]
        layer_name = self.values.get(name, name)
        return self._append_layer(kind, layer_name, sources, [layer_name], blobs, parameters)

    def add_slices(self, name: str, source: str, axis: int, count: int) -> list[str]:
        """Add a Slice into single cells along an axis, and return their names."""
        tops = [self.name(f"{name}_{index}") for index in range(count)]
        parameters: dict[str, CaffeParameter] = {"axis": axis, "slice_point": range(1, count)}
        self._append_layer("Slice", self.name(f"{name}_parts"), [source], tops, (), parameters)
        return tops

    def _append_layer(
        self,
        kind: str,
        name: str,
        sources: Sequence[str],
        tops: list[str],
        blobs: Sequence[NetArray],
        parameters_by_name: Mapping[str, CaffeParameter],
    ) -> str:
        """Append a layer with its blobs, and return its name.

        Args:
            kind: its class.
            sources: the names of the values that it reads.
            tops: the names of the values that it gives.
        """
        words = {"name": [name], "type": [kind], "bottom": sources, "top": tops}
        parameter_texts = self._shared_blob_names(kind, blobs)
        if parameters_by_name:
            text = " ".join(_parameter_text(key, value) for key, value in parameters_by_name.items())
            parameter_texts.append(f"{parameters_field(kind)} {{ {text} }}")
        # Blobs have no names of their own in the file: `conv1/0` is the first of layer conv1.
        named_blobs = {f"{name}/{index}": blob for index, blob in enumerate(blobs)}
        self.layers.append(WrittenLayer(words, " ".join(parameter_texts), tuple(named_blobs)))
        self.contents |= named_blobs
        return name

    def _shared_blob_names(self, kind: str, blobs: Sequence[NetArray]) -> list[str]:
        """Return parameters that name the blobs of a layer that is one of several calls, such as `param {
        name: "conv1/Convolution/0" }`: Caffe shares blobs of one name as it trains. There are none for a
        layer that is called once.
        """
        paths = [self.graph.by_path[blob.path].holder for blob in blobs if isinstance(blob, PortTensor)]
        if not paths or len(self.graph.calls[paths[0]]) == 1:
            return []
        first_call = self.values[paths[0]]
        return [f'param {{ name: "{first_call}/{kind}/{index}" }}' for index in range(len(blobs))]

    def tensors_of(self, path: str, name: str, *roles: str) -> list[PortTensor]:
        """Return the tensors of a path of these roles; see porter.frameworks.spelled.LayerMaker."""
        shapes = self.tensors.get(path, {})
        return [PortTensor(path, role, shapes[role]) for role in roles if role in shapes]

    def padded_kernel(self, path: str, zeros_around: Pads) -> PortTensor:
        """Return the kernel of a path with so many rows and columns of zeros around it."""
        filters, channels, rows, columns = self.tensors[path]["kernel"]
        top, bottom, left, right = zeros_around
        shape = (filters, channels, rows + top + bottom, columns + left + right)
        return PortTensor(path, "kernel", shape, zeros_around)

    def add_filled(self, name: str, source: str, number: float) -> str:
        """Add a value of the shape of another, with `number` everywhere."""
        return self.add("Power", name, source, scale=0.0, shift=number)

    def add_negative(self, name: str, source: str) -> str:
        return self.add("Power", name, source, scale=-1.0)

    def add_move(
        self, name: str, source: str, channels: int, pads: Pads, stride: Sequence[int] = (1, 1)
    ) -> str:
        """Add pads of zeros to a map, or cut off as many cells where they are negative, and take every
        stride-th cell of it: a convolution of each channel by itself, with a kernel of a single one.
        """
        top, bottom, left, right = pads
        # The convolution pads both sides alike, and its kernel takes away what is too much.
        rows, columns = max(top, bottom, 0), max(left, right, 0)
        kernel = np.zeros((channels, 1, 1 + 2 * rows - top - bottom, 1 + 2 * columns - left - right))
        kernel[:, :, rows - top, columns - left] = 1
        sides = {"kernel_h": kernel.shape[2], "kernel_w": kernel.shape[3], "pad_h": rows, "pad_w": columns}
        steps = {"stride_h": stride[0], "stride_w": stride[1], "group": channels, "bias_term": False}
        return self.add("Convolution", name, source, blobs=[kernel], num_output=channels, **sides, **steps)


CaffeNode = Spelled[CaffeMaker, OpT]
"""A node that layers of Caffe say."""


def norm_name(path: str) -> str:
    """Return the name of the layer that normalises, before the one that scales, which has the path: Caffe's
    BatchNorm has no scale.
    """
    return f"{path}_statistics"


def _parameter_text(key: str, value: CaffeParameter) -> str:
    """Return a parameter in protobuf's text format: `bias_term: true`, `dilation: 2 dilation: 2`, or of a
    mapping `shape { dim: 0 dim: 64 }`.
    """
    if isinstance(value, bool):
        return f"{key}: {str(value).lower()}"
    if isinstance(value, str | int | float):
        return f"{key}: {value}"
    if isinstance(value, Mapping):
        inner = " ".join(_parameter_text(inner_key, numbers) for inner_key, numbers in value.items())
        return f"{key} {{ {inner} }}"
    return " ".join(f"{key}: {number}" for number in value)
