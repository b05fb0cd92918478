"""Chromium without a window, spoken to over a pipe: what a page is like on a screen of a given width."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fcntl import F_DUPFD_CLOEXEC, fcntl
from pathlib import Path
from typing import Any, BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Browser:
    """The DevTools protocol: `send` waits for a command's answer, and keeps the events that come
    meanwhile.
    """

    write: BinaryIO
    read: BinaryIO
    events: list[dict[str, Any]] = field(default_factory=list)
    session: str | None = None
    sent: int = 0

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        message = {"id": self.sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        return self.until(lambda got: got.get("id") == self.sent).get("result", {})

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            text = bytearray()
            while (byte := self.read.read(1)) not in (b"\0", b""):
                text += byte
            if not text:
                raise EOFError("chromium has gone")
            got: dict[str, Any] = json.loads(text)
            assert "error" not in got, got
            if wanted(got):
                return got
            self.events.append(got)

    def open(self, page: Path, width: int, scheme: str = "light") -> None:
        """Shows a file on a screen of `width` px and waits until it is loaded; `events` then tell what
        happened.
        """
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=page.resolve().as_uri())
        if not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.until(lambda got: got.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with one page, gone when the block ends. `profile` is an empty folder of its own."""
    program = find_chromium()
    assert program is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    ends = [fcntl(end, F_DUPFD_CLOEXEC, 10) for end in (to_read, from_write)]  # out of the way of 3 and 4
    for end in (to_read, from_write):
        os.close(end)

    def descriptors() -> None:  # the protocol's pipes are file descriptors 3 and 4
        for number, end in enumerate(ends, 3):
            os.dup2(end, number)

    arguments = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--remote-debugging-pipe",
    ]
    process = subprocess.Popen(
        [*arguments, f"--user-data-dir={profile}", "about:blank"],
        preexec_fn=descriptors,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for end in ends:
            os.close(end)
        with os.fdopen(to_write, "wb") as write, os.fdopen(from_read, "rb") as read:
            found = Browser(write, read)
            target = found.send("Target.createTarget", url="about:blank")["targetId"]
            found.session = found.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                found.send(f"{domain}.enable")
            yield found
    finally:
        process.terminate()
        process.wait(10)
