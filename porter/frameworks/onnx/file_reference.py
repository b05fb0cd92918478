"""An ONNX model as what a port is compared with: run by onnxruntime in float32, by ONNX's own reference
implementation in float64.

onnxruntime has no convolution in double precision. Its optimisations are off: one of them takes the zeros of
a Pad for the pads of the max pool behind it, which is another function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from porter.base.dtypes import HALVES, Array, Dtype, NamedArrays, is_floating
from porter.base.errors import UsageError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.to_graph import expect_batch
from porter.formats.onnx.constants import FLOATS
from porter.formats.onnx.image_input import CHANNELS_LAST, ROWS, WHOLE
from porter.formats.onnx.proto import import_onnx
from porter.frameworks import UNCUT
from porter.frameworks.images import beside, in_parts
from porter.frameworks.onnx.double import make_rounding
from porter.frameworks.onnx.model import ModelParts, replay_model, run_model
from porter.frameworks.onnx.session import Session
from porter.padding import Size

_FLOAT, _DOUBLE = 1, 11
"""TensorProto.DataType."""


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> OnnxRunner:
    """See porter.frameworks.Engine.build_file.

    Raises:
        CannotRun: onnx or onnxruntime is not installed, or does not run this model.
        UsageError: it is not run in this type.
    """
    graph = checkpoint.carried
    if dtype not in ("float32", "float64", *graph.halves):
        raise UsageError(f"porter runs ONNX models in float32 and float64, not in {dtype}")
    return OnnxRunner(import_onnx().ModelProto.FromString(graph.definition), checkpoint.tensors, dtype, graph)


def run_reference(
    model: OnnxRunner, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
) -> dict[str, Array]:
    """See porter.frameworks.Engine.run_reference."""
    if not model.can_cut:
        taps, cut = {path: tap for path, tap in taps.items() if path not in cut}, UNCUT
    values = model(
        batch, tuple(dict.fromkeys(taps.values())), {taps[path]: value for path, value in cut.items()}
    )
    return {path: values[tap] for path, tap in taps.items()}


@dataclass
class OnnxRunner:
    """A model and its tensors; each set of values to give is a session of its own.

    Attributes:
        definition: ModelProto of porter.formats.onnx, whose tensors have no content where `tensors` has it.
        dtype: see porter.frameworks.Engine.build_file.
        file: what porter reads of it, by which a large batch is refused before it is filled.
    """

    definition: Any
    tensors: NamedArrays
    dtype: Dtype
    file: FileGraph | None = None
    _sessions: dict[tuple[str, ...], Session] = field(default_factory=dict)

    def __call__(self, batch: Array, taps: tuple[str, ...], cut: NamedArrays = UNCUT) -> dict[str, Array]:
        """Return values by tap for a batch N×C×H×W, as the model gives them.

        A model of a fixed batch gets the images in parts of that many; the last image is repeated where they
        do not suffice.

        Args:
            cut: by tap, what is read in place of a value.
        """
        if taps not in self._sessions:
            self._sessions[taps] = self._session(taps)
        parts = self._parts(batch)
        run = self._sessions[taps]
        if cut:
            at_once = -(-len(batch) // len(parts)) if WHOLE in self._stated else len(parts[0][0])
            cuts = {tap: in_parts(value, at_once) for tap, value in cut.items()}
            outputs = [
                run(*part, cut={tap: values[index] for tap, values in cuts.items()})
                for index, part in enumerate(parts)
            ]
        else:
            outputs = [run(*part) for part in parts]
        return {
            tap: self._joined(parts, [values[index] for values in outputs])[: len(batch)]
            for index, tap in enumerate(taps)
        }

    @property
    def can_cut(self) -> bool:
        """Whether what reads a value may be given another: no branch does, which may read any."""
        return self.dtype == "float64" and not any(
            attribute.HasField("g") for node in self.definition.graph.node for attribute in node.attribute
        )

    def _session(self, taps: Sequence[str]) -> Session:
        """Return a session of the file's graph that gives these values."""
        if self.dtype in HALVES:
            return self._as_stated(taps)
        outputs = [import_onnx().helper.make_tensor_value_info(tap, self._kind, None) for tap in taps]
        return run_model(self._model, self.dtype, outputs, optimised=False)

    def _as_stated(self, taps: Sequence[str]) -> Session:
        """Return the model in the types that it states."""
        onnx = import_onnx()
        model = onnx.ModelProto()
        model.CopyFrom(self.definition)
        for tensor in model.graph.initializer:
            if tensor.name in self.tensors:
                kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
                array = self.tensors[tensor.name].astype(kind, copy=False)
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=tap) for tap in taps)
        return make_rounding(model)

    def _joined(self, parts: Sequence[Sequence[Array]], values: list[Array]) -> Array:
        """Return a value of each image, from those of parts of the images. What else is in their first axis
        gets one of its own.
        """
        if WHOLE in self._stated:
            joined = np.stack(values)
        else:
            joined = np.concatenate(values)
            images = sum(len(part[0]) for part in parts)
            more, rest = divmod(len(joined), images)
            joined = joined if more < 2 or rest else joined.reshape(images, more, *joined.shape[1:])
        return joined

    def compare(self, batch: Array) -> Iterator[tuple[Any, str, Array, Array, Array | None]]:
        """See porter.frameworks.onnx.disagreement: a model of float32 run by onnxruntime, and each node of it
        by ONNX's reference implementation, which is given onnxruntime's inputs. Node (NodeProto), name,
        onnxruntime's value and the reference's, and the first input, if it is no constant.
        """
        names = [name for node in self._model.proto.graph.node for name in node.output if name]
        session = run_model(
            self._model,
            "float32",
            [import_onnx().ValueInfoProto(name=name) for name in names],
            optimised=False,
        )
        first = self._parts(batch)[0]
        given = dict(zip(names, session(*first), strict=True))
        in_float64 = OnnxRunner(self.definition, self.tensors, "float64")._model
        known = dict(zip((value.name for value in in_float64.proto.graph.input), first, strict=True)) | given
        for node, values in replay_model(in_float64, known):
            yield from (
                (node, name, given[name], value, known.get(next(iter(node.input), "")))
                for name, value in zip(node.output, values, strict=False)
                if name
            )

    def _parts(self, batch: Array) -> list[tuple[Array, ...]]:
        """Return what each input is fed, in its layout and number type, as many images at a time as the model
        takes.
        """
        if WHOLE in self._stated:
            sizes = [*map(int, self._stated[WHOLE].split())]
            return [(np.ascontiguousarray(image.reshape(sizes), self._taken[0]),) for image in batch]
        images = batch.transpose(0, 2, 3, 1) if CHANNELS_LAST in self._stated else batch
        if ROWS in self._stated:
            images = batch.reshape(len(batch), *map(int, self._stated[ROWS].split()))
        count = self.definition.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        if count > len(images) and self.file is not None:
            expect_batch(self.file, count, (batch.shape[2], batch.shape[3]))
        given = [images]
        for value, array in zip(
            self.definition.graph.input[1:], beside(batch, self.file) if self.file else (), strict=True
        ):
            given.append(
                array.transpose(0, 2, 3, 1) if f"{CHANNELS_LAST} of {value.name}" in self._stated else array
            )
        # Paddle writes -1 for a free batch.
        parts = (
            [np.ascontiguousarray(part, kind) for part in in_parts(each, max(count, 0))]
            for each, kind in zip(given, self._taken, strict=True)
        )
        return [*zip(*parts, strict=True)]

    @cached_property
    def _stated(self) -> Mapping[str, str]:
        return {entry.key: entry.value for entry in self.definition.metadata_props}

    @property
    def _kind(self) -> int:
        return _FLOAT if self.dtype == "float32" else _DOUBLE

    @cached_property
    def _taken(self) -> list[Any]:
        """The number type of each input."""
        named = import_onnx().helper.tensor_dtype_to_np_dtype
        types = [value.type.tensor_type.elem_type for value in self.definition.graph.input]
        if self.dtype not in HALVES:
            return [self.dtype] * len(types)
        return [named(kind if kind in FLOATS else _FLOAT) for kind in types]

    @cached_property
    def _model(self) -> ModelParts:
        """The model in this number type."""
        onnx = import_onnx()
        model = onnx.ModelProto()
        model.CopyFrom(self.definition)
        for entry in (*model.opset_import, *model.graph.node):
            # The same in other words, which ONNX's reference implementation does not know.
            if entry.domain == "ai.onnx":
                entry.domain = ""
        kind, tensors = self._kind, dict[str, Array]()
        for tensor in model.graph.initializer:
            array = self.tensors.get(tensor.name)
            array = onnx.numpy_helper.to_array(tensor) if array is None else array
            if self.dtype == "float64" and tensor.name in self._stated:
                array = np.full(array.shape, float(self._stated[tensor.name]))
            # Onnxruntime asks for a Resize's factors in the message.
            if tensor.name not in self.tensors or array.ndim < 2:
                array = array.astype(self.dtype) if is_floating(array) else array
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
                continue
            tensor.data_type = kind if is_floating(array) else tensor.data_type
            narrow = self.dtype == "float32" and is_floating(array)
            tensors[tensor.name] = np.ascontiguousarray(array, self.dtype if narrow else None)
        for node in model.graph.node:
            self._retype(node)
        for value in model.graph.input:
            value.type.tensor_type.elem_type = kind
        del model.graph.value_info[:]
        return ModelParts(model, tensors)

    def _retype(self, node: Any) -> None:
        """Give the real numbers that a node states, in branches too, this number type."""
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in FLOATS:
                attribute.i = self._kind
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.g.initializer):
                if tensor.data_type in FLOATS:
                    array = import_onnx().numpy_helper.to_array(tensor).astype(self.dtype)
                    tensor.CopyFrom(import_onnx().numpy_helper.from_array(array, tensor.name))
            for inner in attribute.g.node:
                self._retype(inner)
