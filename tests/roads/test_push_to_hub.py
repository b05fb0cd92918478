"""A port goes to the Hub with its card, in one commit."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

import porter
from porter.base.errors import FileError

# huggingface_hub calls httpx so.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")
LARGE = "model.safetensors"


class Hub(ThreadingHTTPServer):
    """The part of the Hub that takes a commit.

    Attributes:
        files: what the commit has, by name.
        made: the repositories that were made.
        refuses: whether commits are refused.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.stored: dict[str, bytes] = {}
        self.made: list[dict[str, Any]] = []
        self.refuses = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        hub = self.server
        if self.path == "/api/repos/create":
            hub.made.append(json.loads(body))
            return self.reply({"url": f"{hub.address}/me/net"})
        if self.path == "/api/models/me/net/preupload/main":
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "lfs" if name == LARGE else "regular"} for name in names]
            return self.reply({"files": [{**mode, "shouldIgnore": False} for mode in modes]})
        if self.path == "/me/net.git/info/lfs/objects/batch":
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{hub.address}/store/{each['oid']}"}}
            return self.reply({"transfer": "basic", "objects": objects})
        if self.path == "/api/validate-yaml":  # of the card
            return self.reply({"errors": [], "warnings": []})
        assert self.path == "/api/models/me/net/commit/main"
        if hub.refuses:
            return self.reply({"error": "no"}, 403)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                hub.files[value["path"]] = b64decode(value["content"])
            elif line["key"] == "lfsFile":
                hub.files[value["path"]] = hub.stored[value["oid"]]
        return self.reply({"commitUrl": f"{hub.address}/me/net/commit/1", "commitOid": "1", "success": True})

    def do_PUT(self) -> None:
        content = b"".join(self.chunks())
        self.server.stored[self.path.rpartition("/")[2]] = content
        self.reply({})

    def chunks(self) -> Iterator[bytes]:
        """A body of known length, or in chunks."""
        if (length := self.headers["Content-Length"]) is not None:
            yield self.rfile.read(int(length))
            return
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def reply(self, said: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    thread = Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    constants = import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", made.address)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture
def port(tmp_path: Path) -> porter.Port:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    made = porter.convert(model, example=torch.zeros(1, 3, 16, 16), out=tmp_path / "port", check=False)
    (made.folder / "notes.txt").write_text("somebody's own")
    return made


def test_a_port_goes_there_whole_with_its_card(hub: Hub, port: porter.Port) -> None:
    assert port.push_to_hub("me/net", private=True) == f"{hub.address}/me/net/commit/1"
    assert hub.made == [{"name": "net", "organization": "me", "visibility": "private"}]
    own = {"port.json", LARGE, "model.py"}
    assert hub.files.keys() == {*own, "README.md"}
    assert all(hub.files[name] == (port.folder / name).read_bytes() for name in own)
    card = hub.files["README.md"].decode()
    assert card.startswith("---\n") and 'library_name: "pytorch"' in card
    assert not (port.folder / "README.md").exists()


def test_a_hub_that_refuses(hub: Hub, port: porter.Port) -> None:
    hub.refuses = True
    with pytest.raises(FileError, match=r"hf://me/net: the port cannot be uploaded: .*hf auth login"):
        port.push_to_hub("me/net")
    assert not hub.files
