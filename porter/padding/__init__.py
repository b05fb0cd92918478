"""Padding: the conventions and their arithmetic (windows), and the smallest exact realisation in a destination (realise)."""

from porter.padding.realise import REACHES_NOWHERE, Capabilities, Front, Realisation, realise, realised_row, same_function
from porter.padding.windows import (
    ANY,
    LARGEST,
    LOWEST,
    Average,
    Convention,
    Pads,
    Rounding,
    Row,
    Rule,
    Site,
    SiteKind,
    Size,
    Window,
    count_windows,
    output_size,
    pad_amounts,
    row,
)
