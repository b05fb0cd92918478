"""Repositories of the Hub, by huggingface_hub and a local server that answers as the Hub does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import save_file

from porter.base.errors import DownloadError, FileError, NotInstalled, UsageError
from porter.source import hub_download as hub
from porter.source.hub_download import Repository, repository_of
from porter.source.place import file_at
from tests.support.hub_server import COMMIT, OWNED, HubServer, hub_server

constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A server with one file of weights, which huggingface_hub takes for the Hub, and an empty cache."""
    save_file({"a.weight": np.ones((2, 3), np.float32)}, tmp_path / "made.safetensors")
    weights = (tmp_path / "made.safetensors").read_bytes()
    with hub_server({"config.json": b"{}", "model.safetensors": weights, "README.md": b"read me"}) as made:
        made.stands_for_the_hub(monkeypatch, tmp_path / "cache")
        yield made


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("hf://me/net", Repository(OWNED, "main")),
        ("hf://me/net@v1.0", Repository(OWNED, "v1.0")),
        ("hf://me/net@refs/pr/1", Repository(OWNED, "refs/pr/1")),
        ("me/net", None),
        ("hf.h5", None),
    ],
)
def test_a_repository_is_named_by_its_owner_name_and_revision(text: str, found: Repository | None) -> None:
    assert repository_of(Path(text)) == found
    assert found is None or found.name == "net"


@pytest.mark.parametrize(
    "text",
    ["hf://net", "hf://me/net/file.bin", "hf://me/..", "hf://me/net@../../x", "hf://me/net@", "hf://m e/net"],
)
def test_what_names_no_repository(text: str) -> None:
    with pytest.raises(UsageError, match="names no repository"):
        repository_of(Path(text))


def test_only_what_porter_reads_is_fetched(server: HubServer, tmp_path: Path) -> None:
    server.files["pytorch_model.bin"] = b"code"
    found = file_at(Path(f"hf://{OWNED}")).path
    assert found.read_bytes() == server.files["model.safetensors"] and found.parent.name == COMMIT
    assert tmp_path / "cache" in found.parents
    assert {*server.asked} == {"config.json", "preprocessor_config.json", "model.safetensors"}


def test_the_cache_serves_where_there_is_no_network(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = file_at(Path(f"hf://{OWNED}")).path
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.asked.clear()
    assert file_at(Path(f"hf://{OWNED}")).path == first == file_at(Path(f"hf://{OWNED}@{COMMIT}")).path
    with pytest.raises(DownloadError, match="the cache lacks it") as refused:
        file_at(Path("hf://me/other"))
    assert (
        refused.value.next
        == "check the network, or fetch it on a machine with one: a file in the cache needs no network"
    )
    assert server.asked == []


def test_shards_are_fetched_by_their_index(server: HubServer, tmp_path: Path) -> None:
    held = server.files.pop("model.safetensors")
    index = {"weight_map": {"a.weight": "model-1.safetensors"}}
    server.files |= {"model.safetensors.index.json": json.dumps(index).encode(), "model-1.safetensors": held}
    found = file_at(Path(f"hf://{OWNED}")).path
    assert (found.parent / "model-1.safetensors").read_bytes() == held
    del server.files["model-1.safetensors"]
    (found.parent / "model-1.safetensors").unlink()
    with pytest.raises(DownloadError, match=r"it has no model-1\.safetensors, which its index lists"):
        file_at(Path(f"hf://{OWNED}"))


WHOLE = {"model.weights.h5": b""}
SHARDED = {
    "model.weights.json": b'{"weight_map": {"/a/vars": ["model_00000.weights.h5"]}}',
    "model_00000.weights.h5": b"",
}


@pytest.mark.parametrize("weights", [WHOLE, SHARDED], ids=["in one file", "in several"])
def test_a_preset_is_fetched_with_its_task(weights: dict[str, bytes], server: HubServer) -> None:
    del server.files["model.safetensors"]
    server.files |= weights | {
        "config.json": b'{"module": "keras_hub.src", "class_name": "Net"}',
        "task.json": b"{}",
        "tokenizer.json": b"{}",
    }
    found = file_at(Path(f"hf://{OWNED}")).path
    assert {file.name for file in found.iterdir()} == {"config.json", "task.json", *weights}
    assert {"task.weights.h5", "image_converter.json"} <= {
        *server.asked
    } and "tokenizer.json" not in server.asked


def test_names_of_shards_that_leave_the_cache_are_not_asked_for(server: HubServer, tmp_path: Path) -> None:
    server.files["model.safetensors.index.json"] = json.dumps(
        {"weight_map": {"a": "../../../evil.safetensors"}}
    ).encode()
    server.files["../../../evil.safetensors"] = server.files.pop("model.safetensors")
    with pytest.raises(FileError, match="is not in its folder"):
        file_at(Path(f"hf://{OWNED}"))
    assert not any("evil" in name for name in server.asked) and not [*tmp_path.rglob("evil*")]


@pytest.mark.parametrize(
    ("refuses", "named", "message", "next"),
    [
        (
            (401, "RepoNotFound"),
            OWNED,
            "there is no such repository, or it may not be read: status 401",
            "hf auth login",
        ),
        (
            (403, "GatedRepo"),
            OWNED,
            "there is no such repository, or it may not be read: status 403",
            "hf auth login",
        ),
        (
            None,
            "you/other",
            "there is no such repository, or it may not be read: status 404",
            "check the name",
        ),
        (None, f"{OWNED}@v9", "it has no revision 'v9'", "name a branch"),
        (None, "me/net.git", "the Hub has no such name: ", "write hf://OWNER/NAME"),
        (None, "me/net--old", "the Hub has no such name: ", "write hf://OWNER/NAME"),
        ((500, ""), OWNED, "", "check the network"),
    ],
)
def test_what_cannot_be_fetched_is_one_error(
    refuses: tuple[int, str] | None, named: str, message: str, next: str, server: HubServer
) -> None:
    server.refuses = refuses
    with pytest.raises(DownloadError) as refused:
        file_at(Path(f"hf://{named}"))
    assert message in refused.value.message and next in str(refused.value.next)
    assert refused.value.where == f"hf://{named if '@' in named else f'{named}@main'}"


@pytest.mark.parametrize("lacking", ["config.json", "model.safetensors"])
def test_a_repository_without_them_is_said(lacking: str, server: HubServer) -> None:
    del server.files[lacking]
    with pytest.raises(DownloadError, match="it has no") as refused:
        file_at(Path(f"hf://{OWNED}"))
    assert refused.value.next == "hf download me/net FILE, and name that file"


def test_a_library_without_a_module_of_errors_is_enough(
    server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface_hub 0.24 has them among its utils."""

    def imported(name: str) -> ModuleType:
        if name == "huggingface_hub.errors":
            raise ModuleNotFoundError(name)
        return import_module(name)

    monkeypatch.setattr(hub, "import_module", imported)
    assert file_at(Path(f"hf://{OWNED}")).path.name == "model.safetensors"
    with pytest.raises(DownloadError, match="it has no revision 'v9'"):
        file_at(Path(f"hf://{OWNED}@v9"))


def test_without_the_library_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str, next: str) -> None:
        raise NotInstalled(f"{package} is not installed", next=next)

    monkeypatch.setattr(hub, "expect_installed", missing)
    with pytest.raises(NotInstalled, match="pip install huggingface_hub"):
        file_at(Path(f"hf://{OWNED}"))


def test_the_command_takes_a_repository(server: HubServer, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_ENDPOINT": server.address, "HF_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "porter", "inspect", f"hf://{OWNED}", "--tensors", "--json"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0 and ran.stderr == "", ran.stderr
    assert json.loads(ran.stdout)["format"] == "safetensors"
