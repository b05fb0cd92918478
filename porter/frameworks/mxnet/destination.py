"""MXNet's ports: a symbol as JSON, and its arrays."""

from __future__ import annotations

import json
from collections.abc import Iterable

from porter.base.dtypes import NamedArrays
from porter.filegraph.program import KernelProgram
from porter.formats.mxnet import rows
from porter.formats.mxnet.params_file import read_arrays, write_arrays
from porter.frameworks import Tensors
from porter.frameworks.mxnet.maker import SymbolMaker
from porter.frameworks.mxnet.sites import add_windowed
from porter.frameworks.mxnet.spellings import PLAIN, lacks_op
from porter.frameworks.numpy.nets import NetDestination
from porter.graph import Graph, tensor_shapes
from porter.padding import Capabilities

# src/operator/nn/pooling.cc and pool.h: pads are alike on both sides. `full` rounds up and keeps the last
# window wherever it is. An average counts the pads, not what lies behind them, or with
# count_include_pad=False the real cells only.
_CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=False,
    pool_pads="less",
    roundings=("floor", "full"),
    averages=("real_cells", "clipped_window"),
    dynamic=(),
    dilated_pools=(),
    dilated_strides=True,
    open_reshapes=False,
    lacks=lacks_op,
)


class MXNet(NetDestination[SymbolMaker]):
    """Writes a symbol and its parameters."""

    NAME, TITLE = "mxnet", "MXNet"
    MODEL_FILE, NET_FILE = "model-0000.params", "model-symbol.json"
    CAPABILITIES, MAKER, SPELLINGS = _CAPABILITIES, SymbolMaker, PLAIN
    add_windowed = staticmethod(add_windowed)

    def program(self, text: str, image: str) -> KernelProgram:
        return rows.program(f"{image}\n{text}".encode())

    def text_parts(self, text: str) -> list[tuple[str, object]]:
        """Return the symbol's nodes by name, and its `heads`, the nodes that are outputs."""
        symbol = json.loads(text)
        return [*((node["name"], node) for node in symbol["nodes"]), ("heads", symbol["heads"])]

    def encode_arrays(self, net: SymbolMaker, arrays: NamedArrays) -> Iterable[bytes | memoryview]:
        """Return the .params file of a symbol: states, which training updates, are `aux:NAME`, all other
        arrays `arg:NAME`.
        """
        return write_arrays(
            {f"{'aux' if name in net.states else 'arg'}:{name}": array for name, array in arrays.items()}
        )

    def decode_arrays(self, data: bytes) -> NamedArrays:
        return read_arrays(data)

    def fillings(self, graph: Graph, tensors: Tensors) -> dict[str, int]:
        """Return the arguments of norms that the source lacks, with the number that changes nothing: a gamma
        of 1, a beta of 0.
        """
        known_shapes = tensor_shapes(graph)
        fills = {}
        for node in graph.nodes:
            if node.op_name == "batch_norm":
                for role, number in (("gamma", 1), ("beta", 0)):
                    if role not in known_shapes[node.path]:
                        fills[f"{node.path}_{role}"] = number
        return fills


DESTINATION: MXNet = MXNet()
