"""tensorstore, in a process of its own: it writes the arrays of a folder of orbax one after the other into a
file.

Nothing of porter is imported here, because the process runs this file.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

_ONE_AT_A_TIME = {
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
    "cache_pool": {"total_bytes_limit": 0},
}


def main() -> None:
    """Copy arrays by tensorstore, for the process that started this one. Its arguments are the folder, the
    request as JSON, the folder for the result, and the most bytes of all arrays; it writes `arrays`, and to
    `described` their types and shapes.
    """
    import tensorstore

    folder, request_file, target, most = sys.argv[1:]
    request = json.loads(Path(request_file).read_text())
    if request["ocdbt"]:
        store = {"driver": "ocdbt", "base": f"file://{folder}/"}
    else:
        store = {"driver": "file", "path": f"{folder}/"}
    context = tensorstore.Context(_ONE_AT_A_TIME)
    bytes_left = int(most)
    types_and_shapes = []
    with (Path(target) / "arrays").open("wb") as stream:
        for name in request["names"]:
            store_of_array = {**store, "path": f"{store.get('path', '')}{name}/"}
            spec = {"driver": "zarr3" if request["zarr3"] else "zarr", "kvstore": store_of_array}
            array = tensorstore.open(spec, open=True, read=True, context=context).result()
            bytes_left -= math.prod(array.shape) * array.dtype.numpy_dtype.itemsize
            if bytes_left < 0:
                raise ValueError(f"its arrays have more than {most} bytes")
            stream.write(array.read(order="C").result().tobytes())
            types_and_shapes.append((array.dtype.name, array.shape))
    (Path(target) / "described").write_text(json.dumps(types_and_shapes))


if __name__ == "__main__":
    main()
