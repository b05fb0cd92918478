"""The `model.weights.h5` of a stated model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from porter.base.dtypes import Array, cast
from porter.formats.keras.config import snake_case
from porter.formats.keras.layer_variables import VARIABLES
from porter.frameworks.tf.ports.config import MODEL_NAME
from porter.frameworks.tf.ports.statement import KerasCall, Statement

if TYPE_CHECKING:
    from typing_extensions import Buffer


def write_weights(path: Path, statement: Statement) -> None:
    """Write the weights, in the model's dtype, one tensor after the other.

    Layers are counted by class in the order of `model.layers`, and their variables in the order in which the
    class makes them; both kinds of groups have the layer's name, also of layers without variables
    (keras/src/saving/saving_lib.py, `_save_state` and `_save_container_state`).
    """
    import h5py

    counts: Counter[str] = Counter()
    with _DeferringErrors(path) as target, h5py.File(target, "w") as file:
        file.create_group("vars").attrs["name"] = MODEL_NAME
        # the first call of each layer
        for call, *_ in statement.calls_in_order:
            if not call.is_layer:
                continue
            kind = snake_case(call.kind)
            group = file.create_group(
                f"layers/{kind}_{counts[kind]}/vars" if counts[kind] else f"layers/{kind}/vars"
            )
            counts[kind] += 1
            group.attrs["name"] = call.name
            for number, array in enumerate(_arrays_in_order(statement, call)):
                stored = group.create_dataset(str(number), data=array)
                if statement.dtype == "bfloat16":  # which HDF5 has no type for (H5IOStore.__setitem__)
                    stored.attrs["dtype"] = statement.dtype


class _DeferringErrors(FileIO):
    """A file for HDF5's library, which ends the process where a write fails, as on a full disk: it is told of
    no error, and the first one is raised when the file is closed.

    Raises:
        OSError: a part of the file was not written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self._error: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        """Write all of the data and return its length; an error is kept for the end, because h5py would lose
        it.
        """
        wanted = memoryview(data).cast("B")
        written = 0
        try:
            while written < len(wanted) and self._error is None:
                written += super().write(wanted[written:])
        except OSError as error:
            self._error = error
        return len(wanted)

    def close(self) -> None:
        """Close the file, and raise the first error of its writes."""
        super().close()
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _arrays_in_order(statement: Statement, call: KerasCall) -> Iterator[Array]:
    """Yield the arrays of a layer in the order in which Keras makes its variables, in the model's dtype."""
    arrays = statement.weights.get(call.name, {})
    for name in VARIABLES.get(call.kind, ()):
        # The statement calls the kernel of a depthwise convolution `kernel`.
        array = arrays.get(name.removeprefix("depthwise_"))
        if array is not None:
            yield cast(array, statement.dtype, call.name, allow_overflow=True)
