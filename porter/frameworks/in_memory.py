"""Models that a user has built and holds in memory. Each is saved as a file of its framework that carries its
graph, and a copy of it is run beside its port. The user's own model is only read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, cast

from porter.base.commands import Example, Model
from porter.base.errors import UsageError
from porter.frameworks.reference_models import framework_of

if TYPE_CHECKING:
    from porter.base.dtypes import Array, NamedArrays
    from porter.padding import KnownSize, Size

T = TypeVar("T")


@dataclass(frozen=True)
class Saved:
    """A model that is saved as a file.

    Attributes:
        name: of the model, as messages and port.json call it.
        path: the file.
        graph: what its graph is called where a port is compared with it.
        size: rows and columns of the example that it was saved with, or of a port whose model it is; None
            where the file says all of its sizes.
        make_copy: makes a copy of the model, in inference mode on the CPU, that takes the images of the
            file's graph in their order and gives its outputs; None where the file itself is the model.
        batch: so many images its graph, and therefore a copy, takes at once; None for any number.
        run_itself: runs the model as the user holds it, in inference mode and in its own number types, on a
            batch for each input of the file's graph, maps as N×C×H×W. It gives the outputs in the file's
            order, a dict's by the names that the file has for them, maps as N×C×H×W but at the places that
            are arrays. None where only copies are run, or its number types say too little.
        takes_integers: whether the model takes whole numbers.
        channels_last_outputs: indices of the outputs that are maps with their channels last, and in the file
            first.
        calls: by the file's name of a value, the layer that gives it and which of its calls does, from 0:
            `layer1.0.relu@1`. Of a module of Flax, the traced value, with `@last` where its map has its
            channels last and the file's has them first. Where it is empty, the file's names are the layers'
            own.
        notes: what the copy lacks of the model, one line each.
        variables: by the names of its framework's checkpoints, the model's variables, by which a recipe finds
            it where porter lacks an op for its graph; empty where its file has them.
        save_fixed: saves the model once more, for the example's size only, then for one image; None where it
            says its sizes itself.
    """

    name: str
    path: Path
    graph: str
    size: KnownSize | None = None
    make_copy: Callable[[], Any] | None = None
    batch: int | None = None
    run_itself: Callable[[Sequence[Array], Collection[int], Sequence[str]], tuple[Array, ...]] | None = None
    takes_integers: bool = False
    channels_last_outputs: frozenset[int] = frozenset()
    calls: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    variables: NamedArrays = field(default_factory=dict, repr=False)
    save_fixed: Callable[[], Saved] | None = None


@dataclass(frozen=True)
class Held:
    """A model, and what it was exported with, to be exported again."""

    model: Model
    example: Example


class ModelsInMemory(Protocol):
    """The module-level names of `in_memory.py` in a framework's folder."""

    def save(self, model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
        """Save a model in an empty folder, without changing a bit of it.

        Args:
            example: what the model is called with; empty for zeros of `size`, where the framework has to call
                it at all.
            size: rows and columns of the image; None for those of the example or of the model.

        Raises:
            UsageError: the model cannot be saved as it is, with the reason and the way round.
        """


_IN_MEMORY = {name: f"porter.frameworks.{name}.in_memory" for name in ("tf", "torch", "flax", "onnx")}
_USUAL_SIZE = (224, 224)
"""Rows and columns of the example for a module of any size."""
_ADVICE: Mapping[str, str] = {
    "builtins.dict": "of a state_dict give the model, or save it and name its variant: weights=FILE",
    "tf_keras.Model": "it is tf_keras's: save it, model.save('model.keras'), and give the file",
    "flax.Module": "make a module of linen one of nnx, with its variables (docs/api.md): nnx.bridge.ToNNX",
    "mlx.Module": "porter reads no graph of MLX: save the weights of a port's own model, "
    "model.save_weights('FILE.safetensors'), and give them beside the port: weights=FILE",
    "keras.Layer": "give a model: keras.Sequential([keras.Input(SHAPE), layer])",
    "torch.ExportedProgram": "give its module(), or the file that torch.export.save writes of it",
    "tensorflow.Module": "save it, tensorflow.saved_model.save(module, 'model'), and give the folder",
    "tensorflow.AutoTrackable": "give the folder that it was loaded from",
    **dict.fromkeys(
        ("porter.OnnxModel", "porter.LiteModel", "porter.PortModel"),
        "it is the model of a port: give the port, or its folder",
    ),
    "onnxruntime.InferenceSession": "give the file that it was made from",
}
"""What to do with an object that is no model here, by its package and a class that it is of."""


def expect_subject(subject: T, others: str, where: str | None = None) -> T:
    """Return the subject if it is a path or a model in memory; refuse anything else, with advice on its kind
    from _ADVICE where that has one.

    Args:
        others: what paths and texts stand for where the subject is expected, such as a port, for the message.
        where: the argument that it was given as, for the message.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(subject, str | PathLike) or is_model(subject):
        return subject
    # Its class and those that this extends, as _ADVICE has them: `tf_keras.Model`.
    kinds = (f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(subject).__mro__)
    advice = next((_ADVICE[kind] for kind in kinds if kind in _ADVICE), "give one of them")
    raise UsageError(
        f"got an object of {type(subject).__name__}, expected {others}, a torch.nn.Module, an nnx.Module, a "
        "keras.Model or an onnx.ModelProto",
        where=where,
        next=advice,
    )


def example_size(size: Size | None, name: str) -> KnownSize:
    """Return the rows and columns of the example for a module, of which `size` may leave some open.

    Args:
        name: of the module, for the message.

    Raises:
        UsageError: there is no size.
    """
    if size is None:
        next_step = "give example, a batch that the module takes, or input_size"
        raise UsageError("nothing says what size its images have", where=name, next=next_step)
    return size[0] or _USUAL_SIZE[0], size[1] or _USUAL_SIZE[1]


def training_error(path: str, name: str) -> UsageError:
    """Return the refusal of a module whose part at a path, or which itself, is in training mode."""
    part = f"'{path}' of it" if path else "it"
    next_step = "call model.eval() first: norms and dropouts compute something else in training"
    return UsageError(f"{part} is in training mode", where=name, next=next_step)


def is_model(subject: object) -> TypeGuard[Model]:
    """Say whether an object is a model in memory, and no path. This imports no framework."""
    return _framework_of(subject) is not None


def _framework_of(subject: object) -> str | None:
    """Return the framework of a model in memory, `onnx` for an ONNX model; None for any other object."""
    subject = subject.model if isinstance(subject, Held) else subject
    onnx = sys.modules.get("onnx")
    # onnx is only asked where the user has imported it: otherwise no object is a model of it.
    if onnx is not None and isinstance(subject, onnx.ModelProto):
        return "onnx"
    return framework_of(subject)


def save_model(model: Model | Held, folder: Path, example: Example = None, size: Size | None = None) -> Saved:
    """Save a torch.nn.Module, an nnx.Module, a keras.Model or an onnx.ModelProto as a file that carries its
    graph.

    Args:
        folder: an empty one.
        example: what a module is exported with: a batch, or a tuple of them. None for zeros of `size`.
        size: as ModelsInMemory.save.

    Raises:
        UsageError: as ModelsInMemory.save.
    """
    held = model if isinstance(model, Held) else Held(model, example)
    inputs = () if held.example is None else held.example
    example_inputs = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    models = cast(ModelsInMemory, import_module(_IN_MEMORY[str(_framework_of(held.model))]))
    return models.save(held.model, folder, example_inputs, size)
