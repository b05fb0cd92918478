"""The figures of docs/padding.md, computed by the frameworks themselves where they run here, otherwise by
porter's arithmetic.

`python -m tests.support.field_guide` writes them into the document; tests/roads/test_field_guide.py holds the
document to them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from io import BytesIO
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import torch
from torch.nn import functional as F

from porter.frameworks import get_destination
from porter.frameworks.tf.runtime import import_keras
from porter.graph.pads import with_conventions
from porter.padding import LOWEST, Convention, Rounding, Window, row
from porter.recipe import find_recipe
from porter.verification.numbers import distance
from porter.verification.references.own_build import OwnBuild
from porter.verification.results import Distance
from tests.support.arrays import Array
from tests.support.checkout import ROOT
from tests.support.standin_files import make_batch, standin_graph, standin_tensors, strided_sites

DOCUMENT = ROOT / "docs" / "padding.md"
BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

Layer = Callable[[Array], Array]
"""Takes and gives N x C x H x W."""
Rows = list[tuple[str, ...]]
MOBILENET, LAST_MAP, IMAGES = ("mobilenet_v1_0.25", "slim"), "block12/pointwise/relu", 8


def keras_layers(*layers: Callable[[Any], Any]) -> Layer:
    """Keras's layers one after the other."""

    def run(batch: Array) -> Array:
        x = batch.transpose(0, 2, 3, 1)
        for layer in layers:
            x = layer(x)
        return np.asarray(x).transpose(0, 3, 1, 2)

    return run


def torch_layer(function: Callable[[torch.Tensor], torch.Tensor]) -> Layer:
    return lambda batch: function(torch.from_numpy(batch)).numpy()


def keras_conv(kernel: Array, padding: str, stride: int = 2, pads: Any = None) -> Layer:
    """Keras's Conv2D with `kernel` (filters, channels, rows, columns), behind a ZeroPadding2D where `pads`
    are given.
    """
    layers = import_keras().layers
    conv = layers.Conv2D(
        len(kernel),
        kernel.shape[2:],
        strides=stride,
        padding=padding,
        use_bias=False,
        dtype=str(kernel.dtype),
    )
    conv.build((None, None, None, kernel.shape[1]))
    conv.set_weights([kernel.transpose(2, 3, 1, 0)])
    return (
        keras_layers(conv)
        if pads is None
        else keras_layers(layers.ZeroPadding2D(pads, dtype=str(kernel.dtype)), conv)
    )


def keras_pool(kind: str, size: int, stride: int, padding: str, pads: Any = None) -> Layer:
    layers = import_keras().layers
    pool = getattr(layers, kind)(size, strides=stride, padding=padding, dtype="float64")
    return (
        keras_layers(pool)
        if pads is None
        else keras_layers(layers.ZeroPadding2D(pads, dtype="float64"), pool)
    )


def fraction(value: float) -> str:
    return str(Fraction(value).limit_denominator(100))


def amount(value: float) -> str:
    """A difference: two digits, and one where it is rounding."""
    return "0" if value == 0 else f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"


def matrix(values: Array) -> str:
    return "`" + str(values.astype(int).tolist()).replace(" ", "") + "`"


def shape(values: Array) -> str:
    return "×".join(map(str, values.shape[2:]))


# --- averages


EXCLUDING = "Keras, TF-slim: `AveragePooling2D(3, 1, 'same')`"
COUNTING = "torchvision, timm: `avg_pool2d(3, 1, padding=1)`"


def average_layers() -> dict[str, Layer]:
    """3x3 averages at stride 1 that keep the map's size."""
    return {
        EXCLUDING: keras_pool("AveragePooling2D", 3, 1, "same"),
        "torch: `avg_pool2d(3, 1, padding=1, count_include_pad=False)`": torch_layer(
            lambda x: F.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False)
        ),
        "`ZeroPadding2D(1)`, then `AveragePooling2D(3, 1, 'valid')`": keras_pool(
            "AveragePooling2D", 3, 1, "valid", 1
        ),
        COUNTING: torch_layer(lambda x: F.avg_pool2d(x, 3, 1, padding=1)),
    }


def averages() -> Rows:
    """What a map of ones becomes: how much of each window counts."""
    rows: Rows = [("layer", "corner", "edge", "middle")]
    for name, layer in average_layers().items():
        found = layer(np.ones((1, 1, 8, 8)))[0, 0]
        rows.append((name, *map(fraction, (found[0, 0], found[0, 4], found[4, 4]))))
    cntk = row(Convention("cntk"), Window((3, 3)), 0, 8)
    # The cells of the first window that are input, over what it divides by.
    edge = Fraction(3 + cntk.start, cntk.divisors[0])
    return [*rows, ("CNTK: `autoPadding=true` (porter's arithmetic)", str(edge * edge), str(edge), "1")]


def rebuilt_averages() -> Rows:
    """The factor by which cells are wrong once an average is rebuilt as the other kind, and how many of them
    are.
    """
    layers = average_layers()
    excluding, counting = layers[EXCLUDING], layers[COUNTING]
    padded = layers["`ZeroPadding2D(1)`, then `AveragePooling2D(3, 1, 'valid')`"]
    rows: Rows = [("the source", "rebuilt as", "corner ×", "edge ×", "wrong on 35×35", "on 17×17", "on 8×8")]
    for name, source, other, rebuilt in (
        ("excluding (CNTK, slim, Keras)", excluding, "pad, then pool", padded),
        ("counting (torchvision, timm)", counting, "`same`", excluding),
    ):
        factors = [
            (rebuilt(ones) / source(ones))[0, 0] for ones in (np.ones((1, 1, n, n)) for n in (35, 17, 8))
        ]
        wrong = [f"{np.mean(np.abs(factor - 1) > 1e-9):.0%}" for factor in factors]
        rows.append((name, other, fraction(factors[0][0, 0]), fraction(factors[0][0, 17]), *wrong))
    return rows


# --- the odd cell of a strided window


def window_shift() -> Rows:
    """onnx/onnx#388, in four numbers."""
    batch = np.arange(16.0).reshape(1, 1, 4, 4)
    given = torch_layer(lambda x: F.max_pool2d(x, 3, 2, padding=1))(batch)
    found = keras_pool("MaxPooling2D", 3, 2, "same")(batch)
    return [
        ("layer", "gives"),
        ("torch `MaxPool2d(3, 2, padding=1)`", matrix(given[0, 0])),
        ("Keras `same`", matrix(found[0, 0])),
    ]


def conv_on_ten() -> Rows:
    """A convolution of one kernel, in float32."""
    random = np.random.default_rng(10)
    bound = 1 / np.sqrt(27)  # torch's own initialisation
    kernel = random.uniform(-bound, bound, (8, 3, 3, 3)).astype(np.float32)
    batch = random.random((1, 3, 10, 10), np.float32)
    wanted, weight = keras_conv(kernel, "same")(batch), torch.from_numpy(kernel)
    rows: Rows = [("torch layer", "outputs", "mean difference from Keras `same`")]
    for name, layer in (
        ("`Conv2d(3, 8, 3, 2, padding=1)`", torch_layer(lambda x: F.conv2d(x, weight, stride=2, padding=1))),
        (
            "`pad(x, (0, 1, 0, 1))`, then `Conv2d(3, 8, 3, 2)`",
            torch_layer(lambda x: F.conv2d(F.pad(x, (0, 1, 0, 1)), weight, stride=2)),
        ),
    ):
        found = layer(batch)
        rows.append((name, shape(found), amount(distance(wanted, found).l1)))
    return rows


def zero_padding() -> Rows:
    """Keras's own two ways to pad a strided layer, against `same`, on values that are mostly negative."""
    random = np.random.default_rng(11)
    kernel = random.standard_normal((4, 2, 3, 3))
    batches = [random.normal(-2.0, 1.0, (1, 2, n, n)) for n in (10, 11)]
    makers: Mapping[str, Callable[..., Layer]] = {
        "`Conv2D(4, 3, 2)`": lambda padding, pads=None: keras_conv(kernel, padding, pads=pads),
        "`MaxPooling2D(3, 2)`": lambda padding, pads=None: keras_pool("MaxPooling2D", 3, 2, padding, pads),
    }
    rows: Rows = [("layer", "instead of `same`", "on 10×10", "on 11×11")]
    for (name, make), pads in product(makers.items(), (1, ((0, 1), (0, 1)))):
        cells = [_against(make("same")(batch), make("valid", pads)(batch)) for batch in batches]
        rows.append((name, f"`ZeroPadding2D({pads})`, then `valid`", *cells))
    return rows


def _against(wanted: Array, found: Array) -> str:
    if wanted.shape != found.shape:
        return f"{shape(found)} for {shape(wanted)}"
    apart = distance(wanted, found).rel_l2
    return "equal" if apart < 1e-12 else f"off by {apart:.2f}"


def pool_of_two() -> Rows:
    random = np.random.default_rng(12)
    rows: Rows = [("map", "`same`", "`valid`", "values")]
    for n in (5, 6):
        batch = random.standard_normal((1, 1, n, n))
        same, valid = (keras_pool("MaxPooling2D", 2, 2, padding)(batch) for padding in ("same", "valid"))
        rows.append(
            (
                f"{n}×{n}",
                shape(same),
                shape(valid),
                "equal" if np.array_equal(same, valid) else "of another size",
            )
        )
    return rows


def stem_pool() -> Rows:
    """A 3x3 max pool at stride 2 on values of either sign: what the fill does, and what the side does."""
    rows: Rows = [("map", "SAME pads", "zeros or -inf on every side", "-inf on every side, or SAME")]
    for n in (112, 113):
        batch = np.random.default_rng(n).standard_normal((1, 16, n, n))
        zeros = keras_pool("MaxPooling2D", 3, 2, "valid", 1)(batch)
        lowest = torch_layer(lambda x: F.max_pool2d(x, 3, 2, padding=1))(batch)
        same = keras_pool("MaxPooling2D", 3, 2, "same")(batch)
        first = -row(Convention("same"), Window((3, 3), (2, 2)), 0, n).start
        share = [f"{np.mean(one != other):.2%}" for one, other in ((zeros, lowest), (lowest, same))]
        rows.append((f"{n}×{n}", f"({first},1)", *share))
    return rows


def merged_pads() -> Rows:
    """A max pool over zeros, exported by torch and run by onnxruntime, on numbers from -2 to -1."""
    batch = np.random.default_rng(13).uniform(-2, -1, (1, 3, 9, 9)).astype(np.float32)
    rows: Rows = [("exported from torch", "onnxruntime's default", '`disabled_optimizers=["Pad_Fusion"]`')]
    for name, pad in (
        ("`ZeroPad2d(1)`", torch.nn.ZeroPad2d(1)),
        ("`ConstantPad2d(1, -0.0)`", torch.nn.ConstantPad2d(1, -0.0)),
    ):
        module = torch.nn.Sequential(pad, torch.nn.MaxPool2d(3, 2))
        file: Any = BytesIO()  # the older exporter takes one, which its types do not say
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter without onnxscript is the older one
            torch.onnx.export(module, (torch.from_numpy(batch),), file, input_names=["x"], dynamo=False)
        wanted = torch_layer(module)(batch)
        cells = []
        for disabled in ([], ["Pad_Fusion"]):
            session = onnxruntime.InferenceSession(file.getvalue(), disabled_optimizers=disabled)
            cells.append(_against(wanted, session.run(None, {"x": batch})[0]))
        rows.append((f"{name}, then `MaxPool2d(3, 2)`", *cells))
    return rows


# --- which side, per framework


def first_window(layer: Callable[[Array], Layer], kernel: int, size: int) -> tuple[int, int]:
    """Where a framework's own strided convolution starts, and how many outputs it gives.

    The kernel numbers its cells and only the map's first cell is one, so the first output tells which of them
    read it.
    """
    cells = np.arange(1.0, kernel * kernel + 1).reshape(1, 1, kernel, kernel)
    batch = np.zeros((1, 1, size, size))
    batch[0, 0, 0, 0] = 1.0
    found = layer(cells)(batch)
    return -((round(found[0, 0, 0, 0]) - 1) // kernel), found.shape[2]


def by_arithmetic(convention: Convention, kernel: int, size: int) -> tuple[int, int]:
    found = row(convention, Window((kernel, kernel), (2, 2)), 0, size)
    return found.start, found.count


GEOMETRIES = ((3, 224), (3, 225), (7, 224), (7, 225))


def symmetric(kernel: int, rounding: Rounding = "floor") -> Convention:
    return Convention("explicit", (kernel // 2,) * 4, LOWEST, rounding=rounding)


def sides() -> Rows:
    """First cell of the first window, and how many windows there are, at stride 2."""

    def torch_conv(kernel: Array) -> Layer:
        return torch_layer(
            lambda x: F.conv2d(x, torch.from_numpy(kernel), stride=2, padding=kernel.shape[2] // 2)
        )

    frameworks: Mapping[str, Callable[[int, int], tuple[int, int]]] = {
        "TensorFlow, Keras `same`": lambda k, n: first_window(
            lambda kernel: keras_conv(kernel, "same"), k, n
        ),
        "torch, `padding=k//2`": lambda k, n: first_window(torch_conv, k, n),
        "Caffe, pools with `pad` k//2, rounding up": lambda k, n: by_arithmetic(symmetric(k, "ceil"), k, n),
        "Caffe, pools with `pad` 0, rounding up": lambda k, n: by_arithmetic(
            Convention(fill=LOWEST, rounding="ceil"), k, n
        ),
        "Caffe, convolutions with `pad` k//2": lambda k, n: by_arithmetic(symmetric(k), k, n),
        "CNTK `autoPadding`": lambda k, n: by_arithmetic(Convention("cntk"), k, n),
        "MXNet, `pad` k//2, pools `valid`": lambda k, n: by_arithmetic(symmetric(k), k, n),
        "MXNet, `pad` k//2, pools `full`": lambda k, n: by_arithmetic(symmetric(k, "full"), k, n),
        "ONNX `SAME_UPPER`": lambda k, n: by_arithmetic(Convention("same"), k, n),
        "ONNX `SAME_LOWER`": lambda k, n: by_arithmetic(Convention("same_lower"), k, n),
    }
    rows: Rows = [("framework", *(f"{k}×{k} on {n}" for k, n in GEOMETRIES))]
    for name, measure in frameworks.items():
        rows.append((name, *("{} ({})".format(*measure(k, n)) for k, n in GEOMETRIES)))
    return rows


# --- a whole network


@cache
def mobilenet_values(padding: str) -> Mapping[str, Array]:
    """Every value of MobileNet v1 0.25 with calibrated random weights, in float64, its strided convolutions
    padded so.
    """
    convention = {
        "same": Convention("same"),
        "1": Convention("explicit", (1, 1, 1, 1)),
        "valid": Convention(),
    }[padding]
    variant, zoo = MOBILENET
    graph = standin_graph(variant, zoo)
    padded = with_conventions(graph, dict.fromkeys(strided_sites(graph), convention))
    batch = make_batch((224, 224), IMAGES, 3, find_recipe(variant).zoo(zoo, variant).preprocess)
    return OwnBuild(get_destination("torch"), padded, standin_tensors(variant, zoo)).run(batch, "float64")


def mobilenet_distance(padding: str) -> Distance:
    return distance(mobilenet_values("same")["head/logits"], mobilenet_values(padding)["head/logits"])


def mobilenet() -> Rows:
    rows: Rows = [
        (
            "strided convolutions padded",
            "stem's outputs",
            "last map",
            "logits",
            "logits' SNR",
            "another top class",
        )
    ]
    right = mobilenet_values("same")
    for name, padding in (
        ("SAME, as in training", "same"),
        ("1 on every side", "1"),
        ("not at all", "valid"),
    ):
        found, logits = mobilenet_values(padding), mobilenet_distance(padding)
        other = int((found["head/logits"].argmax(1) != right["head/logits"].argmax(1)).sum())
        last, snr = (
            _against(right[LAST_MAP], found[LAST_MAP]),
            "" if logits.snr_db is None else f"{logits.snr_db:.1f} dB",
        )
        apart = _against(right["head/logits"], found["head/logits"])
        rows.append((name, shape(found["stem/conv"]), last, apart, snr, f"{other} of {IMAGES} images"))
    return rows


FIGURES: Mapping[str, Callable[[], Rows]] = {
    "window_shift": window_shift,
    "conv_on_ten": conv_on_ten,
    "zero_padding": zero_padding,
    "pool_of_two": pool_of_two,
    "stem_pool": stem_pool,
    "merged_pads": merged_pads,
    "averages": averages,
    "rebuilt_averages": rebuilt_averages,
    "mobilenet": mobilenet,
    "sides": sides,
}


def markdown(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *body))


def main() -> None:
    text = BLOCK.sub(
        lambda block: f"{block[1]}{markdown(FIGURES[block[2]]())}{block[3]}",
        DOCUMENT.read_text(encoding="utf-8"),
    )
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
