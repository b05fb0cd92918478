"""The layers of one padding site in Caffe: pad, windowed layer, and what an exact composition adds."""

from __future__ import annotations

from porter.base.errors import PaddingError
from porter.frameworks.caffe.maker import NONE, LayerMaker, Parameter
from porter.graph import AvgPool, Conv, MaxPool, Node
from porter.padding import Pads, Realisation, Window, less


def windowed(maker: LayerMaker, node: Node, op: Conv | MaxPool | AvgPool, realisation: Realisation) -> None:
    """Adds the layers of a windowed node.

    Raises:
        PaddingError: Caffe has no layers for the realisation, because the plan was made for another
            framework.
    """
    path, (source,), front, native = node.path, node.inputs, realisation.front, realisation.native
    dynamic = native.rule not in ("valid", "explicit") or (
        front is not None and (front.rule != "explicit" or front.fill)
    )
    if dynamic or (isinstance(op, Conv) and realisation.subsample):
        raise PaddingError(f"Caffe has no layers for '{realisation}'", where=path)
    padded = (
        source
        if front is None
        else maker.moved(maker.name(f"{path}_pad"), source, maker.channels(source), front.pads)
    )
    if isinstance(op, Conv):
        _conv(maker, path, op, realisation, padded)
    elif realisation.by_cell:
        _largest(maker, path, op.window, padded)
    else:
        _pooled(maker, path, op, realisation, source, padded)


def sides(window: Window, pads: Pads = NONE, amid: Pads = NONE) -> dict[str, Parameter]:
    """A window as parameters, with so many more rows and columns around it: the sides' pads are alike."""
    (rows, columns), (down, across) = window.kernel, window.stride
    stated: dict[str, Parameter] = {
        "kernel_h": rows + amid[0] + amid[1],
        "kernel_w": columns + amid[2] + amid[3],
    }
    stated |= {"stride_h": down, "stride_w": across}
    # OpenCV reads neither without the other.
    return stated | ({"pad_h": pads[0], "pad_w": pads[2]} if any(pads) else {})


def _conv(maker: LayerMaker, path: str, op: Conv, realisation: Realisation, source: str) -> None:
    (down, across), skipped = op.window.dilation, realisation.skipped
    amid = skipped[0] // down, skipped[1] // down, skipped[2] // across, skipped[3] // across
    stated = sides(op.window, realisation.native.pads, amid)
    if op.window.dilation != (1, 1):
        stated["dilation"] = op.window.dilation
    if op.groups != 1:
        stated["group"] = op.groups
    blobs = [maker.kernel(path, amid), *maker.trained(path, path, "bias")]
    maker.add("Convolution", path, source, blobs=blobs, num_output=op.filters, bias_term=op.bias, **stated)


def _pooled(
    maker: LayerMaker, path: str, op: MaxPool | AvgPool, realisation: Realisation, source: str, padded: str
) -> None:
    window = Window(op.window.kernel) if realisation.subsample else op.window
    own: dict[str, Parameter] = {
        "pool": "MAX" if isinstance(op, MaxPool) else "AVE",
        **sides(window, realisation.native.pads),
    }
    channels, counted = maker.channels(source), realisation.counted
    ended = maker.name(f"{path}_every") if realisation.subsample else path

    def pooled(name: str, value: str) -> str:
        return maker.add("Pooling", name, value, blobs=(), **own)

    value = pooled(ended if counted is None else maker.name(f"{path}_cells"), padded)
    if counted is not None:
        front = realisation.front.pads if realisation.front else NONE
        whole = (
            maker.moved(maker.name(f"{path}_counted"), source, channels, counted) if any(counted) else source
        )
        ones = maker.filled(maker.name(f"{path}_ones"), whole, 1.0)
        rest = less(front, counted)
        mask = maker.moved(maker.name(f"{path}_mask"), ones, channels, rest) if any(rest) else ones
        by = maker.add(
            "Power", maker.name(f"{path}_by"), pooled(maker.name(f"{path}_share"), mask), power=-1.0
        )
        value = maker.add("Eltwise", ended, value, by, operation="PROD")
    if realisation.subsample:
        top, bottom, left, right = less(NONE, realisation.skipped)
        maker.moved(path, value, channels, (top, bottom, left, right), op.window.stride)


def _largest(maker: LayerMaker, path: str, window: Window, source: str) -> None:
    """A max pool of dilated windows: the largest of the map's parts that the window's cells read."""
    cells = []
    for row in range(0, window.extent(0), window.dilation[0]):
        for column in range(0, window.extent(1), window.dilation[1]):
            cut = -row, row + 1 - window.extent(0), -column, column + 1 - window.extent(1)
            name = path if window.kernel == (1, 1) else maker.name(f"{path}_cell")
            cells.append(maker.moved(name, source, maker.channels(path), cut, window.stride))
    if len(cells) > 1:
        maker.add("Eltwise", path, *cells, operation="MAX")
