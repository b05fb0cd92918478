"""A port as people hold it in a notebook or a script."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from os import PathLike, fspath
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, TypeVar, cast

from porter.api.speaking import public
from porter.base.calls import takes
from porter.base.commands import OpenOptions
from porter.base.dtypes import Array
from porter.base.options import AnyPath
from porter.base.package import __version__
from porter.comparison.comparison_result import Comparison
from porter.comparison.transfer.fill import Filling
from porter.conversion.convert import Conversion
from porter.evaluation.evaluate import evaluate
from porter.evaluation.prediction import PhotoInput, make_transform, predict
from porter.files import is_plain, new_folder
from porter.frameworks.in_memory import Held
from porter.port import DETAILS, OWN_FOLDERS, RECORD, StoredPort, read_port
from porter.port.folder import LoadedModel, load
from porter.reporting.card import card
from porter.reporting.hub_upload import upload_port
from porter.reporting.model_card import write_card
from porter.reporting.records import read_contents
from porter.reporting.sentences import conclude
from porter.reporting.write_page import report
from porter.verification.results import VerdictRecord
from porter.verification.reverify import verify
from porter.verification.verdict import Verdict

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
T = TypeVar("T")


def _of_folder(
    function: Callable[Concatenate[AnyPath, P], T], runs_source: Literal["always", "if asked", "never"]
) -> Callable[Concatenate[Port, P], T]:
    """Return a function of a port's folder as a method, with its signature and its help.

    Args:
        runs_source: whether it runs the source, which may be a model in memory: it takes that as `weights`.
    """
    own_signature = inspect.signature(function)

    @wraps(function)
    def method(self: Port, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function with the port's folder, and with the model in memory as its source if the port
        has one.
        """
        runs = runs_source == "always" or (runs_source == "if asked" and bool(kwargs.get("source")))
        if runs and self._held is not None and kwargs.get("weights") is None:
            kwargs["weights"] = self._held
        return public(function)(self.folder, *args, **kwargs)

    # `self` in place of the folder
    _, *others = own_signature.parameters.values()
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = own_signature.replace(parameters=[this, *others])  # type: ignore[attr-defined]
    return cast("Callable[Concatenate[Port, P], T]", method)


class Port(PathLike[str]):
    """A port: a folder with the model in its framework, and the record of how it was made.

    Every function that takes a port's folder takes a Port.

    Attributes:
        folder: where it is.
    """

    _held: Held | None = None

    def __init__(self, folder: AnyPath) -> None:
        self.folder = Path(folder)

    def __fspath__(self) -> str:
        return fspath(self.folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def __str__(self) -> str:
        """Say what the port is, where it is, and whether it is proved: what `print` shows."""
        contents = read_contents(self.folder)
        verdict, record = conclude(contents), contents.record
        return f"{record.name} to {record.framework}: {self.folder}\n{verdict.word}. {verdict.sentence}"

    def _repr_html_(self) -> str:
        """Show a notebook what the port is, whether it is proved, and its pads."""
        return card(read_contents(self.folder))

    @property
    def proof(self) -> VerdictRecord | None:
        """The comparison with the source, as port.json has it; None if none was made."""
        return read_contents(self.folder).comparison

    @property
    def warnings(self) -> tuple[str, ...]:
        """What `convert` warned of: what a reader has to know."""
        return read_port(self.folder).record.warnings

    @public
    def model(self, device: str = "cpu") -> LoadedModel:
        """Return the model: torch's `nn.Module` in eval mode, a Keras model, or what runs the port's file on
        arrays of numpy.
        """
        return load(self.folder, device)

    @public
    def transform(self) -> Callable[[PhotoInput], torch.Tensor | Array]:
        """Return a function that makes a photo the model's input by the port's protocol.

        It takes a path, an image of Pillow or an array H x W x RGB of bytes. It gives one image without the
        axis of the batch: a tensor C x H x W for a port in torch, otherwise an array in the port's own order,
        H x W x C in Keras.

        Raises:
            UsageError: nothing says how photos become the input.
        """
        return public(make_transform(self.folder))

    verify = _of_folder(verify, "always")
    predict = _of_folder(predict, "never")
    evaluate = _of_folder(evaluate, "if asked")
    report = _of_folder(report, "never")

    @public
    def save(self, folder: AnyPath, *, hub: bool = False, overwrite: bool = False) -> Port:
        """Copy the port, whole or not at all, and return the copy.

        Args:
            hub: writes README.md beside it too, a model card for Hugging Face's Hub. Nothing is uploaded.
            overwrite: replaces an older port there.
        """
        with new_folder(Path(folder), OWN_FOLDERS if overwrite else None) as building:
            for name in self._own_files():
                copyfile(self.folder / name, building / name)
            if hub:
                write_card(building, Path(folder).name)
        return Port(folder)

    @public
    def push_to_hub(self, repository: str, *, private: bool = False, message: str | None = None) -> str:
        """Upload the port and its model card to Hugging Face's Hub, all in one commit.

        Args:
            repository: `OWNER/NAME`; it is made if it is not there.
            private: of a repository that is made.
            message: of the commit.

        Returns:
            The address of the commit.

        Raises:
            NotInstalled: huggingface_hub is not installed.
            FileError: the Hub refuses, or cannot be reached; nothing of the port is there then.
        """
        said = message or f"Port by porter {__version__}"
        return upload_port(self.folder, self._own_files(), repository, private, said)

    def _own_files(self) -> list[str]:
        """Return the names of the port's files, without reports and what else lies in its folder."""
        names = (RECORD, DETAILS, *read_port(self.folder).record.model)
        return [name for name in names if is_plain(self.folder / name)]


class Ported(Port):
    """The port that `convert` made.

    Attributes:
        port: the port as porter reads it.
        verdict: its comparison with the source; None if none was made.
    """

    def __init__(self, made: Conversion, held: Held | None = None) -> None:
        super().__init__(made.port.folder)
        self.port: StoredPort = made.port
        self.verdict: Verdict | None = made.verdict
        self._made, self._held = made, held

    def record(self) -> dict[str, object]:
        """Return the record that `porter convert --json` prints."""
        return self._made.record()


class Filled:
    """A class of the user's with the tensors of a source in it, as `convert` gives it for `into`.

    Attributes:
        folder: with its state, the converter and its test.
        comparison: of the source, which is A, and the class.
        warnings: what a reader has to know.
    """

    def __init__(self, made: Filling) -> None:
        self._made = made
        self.folder: Path = made.folder
        self.comparison: Comparison = made.comparison
        self.warnings: tuple[str, ...] = made.opened.warnings

    def __repr__(self) -> str:
        return f"Filled({str(self.folder)!r})"

    def __str__(self) -> str:
        return f"{self._made.source} into {self._made.target}: {self.folder}\n{self.comparison.summary}"

    def _repr_html_(self) -> str:
        return self.comparison._repr_html_()

    def model(self) -> LoadedModel:
        """The user's own model, with the tensors in it."""
        model: LoadedModel = self._made.model
        return model

    def converter(self) -> str:
        """The text of convert_NAME.py."""
        return self._made.converter

    def record(self) -> dict[str, object]:
        """Return the record that `porter convert --into --json` prints."""
        return self._made.record()


@takes(OpenOptions)
def open_port(asked: OpenOptions) -> Port:
    """Open the port in a folder.

    Raises:
        PorterError: there is none, or it is damaged.
    """
    read_port(Path(asked.folder))
    return Port(asked.folder)
