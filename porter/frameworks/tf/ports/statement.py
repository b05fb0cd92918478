"""A Keras functional model as it is stated: which layers and operations are called on which values.

The engine calls these layers and operations in Keras (porter.frameworks.tf.ports.build), and the destination
writes them as Keras would save them, without it (porter.frameworks.tf.ports.config).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from porter.base.dtypes import Dtype
from porter.base.errors import GraphError
from porter.base.options import FOLD_BN
from porter.frameworks import Tensors
from porter.frameworks.tf.call_order import layers_in_order, search_depths

Shape: TypeAlias = tuple[int | None, ...]
"""Sizes, batch first; None where they are open."""
LAYERS_MODULE = "keras.layers"
_FRAMES_AT_START = 40
"""Calls that a program and Keras are in when Keras begins to follow a model: a script that loads one is in
20, others in more.
"""


@dataclass(frozen=True)
class CallValue:
    """The value of a call in a stated model: what stands for one of Keras's symbolic tensors.

    Attributes:
        call: its place among the calls of the statement.
        dtype: in Keras's words, such as `float32` or `bool`.
    """

    call: int
    shape: Shape
    dtype: str

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, axis: int) -> int:
        """Return the size of an axis that is not open, as the last one never is."""
        size = self.shape[axis]
        assert size is not None, "the size of a value is open"
        return size


@dataclass(frozen=True)
class KerasCall:
    """A call of a layer or an operation. Calls of one name are of one layer; an operation is called once.

    Attributes:
        module, kind: its class, by the module that Keras writes beside it.
        config: the arguments of the class, without the name.
        arguments, options: what it is called with, by place and by name: symbols, lists of symbols, and
        constants.
        value: what it gives.
    """

    module: str
    kind: str
    name: str
    config: Mapping[str, Any]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    value: CallValue

    @property
    def is_layer(self) -> bool:
        return self.module == LAYERS_MODULE

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The indices of the calls whose values it reads, in its order."""
        return tuple(symbol.call for symbol in _symbols((*self.arguments, *self.options.values())))


def _symbols(values: Any) -> Iterator[CallValue]:
    """Yield the values of calls among arguments, in lists too."""
    for value in values:
        if isinstance(value, CallValue):
            yield value
        elif isinstance(value, list):
            yield from _symbols(value)


@dataclass(frozen=True)
class Statement:
    """A model.

    Attributes:
        dtype: of its weights and of the values of its layers.
        calls: each after those whose values it reads. Some may not lead to an output.
        values: the value of every path of the graph.
        inputs, outputs: paths, in order.
        several: whether the outputs are a list, even of one.
        weights: by the name of a layer and of its variable, in Keras's axis order.
    """

    dtype: Dtype
    calls: tuple[KerasCall, ...]
    values: Mapping[str, CallValue]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    several: bool
    weights: Tensors

    @cached_property
    def calls_in_order(self) -> tuple[tuple[KerasCall, ...], ...]:
        """The calls that lead to an output, those of one layer together, as `model.operations` has them."""
        layers = layers_in_order(self._ends, self._inputs_of, lambda index: self.calls[index].name)
        return tuple(self._calls_by_name[name] for name in layers)

    @cached_property
    def _calls_by_name(self) -> Mapping[str, tuple[KerasCall, ...]]:
        """The calls that lead to an output, in order, by the name of their layer or operation."""
        by_name: dict[str, tuple[KerasCall, ...]] = {}
        for index in sorted(self._depth_by_visit):
            call = self.calls[index]
            by_name[call.name] = (*by_name.get(call.name, ()), call)
        return by_name

    def call_of(self, symbol: CallValue) -> tuple[str, int]:
        """Return where a value comes from: the name of its layer, and the index of the call among that
        layer's calls, as Keras's configs say it: `("conv1", 0)`.
        """
        name = self.calls[symbol.call].name
        values = [call.value for call in self._calls_by_name[name]]
        return name, values.index(symbol)

    @property
    def _ends(self) -> list[int]:
        """The indices of the calls that give the outputs, in order."""
        return [self.values[path].call for path in self.outputs]

    def _inputs_of(self, index: int) -> tuple[int, ...]:
        return self.calls[index].inputs

    @cached_property
    def _depth_by_visit(self) -> Mapping[int, int]:
        """The indices of the calls that lead to an output, each with how many calls of itself Keras's search
        is in at its first visit.
        """
        return search_depths(self._ends, self._inputs_of)

    def expect_loadable(self) -> None:
        """Refuse a model that Keras cannot load.

        Raises:
            GraphError: see `too_deep_error`.
        """
        if max(self._depth_by_visit.values()) + _FRAMES_AT_START > sys.getrecursionlimit():
            raise self.too_deep_error()

    def too_deep_error(self) -> GraphError:
        """Return the error for a chain of layers that is too long: Keras follows a model, as it makes or
        loads one, by a function that calls itself for each layer.
        """
        layers = max(self._depth_by_visit.values()) - 1
        return GraphError(
            f"Keras follows a model by a call for each layer, and a chain of {layers} "
            "layers is too deep for Python",
            next=f"fold the norms ({FOLD_BN()}), or port it to torch or onnx",
        )
