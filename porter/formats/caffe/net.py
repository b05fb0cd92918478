"""A net's layers, in the order in which Caffe runs them for one image, with nothing of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from porter.base.left_out import LeftOut
from porter.filegraph.kernels.program import NodeOutput, take_name
from porter.filegraph.places import Items, Reading
from porter.formats.caffe.text_format import TextMessage, parse
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
class CaffeLayer(Reading):
    """A layer.

    Attributes:
        op: its type.
        inputs: the values that it reads, then its blobs, which are called `conv1/0`, `conv1/1`.
        values: how many of the inputs are values.
        message: the whole layer; `parameters` are those of its type.
        gives: how many values.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    values: int
    message: TextMessage
    gives: int

    @property
    def parameters(self) -> TextMessage:
        return self.message.part(_PARAMETERS.get(self.op, f"{self.op.lower()}_param"))

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

    layers: tuple[CaffeLayer, ...]
    channels: int | None
    size: tuple[int | None, int | None]
    ends: tuple[NodeOutput, ...]
    problem: str | None = None
    passed: tuple[tuple[LeftOut, NodeOutput], ...] = ()


def read_net(text: str) -> Net:
    """The net of a .prototxt, in its phase TEST.

    Raises:
        ValueError: it is damaged, or in Caffe's first format.
    """
    net = parse(text)
    layers_of_test = [layer for layer in (*net.parts("layers"), *net.parts("layer")) if _is_of_test(layer)]
    if len(layers_of_test) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} layers")
    images = list(zip(net.words("input"), _dims(net), strict=False))
    reader = _Layers(images, {name: (IMAGE, 0) for name, _ in images})
    for layer in layers_of_test:
        reader.read(layer)
    problem, dims = _only_image([dims for _, dims in images])
    _, channels, *size = [size if size and size > 0 else None for size in dims] or [None] * 4
    return Net(
        layers=tuple(reader.layers),
        channels=channels,
        size=(size[0], size[1]),
        ends=reader.ends,
        problem=problem,
        passed=tuple(reader.passed),
    )


def _only_image(images: Sequence[Sequence[int | None]]) -> tuple[str | None, Sequence[int | None]]:
    """Why a net takes no image, in words, and the four sizes of its image, if it states them."""
    if len(images) != 1:
        return f"one image is expected as its only input, found {len(images)}", ()
    (dims,) = images
    if len(dims) in (0, 4):
        return None, dims
    return f"an image of rank 4 is expected, got {len(dims)}", ()


@dataclass
class _Layers:
    """The layers so far.

    Attributes:
        images: what the net takes, by name, with its sizes.
        values: what layers give, by name; None for labels.
        passed: dropouts, each with what it reads.
    """

    images: list[tuple[str, Sequence[int | None]]]
    values: dict[str, NodeOutput | None]
    layers: list[CaffeLayer] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: {IMAGE})
    passed: list[tuple[LeftOut, NodeOutput]] = field(default_factory=list)

    @property
    def ends(self) -> tuple[NodeOutput, ...]:
        """The values that nothing reads."""
        read = {source for layer in self.layers for source in layer.inputs}
        given = ((layer.name, index) for layer in self.layers for index in range(layer.gives))
        return tuple(each for each in given if each not in read)

    def read(self, layer: TextMessage) -> None:
        """Reads a layer, after those that it reads."""
        if layer.parts("layer"):
            raise ValueError("it is in Caffe's first format: upgrade it with upgrade_net_proto_text")
        op = _type_of(layer)
        tops = layer.words("top")
        if op in _DATA or op == "Input":
            self._take(op, layer, tops)
            return
        sources = [self._source(name, layer) for name in layer.words("bottom")]
        values = tuple(source for source in sources if source is not None)
        if len(values) < len(sources) or not values or op == "Silence":  # of labels: a loss, or an accuracy
            self.values |= dict.fromkeys(tops)
        elif op in _THROUGH:
            self.values |= dict.fromkeys(tops, values[0])
            if op == "Dropout":
                rate = layer.part("dropout_param").number("dropout_ratio", 0.5)
                self.passed.append((LeftOut(layer.word("name") or op, op, rate), values[0]))
        else:
            self._add(op, layer, values)

    def _add(self, op: str, layer: TextMessage, values: tuple[NodeOutput, ...]) -> None:
        name = take_name(layer.word("name") or op.lower(), len(self.layers), self.names)
        tops = layer.words("top")
        blobs = tuple((f"{name}/{index}", 0) for index in range(_blobs(op, layer)))
        self.layers.append(CaffeLayer(name, op, values + blobs, len(values), layer, len(tops)))
        self.values |= {top: (name, index) for index, top in enumerate(tops)}

    def _take(self, op: str, layer: TextMessage, tops: Sequence[str]) -> None:
        """What the net is given: of a data layer an image and labels, of an Input images."""
        if op == "Input":
            shapes = [shape.counts("dim") for shape in layer.part("input_param").parts("shape")] or [[]]
            self.images += [(top, shapes[min(index, len(shapes) - 1)]) for index, top in enumerate(tops)]
            self.values |= dict.fromkeys(tops, (IMAGE, 0))
        else:
            self.images += [(top, _cut_to(layer)) for top in tops[:1]]
            self.values |= {top: None if index else (IMAGE, 0) for index, top in enumerate(tops)}

    def _source(self, name: str, layer: TextMessage) -> NodeOutput | None:
        if name not in self.values:
            raise ValueError(f"layer '{layer.word('name')}' reads '{name}', which no layer before it gives")
        return self.values[name]


def _is_of_test(layer: TextMessage) -> bool:
    """Whether a net without levels and stages has the layer when it is not trained."""

    def holds(rule: TextMessage) -> bool:
        level = rule.count("min_level", 0) <= 0 <= rule.count("max_level", 0)
        return rule.word("phase", "TEST") in _TEST and level and not rule.words("stage")

    included, excluded = layer.parts("include"), layer.parts("exclude")
    stays = any(map(holds, included)) if included else not any(map(holds, excluded))
    return stays and layer.word("phase", "TEST") in _TEST


def _type_of(layer: TextMessage) -> str:
    """The type of a layer under the name that the second format has for it: the first one wrote
    `INNER_PRODUCT` for `InnerProduct`.
    """
    given = layer.word("type")
    return _NEWER.get(given) or (
        "".join(word.capitalize() for word in given.split("_")) if given.isupper() else given
    )


def _blobs(op: str, layer: TextMessage) -> int:
    """How many blobs a layer has."""
    if op in (*_CONVOLUTIONS, "InnerProduct"):
        return 1 + layer.part(_PARAMETERS[op]).flag("bias_term", True)
    if op == "Scale":
        return (len(layer.words("bottom")) == 1) + layer.part("scale_param").flag("bias_term", False)
    return {"BatchNorm": 3, "PReLU": 1, "Normalize": 1, "Bias": 2 - len(layer.words("bottom"))}.get(op, 0)


def _dims(net: TextMessage) -> list[Sequence[int | None]]:
    """The sizes of the inputs that stand at the top of a net."""
    shapes = [shape.counts("dim") for shape in net.parts("input_shape")]
    flat = net.counts("input_dim")
    return [
        *shapes,
        *(flat[start : start + 4] for start in range(0, len(flat), 4)),
        *[()] * len(net.words("input")),
    ]


def _cut_to(layer: TextMessage) -> Sequence[int | None]:
    """The sizes of what a data layer gives, as far as it states them."""
    memory = layer.part("memory_data_param")
    side = layer.part("transform_param").count("crop_size", 0) or None
    return (
        None,
        memory.count("channels", 0) or None,
        memory.count("height", 0) or side,
        memory.count("width", 0) or side,
    )
