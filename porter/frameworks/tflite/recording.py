"""TensorFlow Lite's interpreter, in a process of its own: it runs a model on noise, and writes into a file
what each of its operators gives.

Nothing of porter is imported here, because the process runs this file: what the model's operators are, and
what it takes, the interpreter says.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

AMPLITUDES = (1.0, 100.0)
"""The amplitudes of the noise: one is like an image, and one reaches the bounds of activations."""


def main() -> None:
    """Run a model for noise and write the values of all of its tensors."""
    model, target, rows, columns = sys.argv[1:]
    lite = _library()
    with warnings.catch_warnings():  # it tells of its successor
        warnings.simplefilter("ignore")
        interpreter = lite.Interpreter(
            model_path=model,
            experimental_op_resolver_type=lite.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
    taken = interpreter.get_input_details()
    for each in taken:
        wanted = _sizes(each["shape_signature"], (1, int(rows), int(columns), int(each["shape"][-1:].sum())))
        if wanted != each["shape"].tolist():
            interpreter.resize_tensor_input(each["index"], wanted)
    interpreter.allocate_tensors()
    inputs = [each["index"] for each in taken]
    given = [*inputs, *(int(index) for op in interpreter._get_ops_details() for index in op["outputs"])]
    runs = []
    with (Path(target) / "values").open("wb") as stream:
        for amplitude in AMPLITUDES:
            _feed(interpreter, amplitude)
            interpreter.invoke()
            runs.append([_written(interpreter, index, stream) for index in dict.fromkeys(given)])
    outputs = [each["index"] for each in interpreter.get_output_details()]
    tensors = {
        each["index"]: (each["name"], np.dtype(each["dtype"]).name)
        for each in interpreter.get_tensor_details()
        if isinstance(each["dtype"], type) and each["dtype"] is not np.bytes_
    }
    described = {"runs": runs, "inputs": inputs, "outputs": outputs, "tensors": tensors}
    (Path(target) / "described").write_text(json.dumps(described))


def _sizes(stated: Any, open_ones: Sequence[int]) -> list[int]:
    """Return the sizes of an input, whose open ones are those of an image; of another value, 1."""
    ones = open_ones if len(stated) == len(open_ones) else [1] * len(stated)
    return [int(size) if size >= 0 else one for size, one in zip(stated, ones, strict=True)]


def _feed(interpreter: Any, amplitude: float) -> None:
    """Give each input noise of this amplitude."""
    random = np.random.default_rng(0)
    for each in interpreter.get_input_details():
        noise = amplitude * random.standard_normal(each["shape"])
        interpreter.set_tensor(each["index"], noise.astype(each["dtype"]))


def _written(interpreter: Any, place: int, stream: Any) -> tuple[int, str, list[int]] | None:
    """Return a tensor's place, number type and shape, in that order; None of one that has no numbers."""
    try:
        value = interpreter.get_tensor(place)
    except ValueError:
        return None
    if value.dtype.kind not in "fiub":
        return None
    stream.write(value.tobytes())
    return place, value.dtype.name, list(value.shape)


def _library() -> Any:
    """Return what has the interpreter: LiteRT, otherwise TensorFlow."""
    if find_spec("ai_edge_litert"):
        return import_module("ai_edge_litert.interpreter")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    known = set(sys.modules)
    try:
        return _without_the_rest()
    except Exception:  # other versions may lay it out otherwise
        for name in [name for name in sys.modules if name not in known and name.startswith("tensorflow")]:
            del sys.modules[name]
        return import_module("tensorflow.lite.python.interpreter")


def _without_the_rest() -> Any:
    """Return TensorFlow's interpreter without the rest of TensorFlow, which takes three seconds to import:
    empty modules stand for its packages.
    """
    folders = find_spec("tensorflow")
    if folders is None or not folders.submodule_search_locations:
        raise ImportError("TensorFlow is not installed")
    root = folders.submodule_search_locations[0]
    for name in ("", ".lite", ".lite.python", ".lite.python.metrics", ".python", ".python.util"):
        package: Any = ModuleType(f"tensorflow{name}")
        package.__path__ = [root + name.replace(".", "/")]
        sys.modules[package.__name__] = package
    counter = SimpleNamespace(increase_counter_interpreter_creation=lambda: None)
    metrics: Any = sys.modules["tensorflow.lite.python.metrics"]
    metrics.metrics = SimpleNamespace(TFLiteMetrics=lambda: counter)
    exported: Any = ModuleType("tensorflow.python.util.tf_export")
    exported.tf_export = lambda *names, **options: lambda named: named
    sys.modules[exported.__name__] = exported
    return import_module("tensorflow.lite.python.interpreter")


if __name__ == "__main__":
    main()
