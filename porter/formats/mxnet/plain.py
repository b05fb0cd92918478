"""MXNet's functions of each number that are one op of porter's: the destination takes the reader's rows
backwards.
"""

from __future__ import annotations

from collections.abc import Mapping

from porter.graph import Op, ops

OPS_OF_NUMBERS: Mapping[str, Op] = {
    "abs": ops.Abs(),
    "exp": ops.Exp(),
    "log": ops.Log(),
    "sqrt": ops.Sqrt(),
    "reciprocal": ops.Reciprocal(),
    "sin": ops.Sin(),
    "cos": ops.Cos(),
    "erf": ops.Erf(),
    "sign": ops.Sign(),
    "floor": ops.Floor(),
    "ceil": ops.Ceil(),
}
"""MXNet's `round` takes halves away from 0, and `rint` down (src/operator/mshadow_op.h)."""
