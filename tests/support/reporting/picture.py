"""The picture of a report that README shows. `python -m tests.support.reporting.picture
build/demo/tf/report.html` makes it after scripts/demo, where chromium is installed.
"""

from __future__ import annotations

import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.support.checkout import ROOT
from tests.support.reporting.chromium import browser

PICTURE = ROOT / "docs" / "report.png"
WIDTH, SECTIONS = 740, 2
"""The width of the page in pixels, and how many sections are shown: what was ported, and the error of every
node.
"""


def main(report: Path) -> None:
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as shown:
        shown.send("Emulation.setScrollbarsHidden", hidden=True)
        shown.open(report, WIDTH)
        end = shown.evaluate(f"document.querySelectorAll('h2')[{SECTIONS}].getBoundingClientRect().top")
        whole = Image.open(BytesIO(shown.screenshot()))
    whole.convert("RGB").crop((0, 0, WIDTH, int(end) - 10)).quantize(128).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
