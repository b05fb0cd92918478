"""The layers of a file of weights, told by the roles and the shapes of their tensors, in the order of the
network.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from porter.base.errors import UsageError
from porter.base.name_tables import natural_order
from porter.base.options import FROM_MODEL
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.recognition import known_format

LayerKind = Literal["conv", "dense", "batch_norm", "layer_norm", "prelu"]
Framework = Literal["tf", "torch"]
NormSide = Literal["before", "after"]

_ROLES: Mapping[Framework, Mapping[str, str]] = {
    "torch": {
        "weight": "weight",
        "bias": "bias",
        "running_mean": "mean",
        "running_var": "variance",
        "num_batches_tracked": "batches",
    },
    "tf": {
        **dict.fromkeys(("kernel", "weights"), "weight"),
        **dict.fromkeys(("depthwise_kernel", "depthwise_weights"), "depthwise"),
        **dict.fromkeys(("pointwise_kernel", "pointwise_weights"), "pointwise"),
        **dict.fromkeys(("bias", "biases"), "bias"),
        "gamma": "gamma",
        "beta": "beta",
        "moving_mean": "mean",
        "moving_variance": "variance",
        "alpha": "alpha",
    },
}
_SEPARATORS: Mapping[Framework, str] = {"torch": ".", "tf": "/"}
_HEAD_WORDS = re.compile(
    r"(?i)^(fc|classifier|logits|predictions?|head|dense|linear|output|out|top)(?![a-z])"
)
NORM_WORD = re.compile(r"(batch_?)?norm(alization)?|bn", re.IGNORECASE)
"""What the name of a norm calls it: `conv1_bn`, `batch_normalization_1`."""
_NUMBER = re.compile(r"(\d+)")
_AUXILIARY = re.compile(r"(?i)(^|[./_])aux")
_NEARLY_ALL = 0.8
"""A part of a file's layers that counts as nearly all."""
_MOST_COLOURS = 4
"""Channels that an image has at most."""


@dataclass(frozen=True)
class WeightsLayer:
    """A layer that holds tensors.

    Attributes:
        name: in the file.
        reads: channels or features that it reads; of a convolution those of one group, of a depthwise one
            all.
        gives: channels or features that it gives.
        kernel: rows and columns.
        linear: no activation follows it.
        roles: of its tensors.
    """

    name: str
    kind: LayerKind
    reads: int
    gives: int
    kernel: tuple[int, int] = (1, 1)
    depthwise: bool = False
    linear: bool = False
    roles: frozenset[str] = frozenset()

    @property
    def bias(self) -> bool:
        return "bias" in self.roles

    @property
    def is_norm(self) -> bool:
        return self.kind in ("batch_norm", "layer_norm")


@dataclass(frozen=True)
class ListedLayers:
    """What a file of weights holds.

    Attributes:
        framework: whose names the tensors have.
        layers: in the order of the network, as far as the file and the names tell it.
        others: names of tensors of auxiliary heads, and of single numbers such as counters.
        unknown: names of tensors of no layer that porter knows.
        ordered: the order is the file's own.
    """

    framework: Framework
    layers: tuple[WeightsLayer, ...]
    others: tuple[str, ...]
    unknown: tuple[str, ...]
    ordered: bool

    @property
    def separator(self) -> str:
        return _SEPARATORS[self.framework]

    @property
    def container(self) -> str:
        """The beginning of nearly all names, if it is a module whose members have names of their own:
        `features.` of `features.conv0`. It is empty if there is none.
        """
        module, separator, _ = self.layers[0].name.partition(self.separator)
        prefix = f"{module}{separator}"
        inside = [layer.name.removeprefix(prefix) for layer in self.layers if layer.name.startswith(prefix)]
        holds_nearly_all = bool(separator) and len(inside) > _NEARLY_ALL * len(self.layers)
        are_numbered = any(name[:1].isdigit() for name in inside)
        return prefix if holds_nearly_all and not are_numbered else ""


def list_layers(checkpoint: Checkpoint) -> ListedLayers:
    """List the layers of a file of weights, in the order of the network as far as it is told, with the
    tensors of auxiliary heads and those of no layer that porter knows.
    """
    framework = _framework_of_names(checkpoint)
    roles, separator = _ROLES[framework], _SEPARATORS[framework]
    tensors_by_layer: dict[str, dict[str, tuple[int, ...]]] = {}
    others, unknown = list[str](), list[str]()
    for name, array in checkpoint.tensors.items():
        layer, _, variable = name.rpartition(separator)
        # a scalar of no known role is a counter
        if _AUXILIARY.search(layer) or (array.shape == () and variable not in roles):
            others.append(name)
        elif layer and variable in roles:
            tensors_by_layer.setdefault(layer, {})[roles[variable]] = array.shape
        else:
            unknown.append(name)
    layers: list[WeightsLayer] = []
    for name, tensors in tensors_by_layer.items():
        has_empty_tensor = any(0 in shape for shape in tensors.values())
        layers_of_name = list[WeightsLayer]()
        if not has_empty_tensor:
            layers_of_name += _layers_of_tensors(framework, name, tensors, checkpoint)
        layers += layers_of_name
        if not layers_of_name:
            unknown += [tensor for tensor in checkpoint.tensors if tensor.rpartition(separator)[0] == name]
    format = known_format(checkpoint.format)
    ordered = format is not None and format.keeps_order and not checkpoint.counted
    if not ordered:
        layers = _sort_by_name(layers, separator)
    return ListedLayers(
        framework, tuple(_put_norms_beside_layers(layers, ordered)), tuple(others), tuple(unknown), ordered
    )


def _framework_of_names(checkpoint: Checkpoint) -> Framework:
    """Return the framework whose names the tensors have: `conv.weight` is torch's, `conv/kernel`
    TensorFlow's.

    Raises:
        UsageError: they are those of another framework.
    """
    for framework in _ROLES:
        if checkpoint.dialect == framework:
            return framework
    if checkpoint.dialect is not None:  # its kernels may have other axes than those of both
        next = f"give {FROM_MODEL} a file that carries its graph"
        raise UsageError(
            f"no recipe is drafted from the names of {checkpoint.dialect}",
            where=checkpoint.path,
            next=next,
        )
    return (
        "torch" if any(name.endswith((".weight", ".running_mean")) for name in checkpoint.tensors) else "tf"
    )


def _layers_of_tensors(
    framework: Framework, name: str, tensors: Mapping[str, tuple[int, ...]], checkpoint: Checkpoint
) -> Iterator[WeightsLayer]:
    """Yield the layer that tensors are of, or the two of a separable convolution; none if they are of no
    layer that porter knows.

    Args:
        name: of the layer.
        tensors: their shapes by role.
    """
    if len(tensors.get("depthwise", ())) == len(tensors.get("pointwise", ())) == 4:
        yield from _separable_layers(name, tensors, checkpoint)
    elif "pointwise" not in tensors:
        layer = _torch_layer(name, tensors) if framework == "torch" else _tf_layer(name, tensors)
        if layer is not None:
            yield layer


def _torch_layer(name: str, tensors: Mapping[str, tuple[int, ...]]) -> WeightsLayer | None:
    """Return the layer that tensors of torch are of, by their roles and ranks; None if these do not tell."""
    weight = tensors.get("weight")
    roles = frozenset(tensors)
    if "mean" in roles and "variance" in roles:
        return _norm_layer(name, "batch_norm", tensors["mean"], {"weight": "gamma", "bias": "beta"}, roles)
    match weight:
        case (filters, reads, rows, columns):
            return WeightsLayer(name, "conv", reads, filters, (rows, columns), reads == 1, roles=roles)
        case (units, features):
            return WeightsLayer(name, "dense", features, units, roles=roles)
        case (_,) if "bias" in roles:
            return _norm_layer(name, "layer_norm", weight, {"weight": "gamma", "bias": "beta"}, roles)
        case (alpha,):
            return WeightsLayer(name, "prelu", alpha, alpha, roles=roles)
    return None


def _tf_layer(name: str, tensors: Mapping[str, tuple[int, ...]]) -> WeightsLayer | None:
    """Return the layer that tensors of Keras or TensorFlow are of, by their roles and ranks; None if these do
    not tell.
    """
    roles = frozenset(tensors)
    if "mean" in roles and "variance" in roles:
        return _norm_layer(name, "batch_norm", tensors["mean"], {}, roles)
    if "gamma" in roles and "beta" in roles:
        return _norm_layer(name, "layer_norm", tensors["gamma"], {}, roles)
    if tensors.get("alpha"):
        return WeightsLayer(name, "prelu", tensors["alpha"][-1], tensors["alpha"][-1], roles=roles)
    match tensors.get("weight"), tensors.get("depthwise"):
        case _, (rows, columns, channels, multiplier):
            return WeightsLayer(
                name, "conv", channels, channels * multiplier, (rows, columns), True, roles=roles
            )
        # Keras 3 calls it `kernel`. With a bias of one number, it is a convolution with one filter.
        case (rows, columns, channels, 1), _ if (
            max(rows, columns) > 1 and channels > 1 and tensors.get("bias") != (1,)
        ):
            return WeightsLayer(name, "conv", channels, channels, (rows, columns), True, roles=roles)
        case (rows, columns, reads, filters), _:
            return WeightsLayer(name, "conv", reads, filters, (rows, columns), reads == 1, roles=roles)
        case (features, units), _:
            return WeightsLayer(name, "dense", features, units, roles=roles)
    return None


def _separable_layers(
    name: str, tensors: Mapping[str, tuple[int, ...]], checkpoint: Checkpoint
) -> Iterator[WeightsLayer]:
    """Yield the two convolutions of a separable one, depthwise and 1x1, each named after its kernel:
    `sepconv/depthwise_kernel`.
    """
    # Keras 3 says kernel, slim weights.
    ending = "kernel" if f"{name}/pointwise_kernel" in checkpoint.tensors else "weights"
    rows, columns, channels, multiplier = tensors["depthwise"]
    filters, bias = tensors["pointwise"][-1], frozenset({"bias"} & tensors.keys())
    depthwise, pointwise = f"{name}/depthwise_{ending}", f"{name}/pointwise_{ending}"
    between = channels * multiplier
    yield WeightsLayer(depthwise, "conv", channels, between, (rows, columns), depthwise=True, linear=True)
    yield WeightsLayer(pointwise, "conv", between, filters, roles=bias)


def _norm_layer(
    name: str, kind: LayerKind, shape: tuple[int, ...], spelled: Mapping[str, str], roles: frozenset[str]
) -> WeightsLayer | None:
    """Return a norm; None if its tensors have more than one axis.

    Args:
        spelled: the norm's role for each role that the file has under another word: torch's `weight` is its
            gamma.
    """
    if len(shape) != 1:
        return None
    norm_roles = frozenset(spelled.get(role, role) for role in roles)
    return WeightsLayer(name, kind, shape[0], shape[0], roles=norm_roles)


def _sort_by_name(layers: Sequence[WeightsLayer], separator: str) -> list[WeightsLayer]:
    """Return layers, whose file does not keep their order, in a likely one: first the stem (single layers
    from the one that reads the image on, as long as their channels fit), then those inside modules, other
    single layers, and heads such as `fc`. Numbers in names are sorted by their size.
    """
    single, groups, heads = list[WeightsLayer](), list[WeightsLayer](), list[WeightsLayer]()
    by_name = sorted(layers, key=lambda layer: [_natural_key(part) for part in layer.name.split(separator)])
    for layer in by_name:
        module, *inner = layer.name.split(separator)
        if _HEAD_WORDS.match(module) or (len(inner) == 1 and _HEAD_WORDS.match(inner[0])):
            heads.append(layer)
        elif len(inner) > 1:
            groups.append(layer)
        else:
            single.append(layer)
    stem: list[WeightsLayer] = []
    # first the convolutions that may read the image
    for layer in sorted(single, key=lambda layer: layer.kind != "conv" or layer.reads > _MOST_COLOURS):
        reads = layer.gives if layer.is_norm or layer.depthwise else layer.reads
        fits = reads == stem[-1].gives if stem else layer.reads <= _MOST_COLOURS
        if fits:
            stem.append(layer)
    return [*stem, *groups, *(layer for layer in single if layer not in stem), *heads]


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a key of the natural order that has `preact` first."""
    return [(-1, name)] if name.startswith("pre") else natural_order(name)


def _put_norms_beside_layers(layers: Sequence[WeightsLayer], ordered: bool) -> Iterator[WeightsLayer]:
    """Yield the layers, each norm beside the layer that its name says, after it or, where the channels say
    so, before it. A norm without such a layer stays in its place.

    Args:
        ordered: the file keeps the order of the code.
    """
    beside: dict[tuple[str, NormSide], list[WeightsLayer]] = {}
    places = _places_of_norms(layers, ordered)
    for norm in layers:
        if norm.name in places:
            beside.setdefault(places[norm.name], []).append(norm)
    for layer in layers:
        if layer.name not in places:
            yield from beside.get((layer.name, "before"), ())
            yield layer
            yield from beside.get((layer.name, "after"), ())


def _places_of_norms(layers: Sequence[WeightsLayer], ordered: bool) -> dict[str, tuple[str, NormSide]]:
    """Return, by the name of each norm that moves, the layer that it stands beside, and on which side.

    In a file that keeps its order a norm only moves up to a layer before it: code may list convolutions first
    and their norms then.
    """
    index_of = {layer.name: index for index, layer in enumerate(layers)}
    layers_by_name = {layer.name: layer for layer in layers if not layer.is_norm}
    named = [
        (norm, layers_by_name[name])
        for norm in layers
        if norm.is_norm and (name := _layer_of_norm(norm.name, layers_by_name.keys())) is not None
    ]
    # Norms of the same name stand before their layers everywhere if one has to.
    leading = {_NUMBER.sub("", norm.name) for norm, owner in named if norm.gives != owner.gives}
    places: dict[str, tuple[str, NormSide]] = {}
    for norm, owner in named:
        if ordered and index_of[owner.name] > index_of[norm.name]:
            continue
        reads = owner.gives if owner.depthwise else owner.reads
        may_lead = not ordered and _NUMBER.sub("", norm.name) in leading
        if may_lead and norm.gives == reads:
            places[norm.name] = owner.name, "before"
        elif norm.gives == owner.gives:
            places[norm.name] = owner.name, "after"
    return places


def _layer_of_norm(norm: str, names: Collection[str]) -> str | None:
    """Return the layer that a norm follows by its name: `bn1` conv1, `conv1_bn` conv1 or conv1_conv,
    `conv1/BatchNorm` conv1. None if no layer has such a name.
    """
    owners = {
        norm.rpartition("/")[0],
        norm.rpartition(".")[0],
        re.sub(rf"[_./]?({NORM_WORD.pattern})$", "", norm, flags=re.IGNORECASE),
    }
    for match in NORM_WORD.finditer(norm):
        before, after = norm[: match.start()], norm[match.end() :]
        owners |= {f"{before}{word}{after}" for word in ("conv", "fc", "dense")}
        without_word = before.rstrip("_") + after
        owners |= {without_word, without_word.lstrip("_")}
    longest_first = sorted(owners - {norm, ""}, key=len, reverse=True)
    return next((name for name in longest_first if name in names), None)
