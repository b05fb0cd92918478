"""An ONNX model as what a port is compared with: run by onnxruntime in float32, by ONNX's own reference
implementation in float64.

onnxruntime has no convolution in double precision. Its optimisations are off: one of them takes the zeros of
a Pad for the pads of the max pool behind it, which is another function.
"""

from __future__ import annotations

import math
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
from porter.formats.onnx.constants import FLOAT_TYPES
from porter.formats.onnx.image_input import CHANNELS_LAST, IMAGE_AXES, SINGLE_IMAGE
from porter.formats.onnx.proto import import_onnx
from porter.frameworks import UNCUT
from porter.frameworks.batches import further_arrays, split_into_batches
from porter.frameworks.onnx.double import make_rounding_session
from porter.frameworks.onnx.model import ModelParts, make_model_session, replay_model
from porter.frameworks.onnx.session import Session
from porter.padding import Size

_FLOAT32, _FLOAT64 = 1, 11
"""FLOAT and DOUBLE of TensorProto.DataType."""


def build_file(checkpoint: Checkpoint, dtype: Dtype, size: Size) -> OnnxRunner:
    """Return the file's own graph as a model that runs in `dtype`; see porter.frameworks.Engine.build_file.
    `size` is unused: the graph states the sizes that it takes.

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
    """Run a file's own graph on a batch N×C×H×W and return its values by path; see
    porter.frameworks.Engine.run_reference. Where no value can be cut, paths to be cut are left out.
    """
    if not model.can_cut:
        taps, cut = {path: tap for path, tap in taps.items() if path not in cut}, UNCUT
    values = model(
        batch, tuple(dict.fromkeys(taps.values())), {taps[path]: value for path, value in cut.items()}
    )
    return {path: values[tap] for path, tap in taps.items()}


@dataclass
class OnnxRunner:
    """A model and its tensors; each set of values to give is a session of its own. A value is asked for by
    its tap, which is its name in the model.

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
        """Run the model on a batch N×C×H×W and return its values by tap, the name that a value has in the
        model, with the axes that the model gives them.

        A model of a fixed batch gets the images in parts of that many; the last image is repeated where they
        do not suffice.

        Args:
            cut: by tap, an array that is read in place of a value.
        """
        if taps not in self._sessions:
            self._sessions[taps] = self._make_session(taps)
        parts = self._input_parts(batch)
        run = self._sessions[taps]
        if cut:
            is_single = SINGLE_IMAGE in self._metadata  # a part is one image, without a batch axis
            images_at_once = math.ceil(len(batch) / len(parts)) if is_single else len(parts[0][0])
            cuts = {tap: split_into_batches(value, images_at_once) for tap, value in cut.items()}
            outputs = [
                run(*part, cut={tap: values[index] for tap, values in cuts.items()})
                for index, part in enumerate(parts)
            ]
        else:
            outputs = [run(*part) for part in parts]
        return {
            tap: self._join_parts(parts, [values[index] for values in outputs])[: len(batch)]
            for index, tap in enumerate(taps)
        }

    @property
    def can_cut(self) -> bool:
        """Whether values can be replaced for the nodes that read them: in float64, unless the model has
        branches, which may read any value.
        """
        return self.dtype == "float64" and not any(
            attribute.HasField("g") for node in self.definition.graph.node for attribute in node.attribute
        )

    def _make_session(self, taps: Sequence[str]) -> Session:
        """Make a session of the file's graph that gives these values."""
        if self.dtype in HALVES:
            return self._make_rounding_session(taps)
        outputs = [import_onnx().helper.make_tensor_value_info(tap, self._element_type, None) for tap in taps]
        return make_model_session(self._model_in_dtype, self.dtype, outputs, optimised=False)

    def _make_rounding_session(self, taps: Sequence[str]) -> Session:
        """Make a session of the model in the types that it states, with the file's tensors, that gives these
        values.
        """
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
        return make_rounding_session(model)

    def _join_parts(self, parts: Sequence[Sequence[Array]], values: list[Array]) -> Array:
        """Join the values of parts of the images to a value with an axis of images. Cells that share the
        first axis with the images get an axis of their own.
        """
        if SINGLE_IMAGE in self._metadata:
            return np.stack(values)
        joined = np.concatenate(values)
        images = sum(len(part[0]) for part in parts)
        # With several cells for each image, the first axis holds both.
        cells_per_image, rest = divmod(len(joined), images)
        if cells_per_image < 2 or rest:
            return joined
        return joined.reshape(images, cells_per_image, *joined.shape[1:])

    def compare(self, batch: Array) -> Iterator[tuple[Any, str, Array, Array, Array | None]]:
        """Run a model of float32 by onnxruntime, and each of its nodes by ONNX's reference implementation on
        onnxruntime's inputs; see porter.frameworks.onnx.disagreement.

        Yields: the node (NodeProto), a value's name, onnxruntime's value and the reference's, and the node's
        first input, None if that is a constant.
        """
        names = [name for node in self._model_in_dtype.proto.graph.node for name in node.output if name]
        outputs = [import_onnx().ValueInfoProto(name=name) for name in names]
        session = make_model_session(self._model_in_dtype, "float32", outputs, optimised=False)
        first_part = self._input_parts(batch)[0]
        runtime_values = dict(zip(names, session(*first_part), strict=True))
        in_float64 = OnnxRunner(self.definition, self.tensors, "float64")._model_in_dtype
        input_names = (value.name for value in in_float64.proto.graph.input)
        # What the nodes of the reference read: the inputs and onnxruntime's values.
        known = {**dict(zip(input_names, first_part, strict=True)), **runtime_values}
        for node, values in replay_model(in_float64, known):
            first_input = known.get(node.input[0]) if node.input else None
            for name, value in zip(node.output, values, strict=False):
                if name:
                    yield node, name, runtime_values[name], value, first_input

    def _input_parts(self, batch: Array) -> list[tuple[Array, ...]]:
        """Return, for each part of the batch, the arrays to feed to the inputs, in their layout and number
        type. A part has as many images as the model takes at once. The metadata, which porter's reader has
        written, say the layout: one image without a batch axis, channels last, or other axes.
        """
        if SINGLE_IMAGE in self._metadata:
            sizes = [*map(int, self._metadata[SINGLE_IMAGE].split())]
            return [(np.ascontiguousarray(image.reshape(sizes), self._input_types[0]),) for image in batch]
        images = batch.transpose(0, 2, 3, 1) if CHANNELS_LAST in self._metadata else batch
        if IMAGE_AXES in self._metadata:
            images = batch.reshape(len(batch), *map(int, self._metadata[IMAGE_AXES].split()))
        count = self.definition.graph.input[0].type.tensor_type.shape.dim[0].dim_value
        if count > len(images) and self.file is not None:
            expect_batch(self.file, count, (batch.shape[2], batch.shape[3]))
        arrays = [images]
        further = further_arrays(batch, self.file) if self.file else ()
        for value, array in zip(self.definition.graph.input[1:], further, strict=True):
            is_channels_last = f"{CHANNELS_LAST} of {value.name}" in self._metadata
            arrays.append(array.transpose(0, 2, 3, 1) if is_channels_last else array)
        # Paddle writes -1 for a free batch.
        parts = (
            [np.ascontiguousarray(part, kind) for part in split_into_batches(array, max(count, 0))]
            for array, kind in zip(arrays, self._input_types, strict=True)
        )
        return [*zip(*parts, strict=True)]

    @cached_property
    def _metadata(self) -> Mapping[str, str]:
        """The notes that porter's reader left in the model's metadata."""
        return {entry.key: entry.value for entry in self.definition.metadata_props}

    @property
    def _element_type(self) -> int:
        return _FLOAT32 if self.dtype == "float32" else _FLOAT64

    @cached_property
    def _input_types(self) -> list[Any]:
        """The number type of each input, as numpy has it."""
        to_numpy = import_onnx().helper.tensor_dtype_to_np_dtype
        types = [value.type.tensor_type.elem_type for value in self.definition.graph.input]
        if self.dtype not in HALVES:
            return [self.dtype] * len(types)
        return [to_numpy(kind if kind in FLOAT_TYPES else _FLOAT32) for kind in types]

    @cached_property
    def _model_in_dtype(self) -> ModelParts:
        """The file's model with all its real numbers in `dtype`, and its tensors beside it: those of two axes
        and more, without copies where their type is right. Smaller ones are in the model itself.
        """
        onnx = import_onnx()
        model = onnx.ModelProto()
        model.CopyFrom(self.definition)
        for entry in (*model.opset_import, *model.graph.node):
            # The same in other words, which ONNX's reference implementation does not know.
            if entry.domain == "ai.onnx":
                entry.domain = ""
        element_type, tensors = self._element_type, dict[str, Array]()
        for tensor in model.graph.initializer:
            array = self._array_of(tensor)
            # Onnxruntime asks for a Resize's factors in the message.
            if tensor.name not in self.tensors or array.ndim < 2:
                array = array.astype(self.dtype) if is_floating(array) else array
                tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
                continue
            tensor.data_type = element_type if is_floating(array) else tensor.data_type
            # Stored tensors stay in their own type in float64: each node widens them for itself.
            is_float32 = self.dtype == "float32" and is_floating(array)
            tensors[tensor.name] = np.ascontiguousarray(array, self.dtype if is_float32 else None)
        for node in model.graph.node:
            self._set_element_type(node)
        for value in model.graph.input:
            value.type.tensor_type.elem_type = element_type
        # These state the old types.
        del model.graph.value_info[:]
        return ModelParts(model, tensors)

    def _array_of(self, tensor: Any) -> Array:
        """Return the numbers of an initialiser: the checkpoint's if it has them, otherwise the model's own.
        In float64 a number that the metadata states exactly replaces them.
        """
        array = self.tensors.get(tensor.name)
        if array is None:
            array = import_onnx().numpy_helper.to_array(tensor)
        if self.dtype == "float64" and tensor.name in self._metadata:
            return np.full(array.shape, float(self._metadata[tensor.name]))
        return array

    def _set_element_type(self, node: Any) -> None:
        """Change the real numbers that a node states to `dtype`: the type of a Cast, and tensors in
        attributes and in branches.
        """
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in FLOAT_TYPES:
                attribute.i = self._element_type
            tensors = [*attribute.g.initializer]  # of a branch
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            for tensor in tensors:
                if tensor.data_type in FLOAT_TYPES:
                    array = import_onnx().numpy_helper.to_array(tensor).astype(self.dtype)
                    tensor.CopyFrom(import_onnx().numpy_helper.from_array(array, tensor.name))
            for inner in attribute.g.node:
                self._set_element_type(inner)
