"""Models with channels first, as models with channels last that compute the same. Kernels have one order:
where those of Keras 1 depend on it, what reads the file has put them into this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from porter.base.name_tables import JsonObject
from porter.formats.keras.call_arguments import Inbound
from porter.formats.keras.flow import SOURCE, Flow, LayerCall, Result, read_flow, results_in, with_places
from porter.formats.keras.theano import with_theano_pads
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
_GLOBAL_POOLS = frozenset({"GlobalAveragePooling2D", "GlobalMaxPooling2D"})
_ELEMENTWISE = frozenset(
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
_AXIS_CHANNELS_LAST = {1: 3, 2: 1, 3: 2, -3: 3, -2: 1, -1: 2}
"""The axis of N×H×W×C for each axis of N×C×H×W."""


_ORDERS = {
    **dict.fromkeys(WINDOWS, ([2, 3, 1], [3, 1, 2])),
    **dict.fromkeys((*ROWS, "GlobalAveragePooling1D", "GlobalMaxPooling1D"), ([2, 1], [2, 1])),
}
"""Two orders for each layer whose windows move over places: the one in which the channels come last, and the
one in which they come first again.
"""


class _OrderMatters(Exception):
    """A layer is not known to compute the same with channels last."""


def read_calls(text: str | bytes, where: str) -> Flow | None:
    """Return the list of a model's layer calls as `read_flow` reads it, with channels last. Return None where
    `read_flow` does.

    A model whose maps all have channels first is turned to channels last as a whole, if porter knows for each
    of its layers how; its Flatten reads the map in the order in which it was, by a Permute. In other models
    each layer with channels first has Permutes around it. A model that ran on Theano has Theano's pads.

    Raises:
        FileError: as `read_flow`.
    """
    flow = read_flow(text, where)
    if flow is None or len(flow.shape) != 4:
        return flow and _with_permutes(flow, False)
    flow = _with_maps_last(flow)
    return with_theano_pads(flow) if flow.backend == "theano" else flow


def _with_maps_last(flow: Flow) -> Flow:
    """Return the model with channels last if all its maps have channels first and each layer is known to
    compute the same; otherwise with Permutes around its layers with channels first. A model of Keras 1 stays
    as it is then.
    """
    formats = [
        call.arguments.get("data_format") for call in flow.calls if call.kind in _WINDOWED | _GLOBAL_POOLS
    ]
    if flow.keras == 1:  # its ZeroPadding2D does not write its `dim_ordering`
        formats = [order for order in formats if order]
    all_first = bool(formats) and all(order == CHANNELS_FIRST for order in formats)
    if all_first:
        try:
            return _turn(flow)
        except _OrderMatters:
            pass
    is_old = flow.keras == 1 or any("nb_row" in call.arguments for call in flow.calls)
    return flow if is_old else _with_permutes(flow, all_first)  # Keras 1 has other kernels for each order


def _turn(flow: Flow) -> Flow:
    """Return a model whose maps all have channels first with channels last; a Permute lets its Flatten read
    the map in the order that it had.

    Raises:
        _OrderMatters: a layer is not known to compute the same then.
    """
    # `places` has the new place of each call by its old one, and `ranks` the number of axes that each gives.
    calls, places, ranks = list[LayerCall](), {SOURCE.call: SOURCE.call}, {SOURCE.call: 4}
    for index, call in enumerate(flow.calls):
        input_ranks = [ranks[result.call] for result in results_in(call.inbound)]
        inbound = with_places(call.inbound, places)
        arguments, ranks[index] = _with_channels_last(call.kind, call.arguments, input_ranks)
        flattens_map = call.kind == "Flatten" and 4 in input_ranks
        # A Flatten that states channels first reads the map with its channels last anyway.
        if flattens_map and call.arguments.get("data_format") != CHANNELS_FIRST:
            path = (*call.path[:-1], f"{call.path[-1]}_channels_first")
            calls.append(
                replace(call, path=path, kind="Permute", arguments={"dims": [3, 1, 2]}, inbound=inbound)
            )
            inbound = Inbound((Result(len(calls) - 1),), {})
        places[index] = len(calls)
        calls.append(replace(call, arguments=arguments, inbound=inbound))
    batch, channels, *cells = flow.shape
    ends = tuple(replace(end, call=places[end.call]) for end in flow.outputs)
    return replace(flow, calls=tuple(calls), outputs=ends, shape=(batch, *cells, channels))


def _with_permutes(flow: Flow, image_first: bool) -> Flow:
    """Return the model with Permutes around its layers that have channels first; a layer's activation follows
    the second of them as a layer of its own.

    Args:
        image_first: whether the image has its channels first too.
    """
    # `places` has the new place of each call by its old one.
    calls, places, shape = list[LayerCall](), {SOURCE.call: SOURCE.call}, flow.shape
    if image_first:
        batch, channels, *cells = shape
        shape = (batch, *cells, channels)
        places = {SOURCE.call: 0}
        calls.append(LayerCall((IMAGE,), "Permute", {"dims": [3, 1, 2]}, Inbound((SOURCE,), {})))

    def add(call: LayerCall, name: str, kind: str, arguments: JsonObject, inbound: Inbound) -> Inbound:
        """Append a call named after `call`, and return the arguments of a call that reads its result."""
        path = (*call.path[:-1], f"{call.path[-1]}_{name}" if name else call.path[-1])
        calls.append(replace(call, path=path, kind=kind, arguments=arguments, inbound=inbound))
        return Inbound((Result(len(calls) - 1),), {})

    for index, call in enumerate(flow.calls):
        inbound = with_places(call.inbound, places)
        settings = call.arguments
        values = results_in(inbound)
        has_channels_first = settings.get("data_format") == CHANNELS_FIRST
        orders = _ORDERS.get(call.kind) if has_channels_first and values else None
        if orders is None:
            add(call, "", call.kind, settings, inbound)
        else:
            order_last, order_first = orders
            value = add(call, CHANNELS_LAST, "Permute", {"dims": order_last}, Inbound((values[0],), {}))
            without_activation = {"activation": None} if "activation" in settings else {}
            settings_last = {**settings, "data_format": CHANNELS_LAST, **without_activation}
            value = add(call, "", call.kind, settings_last, value)
            # A global pool that keeps no axes of size 1 gives features, which have no order.
            if not call.kind.startswith("Global") or settings.get("keepdims"):
                value = add(call, CHANNELS_FIRST, "Permute", {"dims": order_first}, value)
            if settings.get("activation") not in (None, "linear"):
                add(call, ACTIVATION, "Activation", {"activation": settings["activation"]}, value)
        places[index] = len(calls) - 1
    ends = tuple(replace(end, call=places[end.call]) for end in flow.outputs)
    return replace(flow, calls=tuple(calls), outputs=ends, shape=shape)


def _with_channels_last(kind: str, arguments: JsonObject, ranks: Sequence[int]) -> tuple[JsonObject, int]:
    """Return the arguments with which a layer of a channels-first model computes the same with channels last,
    and the rank of what it gives. An axis of a map moves with the channels: axis 1 becomes 3.

    Args:
        kind: the layer's class.
        ranks: of the values that it reads, 4 for a map and 2 for features.

    Raises:
        _OrderMatters: the layer is not known to compute the same then.
    """
    rank = max(ranks, default=0)
    axis = arguments.get("axis", -1)
    # A softmax over a map runs along its last axis, which is another one then.
    if len({*ranks}) != 1 or (rank == 4 and arguments.get("activation") == "softmax"):
        raise _OrderMatters
    if kind == "Flatten" or (rank == 4 and kind in (*_WINDOWED, *_GLOBAL_POOLS)):
        return {**arguments, "data_format": CHANNELS_LAST}, _rank_after(kind, arguments)
    has_known_axis = rank == 2 or (isinstance(axis, int) and axis in _AXIS_CHANNELS_LAST)
    if has_known_axis and kind in ("BatchNormalization", "Concatenate", "Softmax"):
        return {**arguments, "axis": _AXIS_CHANNELS_LAST[axis] if rank == 4 else axis}, rank
    if kind in _ELEMENTWISE or (kind == "Dense" and rank == 2):
        return arguments, rank
    raise _OrderMatters


def _rank_after(kind: str, arguments: JsonObject) -> int:
    """Return the rank of what a layer makes of a map: 4 for another map, and 2 for features."""
    return 4 if kind in _WINDOWED or (kind in _GLOBAL_POOLS and arguments.get("keepdims")) else 2
