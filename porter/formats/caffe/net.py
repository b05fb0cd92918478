"""A net's layers, in the order in which Caffe runs them for one image, with nothing of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from porter.base.left_out import LeftOut
from porter.filegraph.kernels.program import Reference, own_name
from porter.filegraph.places import Items, Reading
from porter.formats.caffe.text import Message, parse
from porter.formats.limits import MOST_NODES

IMAGE = "image"
_DATA = frozenset({"Data", "ImageData", "MemoryData", "WindowData", "HDF5Data", "DummyData"})
_TEST = ("TEST", "1")
_THROUGH = frozenset({"Dropout", "Split"})
_NEWER = {
    **{
        name.upper(): name
        for name in ("BNLL", "LRN", "MVN", "ELU", "SPP", "ReLU", "TanH", "AbsVal", "ArgMax")
    },
    "HDF5_DATA": "HDF5Data",
}
"""Types whose names in the second format are not those of the first one's words (V1LayerParameter in
caffe.proto).
"""


@dataclass(frozen=True)
class Layer(Reading):
    """A layer.

    Attributes:
        op: its type.
        inputs: the values that it reads, then its blobs, which are called `conv1/0`, `conv1/1`.
        values: how many of the inputs are values.
        stated: the whole layer; `parameters` are those of its type.
        gives: how many values.
    """

    name: str
    op: str
    inputs: tuple[Reference, ...]
    values: int
    stated: Message
    gives: int

    @property
    def parameters(self) -> Message:
        return self.stated.part(_PARAMETERS.get(self.op, f"{self.op.lower()}_param"))

    @property
    def blobs(self) -> tuple[str, ...]:
        return Items(name for name, _ in self.inputs[self.values :])


_CONVOLUTIONS = ("Convolution", "Deconvolution", "DepthwiseConvolution", "ConvolutionDepthwise")
_PARAMETERS = {
    **dict.fromkeys(_CONVOLUTIONS, "convolution_param"),
    "InnerProduct": "inner_product_param",
    "BatchNorm": "batch_norm_param",
    "Normalize": "norm_param",
}


@dataclass(frozen=True)
class Net:
    """A net of one image.

    Attributes:
        channels, size: of the image; None where the file does not state them.
        ends: the values that nothing reads.
        problem: why it is none of one image.
        passed: dropouts, each with what it reads.
    """

    layers: tuple[Layer, ...]
    channels: int | None
    size: tuple[int | None, int | None]
    ends: tuple[Reference, ...]
    problem: str | None = None
    passed: tuple[tuple[LeftOut, Reference], ...] = ()


def read_net(text: str) -> Net:
    """The net of a .prototxt, in its phase TEST.

    Raises:
        ValueError: it is damaged, or in Caffe's first format.
    """
    net = parse(text)
    stated = [layer for layer in (*net.parts("layers"), *net.parts("layer")) if _is_of_test(layer)]
    if len(stated) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} layers")
    images = [(name, dims) for name, dims in zip(net.words("input"), _dims(net), strict=False)]
    known: dict[str, Reference | None] = {name: (IMAGE, 0) for name, _ in images}
    layers, names, passed = list[Layer](), {IMAGE}, list[tuple[LeftOut, Reference]]()
    for layer in stated:
        if layer.parts("layer"):
            raise ValueError("it is in Caffe's first format: upgrade it with upgrade_net_proto_text")
        op, tops = _type_of(layer), layer.words("top")
        if op in _DATA:
            images += [(top, _cut_to(layer)) for top in tops[:1]]
            # The others are labels.
            known |= {top: None if place else (IMAGE, 0) for place, top in enumerate(tops)}
            continue
        if op == "Input":
            shapes = [shape.counts("dim") for shape in layer.part("input_param").parts("shape")] or [[]]
            images += [(top, shapes[min(place, len(shapes) - 1)]) for place, top in enumerate(tops)]
            known |= dict.fromkeys(tops, (IMAGE, 0))
            continue
        lacking = next((name for name in layer.words("bottom") if name not in known), None)
        if lacking is not None:
            raise ValueError(
                f"layer '{layer.word('name')}' reads '{lacking}', which no layer before it gives"
            )
        sources = [known[name] for name in layer.words("bottom")]
        values = tuple(source for source in sources if source is not None)
        if len(values) < len(sources) or not values or op == "Silence":  # of labels: a loss, or an accuracy
            known |= dict.fromkeys(tops)
        elif op in _THROUGH:
            known |= dict.fromkeys(tops, values[0])
            if op == "Dropout":
                rate = layer.part("dropout_param").number("dropout_ratio", 0.5)
                passed.append((LeftOut(layer.word("name") or op, op, rate), values[0]))
        else:
            name = own_name(layer.word("name") or op.lower(), len(layers), names)
            blobs = tuple((f"{name}/{place}", 0) for place in range(_blobs(op, layer)))
            layers.append(Layer(name, op, values + blobs, len(values), layer, len(tops)))
            known |= {top: (name, place) for place, top in enumerate(tops)}
    read = {source for layer in layers for source in layer.inputs}
    ends = tuple(
        (layer.name, place)
        for layer in layers
        for place in range(layer.gives)
        if (layer.name, place) not in read
    )
    dims = images[0][1] if len(images) == 1 else ()
    problem = None if len(images) == 1 else f"one image is expected as its only input, found {len(images)}"
    sizes = [size if size and size > 0 else None for size in (dims if len(dims) == 4 else (None,) * 4)]
    if problem is None and len(dims) not in (0, 4):
        problem = f"an image of rank 4 is expected, got {len(dims)}"
    return Net(tuple(layers), sizes[1], (sizes[2], sizes[3]), ends, problem, tuple(passed))


def _is_of_test(layer: Message) -> bool:
    """Whether a net without levels and stages has the layer when it is not trained."""

    def holds(rule: Message) -> bool:
        level = rule.count("min_level", 0) <= 0 <= rule.count("max_level", 0)
        return rule.word("phase", "TEST") in _TEST and level and not rule.words("stage")

    included, excluded = layer.parts("include"), layer.parts("exclude")
    stays = any(map(holds, included)) if included else not any(map(holds, excluded))
    return stays and layer.word("phase", "TEST") in _TEST


def _type_of(layer: Message) -> str:
    """Its type by the name that the second format has for it: the first one wrote `INNER_PRODUCT` for
    `InnerProduct`.
    """
    given = layer.word("type")
    return _NEWER.get(given) or (
        "".join(word.capitalize() for word in given.split("_")) if given.isupper() else given
    )


def _blobs(op: str, layer: Message) -> int:
    """How many blobs a layer has."""
    if op in (*_CONVOLUTIONS, "InnerProduct"):
        return 1 + layer.part(_PARAMETERS[op]).flag("bias_term", True)
    if op == "Scale":
        return (len(layer.words("bottom")) == 1) + layer.part("scale_param").flag("bias_term", False)
    return {"BatchNorm": 3, "PReLU": 1, "Normalize": 1, "Bias": 2 - len(layer.words("bottom"))}.get(op, 0)


def _dims(net: Message) -> list[Sequence[int | None]]:
    """The sizes of the inputs that stand at the top of a net."""
    shapes = [shape.counts("dim") for shape in net.parts("input_shape")]
    flat = net.counts("input_dim")
    return [
        *shapes,
        *(flat[place : place + 4] for place in range(0, len(flat), 4)),
        *[()] * len(net.words("input")),
    ]


def _cut_to(layer: Message) -> Sequence[int | None]:
    """The sizes of what a data layer gives, as far as it states them."""
    memory, side = (
        layer.part("memory_data_param"),
        layer.part("transform_param").count("crop_size", 0) or None,
    )
    return (
        None,
        memory.count("channels", 0) or None,
        memory.count("height", 0) or side,
        memory.count("width", 0) or side,
    )
