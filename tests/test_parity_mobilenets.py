"""MobileNet v1 and v2 against implementations that porter did not write, on calibrated random weights."""

from pathlib import Path

import pytest

import porter
from porter.recipe import find_recipe
from tests.conftest import WeightsMaker

SIZES = ("224", "160", "225x201")
V1 = list(find_recipe("mobilenet_v1").variants)
V2 = list(find_recipe("mobilenet_v2").variants)
TIMM = [variant for variant in V2 if variant != "mobilenet_v2_1.3"]  # timm has no width of 1.3
ALL = [
    *((variant, "keras", ".h5") for variant in V1 + V2),
    ("mobilenet_v2", "torchvision", ".pth"),
    *((variant, "timm", ".pth") for variant in TIMM),
]
CASES = [(*case, framework, size) for case in ALL for framework in ("torch", "tf") for size in (*SIZES, "any")]


def quick(case: tuple[str, str, str, str, str]) -> bool:
    """In CI: the full-width nets to torch at every size; every other width and the way to tf at the size where pads part most.
    Of timm, which builds what torchvision builds, the narrowest to torch.
    """
    variant, zoo, _, framework, size = case
    if zoo == "timm":
        return (variant, framework) == ("mobilenet_v2_0.35", "torch") and size in ("224", "225x201")
    return (variant in ("mobilenet_v1", "mobilenet_v2") and framework == "torch") or size == "225x201"


QUICK = [case for case in CASES if quick(case)]


def check_port(case: tuple[str, str, str, str, str], weights_file: WeightsMaker, tmp_path: Path) -> None:
    variant, zoo, suffix, framework, size = case
    made = porter.convert(
        variant, zoo, framework, weights=weights_file(variant, zoo, suffix), out=tmp_path / "port", input_size=size, check=True
    )
    assert made.verdict is not None
    single, double = made.verdict.parities
    assert (single.dtype, double.dtype) == ("float32", "float64")
    assert double.reference == zoo
    assert all(node.rel_l2 <= 1e-10 for node in double.nodes) and double.logits.argmax_equal
    assert single.logits.rel_l2 <= max(1e-5, 4 * single.source_rounding) and single.logits.argmax_equal
    windowed = {node.path for node in made.port.graph.nodes if node.op_name in ("conv", "dense", "max_pool", "avg_pool")}
    assert windowed <= {node.path for node in double.nodes}


@pytest.mark.parametrize("case", QUICK, ids="-".join)
def test_port_computes_the_references_function(
    case: tuple[str, str, str, str, str], weights_file: WeightsMaker, tmp_path: Path
) -> None:
    check_port(case, weights_file, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("case", [case for case in CASES if case not in QUICK], ids="-".join)
def test_port_computes_the_references_function_everywhere(
    case: tuple[str, str, str, str, str], weights_file: WeightsMaker, tmp_path: Path
) -> None:
    check_port(case, weights_file, tmp_path)
