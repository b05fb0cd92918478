"""Finds which tensors of a TensorFlow checkpoint are the model's, and their names. It needs only names and
shapes, no framework.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Shape = tuple[int, ...]

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The key of the proto that says which object each tensor of a TF 2 checkpoint belongs to
(trackable_object_graph.proto).
"""
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"

# A slot's name is `X/NAME` (tensorflow/python/training/slot_creator.py); a second one of a class gets `_1`.
# `biased` and `local_step` belong to assign_moving_average with zero_debias
# (tensorflow/python/training/moving_averages.py).
_SLOT = re.compile(
    r"(?P<variable>.+)/(?:Momentum|RMSProp|Adam|AdaMax|Adagrad|AdagradDA|Adadelta|Ftrl|Proximal\w*|biased|local_step)(?:_\d+)?"
)
_COUNTER = re.compile(r"(?:.*/)?(?:beta[12]_power|global_step)(?:_\d+)?")
_TRAINING = frozenset({"optimizer", "keras_api", ".OPTIMIZER_SLOT", "save_counter", "seed_generator"})
"""Steps of an object path that lead away from the model; `keras_api` holds metrics, `seed_generator` a
dropout's random state.
"""
_TRAINED = "_trainable_variables"
"""An optimiser of Keras 3 keeps the model's variables here, and a checkpoint may have them only under this
path.
"""


@dataclass(frozen=True)
class ObjectTensor:
    """One tensor in the object graph: its key in the checkpoint, and the name that its variable was made
    with.
    """

    key: str
    full_name: str


def training_state(shapes: Mapping[str, Shape], owners: Collection[ObjectTensor] = ()) -> set[str]:
    """Return keys that belong to the training: an optimiser's slots beside a variable, its counters, metrics,
    random state.

    A slot has a slot's name and a variable of its shape beside it, perhaps in an optimiser's scope. So a
    layer that somebody called `Adam` stays.
    """
    random = {owner.key for owner in owners if owner.full_name.rpartition("/")[2] == "seed_generator_state"}
    return {key for key, shape in shapes.items() if key in random or _is_training(key, shape, shapes)}


def _is_training(key: str, shape: Shape, shapes: Mapping[str, Shape]) -> bool:
    """Return whether a key belongs to the training: a slot, a counter, or what the object graph has beside
    the model.
    """
    # TF 2's keys are paths in the object graph, which has names for what is of training.
    if _VALUE in key or "/.ATTRIBUTES/" in key or "/.OPTIMIZER_SLOT/" in key:
        steps = key.split("/")
        return not _TRAINING.isdisjoint(steps) and _TRAINED not in steps
    if _COUNTER.fullmatch(key) and shape == ():
        return True
    # A slot of TF 1, such as Adam's moments, is a variable's name and its own, and has the variable's shape
    # or none.
    slot = _SLOT.fullmatch(key)
    if slot is None:
        return False
    parts = slot["variable"].split("/")
    # The optimiser's scopes may stand before the variable's name.
    candidates = ["/".join(parts[start:]) for start in range(len(parts))]
    return any(name in shapes and shape in (shapes[name], ()) for name in candidates)


def model_names(keys: Collection[str], owners: Collection[ObjectTensor]) -> dict[str, str]:
    """Return the tensor's name for each key. Keys of objects lose their `/.ATTRIBUTES/VARIABLE_VALUE`, and
    become the variables' own names if these are all different.
    """
    names = {key: key.removesuffix(_VALUE) for key in keys}
    full = {owner.key: owner.full_name for owner in owners if owner.key in names and owner.full_name}
    counts = Counter((names | full).values())
    # Either all keys become own names where these exist, or none does.
    return names | full if max(counts.values(), default=0) <= 1 else names
