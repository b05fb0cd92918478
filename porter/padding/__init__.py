"""Padding: the conventions and their arithmetic (windows), and the smallest exact realisation in a
destination (realise).
"""

from __future__ import annotations

from porter.padding.realisation import Capabilities, Front, Realisation, subtract_pads
from porter.padding.realise import REACHES_NOWHERE, realise, same_function
from porter.padding.windows import (
    ANY,
    LARGEST,
    LOWEST,
    Average,
    Convention,
    KnownSize,
    Pads,
    Rounding,
    Rule,
    Site,
    SiteKind,
    Size,
    Window,
    WindowRow,
    count_windows,
    output_size,
    pad_amounts,
    row,
)
