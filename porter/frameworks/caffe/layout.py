"""What Caffe's layers can say, and the files of a port."""

from __future__ import annotations

from porter.padding import Capabilities

MODEL_FILE, NET_FILE = "model.caffemodel", "model.prototxt"

# pooling_layer.cpp: pads are alike on both sides and smaller than the kernel. The number of windows is rounded up; where there are
# pads, one that would begin behind the map is left out. An average counts the pads, not what lies behind them. round_mode is
# younger than Caffe 1.0, and OpenCV does not read it.
CAPABILITIES = Capabilities(
    symmetric=True,
    explicit=False,
    same=(),
    same_of_any=False,
    pool_pads="less",
    roundings=("ceil",),
    averages=("clipped_window",),
    dynamic=(),
    dilated_pools=(),
    dilated_strides=True,
    open_reshapes=False,
    one_sided=True,
    zeros_only=True,
    keeps_last=True,
)
