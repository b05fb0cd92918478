"""Engines run models, destinations write ports. Only a framework's folder knows its quirks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from porter.base.errors import UsageError
from porter.base.options import CHANNELS_LAST, COMPILE, PRECISION
from porter.base.plugins import Plugin, plugin_of, plugins

if TYPE_CHECKING:  # recipes name frameworks, and are loaded by commands that need no numpy
    from numpy.typing import NDArray

    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.base.errors import PorterError
    from porter.base.ways_to_run import Precision, Run
    from porter.data.preprocess import Preprocess
    from porter.filegraph.checkpoint import Checkpoint
    from porter.graph import Graph
    from porter.graph.plan import Plan
    from porter.padding import Capabilities, Size

Tensors: TypeAlias = "Mapping[str, NamedArrays]"
"""Canonical tensors: path to role to array (porter.graph.tensor_shapes)."""
OwnTensors: TypeAlias = "dict[str, dict[str, Array]]"
"""Canonical tensors that their holder may change."""
LayerNames: TypeAlias = Mapping[str, str]
"""Names of layers, by path."""
Classifier: TypeAlias = "Callable[[NDArray[Any]], Callable[[], Array]]"
"""Begins with pixels N x crops x H x W x RGB, as porter.data.pipeline gives them. Calling its result waits
for the logits, float32, (N * crops) x classes. So a GPU gets the next photos before anybody waits for the
logits of the last ones.
"""


RETURNED = ""
"""The tap of what a model returns: no layer's name."""
UNCUT: NamedArrays = MappingProxyType({})
"""No value is given in another's place."""


def expect_run(run: Run, framework: str, precisions: Sequence[Precision] = ("fp32",)) -> None:
    """Expect a run that a framework other than torch has: one of its precisions, and nothing that only torch
    offers.

    Raises:
        UsageError: it is another one.
    """
    if run.precision not in precisions:
        message = f"porter runs {framework} models in {' or '.join(precisions)}, not in {run.precision}"
        raise UsageError(message, where=PRECISION, next="port to torch")
    if not run.is_plain:
        where = str(COMPILE) if run.compiled else CHANNELS_LAST(False)
        raise UsageError(
            f"only torch models have this option, not {framework} models",
            where=where,
            next="port to torch, or leave it out",
        )


class Engine(Protocol):
    """What runs models that porter did not write and gives the value of every node: a file's own graph, a
    zoo's implementation. These are the module-level names of `engine.py` in a folder here; none imports the
    framework before it is called.

    Attributes:
        RUNNER: what runs the models, in words.
    """

    NAME: str
    RUNNER: str

    def build_file(self, checkpoint: Checkpoint, dtype: Dtype, size: Size) -> Any:
        """Build the file's own graph (`checkpoint.graph`) for an input of `size` (None where free), with the
        tensors of `checkpoint`, for `run_reference`.

        Args:
            dtype: in which it computes. One of the graph's `halves` means as the file states it: a part of it
                in half precision, and the rest in float32.

        Raises:
            CannotRun: this version of the framework cannot run it. Only layers or ops on a closed list
                are looked up or run.
        """

    def run_reference(
        self, model: Any, batch: Array, taps: Mapping[str, str], cut: NamedArrays = UNCUT
    ) -> dict[str, Array]:
        """Run a model of `build_file` or of a zoo's own implementation on a batch N×C×H×W, and return its
        values by path; maps are N×C×H×W.

        Args:
            taps: path to the source's layer name (for a file's own graph, to FileNode.tap), or to RETURNED;
                layers that it lacks are left out.
            cut: by path, the array that everything which reads the value is given in its place, with the axes
                in which the value comes back, so that each layer can be compared alone. A path of which the
                engine cannot do this is left out, and computed as ever.
        """

    def disagreement(self, checkpoint: Checkpoint, batch: Array) -> str | None:
        """Say in words where two implementations of the file's graph, both not porter's, disagree beyond
        rounding; None where they agree or there is only one. It is asked after a proof has failed.

        Args:
            batch: N×C×H×W; one image is enough.
        """

    def classifier(
        self, model: Any, protocol: Preprocess, device: str, how: Run, tap: str | None = None
    ) -> Classifier:
        """Return a classifier of photos that runs a model: pixels are scaled and normalised on `device`, bit
        for bit as porter.data does.

        Args:
            model: from PortEngine.build, or with a `tap` (as in `run_reference`) from `build_file` or a zoo's
                implementation. It is moved to `device`.
            device: `cpu`, `cuda` or `cuda:N`.
            tap: the layer that gives the logits; None if the model's output does.

        Raises:
            UsageError: there is no such device, or this framework has no such run.
        """


class PortEngine(Engine, Protocol):
    """An engine that also runs what porter builds: the plan of a port."""

    def build(
        self, plan: Plan, tensors: Tensors, layers: LayerNames, dtype: Dtype, device: str = "cpu"
    ) -> Any:
        """Build a model of the framework's own kind, in inference mode, with the canonical `tensors` in
        `dtype`, and return it.

        Args:
            layers: as `Destination.write`.
        """

    def with_other_pads(self, model: Any, plan: Plan) -> Any | None:
        """Make a model of `plan` that shares the weights of `model`. The plan's graph may differ only in its
        pads. None where the framework cannot share weights.
        """

    def run(
        self, model: Any, batch: Array, taps: Sequence[str], cut: NamedArrays = UNCUT
    ) -> dict[str, Array]:
        """Run the model on a batch N×C×H×W and return by path its values at `taps`, the paths of nodes of the
        plan's graph; maps are N×C×H×W in every framework.

        Args:
            cut: as in `run_reference`; its paths are among the taps, and none is left out in float64.
        """


class Destination(Protocol):
    """What writes ports: the module-level names of `destination.py` in a framework's folder. It may also have
    those of `computes_in_float32` and `is_converted`.
    """

    NAME: str
    INPUT_LAYOUT: Literal["NCHW", "NHWC"]
    MODEL_FILE: str
    PACKAGE: str
    """The Python package that runs models, for messages and for the record of versions."""
    CAPABILITIES: Capabilities
    NAMES_LAYERS: bool
    """Whether a model's layers have names, which a port takes from the default zoo."""
    ENGINE: PortEngine
    """What runs its ports."""

    def fillings(self, graph: Graph, tensors: Tensors) -> Mapping[str, int]:
        """Return the destination's tensors that no source tensor gives, by the destination's names, with the
        number that fills them.
        """

    def refusals(self, plan: Plan) -> Sequence[PorterError]:
        """Return an error for each node that the destination has no words for; its `where` is the node's
        path. `write` raises the first one.
        """

    def write(
        self,
        folder: Path,
        plan: Plan,
        tensors: Tensors,
        layers: LayerNames,
        dtype: Dtype,
        about: Mapping[str, str],
    ) -> Mapping[str, str]:
        """Write the port's model files, and return the sha256 of each by its name.

        Args:
            layers: names of the destination's layers by path, if the default zoo has them.
            about: facts on the port by name, for files that can hold them.
        """

    def read_port(self, folder: Path, plan: Plan, layers: LayerNames) -> OwnTensors:
        """Read the tensors of a port that `write` or a stock library (porter.zoos) wrote, in porter's axis
        order.
        """

    def code_files(self, plan: Plan, layers: LayerNames) -> Mapping[str, bytes]:
        """Return the files of a port that are code, by name, as they would be written today."""


if TYPE_CHECKING:
    from porter.frameworks.caffe.destination import DESTINATION as caffe
    from porter.frameworks.flax import destination as flax
    from porter.frameworks.mlx import destination as mlx
    from porter.frameworks.mxnet.destination import DESTINATION as mxnet
    from porter.frameworks.numpy import engine as numpy
    from porter.frameworks.onnx import destination as onnx
    from porter.frameworks.tf import destination as tf
    from porter.frameworks.tflite import destination as tflite
    from porter.frameworks.torch import destination as torch

    _destinations: tuple[Destination, ...] = (caffe, flax, mlx, mxnet, onnx, tf, tflite, torch)
    _engine: Engine = numpy  # a destination's is compared where it names it

DESTINATION_NAMES = ("tf", "torch", "onnx", "flax", "mlx", "tflite", "caffe", "mxnet")
"""Folders here with a destination.py, as `--to` names them."""
TRAINED = ("tf", "torch", "flax", "mlx")
"""The frameworks whose models are trained on: their dialects are PortDialects (porter.frameworks.dialects),
and their ports may have dropouts.
"""
NUMPY = "numpy"
"""The engine of formats whose own framework is not run."""
ENGINE_NAMES = (*DESTINATION_NAMES, NUMPY)
"""What `get_engine` takes."""
OTHER_NAMES = {"tensorflow": "tf", "keras": "tf", "pytorch": "torch"}
"""Other names that people use for the frameworks. Where a zoo is expected, `keras` is the zoo of that
name.
"""


def get_destination(name: str) -> Destination:
    """Return a destination, by its name on the command line or one of OTHER_NAMES.

    Raises:
        UsageError: there is no such destination.
    """
    folder = OTHER_NAMES.get(name, name)
    if folder not in DESTINATION_NAMES:
        plugin = plugin_of("destinations", folder)
        if plugin is not None:
            return _added_destination(plugin)
        known = *DESTINATION_NAMES, *(added.name for added in plugins("destinations"))
        raise UsageError(
            f"there is no framework '{name}'",
            next=f"frameworks are {', '.join(known)}; other packages may add some",
        )
    module = import_module(f"porter.frameworks.{folder}.destination")
    return cast(Destination, getattr(module, "DESTINATION", module))


def computes_in_float32(destination: Destination) -> bool:
    """Return whether a destination states that it computes in float32 only, by a true IN_FLOAT32. What
    `PortEngine.build` gives in float64 computes it by other operations, so its ports are compared at cut
    points in float32 too.
    """
    return getattr(destination, "IN_FLOAT32", False)


def is_converted(destination: Destination) -> bool:
    """Return whether a destination states, by a true CONVERTED, that its files hold what the framework's own
    converter computed of the graph's tensors. `read_port` then gives the file itself, as one tensor of its
    bytes under the file's name, and `PortEngine.build` runs it; in float64 it runs canonical tensors, given
    too.
    """
    return getattr(destination, "CONVERTED", False)


@cache
def _added_destination(plugin: Plugin) -> Destination:
    """Return the destination that a plug-in adds. An error that its code raises names the plug-in.

    Raises:
        PluginError: it lacks something of a destination or of its engine, or has another name.
    """
    added = plugin.load()
    plugin.expect(added, _names_of(Destination))
    plugin.expect(added.ENGINE, _names_of(PortEngine))
    if plugin.name != added.NAME:
        raise plugin.error(f"expected a destination called '{plugin.name}', got '{added.NAME}'")
    return cast(Destination, plugin.guard(added))


def _names_of(protocol: type) -> list[str]:
    """Return the public names of the methods and attributes that an object of a protocol has."""
    names = dict[str, None]()
    for base in protocol.__mro__:
        # methods, and attributes that are only annotated
        names |= dict.fromkeys((*vars(base), *vars(base).get("__annotations__", ())))
    return [name for name in names if not name.startswith("_")]


def other_than(framework: str) -> str:
    """Return another framework than this one, to port to."""
    return next(name for name in DESTINATION_NAMES if name != framework)


def get_engine(name: str) -> Engine:
    """Return the engine of a name in ENGINE_NAMES."""
    if name == NUMPY:
        return cast(Engine, import_module(f"porter.frameworks.{NUMPY}.engine"))
    return get_destination(name).ENGINE


def engine_name(checkpoint: Checkpoint) -> str:
    """Return the name of the engine that runs a file's own graph: the one of its format; porter's own,
    `numpy`, where the format is unknown or names none.
    """
    from porter.formats.recognition import known_format

    format = known_format(checkpoint.format)
    return (format and format.engine) or NUMPY
