"""The graph of a plan as a module of a framework that has the channels last: what Flax's and MLX's modules do
alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any

from porter.base.dtypes import Array, Dtype, NamedArrays
from porter.frameworks.batches import arrays_for_inputs, expect_nodes
from porter.frameworks.code.code_ports import CodePorts, ModulePlace
from porter.frameworks.code.plan_layers import Layer, LayerStep
from porter.frameworks.code.step_values import inputs_last, step_values
from porter.graph.ops import is_map
from porter.graph.plan import Plan


class Computation:
    """The steps of a plan, by which a module computes values with its layers.

    Attributes:
        modules: the kinds of layers that are modules; all others are functions.
        places: where the layer of each node stands in the module, by the node's path.
    """

    def __init__(self, plan: Plan, dtype: Dtype, ports: CodePorts, modules: Collection[str]) -> None:
        self.plan, self.dtype, self.modules = plan, dtype, modules
        self.places = ports.places(plan)
        self.steps = ports.spellings.steps(plan)

    def set_layers(
        self,
        root: Any,
        make_layer: Callable[[Layer], Any],
        make_parent: Callable[[bool], Any],
        holds: Callable[[Any, str], bool] = hasattr,
    ) -> None:
        """Make the layers that are modules, and set each at its place in `root`. A further call of a layer
        has that of the first.

        Args:
            make_parent: makes what layers stand in: a row if it is given True, otherwise a module.
            holds: whether a module has a layer, or what layers stand in, of a name.
        """
        for step in self.steps:
            if step.layer.kind in self.modules and step.shares is None:
                _set_layer(root, self.places[step.path], make_layer(step.layer), make_parent, holds)

    def layer_of(self, model: Any, step: LayerStep) -> Any:
        """Return the layer of a step in a module."""
        layer = model
        for name in self.places[step.path]:
            layer = layer[name] if isinstance(name, int) else getattr(layer, name)
        return layer

    def values_by(
        self,
        compute: Callable[[LayerStep, Sequence[Any]], Any],
        inputs: Sequence[Any],
        paths: Collection[str],
        cut: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Compute the values at `paths`, and return them by path; see porter.frameworks.code.step_values.

        Args:
            compute: returns the value of a step, from those that it reads.
            inputs: a batch for each input of the plan; maps are N×H×W×C.
            cut: by path, the array that the layers behind it read in place of its value.

        Raises:
            UsageError: the inputs are others than those of the plan.
        """
        return step_values(self.steps, inputs_last(self.plan, inputs), paths, cut, compute)

    def outputs_in(self, values: Mapping[str, Any]) -> Any:
        """Return the graph's output among values by path, or a tuple of several."""
        outputs = self.plan.lowered.outputs
        return values[outputs[0]] if len(outputs) == 1 else tuple(values[path] for path in outputs)

    def run(
        self,
        batch: Array,
        taps: Sequence[str],
        cut: NamedArrays,
        compute: Callable[[Sequence[Array], NamedArrays], NamedArrays],
    ) -> dict[str, Array]:
        """Run a module on a batch N×C×H×W and return by path its values at `taps`, the paths of nodes; maps
        are N×C×H×W.

        Args:
            cut: by path, what is read in place of the value; see porter.frameworks.PortEngine.run.
            compute: gives the values at `taps` for a batch for each input and for `cut`, in which maps are
                N×H×W×C.

        Raises:
            UsageError: a tap is not a node of the model, or the batch does not fit its input.
        """
        graph = self.plan.lowered
        expect_nodes(taps, graph.by_path)
        maps = {path for path, shape in graph.open_shapes.items() if is_map(shape)}
        replacements = {
            path: array.transpose(0, 2, 3, 1) if path in maps else array for path, array in cut.items()
        }
        values = compute(arrays_for_inputs(batch, graph, channels_last=True), replacements)
        return {
            path: array.transpose(0, 3, 1, 2) if path in maps else array for path, array in values.items()
        }


def _set_layer(
    root: Any,
    place: ModulePlace,
    layer: Any,
    make_parent: Callable[[bool], Any],
    holds: Callable[[Any, str], bool],
) -> None:
    """Set a layer at its place in `root`: `("layer1", "layers", 0, "conv1")` is
    `root.layer1.layers[0].conv1`. The modules and rows on the way to it are made where they are missing.
    """
    parent = root
    # `next_name` is a number if a row stands here, and None for the layer itself.
    for name, next_name in zip(place, (*place[1:], None), strict=True):
        child = layer if next_name is None else make_parent(isinstance(next_name, int))
        if isinstance(name, int):
            # Layers come in their order, so what a row lacks is its next item.
            if name == len(parent):
                parent.append(child)
            parent = parent[name]
        else:
            if not holds(parent, name):
                setattr(parent, name, child)
            parent = getattr(parent, name)


def find_by_name(name: str, libraries: Mapping[str, Any], layers: Any) -> Any:
    """Return a class or a function by its dotted name in model.py, such as `nnx.Conv`.

    Args:
        libraries: modules by their names in model.py.
        layers: has what is of none of these.
    """
    root, *names = name.split(".")
    return reduce(getattr, names, libraries.get(root) or getattr(layers, root))


def function_of_several(kind: str, library: Any) -> Callable[..., Any]:
    """Return a library's function of two values, such as `add`, applied to any number of them."""
    function = getattr(library, kind)
    return lambda *values: reduce(function, values)
