"""Models with channels first, as models with channels last that compute the same. Kernels have one order:
where those of Keras 1 depend on it, what reads the file has put them into this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from porter.base.json import JsonObject
from porter.formats.keras.flow import SOURCE, Flow, LayerCall, Result, moved, read_flow, results_in
from porter.formats.keras.nodes import Inbound
from porter.formats.keras.theano import padded_by_theano
from porter.formats.keras.windows import ROWS, WINDOWS

CHANNELS_FIRST = "channels_first"
IMAGE = "image_channels_first"
"""The layer that gives the image with channels first, in a model whose other maps stay as they are."""
CHANNELS_LAST, ACTIVATION = "channels_last", "activation"
"""What the names of the layers around one with channels first end in, as in `CHANNELS_FIRST`."""
_WINDOWED = frozenset(
    {
        "Conv2D",
        "DepthwiseConv2D",
        "SeparableConv2D",
        "Conv2DTranspose",
        "MaxPooling2D",
        "AveragePooling2D",
        "ZeroPadding2D",
        "Cropping2D",
        "UpSampling2D",
    }
)
_WHOLE = frozenset({"GlobalAveragePooling2D", "GlobalMaxPooling2D"})
_OF_EACH_NUMBER = frozenset(
    {
        "Activation",
        "ReLU",
        "LeakyReLU",
        "ELU",
        "ThresholdedReLU",
        "Add",
        "Subtract",
        "Multiply",
        "Average",
        "Maximum",
        "Minimum",
        "Dropout",
        "SpatialDropout2D",
        "GaussianNoise",
        "GaussianDropout",
        "AlphaDropout",
        "ActivityRegularization",
    }
)
_AXES = {1: 3, 2: 1, 3: 2, -3: 3, -2: 1, -1: 2}
"""Places of N×C×H×W in N×H×W×C."""


_ORDERS = {
    **dict.fromkeys(WINDOWS, ([2, 3, 1], [3, 1, 2])),
    **dict.fromkeys((*ROWS, "GlobalAveragePooling1D", "GlobalMaxPooling1D"), ([2, 1], [2, 1])),
}
"""Two orders for each layer whose windows move over places: the one in which the channels come last, and the
one in which they come first again.
"""


class _Mixed(Exception):
    """A layer that is not known to compute the same with channels last."""


def read_calls(text: str | bytes, where: str) -> Flow | None:
    """Reads what `read_flow` does. A model whose maps all have channels first is given with channels last, if
    porter knows that of each of its layers; its Flatten reads the map in the order in which it was, by a
    Permute. In other models each layer with channels first has Permutes around it. One that ran on Theano has
    Theano's pads.

    Raises:
        FileError: as `read_flow`.
    """
    flow = read_flow(text, where)
    if flow is None or len(flow.shape) != 4:
        return flow and _each_last(flow, False)
    flow = _all_last(flow)
    return padded_by_theano(flow) if flow.backend == "theano" else flow


def _all_last(flow: Flow) -> Flow:
    """A model whose maps all have channels first, with channels last; others stay as they are."""
    formats = [call.arguments.get("data_format") for call in flow.calls if call.kind in _WINDOWED | _WHOLE]
    if flow.keras == 1:  # its ZeroPadding2D does not write its `dim_ordering`
        formats = [one for one in formats if one]
    whole = bool(formats) and all(one == CHANNELS_FIRST for one in formats)
    if whole:
        try:
            return _turned(flow)
        except _Mixed:
            pass
    is_old = flow.keras == 1 or any("nb_row" in call.arguments for call in flow.calls)
    return flow if is_old else _each_last(flow, whole)  # Keras 1 has other kernels for each order


def _turned(flow: Flow) -> Flow:
    """A model with channels last, in which a Flatten reads the map in the order that it had."""
    calls, places, ranks = list[LayerCall](), {SOURCE.call: SOURCE.call}, {SOURCE.call: 4}
    for index, call in enumerate(flow.calls):
        read = [ranks[result.call] for result in results_in(call.given)]
        given = moved(call.given, places)
        arguments, ranks[index] = _with_channels_last(call.kind, call.arguments, read)
        if call.kind == "Flatten" and 4 in read and call.arguments.get("data_format") != CHANNELS_FIRST:
            path = (*call.path[:-1], f"{call.path[-1]}_channels_first")
            calls.append(replace(call, path=path, kind="Permute", arguments={"dims": [3, 1, 2]}, given=given))
            given = Inbound((Result(len(calls) - 1),), {})
        places[index] = len(calls)
        calls.append(replace(call, arguments=arguments, given=given))
    batch, channels, *cells = flow.shape
    ends = tuple(replace(end, call=places[end.call]) for end in flow.outputs)
    return replace(flow, calls=tuple(calls), outputs=ends, shape=(batch, *cells, channels))


def _each_last(flow: Flow, whole: bool) -> Flow:
    """The model with Permutes around its layers that have channels first; `whole`: its image has them first
    too.
    """
    calls, places, shape = list[LayerCall](), {SOURCE.call: SOURCE.call}, flow.shape
    if whole:
        batch, channels, *cells = shape
        shape = (batch, *cells, channels)
        places = {SOURCE.call: 0}
        calls.append(LayerCall((IMAGE,), "Permute", {"dims": [3, 1, 2]}, Inbound((SOURCE,), {})))

    def add(call: LayerCall, name: str, kind: str, arguments: JsonObject, given: Inbound) -> Inbound:
        path = (*call.path[:-1], f"{call.path[-1]}_{name}" if name else call.path[-1])
        calls.append(replace(call, path=path, kind=kind, arguments=arguments, given=given))
        return Inbound((Result(len(calls) - 1),), {})

    for index, call in enumerate(flow.calls):
        given = moved(call.given, places)
        settings = call.arguments
        values = results_in(given)
        order = _ORDERS.get(call.kind) if settings.get("data_format") == CHANNELS_FIRST and values else None
        if order is None:
            add(call, "", call.kind, settings, given)
        else:
            last, first = order
            value = add(call, CHANNELS_LAST, "Permute", {"dims": last}, Inbound((values[0],), {}))
            plain = {"activation": None} if "activation" in settings else {}
            value = add(call, "", call.kind, {**settings, "data_format": CHANNELS_LAST, **plain}, value)
            if not call.kind.startswith("Global") or settings.get("keepdims"):
                value = add(call, CHANNELS_FIRST, "Permute", {"dims": first}, value)
            if settings.get("activation") not in (None, "linear"):
                add(call, ACTIVATION, "Activation", {"activation": settings["activation"]}, value)
        places[index] = len(calls) - 1
    ends = tuple(replace(end, call=places[end.call]) for end in flow.outputs)
    return replace(flow, calls=tuple(calls), outputs=ends, shape=shape)


def _with_channels_last(kind: str, arguments: JsonObject, ranks: Sequence[int]) -> tuple[JsonObject, int]:
    """A layer's arguments with channels last, and the rank of what it gives.

    Args:
        ranks: of the values that it reads.
    """
    rank = max(ranks, default=0)
    axis = arguments.get("axis", -1)
    if len({*ranks}) != 1 or (rank == 4 and arguments.get("activation") == "softmax"):
        raise _Mixed
    if kind == "Flatten" or (rank == 4 and kind in (*_WINDOWED, *_WHOLE)):
        return {**arguments, "data_format": CHANNELS_LAST}, _rank_of_maps(kind, arguments)
    is_along = rank == 2 or (isinstance(axis, int) and axis in _AXES)
    if is_along and kind in ("BatchNormalization", "Concatenate", "Softmax"):
        return {**arguments, "axis": _AXES[axis] if rank == 4 else axis}, rank
    if kind in _OF_EACH_NUMBER or (kind == "Dense" and rank == 2):
        return arguments, rank
    raise _Mixed


def _rank_of_maps(kind: str, arguments: JsonObject) -> int:
    """The rank of what a layer makes of a map."""
    return 4 if kind in _WINDOWED or (kind in _WHOLE and arguments.get("keepdims")) else 2
