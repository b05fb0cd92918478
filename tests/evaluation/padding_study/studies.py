"""A small model, and photos whose labels it gives itself under a padding of the test's choice: what a study has to find out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import save_file

from porter.data.preprocess import open_image, prepare
from porter.frameworks import get_framework
from porter.graph import Graph
from porter.padding import Convention
from porter.plan import make_plan
from porter.recipe import Recipe, expand, find_recipe, layer_names
from porter.trained import with_conventions
from tests.standin import calibrated_tensors, smooth_images

VARIANT, ZOO, CLASSES, PHOTOS, SIDE, SEED = "strided", "home", 40, 80, 32, 3
RECIPE = """\
architecture: strided
variants: {strided: {}}
options: {classes: 40, bn_epsilon: 1.0e-3}
input: {size: 32, channels: 3}
graph:
  - {conv: stem/conv, filters: 16, kernel: 3, stride: 2, pad: 1}
  - {max_pool: stem/pool, kernel: 3, stride: 2, pad: 1}
  - {batch_norm: stem/norm}
  - {relu: stem/relu}
  - {conv: deep/conv, filters: 32, kernel: 3, stride: 2, pad: 1}
  - {batch_norm: deep/norm}
  - {relu: deep/relu}
  - {global_avg_pool: head/pool}
  - {dense: head/logits, units: =classes}
zoos:
  home:
    framework: torch
    padding: {stem/pool: {pad: 1, fill: 0}}
    names: {"{part}/{layer}": "{part}.{layer}"}
    preprocess: {resize: shorter_side, size: 40, interpolation: pil_bilinear, crop: 32, divide: 63.75, mean: [2, 2, 2]}
"""
SAME, LOW_SAME = Convention("same"), Convention("same", fill=float("-inf"))
ASYMMETRIC = {"stem/conv": SAME, "stem/pool": LOW_SAME, "deep/conv": SAME}


def write_recipes(folder: Path, text: str = RECIPE) -> Path:
    folder.mkdir()
    (folder / "strided.yaml").write_text(text, encoding="utf-8")
    return folder


def model(recipes: Path) -> tuple[Recipe, Graph]:
    recipe = find_recipe(VARIANT, recipes)
    return recipe, expand(recipe, VARIANT, recipe.zoo(ZOO, VARIANT), {})


def write_weights(path: Path, recipes: Path, seed: int = SEED) -> Path:
    recipe, graph = model(recipes)
    torch, layers = get_framework("torch"), layer_names(recipe, VARIANT, recipe.zoo(ZOO, VARIANT), graph)
    found = {}
    for node, roles in calibrated_tensors(graph, (SIDE, SIDE), seed).items():
        names = torch.tensor_names(graph, graph.by_path[node], layers[node].name)
        found |= {names[role][0]: torch.from_canonical(graph, graph.by_path[node], role, array) for role, array in roles.items()}
    save_file(found, path)
    return path


def build(recipes: Path, trained: Mapping[str, Convention]) -> Any:
    """The model in torch, with `trained` at the sites that it names."""
    _, graph = model(recipes)
    torch, tensors = get_framework("torch"), calibrated_tensors(graph, (SIDE, SIDE), SEED)
    plan = make_plan(with_conventions(graph, trained), (SIDE, SIDE), torch.CAPABILITIES)
    return torch.build(plan, tensors, {}, "float32", "cpu")


def write_photos(folder: Path, recipes: Path, trained: Mapping[str, Convention]) -> Path:
    """Photos in class folders, each in that which the model sees under `trained`."""
    recipe, graph = model(recipes)
    protocol, torch = recipe.zoo(ZOO, VARIANT).preprocess, get_framework("torch")
    assert protocol is not None
    built = build(recipes, trained)
    for number in range(CLASSES):
        (folder / f"{number:02}").mkdir(parents=True)
    for number, values in enumerate(smooth_images(3, (40, 40), seed=11, count=PHOTOS)):
        photo, name = Image.fromarray(np.clip(128 + 64 * values.transpose(1, 2, 0), 0, 255).astype(np.uint8)), f"{number:03}.png"
        photo.save(folder / name)
        logits = torch.run(built, prepare(open_image(folder / name), protocol)[np.newaxis], [graph.output])[graph.output]
        (folder / name).rename(folder / f"{int(logits.argmax()):02}" / name)
    return folder
