"""What engines and destinations have, and the types in which they speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # recipes name frameworks, and are loaded by commands that need no numpy
    from numpy.typing import NDArray

    from porter.base.dtypes import Array, Dtype, NamedArrays
    from porter.base.errors import PorterError
    from porter.base.ways_to_run import Run
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
    """What writes ports: the DESTINATION of `destination.py` in a framework's folder. It may also have the
    attributes of `computes_in_float32` and `is_converted`.
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
