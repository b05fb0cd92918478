"""Engines run models, destinations write ports. Only a framework's folder knows its quirks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, cast

from porter.base.errors import UsageError
from porter.base.options import CHANNELS_LAST, COMPILE, PRECISION
from porter.base.plugins import Plugin, plugin_of, plugins
from porter.frameworks.protocols import (
    RETURNED as RETURNED,
    UNCUT as UNCUT,
    Classifier as Classifier,
    Destination as Destination,
    Engine as Engine,
    LayerNames as LayerNames,
    OwnTensors as OwnTensors,
    PortEngine as PortEngine,
    Tensors as Tensors,
)

if TYPE_CHECKING:  # recipes name frameworks, and are loaded by commands that need no numpy
    from porter.base.ways_to_run import Precision, Run
    from porter.filegraph.checkpoint import Checkpoint
    from porter.frameworks.caffe.destination import DESTINATION as caffe
    from porter.frameworks.flax.destination import DESTINATION as flax
    from porter.frameworks.mlx.destination import DESTINATION as mlx
    from porter.frameworks.mxnet.destination import DESTINATION as mxnet
    from porter.frameworks.numpy import engine as numpy
    from porter.frameworks.onnx.destination import DESTINATION as onnx
    from porter.frameworks.tf.destination import DESTINATION as tf
    from porter.frameworks.tflite.destination import DESTINATION as tflite
    from porter.frameworks.torch.destination import DESTINATION as torch

    # mypy compares each with the protocol here; nothing reads these names.
    _destinations: tuple[Destination, ...] = (caffe, flax, mlx, mxnet, onnx, tf, tflite, torch)
    _engine: Engine = numpy  # a destination's is compared where it names it

DESTINATION_NAMES = ("tf", "torch", "onnx", "flax", "mlx", "tflite", "caffe", "mxnet")
"""Folders here whose destination.py has a DESTINATION, as `--to` names them."""
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
    return cast(Destination, module.DESTINATION)


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
