"""Toy models as ports."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from porter_toy_format import rows

from porter.filegraph.program import KernelProgram
from porter.frameworks.numpy.nets import NetDestination
from porter.graph.ops import row_of
from porter.padding import Capabilities
from porter_toy_destination.maker import ToyMaker
from porter_toy_destination.spellings import SPELLINGS, add_windowed


class Toy(NetDestination[ToyMaker]):
    """Writes toy models, and runs them by the rows of their format."""

    NAME, TITLE = "toy", "Toy"
    MODEL_FILE, NET_FILE = "model.npz", "model.toy"
    MAKER, SPELLINGS = ToyMaker, SPELLINGS
    CAPABILITIES = Capabilities(
        symmetric=True,
        explicit=True,
        same=(),
        same_of_any=False,
        pool_pads="any",
        roundings=("floor", "ceil"),
        averages=("real_cells", "full_window"),
        dynamic=(),
        dilated_pools=(),
        dilated_strides=True,
        open_reshapes=False,
        lacks=lambda op: row_of(SPELLINGS, type(op)) is None,
    )
    add_windowed = staticmethod(add_windowed)

    def program(self, text: str, image: str) -> KernelProgram:
        return rows.program(text.encode())

    def text_parts(self, text: str) -> list[tuple[str, object]]:
        stated = json.loads(text)
        return [*((layer["name"], layer) for layer in stated["layers"]), ("outputs", stated["outputs"])]

    def encode_arrays(
        self, net: ToyMaker, arrays: Mapping[str, NDArray[Any]]
    ) -> Iterable[bytes | memoryview]:
        file = io.BytesIO()
        np.savez(file, allow_pickle=False, **arrays)
        return [file.getvalue()]

    def decode_arrays(self, data: bytes) -> Mapping[str, NDArray[Any]]:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            return dict(stored)


DESTINATION = Toy()
