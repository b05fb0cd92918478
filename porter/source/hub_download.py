"""Repositories of Hugging Face's Hub, named `hf://owner/name[@revision]` where a file is named.

huggingface_hub fetches them, into its cache and with its token, or has them there already. Only the files
that porter reads are asked for, each by a name that porter has, but for the shards that an index lists, whose
names lie in its folder.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

from porter.base.errors import DownloadError, UsageError, first_line
from porter.base.package import __version__, expect_installed
from porter.data.keras_hub_config import CONVERTER_FILE
from porter.data.timm_config import CONFIG_FILE
from porter.data.transformers_config import PROCESSOR_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.keras import BACKBONE_INDEX, BACKBONE_WEIGHTS, TASK_FILE, TASK_WEIGHTS
from porter.formats.sharded.read import read_index
from porter.source.hub_folder import INDEX, WEIGHTS

_SCHEME = "hf:"
_NAMED = re.compile(r"hf:/{1,2}(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_IN_CACHE = re.compile(
    r"/models--(?P<owner>[\w.-]+?)--(?P<name>[\w.-]+)/snapshots/(?P<commit>[0-9a-f]{40})/[^/]+$", re.ASCII
)
_DEFAULT_REVISION = "main"


@dataclass(frozen=True)
class Repository:
    """A repository at a revision: a branch, a tag or a commit."""

    owner_and_name: str
    revision: str

    @property
    def name(self) -> str:
        return self.owner_and_name.rpartition("/")[2]


def repository_of(path: Path) -> Repository | None:
    """Return the repository that a path names, such as `hf://timm/resnet18@main`; None for every other path.
    A `Path` has one slash where two were typed.

    Raises:
        UsageError: it begins with `hf:` and names none.
    """
    text = str(path)
    if not text.startswith(f"{_SCHEME}/"):
        return None
    match = _NAMED.fullmatch(text)
    if match is None or ".." in text:
        raise UsageError(
            f"'{text}' names no repository", next="write hf://OWNER/NAME or hf://OWNER/NAME@REVISION"
        )
    return Repository(match["name"], match["revision"] or _DEFAULT_REVISION)


def with_repository(checkpoint: Checkpoint) -> Checkpoint:
    """Return a file in huggingface_hub's cache with a note of its repository and commit; every other file as
    it is.
    """
    cached = _IN_CACHE.search(checkpoint.path.as_posix())
    if cached is None:
        return checkpoint
    note = f"of hf://{cached['owner']}/{cached['name']}@{cached['commit']}"
    return replace(checkpoint, notes=(*checkpoint.notes, note))


def fetch_repository(repository: Repository) -> Path:
    """Return the folder in huggingface_hub's cache with the files that porter reads of a repository.

    Raises:
        NotInstalled: huggingface_hub is not installed.
        DownloadError: there is no such repository or revision, it may not be read, or it is not in the cache
            and cannot be reached.
        FileError: an index is damaged.
    """
    expect_installed(
        "huggingface_hub",
        "pip install huggingface_hub, or name a folder that has config.json and the weights",
    )
    library = import_module("huggingface_hub")
    source = _Source(library, repository)
    with quiet_without_terminal():
        config = source.fetch(CONFIG_FILE)
        if config is None:
            instead = f"hf download {repository.owner_and_name} FILE, and name that file"
            raise DownloadError(f"it has no {CONFIG_FILE}", where=_where(repository), next=instead)
        # The rest is of the same commit.
        source.repository = Repository(repository.owner_and_name, config.parent.name)
        source.fetch(PROCESSOR_FILE)
        weights = next((file for name in WEIGHTS if (file := source.fetch(name)) is not None), None)
        if weights is None:
            by_hand = f"hf download {repository.owner_and_name} FILE, and name that file"
            instead = _UNREACHED if source.offline else by_hand
            raise DownloadError(
                f"it has none of {', '.join(WEIGHTS)}", where=_where(repository), next=instead
            )
        if weights.name.endswith((INDEX, BACKBONE_INDEX)):
            for shard in read_index(weights):
                source.fetch_listed(shard)
        # keras-hub keeps the head in files beside those of the backbone.
        if weights.name in (BACKBONE_WEIGHTS, BACKBONE_INDEX):
            for name in (TASK_FILE, TASK_WEIGHTS, CONVERTER_FILE):
                source.fetch(name)
    return config.parent


_UNREACHED = "check the network, or fetch it on a machine with one: a file in the cache needs no network"


@dataclass
class _Source:
    """A repository as huggingface_hub gives its files.

    Attributes:
        offline: the Hub could not be reached. All other files are then taken from the cache, so that no file
            takes the place of a preferred one that could not be fetched.
    """

    library: ModuleType
    repository: Repository
    offline: bool = False

    def fetch_listed(self, name: str) -> Path:
        """Return a file that an index lists, so that the repository has to have it."""
        file = self.fetch(name)
        if file is None:
            next = _UNREACHED if self.offline else "ask its owner for the missing file"
            raise DownloadError(
                f"it has no {name}, which its index lists", where=_where(self.repository), next=next
            )
        return file

    def fetch(self, name: str) -> Path | None:
        """Return a file in the cache, fetched if need be; None if the repository has none of this name.

        Raises:
            DownloadError: as `fetch_repository`.
        """
        errors = import_module("huggingface_hub.utils")  # versions before 0.25 have them only here
        owner_and_name, revision = self.repository.owner_and_name, self.repository.revision
        try:
            # It gives a path, None if nothing is known, or an object that says that the commit has no such
            # file.
            cached = self.library.try_to_load_from_cache(owner_and_name, name, revision=revision)
            if not isinstance(cached, str | None):
                return None
            return Path(
                self.library.hf_hub_download(
                    owner_and_name,
                    name,
                    revision=revision,
                    local_files_only=self.offline,
                    library_name="porter",
                    library_version=__version__,
                )
            )
        except errors.LocalEntryNotFoundError as error:
            # It is asked for first: without it nothing of the repository is in the cache.
            if name == CONFIG_FILE:
                message = (
                    "the Hub cannot be reached, and the cache lacks it: "
                    f"{first_line(error.__cause__ or error)}"
                )
                raise DownloadError(message, where=_where(self.repository), next=_UNREACHED) from None
            # From here on only the cache is asked.
            self.offline = True
            return None
        except errors.EntryNotFoundError:
            return None
        except errors.RevisionNotFoundError:
            message, next = f"it has no revision '{revision}'", "name a branch, a tag or a commit after the @"
        except errors.RepositoryNotFoundError as error:  # of a gated one too
            message = (
                f"there is no such repository, or it may not be read: status {error.response.status_code}"
            )
            next = "check the name; for a private or gated one: hf auth login, with a token that may read it"
        except errors.HFValidationError as error:
            message = f"the Hub has no such name: {first_line(error)}"
            next = "write hf://OWNER/NAME as the address of its page has them"
        except Exception as error:  # of its HTTP library, of the disk
            message = f"{name} cannot be fetched: {type(error).__name__}: {first_line(error)}"
            next = _UNREACHED
        raise DownloadError(message, where=_where(self.repository), next=next)


def _where(repository: Repository) -> str:
    return f"hf://{repository.owner_and_name}@{repository.revision}"


@contextmanager
def quiet_without_terminal() -> Iterator[None]:
    """Hide huggingface_hub's progress bars where nobody sees them."""
    utils = import_module("huggingface_hub.utils")
    hides = not sys.stderr.isatty() and not utils.are_progress_bars_disabled()
    if hides:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if hides:
            utils.enable_progress_bars()
