"""Makes the layers of one net, with what each of their blobs holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from porter.base.dtypes import Array
from porter.filegraph.names import Names
from porter.graph import Shape, Tensors
from porter.graph.ops import channels_in
from porter.padding import Pads

Parameter: TypeAlias = bool | int | float | str | Sequence[int] | Mapping[str, Sequence[int]]
NONE: Pads = (0, 0, 0, 0)
_PARAMETERS = {
    **dict.fromkeys(("Convolution", "Deconvolution"), "convolution_param"),
    **{"InnerProduct": "inner_product_param", "BatchNorm": "batch_norm_param"},
}


@dataclass(frozen=True)
class Trained:
    """A blob that holds a tensor of the port; a kernel stands amid so many rows and columns of zeros."""

    path: str
    role: str
    amid: Pads = NONE


Blob: TypeAlias = Trained | Array


@dataclass(frozen=True)
class Layer:
    """A layer: its words, as the text and the message have them, its parameters as text, and its blobs."""

    words: Mapping[str, Sequence[str]]
    parameters: str
    blobs: tuple[Blob, ...]

    @property
    def name(self) -> str:
        return self.words["name"][0]

    @property
    def text(self) -> str:
        words = " ".join(f'{key}: "{word}"' for key, several in self.words.items() for word in several)
        return f"layer {{ {words}{self.parameters and f' {self.parameters}'} }}"


@dataclass
class LayerMaker:
    """Layers in the order in which they are made.

    Attributes:
        shapes: of every path, for the sizes of input that the net takes.
        tensors: the shapes of those of every path, by role.
        taken: names of layers. A layer's value has its name.
        values: the name of the value of each path.
    """

    shapes: Mapping[str, Shape]
    tensors: Mapping[str, Tensors]
    taken: Names
    values: dict[str, str]
    layers: list[Layer] = field(default_factory=list)

    def name(self, wanted: str) -> str:
        """`wanted`, or the first variation of it that nothing has."""
        return self.taken.take(plain(wanted))

    def layer(self, kind: str, name: str, *inputs: str, blobs: Sequence[Blob] = (), **parameters: Parameter) -> str:
        """Adds a layer of values and returns its value's name, which is the layer's. A path in `inputs` or as `name` stands for
        the value of that path; a parameter with several numbers is stated for each."""
        sources = [self.values.get(source, source) for source in inputs]
        return self._add(kind, self.values.get(name, name), sources, [self.values.get(name, name)], blobs, parameters)

    def parts(self, name: str, source: str, axis: int, count: int) -> list[str]:
        """The single places along an axis, each a value."""
        tops = [self.name(f"{name}_{place}") for place in range(count)]
        self._add("Slice", self.name(f"{name}_parts"), [source], tops, (), {"axis": axis, "slice_point": range(1, count)})
        return tops

    def _add(
        self, kind: str, name: str, sources: Sequence[str], tops: list[str], blobs: Sequence[Blob], stated: Mapping[str, Parameter]
    ) -> str:
        words = {"name": [name], "type": [kind], "bottom": sources, "top": tops}
        said = " ".join(_said(key, value) for key, value in stated.items())
        parameters = f"{_PARAMETERS.get(kind, f'{kind.lower()}_param')} {{ {said} }}" if said else ""
        self.layers.append(Layer(words, parameters, tuple(blobs)))
        return name

    def trained(self, path: str, *roles: str) -> list[Trained]:
        """The tensors of a path of these roles, without those that it lacks."""
        return [Trained(path, role) for role in roles if role in self.tensors.get(path, {})]

    def channels(self, path: str) -> int:
        return channels_in(self.shapes[path])

    def filled(self, name: str, source: str, number: float) -> str:
        """A value of the shape of another, with `number` everywhere."""
        return self.layer("Power", name, source, scale=0.0, shift=number)

    def negative(self, name: str, source: str) -> str:
        return self.layer("Power", name, source, scale=-1.0)

    def moved(self, name: str, source: str, channels: int, pads: Pads, stride: Sequence[int] = (1, 1)) -> str:
        """A map between pads of zeros, or without as many cells where they are negative, and every stride-th cell of it: a
        convolution of each channel by itself, with a kernel of a single one."""
        top, bottom, left, right = pads
        rows, columns = max(top, bottom, 0), max(left, right, 0)
        kernel = np.zeros((channels, 1, 1 + 2 * rows - top - bottom, 1 + 2 * columns - left - right))
        kernel[:, :, rows - top, columns - left] = 1
        sides = {"kernel_h": kernel.shape[2], "kernel_w": kernel.shape[3], "pad_h": rows, "pad_w": columns}
        steps = {"stride_h": stride[0], "stride_w": stride[1], "group": channels, "bias_term": False}
        return self.layer("Convolution", name, source, blobs=[kernel], num_output=channels, **sides, **steps)


def plain(name: str) -> str:
    """A name as it may stand between quotes."""
    return re.sub(r'["\\\s]', "_", name)


def _said(key: str, value: Parameter) -> str:
    if isinstance(value, bool):
        return f"{key}: {str(value).lower()}"
    if isinstance(value, str | int | float):
        return f"{key}: {value}"
    if isinstance(value, Mapping):
        return f"{key} {{ {' '.join(_said(*each) for each in value.items())} }}"
    return " ".join(f"{key}: {each}" for each in value)
