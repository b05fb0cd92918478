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
    """Run a model on noise and record what its operators give: the values of its inputs and of each
    operator's outputs go into the file `values`, one after the other, and what they are into `described`.

    The program's arguments are the model's file, the folder to write into, rows and columns.
    """
    model, target, rows, columns = sys.argv[1:]
    lite = _import_interpreter()
    with warnings.catch_warnings():  # it tells of its successor
        warnings.simplefilter("ignore")
        interpreter = lite.Interpreter(
            model_path=model,
            experimental_op_resolver_type=lite.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
    input_details = interpreter.get_input_details()
    for detail in input_details:
        channels = int(detail["shape"][-1:].sum())  # the last size; 0 where there is no axis
        image_sizes = (1, int(rows), int(columns), channels)
        sizes = _input_sizes(detail["shape_signature"], image_sizes)
        if sizes != detail["shape"].tolist():
            interpreter.resize_tensor_input(detail["index"], sizes)
    interpreter.allocate_tensors()
    inputs = [detail["index"] for detail in input_details]
    recorded_tensors = [
        *inputs,
        *(int(index) for op in interpreter._get_ops_details() for index in op["outputs"]),
    ]
    runs = []
    with (Path(target) / "values").open("wb") as stream:
        for amplitude in AMPLITUDES:
            _feed(interpreter, amplitude)
            interpreter.invoke()
            runs.append(
                [_write_tensor(interpreter, index, stream) for index in dict.fromkeys(recorded_tensors)]
            )
    outputs = [detail["index"] for detail in interpreter.get_output_details()]
    tensors = {
        detail["index"]: (detail["name"], np.dtype(detail["dtype"]).name)
        for detail in interpreter.get_tensor_details()
        # tensors of numbers
        if isinstance(detail["dtype"], type) and detail["dtype"] is not np.bytes_
    }
    described = {"runs": runs, "inputs": inputs, "outputs": outputs, "tensors": tensors}
    (Path(target) / "described").write_text(json.dumps(described))


def _input_sizes(stated: Any, image_sizes: Sequence[int]) -> list[int]:
    """Return the sizes to feed to an input: the stated ones, and where these are open (-1) those of an image;
    for an input that is no image, 1.
    """
    is_image = len(stated) == len(image_sizes)
    fallback = image_sizes if is_image else [1] * len(stated)
    return [
        int(size) if size >= 0 else fallback_size
        for size, fallback_size in zip(stated, fallback, strict=True)
    ]


def _feed(interpreter: Any, amplitude: float) -> None:
    """Feed noise of this amplitude to each input."""
    random = np.random.default_rng(0)
    for detail in interpreter.get_input_details():
        noise = amplitude * random.standard_normal(detail["shape"])
        interpreter.set_tensor(detail["index"], noise.astype(detail["dtype"]))


def _write_tensor(interpreter: Any, index: int, stream: Any) -> tuple[int, str, list[int]] | None:
    """Write a tensor's numbers, and return its index, number type and shape; None for a tensor without
    numbers.
    """
    try:
        value = interpreter.get_tensor(index)
    except ValueError:
        return None
    if value.dtype.kind not in "fiub":
        return None
    stream.write(value.tobytes())
    return index, value.dtype.name, list(value.shape)


def _import_interpreter() -> Any:
    """Import the module that has the interpreter: LiteRT's, otherwise TensorFlow's."""
    if find_spec("ai_edge_litert"):
        return import_module("ai_edge_litert.interpreter")
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    modules_before = set(sys.modules)
    try:
        return _import_interpreter_only()
    except Exception:  # other versions may lay it out otherwise
        for name in [
            name for name in sys.modules if name not in modules_before and name.startswith("tensorflow")
        ]:
            del sys.modules[name]
        return import_module("tensorflow.lite.python.interpreter")


def _import_interpreter_only() -> Any:
    """Import TensorFlow's interpreter without the rest of TensorFlow, which takes three seconds to import:
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
