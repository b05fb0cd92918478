"""What MXNet's operators can say, and the files of a port."""

from __future__ import annotations

from porter.padding import Capabilities

MODEL_FILE, SYMBOL_FILE = "model-0000.params", "model-symbol.json"

# src/operator/nn/pooling.cc and pool.h: pads are alike on both sides. `full` rounds up and keeps the last window wherever it is.
# An average counts the pads, not what lies behind them, or with count_include_pad=False the real cells only.
CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=False,
    pool_pads="less",
    roundings=("floor", "full"),
    averages=("real_cells", "clipped_window"),
    dynamic=(),
    dilated_pools=(),
    dilated_strides=True,
    open_reshapes=False,
)
