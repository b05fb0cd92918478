"""The picture of the first page: the windows of TensorFlow's SAME and of symmetric pads on one row of pixels.
`python -m tests.support.windows_picture` writes it, and tests/roads/test_field_guide.py compares it.
"""

from __future__ import annotations

from collections.abc import Iterator

from porter.padding import Convention, Window
from porter.padding.windows import count_windows, first_cells, pad_amounts
from tests.support.checkout import ROOT

FILE = ROOT / "docs" / "windows.svg"
PIXELS, KERNEL, STRIDE = 8, 3, 2
CELL, LEFT, WIDTH = 46, 236, 720
"""Sizes in pixels of the picture: the side of a cell, where pixel 0 of the row begins, and the whole width.
"""
ROWS = (
    ('TensorFlow: "same"', "one pad, after the row", Convention("same")),
    ("torch: padding=1", "a pad on both sides", Convention("explicit", (1, 1, 1, 1))),
)


def text(x: float, y: float, words: str, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{words}</text>'


def drawn(top: int, name: str, note: str, convention: Convention) -> Iterator[str]:
    """One row of pixels with its pads, a bracket under each window, and what a max pool gives for it."""
    window = Window((1, KERNEL), (1, STRIDE))
    before, after = pad_amounts(convention, window, 1, PIXELS)
    firsts = first_cells(window, 1, before, count_windows(convention, window, 1, PIXELS))
    yield text(16, top + 22, name, 'class="name"')
    yield text(16, top + 40, note, 'class="note"')
    for cell in range(-before, PIXELS + after):
        pad = not 0 <= cell < PIXELS
        x = LEFT + cell * CELL
        yield f'<rect class="{"pad" if pad else "pixel"}" x="{x}" y="{top}" width="{CELL}" height="{CELL}"/>'
        yield text(
            x + CELL / 2,
            top + 29,
            "pad" if pad else str(cell + 1),
            'class="note number"' if pad else 'class="number"',
        )
    for place, first in enumerate(firsts):
        x, y = LEFT + first * CELL + 5, top + CELL + 8 + 9 * (place % 2)
        right = x + KERNEL * CELL - 10
        yield f'<path class="window" d="M{x} {y}v7H{right}v-7"/>'
        most = max(cell + 1 for cell in range(first, first + KERNEL) if 0 <= cell < PIXELS)
        yield text((x + right) / 2, top + CELL + 41, str(most), 'class="most"')


def picture() -> str:
    rows = [line for place, row in enumerate(ROWS) for line in drawn(52 + 118 * place, *row)]
    head = f"A max pool of {KERNEL} cells with stride {STRIDE}, on one row of {PIXELS} pixels"
    style = (
        "text{font:14px sans-serif;fill:#1f2933}.title{font-weight:bold}.name{font:13px monospace}"
        ".note{font-size:12px;fill:#52606d}.number,.most{text-anchor:middle}.most{font-weight:bold;fill:#b3420a}"
        ".pixel{fill:#dbe7f5;stroke:#5b7fa6}.pad{fill:#fff;stroke:#8a94a0;stroke-dasharray:4 3}"
        ".window{fill:none;stroke:#b3420a;stroke-width:2}"
    )
    size = f'width="{WIDTH}" height="290" viewBox="0 0 {WIDTH} 290"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{head}</title>",
        f"<style>{style}</style>",
        f'<rect width="{WIDTH}" height="290" rx="6" fill="#fff"/>',
        text(16, 28, head, 'class="title"'),
        *rows,
        text(
            16,
            276,
            "Every window of torch begins one pixel earlier: the same shapes, other numbers.",
            'class="note"',
        ),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(picture(), encoding="utf-8")
