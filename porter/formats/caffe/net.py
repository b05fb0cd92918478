"""A net's layers, in the order in which Caffe runs them for one image, with nothing of training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from porter.base.left_out import LeftOut
from porter.filegraph.places import Items, Reading
from porter.filegraph.value_names import NodeOutput, take_name
from porter.formats.caffe.text_format import TextMessage, parse_text
from porter.formats.limits import MOST_NODES

IMAGE = "image"
_DATA_LAYERS = frozenset({"Data", "ImageData", "MemoryData", "WindowData", "HDF5Data", "DummyData"})
_TEST_PHASE = ("TEST", "1")
_PASS_THROUGH = frozenset({"Dropout", "Split"})
_NEWER_TYPES = {
    **{
        name.upper(): name
        for name in ("BNLL", "LRN", "LSTM", "MVN", "RNN", "ELU", "SPP", "ReLU", "TanH", "AbsVal", "ArgMax")
    },
    "HDF5_DATA": "HDF5Data",
}
"""Types of the second format that are not the words of the first format's in capitals (V1LayerParameter in
caffe.proto).
"""

DEPTHWISE = ("ConvolutionDepthwise", "DepthwiseConvolution")
"""Convolutions by channels, which forks have."""
CONVOLUTIONS = ("Convolution", *DEPTHWISE)
WITH_KERNELS = (*CONVOLUTIONS, "Deconvolution", "InnerProduct")
_PARAMETERS = {
    **dict.fromkeys((*CONVOLUTIONS, "Deconvolution"), "convolution_param"),
    "InnerProduct": "inner_product_param",
    "BatchNorm": "batch_norm_param",
    "Normalize": "norm_param",
}


def parameters_field(op: str) -> str:
    """Return the field that has the parameters of a type's layers, which is mostly named after the type."""
    return _PARAMETERS.get(op, f"{op.lower()}_param")


@dataclass(frozen=True)
class CaffeLayer(Reading):
    """A layer.

    Attributes:
        op: its type.
        inputs: the values that it reads, then its blobs, which are called `conv1/0`, `conv1/1`.
        values: how many of the inputs are values.
        message: the whole layer; `parameters` are those of its type.
        gives: how many values it gives.
    """

    name: str
    op: str
    inputs: tuple[NodeOutput, ...]
    values: int
    message: TextMessage
    gives: int

    @property
    def parameters(self) -> TextMessage:
        """Return the parameters of the layer's type."""
        return self.message.part(parameters_field(self.op))

    @property
    def blobs(self) -> tuple[str, ...]:
        """Return the names of the layer's blobs, which stand behind its values among the inputs."""
        return Items(name for name, _ in self.inputs[self.values :])


@dataclass(frozen=True)
class Net:
    """A net of one image.

    Attributes:
        channels, size: of the image; None where the file does not state them.
        ends: the values that nothing reads.
        problem: why it is no net of one image, in words; None if it is one.
        passed: dropouts, which inference leaves out, each with the value that it reads.
    """

    layers: tuple[CaffeLayer, ...]
    channels: int | None
    size: tuple[int | None, int | None]
    ends: tuple[NodeOutput, ...]
    problem: str | None = None
    passed: tuple[tuple[LeftOut, NodeOutput], ...] = ()


def read_net(text: str) -> Net:
    """Return the net of a .prototxt, in its phase TEST. A net that does not take one image is returned too,
    with the reason as its `problem`.

    Raises:
        ValueError: it is damaged, or in Caffe's first format.
    """
    net = parse_text(text)
    layers_of_test = [layer for layer in (*net.parts("layers"), *net.parts("layer")) if _is_of_test(layer)]
    if len(layers_of_test) > MOST_NODES:
        raise ValueError(f"it has more than {MOST_NODES} layers")
    # The sizes end with an empty shape for each input, so every input gets one.
    images = list(zip(net.words("input"), _sizes_of_inputs(net), strict=False))
    reader = _LayerReader(images, {name: (IMAGE, 0) for name, _ in images})
    for layer in layers_of_test:
        reader.read(layer)
    # `dims` are empty where there is a problem.
    problem, dims = _expect_one_image([dims for _, dims in images])
    # Sizes below 1, and all four where the net states none, are open.
    _, channels, *size = [size if size and size > 0 else None for size in dims] or [None] * 4
    return Net(
        layers=tuple(reader.layers),
        channels=channels,
        size=(size[0], size[1]),
        ends=reader.ends,
        problem=problem,
        passed=tuple(reader.passed),
    )


def _expect_one_image(images: Sequence[Sequence[int | None]]) -> tuple[str | None, Sequence[int | None]]:
    """Return why a net does not take one image, in words, or None; and the four sizes of its image, if it
    states them.
    """
    if len(images) != 1:
        return f"one image is expected as its only input, found {len(images)}", ()
    (dims,) = images
    if len(dims) in (0, 4):
        return None, dims
    return f"an image of rank 4 is expected, got {len(dims)}", ()


@dataclass
class _LayerReader:
    """The layers so far.

    Attributes:
        images: what the net takes, by name, with its sizes.
        values: what layers give, by name; None for labels.
        passed: dropouts, which inference leaves out, each with the value that it reads.
    """

    images: list[tuple[str, Sequence[int | None]]]
    values: dict[str, NodeOutput | None]
    layers: list[CaffeLayer] = field(default_factory=list)
    names: set[str] = field(default_factory=lambda: {IMAGE})
    passed: list[tuple[LeftOut, NodeOutput]] = field(default_factory=list)

    @property
    def ends(self) -> tuple[NodeOutput, ...]:
        """The values that no layer reads: `(name, place among the layer's values)`."""
        read = {source for layer in self.layers for source in layer.inputs}
        values = ((layer.name, index) for layer in self.layers for index in range(layer.gives))
        return tuple(value for value in values if value not in read)

    def read(self, layer: TextMessage) -> None:
        """Read a layer, after those that it reads. An input is recorded with its sizes. A layer of labels,
        such as a loss, gives nothing; a dropout or a Split gives what it reads; every other layer becomes one
        of the net.
        """
        if layer.parts("layer"):
            raise ValueError("it is in Caffe's first format: upgrade it with upgrade_net_proto_text")
        op = _type_of(layer)
        tops = layer.words("top")
        if op in _DATA_LAYERS or op == "Input":
            self._add_inputs(op, layer, tops)
            return
        sources = [self._source(name, layer) for name in layer.words("bottom")]
        values = tuple(source for source in sources if source is not None)
        # A layer of labels is a loss or an accuracy.
        if len(values) < len(sources) or not values or op == "Silence":
            self.values |= dict.fromkeys(tops)
        elif op in _PASS_THROUGH:
            self.values |= dict.fromkeys(tops, values[0])
            if op == "Dropout":
                rate = layer.part("dropout_param").number("dropout_ratio", 0.5)
                self.passed.append((LeftOut(layer.word("name") or op, op, rate), values[0]))
        else:
            self._add(op, layer, values)

    def _add(self, op: str, layer: TextMessage, values: tuple[NodeOutput, ...]) -> None:
        """Add a layer that a port has, under a name of its own, with its values, its blobs and what
        it gives.
        """
        name = take_name(layer.word("name") or op.lower(), len(self.layers), self.names)
        tops = layer.words("top")
        blobs = tuple((f"{name}/{index}", 0) for index in range(_count_blobs(op, layer)))
        self.layers.append(CaffeLayer(name, op, values + blobs, len(values), layer, len(tops)))
        self.values |= {top: (name, index) for index, top in enumerate(tops)}

    def _add_inputs(self, op: str, layer: TextMessage, tops: Sequence[str]) -> None:
        """Add the inputs of a net: of a data layer an image and labels, of an Input images. Fewer shapes than
        images: the last one is for all that follow.
        """
        if op == "Input":
            shapes = [shape.counts("dim") for shape in layer.part("input_param").parts("shape")] or [[]]
            self.images += [(top, shapes[min(index, len(shapes) - 1)]) for index, top in enumerate(tops)]
            self.values |= dict.fromkeys(tops, (IMAGE, 0))
        else:
            self.images += [(top, _sizes_of_data(layer)) for top in tops[:1]]
            self.values |= {top: None if index else (IMAGE, 0) for index, top in enumerate(tops)}

    def _source(self, name: str, layer: TextMessage) -> NodeOutput | None:
        """Return the value that a name stands for; None for labels. Raise ValueError for a name that nothing
        before gives.
        """
        if name not in self.values:
            raise ValueError(f"layer '{layer.word('name')}' reads '{name}', which no layer before it gives")
        return self.values[name]


def _is_of_test(layer: TextMessage) -> bool:
    """Return whether a layer is in the net that infers: by its rules `include` and `exclude`, for level 0 and
    no stage, and by its own phase.
    """

    def matches_test(rule: TextMessage) -> bool:
        """Return whether a rule is met in the phase TEST, at level 0 and without stages."""
        has_level_0 = rule.count("min_level", 0) <= 0 <= rule.count("max_level", 0)
        return rule.word("phase", "TEST") in _TEST_PHASE and has_level_0 and not rule.words("stage")

    rules_to_include, rules_to_exclude = layer.parts("include"), layer.parts("exclude")
    if rules_to_include:
        is_included = any(map(matches_test, rules_to_include))
    else:
        is_included = not any(map(matches_test, rules_to_exclude))
    return is_included and layer.word("phase", "TEST") in _TEST_PHASE


def _type_of(layer: TextMessage) -> str:
    """Return the type of a layer under the name that the second format has for it: the first one wrote
    `INNER_PRODUCT` for `InnerProduct`.
    """
    stated = layer.word("type")
    if stated in _NEWER_TYPES:
        return _NEWER_TYPES[stated]
    if stated.isupper():
        return "".join(word.capitalize() for word in stated.split("_"))
    return stated


def _count_blobs(op: str, layer: TextMessage) -> int:
    """Return how many blobs a layer has, by its type and its settings; 0 for a type that is not trained."""
    if op in WITH_KERNELS:
        has_bias = layer.part(parameters_field(op)).flag("bias_term", True)
        return 2 if has_bias else 1
    value_count = len(layer.words("bottom"))
    # A Scale of two values has no blob of factors, and a Bias of two values none at all.
    if op == "Scale":
        has_factors = value_count == 1
        has_bias = layer.part("scale_param").flag("bias_term", False)
        return has_factors + has_bias
    return {"BatchNorm": 3, "PReLU": 1, "Normalize": 1, "Bias": 2 - value_count}.get(op, 0)


def _sizes_of_inputs(net: TextMessage) -> list[Sequence[int | None]]:
    """Return the sizes of the inputs that stand at the top of a net. Each has its `input_shape`, or four of
    the `input_dim`; an empty shape for every input follows, for those that state none.
    """
    shapes = [shape.counts("dim") for shape in net.parts("input_shape")]
    dims = net.counts("input_dim")
    shapes_of_dims = (dims[start : start + 4] for start in range(0, len(dims), 4))
    empty_shapes: list[Sequence[int | None]] = [()] * len(net.words("input"))
    return [*shapes, *shapes_of_dims, *empty_shapes]


def _sizes_of_data(layer: TextMessage) -> Sequence[int | None]:
    """Return the sizes of a data layer's image, batch first; None for each that it does not state."""
    memory = layer.part("memory_data_param")
    side = layer.part("transform_param").count("crop_size", 0) or None
    return (
        None,
        memory.count("channels", 0) or None,
        memory.count("height", 0) or side,
        memory.count("width", 0) or side,
    )
