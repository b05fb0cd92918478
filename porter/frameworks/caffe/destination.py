"""Caffe's ports: a net as text, and its weights."""

from __future__ import annotations

from collections.abc import Iterable

from porter.base.dtypes import NamedArrays
from porter.base.errors import UsageError
from porter.filegraph.program import KernelProgram
from porter.formats.caffe import rows
from porter.formats.caffe.blobs import read_blobs, write_net
from porter.formats.caffe.text_format import parse_text
from porter.frameworks import Tensors
from porter.frameworks.caffe.maker import CaffeMaker, norm_name
from porter.frameworks.caffe.sites import add_windowed
from porter.frameworks.caffe.spellings import PLAIN, lacks_op
from porter.frameworks.numpy.nets import NetDestination
from porter.graph import BatchNorm, Graph
from porter.padding import Capabilities

_MAX_BYTES = (1 << 31) - (1 << 24)
"""The most bytes of all blobs: a protobuf message has at most 2 GiB, and the layers take a part of it."""

# pooling_layer.cpp: pads are alike on both sides and smaller than the kernel. The number of windows is
# rounded up; where there are pads, one that would begin behind the map is left out. An average counts the
# pads, not what lies behind them. round_mode is younger than Caffe 1.0, and OpenCV does not read it.
_CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=False,
    pool_pads="less",
    roundings=("ceil",),
    averages=("clipped_window",),
    dynamic=(),
    dilated_pools=(),
    dilated_strides=True,
    open_reshapes=False,
    one_sided=True,
    zeros_only=True,
    keeps_last=True,
    lacks=lacks_op,
)


class Caffe(NetDestination[CaffeMaker]):
    """Writes a net and its blobs."""

    NAME, TITLE = "caffe", "Caffe"
    MODEL_FILE, NET_FILE = "model.caffemodel", "model.prototxt"
    CAPABILITIES, MAKER, SPELLINGS = _CAPABILITIES, CaffeMaker, PLAIN
    NO_ARRAYS = "Caffe's layers take maps and features, not arrays of other axes"
    add_windowed = staticmethod(add_windowed)

    def program(self, text: str, image: str) -> KernelProgram:
        return rows.program(text.encode())

    def text_parts(self, text: str) -> list[tuple[str, object]]:
        """Return the layers behind the input, with their names."""
        return [(layer.word("name") or "", layer) for layer in parse_text(text).parts("layer")[1:]]

    def encode_arrays(self, net: CaffeMaker, arrays: NamedArrays) -> Iterable[bytes | memoryview]:
        """Return the content of the .caffemodel of a net: its layers' words with their blobs. Raise
        UsageError where these are more than protobuf's 2 GiB.
        """
        if sum(array.nbytes for array in arrays.values()) > _MAX_BYTES:
            raise UsageError(
                "a .caffemodel has at most 2 GiB, and these weights have more",
                next="port it to torch or onnx",
            )
        return write_net(
            "port",
            [layer.words for layer in net.layers],
            [[arrays[name] for name in layer.blobs] for layer in net.layers],
        )

    def decode_arrays(self, data: bytes) -> NamedArrays:
        """Return the arrays of a .caffemodel by layer and index: `conv1/0`."""
        return {
            f"{name}/{index}": array
            for name, blobs in read_blobs(data).items()
            for index, array in enumerate(blobs)
        }

    def fillings(self, graph: Graph, tensors: Tensors) -> dict[str, int]:
        """Return the blobs that the source lacks, with the number that changes nothing: the divisor of a
        norm's statistics, 1, and a scale of 1.
        """
        values, _ = CaffeMaker.name_values(graph)
        fills = {}
        for node in graph.nodes:
            path, op = node.path, node.op
            if not isinstance(op, BatchNorm):
                continue
            # A norm with a scale or a centre is two layers.
            has_scale = op.scale or op.center
            fills[f"{values[norm_name(path) if has_scale else path]}/scale_factor"] = 1
            if op.center and not op.scale:
                fills[f"{values[path]}/scale"] = 1
        return fills


DESTINATION: Caffe = Caffe()
