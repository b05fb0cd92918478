"""Ports with the pads that the weights were trained with: where they go, how they are proved, and what is
refused.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import porter
from porter.base.errors import UsageError
from porter.cli import pads_text, port_text
from porter.conversion.pad_table import pads
from porter.filegraph.checkpoint import Checkpoint
from porter.frameworks import get_destination
from porter.graph import Conv, Graph
from porter.graph.pads import with_conventions
from porter.padding import Convention
from porter.port import read_port
from porter.recipe import Recipe, expand, find_recipe, recipes_folder, trained_conventions
from porter.source.fitting.by_graph import fit_by_graph
from porter.source.fitting.candidate import Candidate
from porter.source.open import open_source
from porter.source.place import find
from porter.source.training_pads import with_padding
from porter.verification.check import Check
from porter.verification.inputs import stated_range
from porter.verification.numbers import distance
from porter.verification.references.own_build import OwnBuild
from porter.verification.sizes import Sizes
from porter.verification.training_pads_proof import prove_trained
from tests.support.fixtures import WeightsMaker
from tests.support.ops import op_at
from tests.support.source.file_graphs import as_file, changed, layer_of

VARIANT, ZOO, SIZE = "mobilenet_v2_0.35", "timm", (64, 64)
SITE, OTHER = "stem/conv", "block1/depthwise/conv"
SAME, TWO = Convention("same"), Convention("explicit", (2, 2, 2, 2))


@pytest.fixture(scope="session")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MobileNet v2's recipe, if timm's weights had been trained with SAME at the first convolution."""
    folder = tmp_path_factory.mktemp("recipes")
    text = (recipes_folder() / "mobilenet_v2.yaml").read_text()
    head, timm, tail = text.partition("  timm:")
    options = "    options: {bn_epsilon: 1.0e-5}\n"
    assert tail.count(options) == 1
    tail = tail.replace(options, f"{options}    padding_as_trained: {{{SITE}: same}}\n")
    (folder / "mobilenet_v2.yaml").write_text(f"{head}{timm}{tail}")
    return folder


@pytest.fixture(scope="session")
def recipe(recipes: Path) -> Recipe:
    return find_recipe(VARIANT, recipes)


@pytest.fixture(scope="session")
def weights(weights_file: WeightsMaker) -> Path:
    return weights_file(VARIANT, ZOO, ".pth")


def convert(recipes: Path, weights: Path, out: Path, **more: Any) -> porter.Ported:
    arguments = {"padding": "trained", "input_size": "64", "check": True, **more}
    return porter.convert(VARIANT, ZOO, "torch", weights=weights, out=out, recipes=recipes, **arguments)


@pytest.fixture(scope="session")
def made(recipes: Path, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> porter.Ported:
    return convert(recipes, weights, tmp_path_factory.mktemp("trained") / "port")


def convention_at(graph: Graph, path: str) -> Convention:
    found: Convention = op_at(graph, path).convention
    return found


def test_only_the_listed_site_changes(recipe: Recipe) -> None:
    member = recipe.member(VARIANT, ZOO)
    assert trained_conventions(member) == {SITE: SAME}
    assert trained_conventions(recipe.member(VARIANT, "keras")) == {}
    shipped = expand(member)
    assert with_conventions(shipped, {SITE: SAME}) == expand(member, as_trained=True) != shipped


def test_a_file_that_carries_its_graph_keeps_its_other_pads(recipe: Recipe) -> None:
    member = recipe.member(VARIANT, ZOO)
    draft = expand(member)
    file, own = as_file(draft), {SITE: TWO, OTHER: TWO}
    for path, convention in own.items():
        op = draft.by_path[path].op
        assert isinstance(op, Conv)
        file = changed(file, layer_of(draft, path), op=replace(op, convention=convention))
    names = {stored.name for node in file.nodes for stored in node.tensors.values()}
    fit = fit_by_graph(
        Candidate.of(
            member, Checkpoint(Path("a.pb"), "frozen", "tf", {n: np.zeros(1) for n in names}, graph=file)
        )
    )
    assert convention_at(fit.graph, SITE) == own[SITE]
    trained = with_conventions(fit.graph, trained_conventions(member))
    assert convention_at(trained, SITE) == SAME
    assert convention_at(trained, OTHER) == own[OTHER]
    assert [node for node in trained.nodes if node.path != SITE] == [
        node for node in fit.graph.nodes if node.path != SITE
    ]


def test_the_check_proves_the_shipped_pads_first_and_then_the_port(
    made: porter.Ported, recipe: Recipe, weights: Path
) -> None:
    record, verdict = made.port.record, made.verdict
    assert record.padding == "trained" and record.check == "passed"
    assert convention_at(made.port.graph, SITE) == SAME
    assert verdict is not None and verdict.ok and verdict.shipped is not None
    for parities, reference in (
        (verdict.shipped.parities, "timm"),
        (verdict.parities, "porter's own build of the source"),
    ):
        single, double = parities
        assert (single.dtype, double.dtype) == ("float32", "float64")
        assert double.reference.startswith(reference)
        assert all(node.rel_l2 <= 1e-10 for node in double.nodes) and single.logits.rel_l2 <= single.limit
        assert {node.path for node in double.nodes} >= {SITE, OTHER, "head/logits"}
    assert SITE in verdict.parities[0].reference


def test_the_difference_is_that_of_the_two_functions(
    made: porter.Ported, recipe: Recipe, weights: Path
) -> None:
    opened = with_padding(open_source(find(weights), member=recipe.member(VARIANT, ZOO)), "trained")
    assert opened.shipped is not None
    taken, torch = stated_range(opened.graph, opened.facts.preprocess), get_destination("torch")
    assert taken is not None
    fed = Check(made.port, ("float32", "float64"), fed=taken).batches(Sizes((SIZE,), (SIZE,)))
    batch = np.concatenate(
        list({image.tobytes(): image for images in fed.values() for image in images}.values())
    )
    shipped, trained = (
        OwnBuild(torch, graph, opened.tensors).run(batch, "float64")["head/logits"]
        for graph in (opened.shipped, opened.graph)
    )
    assert made.verdict is not None and made.verdict.shipped is not None
    found = made.verdict.shipped
    assert found.rel_l2 == pytest.approx(distance(shipped, trained).rel_l2, rel=1e-9) and found.rel_l2 > 1e-3
    assert (found.argmax_differ, found.images) == ((shipped.argmax(1) != trained.argmax(1)).sum(), len(batch))


def test_record_and_report_tell_the_two_apart(made: porter.Ported) -> None:
    parity = json.loads((made.port.folder / "port.json").read_text())["parity"]
    assert (
        parity["ok"]
        and parity["reference"].startswith("porter's own build")
        and parity["shipped"]["reference"] == "timm"
    )
    assert set(parity["shipped"]) == {"reference", "rel_l2", "argmax_differ", "images", "dtypes"}
    said = "\n".join(port_text.conversion(made))
    assert "as trained, not as shipped" in said
    assert "shipped pads, float64: same function as timm" in said
    assert (
        f"change the logits by {parity['shipped']['rel_l2']:.1e}" in said
        and f"of {parity['shipped']['images']} images" in said
    )


def test_verify_does_the_same_and_sees_shipped_pads_in_a_port_that_says_trained(
    made: porter.Ported, recipes: Path, weights: Path, tmp_path: Path
) -> None:
    found = porter.verify(made.port.folder, weights=weights, recipes=recipes)
    assert made.verdict is not None
    assert found.ok and found.shipped is not None and found.record() == made.verdict.record()
    shipped = convert(recipes, weights, tmp_path / "port", padding="shipped", check=False).port
    assert shipped.record.padding == "shipped"
    record = json.loads((shipped.folder / "port.json").read_text())
    (shipped.folder / "port.json").write_text(json.dumps({**record, "padding": "trained"}))
    lied = porter.verify(shipped.folder, weights=weights, recipes=recipes, float64=True)
    assert not lied.ok and lied.proof.first_bad is not None and lied.proof.first_bad.path == SITE
    assert lied.failure().startswith("the port is not")


def test_a_reference_that_computes_otherwise_fails_the_first_step(
    made: porter.Ported, recipe: Recipe, weights: Path
) -> None:
    opened = with_padding(open_source(find(weights), member=recipe.member(VARIANT, ZOO)), "trained")
    assert opened.shipped is not None
    torch = get_destination("torch")
    other = OwnBuild(torch, with_conventions(opened.shipped, {OTHER: SAME}), opened.tensors, "another")
    own = OwnBuild(torch, opened.graph, opened.tensors)
    found = prove_trained(
        Check(made.port, ("float64",)),
        other,
        own,
        opened.shipped,
        lambda source: source,
        Sizes((SIZE,), (SIZE,)),
    )
    assert not found.ok and found.proof.reference == "another" and found.proof.first_bad is not None
    assert found.proof.first_bad.path == OTHER
    assert found.failure().startswith("porter's own build with the shipped pads is not")
    assert not found.record()["ok"]


def test_a_trained_port_stays_one(made: porter.Ported, recipes: Path, tmp_path: Path) -> None:
    again = convert(recipes, made.port.folder, tmp_path / "again", check=False)
    assert again.port.record.padding == "trained" and again.port.graph == made.port.graph
    with pytest.raises(UsageError, match="not the shipped ones"):
        convert(recipes, made.port.folder, tmp_path / "shipped", padding="shipped", check=False)
    assert not (tmp_path / "shipped").exists()


def test_what_is_not_stated_is_refused(recipes: Path, tmp_path: Path) -> None:
    missing = tmp_path / "never-read.h5"
    with pytest.raises(UsageError, match=f"zoo 'timm' records no pads of training for {VARIANT}"):
        convert(recipes_folder(), missing, tmp_path / "port")
    with pytest.raises(UsageError, match="zoo 'tensornets' records no pads of training for resnet200v2"):
        porter.convert(
            "resnet200v2", "tensornets", "torch", weights=missing, out=tmp_path / "port", padding="trained"
        )
    with pytest.raises(UsageError, match="'tuned' is not a padding"):
        convert(recipes, missing, tmp_path / "port", padding="tuned")
    assert not (tmp_path / "port").exists()


def test_pads_shows_both_where_they_differ(recipes: Path) -> None:
    table = pads(VARIANT, ZOO, "torch", None, recipes)
    sites = table.sites
    differing = [site for site in sites if site.trained]
    assert [site.shipped.site for site in differing] == [SITE]
    assert differing[0].record()["trained"] == {
        "source": "same",
        "realised": "pad ((0,1),(0,1)) with 0, then valid",
        "why": "SAME puts the odd cell at the bottom and right; the destination pads both sides alike",
    }
    assert sites[1].record()["trained"] is None and set(sites[1].record()) >= {
        "site",
        "source",
        "realised",
        "why",
    }
    lines = pads_text.pads(table, False)
    assert [line.split()[:3] for line in lines if "as trained" in line] == [["as", "trained", "same"]]
    assert not any(site.trained for site in pads(VARIANT, "keras", "tf", None, recipes).sites)


def test_pads_that_differ_only_in_their_average_do_not_read_alike() -> None:
    differing = [site for site in pads("inception_v3", "torchvision", "tf", None, None).sites if site.trained]
    assert len(differing) == 9
    for site in differing:
        assert site.trained and (site.shipped.source, site.trained.source) == (
            "same, averaged over full_window",
            "same, averaged over real_cells",
        )


def test_ports_made_before_there_was_a_choice_are_shipped_ones(
    recipes: Path, weights: Path, tmp_path: Path
) -> None:
    port = convert(recipes, weights, tmp_path / "port", padding="shipped", check=False).port
    record = json.loads((port.folder / "port.json").read_text())
    assert record.pop("padding") == "shipped"
    (port.folder / "port.json").write_text(json.dumps(record))
    assert read_port(port.folder).record.padding == "shipped"
