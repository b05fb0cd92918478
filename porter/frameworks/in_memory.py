"""Models that a user has built and holds in memory. Each is saved as a file of its framework that carries its graph, and a copy of
it is run beside its port. The user's own model is only read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from porter.frameworks.given import framework_of

if TYPE_CHECKING:
    from porter.padding import Size


@dataclass(frozen=True)
class Saved:
    """A model that is saved as a file.

    Attributes:
        name: of the model, as messages and port.json call it.
        path: the file.
        size: rows and columns of the example that it was saved with; None where the file says all of its sizes.
        copied: makes a copy of the model, in inference mode on the CPU, that takes the images of the file's graph in their order
            and gives its outputs; None where the file itself is the model.
        calls: by the file's name of a value, the layer that gives it and which of its calls does, from 0: `layer1.0.relu@1`. Where
            it is empty, the file's names are the layers' own.
        notes: what the copy lacks of the model, one line each.
    """

    name: str
    path: Path
    size: tuple[int, int] | None = None
    copied: Callable[[], Any] | None = None
    calls: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class ModelsInMemory(Protocol):
    """The module-level names of `in_memory.py` in a framework's folder."""

    def save(self, model: Any, folder: Path, example: Sequence[Any], size: Size | None) -> Saved:
        """Saves a model in an empty folder. Not a bit of the model is changed.

        Args:
            example: what the model is called with; empty for zeros of `size`, where the framework has to call it at all.
            size: rows and columns of the image; None for those of the example or of the model.

        Raises:
            UsageError: the model cannot be saved as it is, with the reason and the way round.
        """


_IN_MEMORY = {name: f"porter.frameworks.{name}.in_memory" for name in ("tf", "torch", "onnx")}


def held_by(subject: object) -> str | None:
    """The framework of a model in memory: a torch.nn.Module, a keras.Model or an onnx.ModelProto; None for any other object, such
    as a path. This imports no framework.
    """
    onnx = sys.modules.get("onnx")
    return "onnx" if onnx is not None and isinstance(subject, onnx.ModelProto) else framework_of(subject)


def save_model(model: object, folder: Path, example: object = None, size: Size | None = None) -> Saved:
    """Saves a torch.nn.Module, a keras.Model or an onnx.ModelProto as a file that carries its graph.

    Args:
        folder: an empty one.
        example: what a module of torch is exported with: a tensor, or a tuple of them. None for zeros of `size`.
        size: as ModelsInMemory.save.

    Raises:
        UsageError: as ModelsInMemory.save.
    """
    framework = held_by(model)
    assert framework is not None, "the caller has asked held_by"
    given = () if example is None else tuple(example) if isinstance(example, tuple | list) else (example,)
    return cast(ModelsInMemory, import_module(_IN_MEMORY[framework])).save(model, folder, given, size)
