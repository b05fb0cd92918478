import weakref
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from porter.base.dtypes import Dtype
from porter.base.errors import CheckFailed
from porter.graph import AvgPool, Conv, GlobalAvgPool, Graph, Node, Op, Relu
from porter.graph.plan import Plan, make_plan
from porter.padding import Capabilities, Convention, Window
from porter.padding.windows import Rule
from porter.verification import memory
from porter.verification.numbers import distance
from porter.verification.parity import FLOAT32_LIMIT, MOST_ROUNDING, NodeLimits, compare
from porter.verification.results import Parity
from tests.support.arrays import Array

NATIVE = Capabilities(True, True, ("same",), True, "any", ("floor",), ("real_cells",), (), (), True)


@dataclass
class Fake:
    values: Callable[[Dtype], dict[str, Array]]
    name: str = "fake"
    run_by: str = "nothing"

    def takes(self, size: tuple[int, int]) -> bool:
        return True

    def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
        return self.values(dtype)


def given(found: dict[str, Array], batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
    """A port that gives these values, whatever the images."""
    return found


def showing(shown: Mapping[str, Array]) -> Fake:
    """A source that gives these values, whatever the number type."""
    return Fake(lambda dtype: dict(shown))


POOL = AvgPool(Window((2, 2)), Convention())


def plan(pool: Op = POOL) -> Plan:
    nodes = (
        Node("stem/conv", Conv(4, Window((3, 3), (2, 2)), Convention("same")), ("input",)),
        Node("stem/relu", Relu(), ("stem/conv",)),
        Node("pool", pool, ("stem/relu",)),
    )
    return make_plan(Graph(nodes, 3, "pool"), (8, 8), NATIVE)


def values(**changes: float | Array) -> dict[str, Array]:
    base = {path: np.arange(1.0, 9.0).reshape(2, 4) for path in ("stem/conv", "stem/relu", "pool")}
    return {path: array + changes.get(path.replace("/", "_"), 0.0) for path, array in base.items()}


BATCH = np.zeros((2, 3, 8, 8))


def test_equal_models_pass_at_the_double_limit() -> None:
    found = compare(
        plan(), Fake(lambda dtype: values()), lambda batch, dtype, paths: values(), {"float64": [BATCH]}
    )[0]
    assert found.ok and found.first_bad is None and found.limit == 1e-10
    assert [node.path for node in found.nodes] == ["stem/conv", "stem/relu", "pool"]


@pytest.mark.parametrize("wrong", ["", "stem_conv", "pool"])
def test_values_that_are_too_large_together_are_compared_part_by_part(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's rounding in float32 too, and the verdict is that of all values together."""
    asked = list[Collection[str]]()

    class Parts(Fake):
        def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
            asked.append(paths or ())
            return {path: value for path, value in self.values(dtype).items() if path in (paths or ())}

    def port(batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
        changed = values(**({wrong: 1e-3} if wrong else {}))
        return {path: changed[path] for path in paths}

    source = Parts(lambda dtype: values(stem_relu=1e-7 if dtype == "float32" else 0.0))
    batches: dict[Dtype, list[Array]] = {
        "float32": [BATCH, BATCH],
        "float64": [BATCH, BATCH, BATCH[:, :, 1:]],
    }
    together = compare(plan(), source, port, batches)
    assert {len(paths) for paths in asked} == {3} and together[1].ok is (not wrong)
    asked.clear()
    monkeypatch.setattr(memory, "_LEAST", 1)
    monkeypatch.setattr(memory, "_memory", lambda: None)
    assert compare(plan(), source, port, batches) == together
    assert {len(paths) for paths in asked} == {1}


def test_the_first_node_that_stands_out_is_named_with_its_padding_decision() -> None:
    found = compare(
        plan(),
        Fake(lambda dtype: values()),
        lambda b, d, p: values(stem_conv=1e-2, pool=1e-3),
        {"float64": [BATCH]},
    )[0]
    assert not found.ok and found.first_bad is not None
    assert (found.first_bad.path, found.first_bad.site) == ("stem/conv", "stem/conv")
    assert (found.first_bad.source, found.first_bad.realised) == ("same", "same")
    # Where the convolution's value is equal, its pads are too.
    found = compare(
        plan(), Fake(lambda dtype: values()), lambda b, d, p: values(stem_relu=1e-2), {"float64": [BATCH]}
    )[0]
    assert found.first_bad is not None and (found.first_bad.path, found.first_bad.site) == ("stem/relu", None)


def test_a_difference_that_no_pad_makes_names_none() -> None:
    maps = {path: np.arange(72.0).reshape(2, 4, 3, 3) for path in ("stem/conv", "stem/relu", "pool")}
    smaller, others = np.zeros((2, 4, 2, 3)), np.zeros((2, 8, 3, 3))
    cases = {1e-6: None, 1e-2: "stem/conv"}
    wrong = [({**maps, "stem/conv": maps["stem/conv"] * (1 + by)}, site) for by, site in cases.items()]
    wrong += [({**maps, "stem/conv": smaller}, "stem/conv"), ({**maps, "stem/conv": others}, None)]
    for values, site in wrong:
        found = compare(plan(), Fake(lambda dtype: dict(maps)), partial(given, values), {"float64": [BATCH]})
        bad = found[0].first_bad
        assert bad is not None and (bad.path, bad.site) == ("stem/conv", site)


@pytest.mark.parametrize("rule", ["same", "valid"])
def test_a_site_that_the_source_does_not_show_is_named_by_what_stands_behind_it(rule: Rule) -> None:
    """If it pads anything."""
    same, point = Convention("same"), Window((1, 1))
    nodes = (
        Node("stem", Conv(4, Window((3, 3), (2, 2)), same), ("input",)),
        Node("average", AvgPool(Window((3, 3)), Convention(rule)), ("stem",)),
        Node("conv", Conv(4, point, Convention()), ("average",)),
        Node("logits", Conv(4, point, Convention()), ("conv",)),
    )
    whole = make_plan(Graph(nodes, 3, "logits"), (8, 8), NATIVE)
    right = {path: np.arange(1.0, 9.0).reshape(2, 4) for path in ("stem", "conv", "logits")}
    pool = "average" if rule == "same" else None
    for moved, wanted in (("conv", pool), ("logits", None), ("stem", "stem")):
        wrong = {**right, moved: right[moved] + 1e-3}
        found = compare(whole, Fake(lambda dtype: right), partial(given, wrong), {"float64": [BATCH]})[0]
        assert found.first_bad is not None and (found.first_bad.path, found.first_bad.site) == (moved, wanted)
        assert found.first_bad.unseen == (("average",) if moved == "conv" else ())


def test_in_single_precision_the_sources_own_rounding_sets_the_limit() -> None:
    def source(dtype: Dtype, rounding: float = 1e-4) -> dict[str, Array]:
        return values() if dtype == "float64" else values(pool=rounding)

    found = compare(plan(), Fake(source), lambda b, d, p: values(pool=3e-4), {"float32": [BATCH]})[0]
    assert found.limit == pytest.approx(4 * found.source_rounding) and found.limit > FLOAT32_LIMIT
    assert found.ok
    assert not compare(plan(), Fake(source), lambda b, d, p: values(pool=7e-4), {"float32": [BATCH]})[0].ok
    loose = compare(
        plan(), Fake(lambda dtype: source(dtype, 1.0)), lambda b, d, p: values(pool=1.1), {"float32": [BATCH]}
    )[0]
    assert loose.limit == MOST_ROUNDING and not loose.ok


def test_a_node_that_rounds_as_the_source_does_is_not_said_to_round_more() -> None:
    """Sums that cancel are off by 1e-3 in float32 whoever computes them; float64 tells them from wrong
    ones.
    """
    batches: dict[Dtype, list[Array]] = {"float32": [BATCH], "float64": [BATCH]}
    source = Fake(lambda dtype: values() if dtype == "float64" else values(pool=1e-3))

    def compared(off: float, tolerance: float | None = None) -> Parity:
        return compare(
            plan(),
            source,
            lambda b, d, p: values(pool=off if d == "float32" else 0.0),
            batches,
            NodeLimits(tolerance),
        )[0]

    found = compared(3e-3)
    assert (
        found.ok
        and found.rounds_from is None
        and found.first_bad is None
        and found.logits.rel_l2 <= found.limit
    )
    assert compared(7e-3).rounds_from == "pool" and compared(3e-3, 1e-4).rounds_from == "pool"


@pytest.mark.parametrize(
    ("off", "ok", "start"),
    [(1e-4, True, "pool"), (1e-1, False, None), (np.nan, False, None)],
)
def test_where_float64_proves_the_port_float32_says_how_it_rounds(
    off: float, ok: bool, start: str | None
) -> None:
    batches: dict[Dtype, list[Array]] = {"float32": [BATCH], "float64": [BATCH]}
    source = Fake(lambda dtype: values() if dtype == "float64" else values(pool=1e-6))

    def port(batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
        return values(pool=off if dtype == "float32" else 0.0)

    single, double = compare(plan(), source, port, batches)
    assert double.ok and (single.ok, single.rounds_from) == (ok, start)
    wrong = compare(plan(), source, lambda b, d, p: values(pool=off if d == "float32" else 1e-6), batches)
    assert not wrong[0].ok and not wrong[1].ok


@pytest.mark.parametrize(("apart", "ok"), [(1e-2, True), (2.0, False)])
def test_a_source_that_is_far_from_itself_does_not_round(apart: float, ok: bool) -> None:
    """Of a hard sigmoid the reference in float64 had another slope than the one in float32, as the port had:
    it was proved, because the source seemed to round as much.
    """
    batches: dict[Dtype, list[Array]] = {"float32": [BATCH], "float64": [BATCH]}
    source = Fake(lambda dtype: values() if dtype == "float64" else values(pool=apart))
    single, double = compare(plan(), source, lambda b, d, p: values(), batches)
    assert double.ok and single.ok is ok


@pytest.mark.parametrize(("off", "ok"), [(3e-3, True), (1e-1, False)])
def test_a_source_that_rounds_by_chance_is_asked_again(off: float, ok: bool) -> None:
    """Of the source's runs in float32 those after the first, whose inputs are moved by one rounding, are
    further from float64.
    """
    batches: dict[Dtype, list[Array]] = {"float32": [BATCH], "float64": [BATCH]}
    seen: list[Array] = []

    class ByChance(Fake):
        def run(self, batch: Array, dtype: Dtype, paths: Collection[str] | None = None) -> dict[str, Array]:
            seen.append(batch)
            return (
                values()
                if dtype == "float64"
                else values(pool=1e-6 if np.array_equal(batch, BATCH) else 1e-4)
            )

    found = compare(
        plan(),
        ByChance(lambda dtype: {}),
        lambda b, d, p: values(pool=off if d == "float32" else 0.0),
        batches,
    )
    assert found[0].ok is ok and all(np.allclose(batch, BATCH, rtol=1e-6) for batch in seen)


@pytest.mark.parametrize(("error", "ok"), [(0.0, False), (1e-9, False), (1e-5, True)])
@pytest.mark.parametrize("proved", [True, False])
def test_values_are_compared_with_what_float32_may_be_off_by(error: float, ok: bool, proved: bool) -> None:
    """The source's value is 0 in float32, where the port's is not."""
    small = {**values(), "pool": 1e-5 * np.arange(1.0, 9.0).reshape(2, 4)}
    source = Fake(lambda dtype: small if dtype == "float64" else {**small, "pool": np.zeros((2, 4))})

    def port(batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
        return small if dtype == "float64" and proved else {**small, "pool": 2 * small["pool"]}

    batches: dict[Dtype, list[Array]] = {"float32": [BATCH], "float64": [BATCH]}
    found = compare(plan(), source, port, batches, NodeLimits(errors=lambda batch: {"pool": error}))
    assert found[0].ok is (ok and proved) and found[1].ok is proved
    alone = compare(
        plan(), source, port, {"float32": [BATCH]}, NodeLimits(None, lambda batch: {"pool": error}, proved)
    )
    assert alone[0].ok is (ok and proved)


@pytest.mark.parametrize(("margin", "changed"), [(1e-6, False), (1e-3, True)])
def test_a_top_class_may_change_in_a_tie_only(margin: float, changed: bool) -> None:
    logits, moved = np.array([[5.0, 5.0 + margin], [1.0, 2.0]]), np.array([[margin, -margin], [0.0, 0.0]])
    found = compare(
        plan(),
        Fake(lambda dtype: {"pool": logits}),
        lambda b, d, p: {"pool": logits + moved},
        {"float32": [BATCH]},
    )[0]
    assert not found.logits.argmax_equal and found.top_changed is changed and found.ok is not changed


@pytest.mark.parametrize("path", ["stem/conv", "pool"])
@pytest.mark.parametrize("number", [0.0, np.nan])
def test_another_extent_is_infinitely_far(number: float, path: str) -> None:
    """NaN in another shape was equal to the NaN that stood for values that cannot be compared."""
    smaller = {**values(), path: np.full((2, 3), number)}
    found = compare(plan(), Fake(lambda dtype: values()), lambda b, d, p: smaller, {"float64": [BATCH]})[0]
    assert not found.ok and found.first_bad is not None
    assert (found.first_bad.path, found.first_bad.rel_l2) == (path, np.inf)
    assert found.first_bad.shapes == ((4,), (3,))


def test_an_output_has_the_shape_that_a_caller_gets() -> None:
    """Found by mistakes planted in a reader and in a build: a port that gave N x 6 x 9 x 1 for a file's
    N x 6 x 9, and one of N x 6 whose graph and file have N x 6 x 1 x 1.
    """
    for path, axes, kept, ok in (
        ("pool", (2, 4, 1, 1), False, True),
        ("pool", (2, 4, 1, 1), True, False),
        ("pool", (2, 1, 4), False, False),
        ("pool", (2, 4, 1), False, False),
        ("stem/conv", (2, 1, 2, 2), False, True),
    ):
        shown = {**values(), path: values()[path].reshape(axes)}
        source = showing(shown)
        made = plan(GlobalAvgPool(keep=kept))
        (found,) = compare(made, source, lambda b, d, p: values(), {"float64": [BATCH]})
        assert found.ok is ok
        assert ok or (found.first_bad is not None and found.first_bad.shapes == (axes[1:], (4,)))


def test_nodes_that_the_source_does_not_show_are_listed() -> None:
    shown = {"pool": values()["pool"]}
    found = compare(plan(), Fake(lambda dtype: shown), lambda b, d, p: values(), {"float64": [BATCH]})[0]
    assert found.uncompared == ("stem/conv", "stem/relu")


@pytest.mark.parametrize("further", [(), ("stem/relu",)])
def test_without_an_output_nothing_is_proved(further: tuple[str, ...]) -> None:
    graph, shown = replace(plan().graph, further=further), "pool" if further else "stem/conv"
    hidden = {shown: values()[shown]}
    with pytest.raises(
        CheckFailed, match=f"{further[0] if further else 'pool'}: the reference does not show this output"
    ):
        compare(
            replace(plan(), graph=graph),
            Fake(lambda dtype: hidden),
            lambda b, d, p: values(),
            {"float64": [BATCH]},
        )


def test_the_worst_of_several_sizes_counts() -> None:
    calls: list[float] = []

    def port(batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
        calls.append(1.0)
        return values(pool=1.0 if len(calls) == 1 else 0.0)

    assert not compare(plan(), Fake(lambda dtype: values()), port, {"float64": [BATCH, BATCH[:, :, 1:]]})[
        0
    ].ok


def test_an_undefined_distance_is_the_worst_of_several_sizes() -> None:
    """The norms of numbers near float64's largest are infinite, and their ratio is NaN, which is larger than
    no number: the distance of the size before hid it.
    """
    large = {path: np.full_like(array, 1e308) for path, array in values().items()}

    def port(batch: Array, dtype: Dtype, paths: Collection[str]) -> dict[str, Array]:
        return large if batch.shape == BATCH.shape else {**large, "pool": -large["pool"]}

    with np.errstate(over="ignore"):
        (found,) = compare(plan(), showing(large), port, {"float64": [BATCH, BATCH[:, :, 1:]]})
    assert not found.ok and found.first_bad is not None and found.first_bad.path == "pool"
    assert np.isnan([found.worst.rel_l2, found.logits.rel_l2]).all()


def test_the_images_of_one_size_are_run_one_by_one_and_measured_together() -> None:
    """All maps of a network are large: the values of one image are released before the next one is run."""
    rng = np.random.default_rng(0)
    images = [rng.standard_normal((1, 3, 8, 8)) for _ in range(3)]
    shown = {path: array.reshape(1, 8) for path, array in values().items()}
    sides = {
        side: [{**shown, "pool": shown["pool"] + rng.standard_normal((1, 8))} for _ in images]
        for side in ("double", "single", "port")
    }
    held: list[weakref.ref[Array]] = []

    def run(side: str, batch: Array) -> dict[str, Array]:
        if side == "double":
            assert all(array() is None for array in held)
        at = next(n for n, image in enumerate(images) if image is batch)
        found = {path: array.copy() for path, array in sides[side][at].items()}
        held.extend(weakref.ref(array) for path, array in found.items() if path != "pool")
        return found

    source = Fake(lambda dtype: {})
    source.run = lambda batch, dtype, paths=None: run("double" if dtype == "float64" else "single", batch)  # type: ignore[method-assign]
    found = compare(plan(), source, lambda batch, dtype, paths: run("port", batch), {"float32": images})[0]
    double, single, port = (
        np.concatenate([shown["pool"] for shown in sides[side]]) for side in ("double", "single", "port")
    )
    assert found.logits == distance(single, port) and found.inputs == 3
    assert (
        found.nodes[-1].rel_l2 == pytest.approx(found.logits.rel_l2)
        and found.nodes[-1].max_abs == found.logits.max_abs
    )
    assert found.source_rounding == pytest.approx(distance(double, single).rel_l2)


def test_a_long_check_shows_a_bar_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def compared(terminal: bool) -> str:
        monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
        monkeypatch.setattr("porter.verification.parity.BAR_AFTER", 0)
        compare(
            plan(),
            Fake(lambda dtype: values()),
            lambda b, d, p: values(),
            {"float32": [BATCH], "float64": [BATCH]},
        )
        captured = capfd.readouterr()
        assert not captured.out
        return captured.err

    assert "5/5" in compared(True) and not compared(False)
