"""The variables of a Keras file's layers: their shapes, and the file's tensors for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from porter.base.dtypes import Array, Dtype, cast
from porter.base.errors import MappingError
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras.attention import variable_in
from porter.formats.keras.call_names import NamedCall
from porter.formats.keras.flow import LayerCall
from porter.formats.keras.stated_layer import pair
from porter.frameworks.tf.keras_files.other_forms import dilate_kernel


@dataclass(frozen=True)
class FileTensors:
    """A file's tensors, which are given to Keras's layers in `dtype`."""

    checkpoint: Checkpoint
    dtype: Dtype

    def expect_shapes(self, named: NamedCall, channels: int) -> None:
        """Refuse tensors of other shapes than the layer's, before Keras allocates variables of the size that
        the config states.
        """
        for variable, shape in _shapes(named.call, channels).items():
            self.tensor(named, variable, shape)

    def fill(self, layer: Any, named: NamedCall, channels: int) -> None:
        """Assign the file's tensors to the layer's variables. The kernel of a dilated Conv2DTranspose gets
        zeros between its cells, as the layer is made (`runnable_form`).
        """
        shapes = _shapes(named.call, channels)
        for variable, name, variable_of_file in self._variables_to_fill(layer, named):
            array = self.tensor(named, variable_of_file, shapes.get(name, tuple(variable.shape)))
            if named.call.kind == "Conv2DTranspose" and name == "kernel":
                array = dilate_kernel(array, named.call.arguments, tuple(variable.shape))
            variable.assign(array.reshape(variable.shape))
        if named.call.kind == "Normalization":
            layer.finalize_state()

    def _variables_to_fill(self, layer: Any, named: NamedCall) -> Iterator[tuple[Any, str, str]]:
        """Yield each of a layer's variables with two names: Keras's, which says its shape, and porter's for
        its tensor in the file, such as `kernel` and `kernel`. A .keras file has a layer's tensors in the
        order of its variables (keras/src/layers/layer.py, `save_own_variables`). They are taken by that
        order, so that where porter names one wrongly, the reference still has the right one.
        """
        variables = [*layer._trainable_variables, *layer._non_trainable_variables]
        if self.checkpoint.format == "keras" and 0 < len(variables) == len(named.tensors):
            yield from (
                (variable, variable.name, variable_of_file)
                for variable, variable_of_file in zip(variables, named.tensors, strict=True)
            )
            return
        is_nested = named.call.kind == "MultiHeadAttention"
        for variable in layer.weights:
            # The layers within an attention have names of their own: `query/kernel`.
            name = variable_in(*variable.path.split("/")[-2:]) if is_nested else variable.name
            yield variable, name, name

    def tensor(self, named: NamedCall, variable: str, shape: tuple[int, ...] | None = None) -> Array:
        """Return the file's tensor for a layer's variable; one that is missing, or of another shape than
        `shape`, is refused.
        """
        where = str(self.checkpoint.path)
        # Keras 2's name for the kernel of a DepthwiseConv2D is `depthwise_kernel`.
        name = named.tensors.get(variable) or named.tensors.get(f"depthwise_{variable}")
        if name is None:
            raise MappingError(f"layer '{named.name}' has no '{variable}'", where=where)
        array = self.checkpoint.tensors[name]
        if shape not in (None, array.shape):
            raise MappingError(f"{name}: expected shape {shape}, got {array.shape}", where=where)
        return cast(array, self.dtype, name, allow_overflow=True)


def _shapes(call: LayerCall, channels: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the large variables that Keras makes for a layer whose input has `channels`, by
    the variable's name: `{"kernel": (3, 3, 64, 128)}`. Empty for layers without, or where arguments that are
    not read here decide.
    """
    arguments = call.arguments
    match call.kind:
        case "Conv1D":
            groups = arguments.get("groups", 1)
            return {
                "kernel": (
                    *np.atleast_1d(arguments["kernel_size"]).tolist(),
                    channels // groups,
                    arguments["filters"],
                )
            }
        case "Conv2D":
            groups = arguments.get("groups", 1)
            return {"kernel": (*pair(arguments["kernel_size"]), channels // groups, arguments["filters"])}
        case "DepthwiseConv2D":
            return {
                "kernel": (*pair(arguments["kernel_size"]), channels, arguments.get("depth_multiplier", 1))
            }
        case "Dense":
            return {"kernel": (channels, arguments["units"])}
        case "Conv2DTranspose":
            return {"kernel": (*pair(arguments["kernel_size"]), arguments["filters"], channels)}
        case "SeparableConv2D":
            multiplier = arguments.get("depth_multiplier", 1)
            pointwise = (1, 1, channels * multiplier, arguments["filters"])
            return {
                "depthwise_kernel": (*pair(arguments["kernel_size"]), channels, multiplier),
                "pointwise_kernel": pointwise,
            }
        case "BatchNormalization" if arguments.get("axis", -1) in (-1, [-1]):
            return {"moving_mean": (channels,)}
        case "MultiHeadAttention":
            heads, key = arguments["num_heads"], arguments["key_dim"]
            value, units = arguments.get("value_dim") or key, arguments.get("output_shape") or channels
            return {
                "query/kernel": (channels, heads, key),
                "output/kernel": (heads, value, *np.atleast_1d(units).tolist()),
            }
        case "Normalization" if arguments.get("mean") is None and arguments.get("axis", -1) in (-1, [-1]):
            return {"mean": (channels,)}
        case _:
            return {}
