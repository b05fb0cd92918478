"""Where a source is: a file, a pair of files, a port, or a model in memory. It is found once, with what lies
beside it, before anything of it is opened.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from porter.base.commands import CONVERT, FILE, FRAMEWORK, RECIPE_LIST, RECIPE_SHOW, VARIANT, ZOO
from porter.base.errors import UsageError
from porter.base.options import FROM, WEIGHTS
from porter.filegraph.checkpoint import Sidecars
from porter.files import Fetched, fetch
from porter.formats.keras import is_preset
from porter.formats.recognition import is_there
from porter.frameworks import TRAINED
from porter.port import StoredPort, model_file, port_at, read_port
from porter.recipe import Member, declared_recipes
from porter.recipe.spelling import nearest
from porter.source.hub_download import fetch_repository, repository_of
from porter.source.hub_folder import WEIGHTS as NAMES_OF_THE_HUB, files_of_weights, read_sidecars, sidecars_in

if TYPE_CHECKING:
    from porter.base.commands import Example, Model
    from porter.frameworks.in_memory import Held


@dataclass(frozen=True)
class File:
    """A file of weights, or a folder that is one, such as a SavedModel; of a folder of the Hub, its file.

    Attributes:
        beside: see Checkpoint.beside.
        warnings: of its download.
    """

    path: Path
    beside: Sidecars = field(default_factory=dict, repr=False)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class FilePair:
    """A file whose graph is taken, and another whose tensors are."""

    graph: File
    weights: Path


@dataclass(frozen=True)
class PortFolder:
    """A port, whose tensors are those that porter wrote."""

    port: StoredPort


@dataclass(frozen=True)
class TrainedPort:
    """A port whose graph is taken, and the file of tensors that its model got by further training."""

    port: StoredPort
    weights: Path


@dataclass(frozen=True)
class InMemory:
    """A model that the user holds.

    Attributes:
        example: what a module is exported with, a batch or a tuple of them; None for zeros.
    """

    model: Model | Held
    example: Example = None


Place: TypeAlias = File | FilePair | PortFolder | TrainedPort | InMemory


def find(path: Path) -> File | PortFolder:
    """Return the file or port at a path that a user names: a file, a port or one of its files, a folder of
    the Hub, or a repository of the Hub, which is fetched.

    Raises:
        PorterError: the port's record is damaged, the port does not hold its tensors, or the repository
            cannot be fetched.
    """
    port = port_at(path)
    return file_at(path) if port is None else PortFolder(port)


def find_pair(path: Path, weights: Path) -> FilePair | PortFolder | TrainedPort:
    """Return the pair at two paths: the graph of the first with all tensors of the second. It is a pair of
    files, the port itself if `weights` is its own untouched model file, or a port with tensors from further
    training. See `find` for the errors.
    """
    tensors = file_at(weights).path
    port = port_at(path, verify_digests=False)  # its own model file may be the one that was trained on
    if port is None:
        return FilePair(file_at(path), tensors)
    if _is_untrained_model_file(port, tensors):
        return PortFolder(read_port(port.folder))
    return TrainedPort(port, tensors)


def find_weights(member: Member, weights: Path | None) -> File | PortFolder:
    """Return the file or port at the path of a variant's weights; without a path, the zoo's published file.

    Raises:
        PorterError: as `find` and `fetch_published`.
    """
    if weights is not None:
        return find(weights)
    fetched = fetch_published(member)
    return replace(file_at(fetched.path), warnings=fetched.warnings)


def fetch_published(member: Member) -> Fetched:
    """Return the zoo's published file of a variant, from the cache or the network, checked. See
    porter.files.fetch.

    Raises:
        UsageError: the zoo publishes none.
    """
    if member.file is not None:
        return fetch(member.file)
    message = f"zoo '{member.zoo.name}' publishes no weights of {member.variant}"
    raise UsageError(message, where=str(member.recipe.path), next=f"give {WEIGHTS.placeholder}")


def file_at(path: Path) -> File:
    """Return the file of weights that a path means.

    A repository of the Hub is fetched as a folder. In a folder that has a config.json, it is the file that
    has one of the Hub's names, otherwise the only one; in a port, the model's. Every other path is taken as
    it is, also a preset of KerasHub, which has several files.
    """
    repository = repository_of(path)
    path = path if repository is None else fetch_repository(repository)
    if is_preset(path):
        return File(path, sidecars_in(path))
    files = files_of_weights(path)
    named_by_hub = (path / name for name in NAMES_OF_THE_HUB if path / name in files)
    file = next(named_by_hub, files[0] if len(files) == 1 else model_file(path))
    return File(file, read_sidecars(file))


def _is_untrained_model_file(port: StoredPort, weights: Path) -> bool:
    """Return whether the weights are the port's own model file, of a framework in which porter knows no
    further training.
    """
    model_path = port.folder / port.destination.MODEL_FILE
    return port.record.framework not in TRAINED and weights.resolve() == model_path.resolve()


def expect_file(subject: str, recipes: Path | None) -> Path:
    """Return the file that a command names in place of a variant, or a repository of the Hub.

    Raises:
        UsageError: there is no such file.
    """
    file = Path(subject)
    if repository_of(file) is not None or is_there(file):
        return file
    is_variant = any(subject in recipe.variants for recipe in declared_recipes(recipes))
    # `mobilenet_v1_0.35` has no suffix of a file.
    has_suffix = file.suffix[1:2].isalpha()
    if has_suffix and not is_variant:
        similar_name = nearest(file.name, (sibling.name for sibling in file.parent.glob("*")))
        next = "check the path" if similar_name is None else f"did you mean '{similar_name}'?"
        raise UsageError("there is no such file", where=subject, next=next)
    if is_variant:
        next = f"add {FROM.placeholder}: {RECIPE_SHOW.advise(name=subject)} lists its zoos"
        raise UsageError(f"'{subject}' is a variant without its zoo", next=next)
    lines = [
        CONVERT.advise(subject=VARIANT, source=ZOO, to=FRAMEWORK),
        CONVERT.advise(subject=FILE, to=FRAMEWORK),
    ]
    next = f"{RECIPE_LIST.advise()} shows the variants; write {', or '.join(lines)}"
    raise UsageError(f"'{subject}' is no file and no variant", next=next)
