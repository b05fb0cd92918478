"""The page in a browser: nothing wider than the screen, nothing loaded, nothing complained about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import porter
from tests.support.reporting.chromium import Browser, browser, find_chromium
from tests.support.reporting.ports import full_port, parity

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_chromium() is None, reason="there is no chromium on this machine"),
]

OVERFLOWING = """
[...document.querySelectorAll("body *")].filter(part => !part.closest(".scroll, .unseen, svg, thead")
    && part.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
    .map(part => part.outerHTML.slice(0, 200))
"""
CLIPPED = """
[...document.querySelectorAll("svg text")].filter(text => text.getClientRects().length).filter(text => {
    const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
    const beside = inner.left < outer.left - 1 || inner.right > outer.right + 1;
    return beside || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1;
}).map(text => text.textContent)
"""
SMALLEST = """
Math.min(...[...document.querySelectorAll("svg text")].filter(text => text.getClientRects().length)
    .map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a))
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


def long_names(folder: Path) -> Path:
    """A port whose every name is as long as names get, and whose nodes are many."""
    full_port(folder, parity=parity(*(1e-15 * (1 + index % 9) for index in range(500))))
    text = json.dumps(json.loads((folder / "port.json").read_text()))
    for name in ("case 1", "keras", "class folders", "stage100/conv400"):
        text = text.replace(f'"{name}', f'"{name}_{"x" * 200}')
    (folder / "port.json").write_text(text)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [full_port, long_names])
def test_a_report_fits_its_screen(make, width: int, scheme: str, chromium: Browser, tmp_path: Path) -> None:
    chromium.open(porter.report(make(tmp_path / "port")).path, width, scheme)
    fits(chromium)
    assert chromium.evaluate(SMALLEST) >= 11
    dark = (
        chromium.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        != "rgb(255, 255, 255)"
    )
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("make", [full_port, long_names])
def test_two_ports_fit_a_screen(make, width: int, chromium: Browser, tmp_path: Path) -> None:
    ports = [make(tmp_path / name) for name in ("one", "other")]
    chromium.open(porter.report(ports[0], other=ports[1], out=tmp_path / "two.html").path, width)
    fits(chromium, images=False)


def fits(chromium: Browser, images: bool = True) -> None:
    addresses = [
        event["params"]["request"]["url"]
        for event in chromium.events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert [address.split(":")[0] for address in addresses] == (["file", "data"] if images else ["file"])
    complaints = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    assert not [event for event in chromium.events if event["method"] in complaints]
    assert chromium.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert chromium.evaluate(OVERFLOWING) == []
    assert chromium.evaluate(CLIPPED) == []
