"""A port as a repository of Hugging Face's Hub, with its card, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from porter.base.errors import FileError, NotInstalled, first_line
from porter.base.package import __version__
from porter.reporting.model_card import CARD, model_card
from porter.reporting.records import read_contents
from porter.source.hub_download import quiet_without_terminal


def upload_port(folder: Path, files: Sequence[str], repository: str, private: bool, message: str) -> str:
    """Upload a port's files and its model card to the Hub, all in one commit, by huggingface_hub and its
    token. A repository that is not there is made.

    Args:
        files: names in the folder.
        repository: `OWNER/NAME`.
        private: of a repository that is made.
        message: of the commit.

    Returns:
        The address of the commit.

    Raises:
        NotInstalled: huggingface_hub is not installed.
        FileError: the Hub refuses, or cannot be reached. Then nothing of the port is there.
    """
    try:
        hub = import_module("huggingface_hub")
    except ImportError:
        raise NotInstalled("huggingface_hub is needed", next="pip install huggingface_hub") from None
    card = model_card(read_contents(folder), repository.rpartition("/")[2])
    added = [hub.CommitOperationAdd(name, str(folder / name)) for name in files]
    added.append(hub.CommitOperationAdd(CARD, card.encode()))
    api = hub.HfApi(library_name="porter", library_version=__version__)
    try:
        with quiet_without_terminal():
            api.create_repo(repository, private=private, exist_ok=True)
            return str(api.create_commit(repository, added, commit_message=message).commit_url)
    except Exception as error:  # of its HTTP library, of names that it refuses
        raise FileError(
            f"the port cannot be uploaded: {type(error).__name__}: {first_line(error)}",
            where=f"hf://{repository}",
            next="hf auth login, with a token that may write there",
        ) from None
