"""A local server that answers as Hugging Face's Hub does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

COMMIT = "a" * 40
OWNED = "me/net"


class HubServer(ThreadingHTTPServer):
    """Answers as the Hub does for one repository.

    Attributes:
        files: content by name.
        asked: the names that were asked for.
        refuses: the status for every file, if any.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = files
        self.asked: list[str] = []
        self.refuses: tuple[int, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stands_for_the_hub(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        """huggingface_hub, in this process, takes this server for the Hub."""
        constants = import_module("huggingface_hub.constants")
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            f"{self.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        )
        monkeypatch.setattr(constants, "ENDPOINT", self.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        monkeypatch.setattr("time.sleep", lambda seconds: None)  # between its trials


class Answer(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, with_body: bool) -> None:
        before, _, name = self.path.partition(f"/{OWNED}/resolve/")
        revision, _, name = name.partition("/")
        if name:
            self.server.asked.append(name)
        content = self.server.files.get(name)
        if self.server.refuses is not None:
            return self.fail(*self.server.refuses)
        if before or not name:
            return self.fail(404, "RepoNotFound")
        if revision not in ("main", COMMIT):
            return self.fail(404, "RevisionNotFound")
        if content is None:
            return self.fail(404, "EntryNotFound")
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)
        return None

    def fail(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hub_server(files: dict[str, bytes]) -> Iterator[HubServer]:
    made = HubServer(files)
    thread = Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()
        thread.join()
