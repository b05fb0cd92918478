"""A small model that is trained on photos under a padding of the test's choice: what a study has to find
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save_file

from porter.data.photo_decoding import open_image
from porter.data.preparing import prepare
from porter.frameworks import get_destination
from porter.frameworks.dialects import get_dialect
from porter.graph import Graph
from porter.graph.pads import with_conventions
from porter.graph.plan import make_plan
from porter.padding import Convention
from porter.recipe import Recipe, expand, find_recipe, layer_names
from tests.support.standin import calibrated_tensors, smooth_images

VARIANT, ZOO, CLASSES, PHOTOS, SIDE, SEED = "strided", "home", 20, 40, 32, 3
RECIPE = """\
architecture: strided
variants: {strided: {}}
options: {classes: 20, bn_epsilon: 1.0e-3}
input: {size: 32, channels: 3}
graph:
  - {conv: stem/conv, filters: 16, kernel: 3, stride: 2, pad: 1, bias: true}
  - {max_pool: stem/pool, kernel: 3, stride: 2, pad: 1}
  - {batch_norm: stem/norm}
  - {relu: stem/relu}
  - {conv: deep/conv, filters: 96, kernel: 3, stride: 2, pad: 1}
  - {batch_norm: deep/norm}
  - {relu: deep/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  home:
    framework: torch
    padding: {stem/pool: {pad: 1, fill: 0}}
    names: {"{part}/{layer}": "{part}.{layer}"}
    protocol: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32, divide: 63.75,
               mean: [2, 2, 2]}
"""
Tensors = Mapping[str, Mapping[str, NDArray[Any]]]
SAME, LOW_SAME = Convention("same"), Convention("same", fill=float("-inf"))
ASYMMETRIC = {"stem/conv": SAME, "stem/pool": LOW_SAME, "deep/conv": SAME}


def write_recipes(folder: Path, text: str = RECIPE) -> Path:
    folder.mkdir()
    (folder / "strided.yaml").write_text(text, encoding="utf-8")
    return folder


def model(recipes: Path) -> tuple[Recipe, Graph]:
    recipe = find_recipe(VARIANT, recipes)
    return recipe, expand(recipe.member(VARIANT, ZOO))


def fitted(recipes: Path, photos: Path, trained: Mapping[str, Convention]) -> Tensors:
    """Random weights, with a head that is fitted to the photos as the model sees them under `trained`."""
    recipe, graph = model(recipes)
    tensors, (images, labels) = (
        calibrated_tensors(graph, (SIDE, SIDE), SEED, lowered=("stem/conv",)),
        read_photos(recipe, photos),
    )
    # What the pool sees is below zero, so that its fill shows.
    for node, role in (("stem/conv", "bias"), ("stem/norm", "mean")):
        tensors[node][role] -= 0.5
    engine = get_destination("torch").ENGINE
    seen = engine.run(build(recipes, tensors, trained), images, ["head/pool"])["head/pool"].astype(np.float64)
    wanted = 12 * np.eye(CLASSES)[labels]
    rows = np.hstack([seen, np.ones((len(seen), 1))])
    head = np.linalg.solve(rows.T @ rows + 1e-6 * np.eye(rows.shape[1]), rows.T @ wanted).astype(np.float32)
    return {**tensors, "head/logits": {"kernel": np.ascontiguousarray(head[:-1].T), "bias": head[-1]}}


def write_weights(path: Path, recipes: Path, tensors: Tensors) -> Path:
    recipe, graph = model(recipes)
    torch, layers = get_dialect("torch"), layer_names(recipe.member(VARIANT, ZOO), graph)
    found: dict[str, Any] = {}
    for node, roles in tensors.items():
        names = torch.tensor_names(graph, graph.by_path[node], layers[node].name)
        found |= {
            names[role][0]: torch.from_canonical(graph, graph.by_path[node], role, array)
            for role, array in roles.items()
        }
    save_file(found, path)
    return path


def build(recipes: Path, tensors: Tensors, trained: Mapping[str, Convention]) -> Any:
    """The model in torch, with `trained` at the sites that it names."""
    torch, (_, graph) = get_destination("torch"), model(recipes)
    plan = make_plan(with_conventions(graph, trained), (SIDE, SIDE), torch.CAPABILITIES)
    return torch.ENGINE.build(plan, tensors, {}, "float32", "cpu")


def write_photos(folder: Path) -> Path:
    """Photos in class folders, without any order."""
    for number in range(CLASSES):
        (folder / f"{number:02}").mkdir(parents=True)
    for number, values in enumerate(smooth_images(3, (40, 40), seed=11, count=PHOTOS)):
        photo = Image.fromarray(np.clip(128 + 64 * values.transpose(1, 2, 0), 0, 255).astype(np.uint8))
        photo.save(folder / f"{number % CLASSES:02}" / f"{number:03}.png")
    return folder


def read_photos(recipe: Recipe, photos: Path) -> tuple[NDArray[np.float32], list[int]]:
    """All photos and their mirror images as the model takes them, and their classes."""
    protocol, paths = recipe.zoo(ZOO, VARIANT).preprocess, sorted(photos.glob("*/*.png"))
    assert protocol is not None
    images = np.stack([prepare(open_image(path), protocol) for path in paths])
    return np.concatenate([images, images[:, :, :, ::-1]]), 2 * [int(path.parent.name) for path in paths]
