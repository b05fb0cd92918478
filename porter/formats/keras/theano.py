"""Models that Keras ran on Theano. Its `same` is not TensorFlow's, which Keras means elsewhere: windows begin
at another cell if they move by several cells or have an even number of them (keras/backend/theano_backend.py
of Keras 1.2 and 2.2: `conv2d`, `pool2d`, `_postprocess_conv2d_output`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from porter.formats.keras.call_arguments import Inbound
from porter.formats.keras.flow import SOURCE, Flow, LayerCall, Result, results_in, with_places
from porter.formats.keras.versions import OPERATION

_WINDOWS = {"Conv2D": "kernel_size", "MaxPooling2D": "pool_size", "AveragePooling2D": "pool_size"}

_Pads = tuple[tuple[int, int], tuple[int, int]]
"""Before and after the rows, and the columns."""


def with_theano_pads(flow: Flow) -> Flow:
    """Return the model with channels last as Keras computes it on TensorFlow: a pad stands before each window
    that Theano pads otherwise.

    An average pool that is padded otherwise, and another layer of `same`, become classes that no layer has,
    so that they are refused.
    """
    # `places` has the new place of each call by its old one.
    calls, places = list[LayerCall](), {SOURCE.call: SOURCE.call}
    for index, call in enumerate(flow.calls):
        inbound = with_places(call.inbound, places)
        pads = _pads(call)
        if pads is not None and call.kind in ("Conv2D", "MaxPooling2D"):
            calls.append(_pad_layer(call, pads, inbound))
            inbound = Inbound((Result(len(calls) - 1),), {})
            call = replace(call, arguments={**call.arguments, "padding": "valid"})
        elif pads is not None or (call.kind not in _WINDOWS and call.arguments.get("padding") == "same"):
            call = replace(call, kind=f"{call.kind} by Theano's same")
        places[index] = len(calls)
        calls.append(replace(call, inbound=inbound))
    ends = tuple(replace(end, call=places[end.call]) for end in flow.outputs)
    return replace(flow, calls=tuple(calls), outputs=ends)


def _pads(call: LayerCall) -> _Pads | None:
    """Return the pads that Theano's `same` gives a call; None where TensorFlow's SAME has the same ones at
    every size. A Conv2D of 3×3 with a stride of 2 gives ((1, 1), (1, 1)).
    """
    arguments = call.arguments
    if call.kind not in _WINDOWS or arguments.get("padding") != "same":
        return None
    window = _pair(arguments[_WINDOWS[call.kind]])
    dilation = _pair(arguments.get("dilation_rate") or 1)
    stride = _pair(arguments.get("strides") or (1 if call.kind == "Conv2D" else window))
    extents = [(cells - 1) * step + 1 for cells, step in zip(window, dilation, strict=True)]
    pads_before = [_pad_before(call.kind, extent) for extent in extents]
    # SAME with a stride of 1 pads these, whatever the map's size.
    by_tensorflow = [(extent - 1) // 2 for extent in extents]
    if stride == (1, 1) and pads_before == by_tensorflow:
        return None
    # Both are all that a window covers beside one cell, so what is not before is behind.
    rows, columns = ((first, extent - 1 - first) for first, extent in zip(pads_before, extents, strict=True))
    return rows, columns


def _pad_before(kind: str, extent: int) -> int:
    """Return how many cells Theano's `same` pads before a window of this extent; a pool's is another than a
    convolution's.
    """
    if kind == "Conv2D":
        return extent // 2
    return extent - 2 if extent > 2 and extent % 2 else extent - 1


def _pair(argument: Any) -> tuple[int, int]:
    """Return rows and columns of an argument that is one number or two."""
    rows, columns = (argument, argument) if isinstance(argument, int) else argument
    return int(rows), int(columns)


def _pad_layer(call: LayerCall, pads: _Pads, inbound: Inbound) -> LayerCall:
    """Return a layer that pads what a call reads, as Theano did inside it: with zeros before a convolution,
    and with -inf before a max pool, for which Keras has no layer, so porter's name for the operation stands
    there.

    Args:
        inbound: what the call reads.
    """
    kind = "ZeroPadding2D"
    arguments = dict[str, Any](padding=[list(pair) for pair in pads], data_format="channels_last")
    if call.kind == "MaxPooling2D":
        kind = f"{OPERATION}Pad"
        arguments = {"pad_width": [[0, 0], *map(list, pads), [0, 0]], "constant_values": -math.inf}
    path = (*call.path[:-1], f"{call.path[-1]}_pad_of_theano")
    return replace(
        call, path=path, kind=kind, arguments=arguments, inbound=Inbound((results_in(inbound)[0],), {})
    )
