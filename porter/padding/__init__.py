"""Padding: the conventions and their arithmetic (windows), and the smallest exact realisation in a
destination (realise).
"""

from __future__ import annotations

from porter.padding.realisation import *  # noqa: F403
from porter.padding.realise import *  # noqa: F403
from porter.padding.windows import *  # noqa: F403
