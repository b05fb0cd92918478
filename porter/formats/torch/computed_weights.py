"""Weights that torch's modules compute from stored tensors before each use: weight norm, spectral norm and
pruning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from porter.base.dtypes import Array, Numbers, is_floating
from porter.base.errors import FileError
from porter.filegraph.checkpoint import Checkpoint
from porter.filegraph.kernels.values import with_norms

_NAME_OF_PART = re.compile(
    r"((?:.*\.)?)(?:parametrizations\.(\w+)\.(.+)|(\w*(?:weight|bias))_(g|v|u|orig|mask))", re.DOTALL
)
"""A tensor's name: its module, the parameter, and the part of the parameter's computation that the tensor
is: `conv.`, `weight` and `original0` of `conv.parametrizations.weight.original0`, or in the older spelling
`conv.`, `weight` and `g` of `conv.weight_g`.
"""


_LEAST_COSINE = 0.9
"""The cosine between a singular vector and the matrix times the other one, which is 1 where training has
ended, and any number for another matrix of the same sizes.
"""


class _ComputedForm(NamedTuple):
    """A way in which a module computes a weight: its name for messages, the parts that it is computed from,
    and the function of these parts.
    """

    what: str
    parts: tuple[str, ...]
    compute: Callable[..., Numbers]


class _DoNotFit(Exception):
    """The tensors of one weight do not fit each other."""


def with_computed_weights(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with the weights that the modules use in evaluation, in float64, in place of
    those that they are computed from. A weight whose tensors are of several such forms, or of another one,
    stays as the file holds it.

    Raises:
        FileError: the tensors of one do not fit each other.
    """
    forms = _forms_of_weights(checkpoint.tensors)
    owners = {name: weight for weight, (_, names) in forms.items() for name in names}
    tensors = dict[str, Array]()
    weights_by_form = dict[str, list[str]]()
    for name, array in checkpoint.tensors.items():
        if name not in owners:
            tensors[name] = array
        # A weight is computed once, where the first of its tensors stands.
        elif owners[name] not in tensors:
            weight = owners[name]
            form, names = forms[weight]
            stored = [checkpoint.tensors[part] for part in names]
            tensors[weight] = _compute_weight(weight, form, stored, checkpoint.path)
            weights_by_form.setdefault(form.what, []).append(weight)
    if not weights_by_form:
        return checkpoint
    notes = []
    for what, (first, *others) in weights_by_form.items():
        further = f" and {len(others)} more" if others else ""
        notes.append(f"'{first}'{further} computed by {what}")
    return replace(checkpoint, tensors=tensors, notes=(*checkpoint.notes, *notes))


def _forms_of_weights(stored: Collection[str]) -> dict[str, tuple[_ComputedForm, list[str]]]:
    """Return the form of each weight that is computed (weight norm, spectral norm or a pruning mask), and the
    names of the tensors that it is computed from, by the weight's name.
    """
    # By the weight's name, the name of each part's tensor.
    parts: dict[str, dict[str, str]] = {}
    for name in stored:
        match = _NAME_OF_PART.fullmatch(name)
        if match is not None:
            # Of today's spelling and the older one, the parameter and the part of one are None.
            module, parameter, part, old_parameter, old_part = match.groups()
            parts.setdefault(f"{module}{parameter or old_parameter}", {})[part or old_part] = name
    return {
        weight: (form, [names[part] for part in form.parts])
        for weight, names in parts.items()
        for form in _FORMS
        if {*form.parts} == names.keys() and weight not in stored
    }


def _compute_weight(weight: str, form: _ComputedForm, stored: list[Array], path: Path) -> Array:
    """Return the weight that a module computes from its stored tensors, in float64. Raise FileError if these
    do not fit each other.
    """
    try:
        if not all(map(is_floating, stored[:1])):
            raise _DoNotFit
        with np.errstate(all="ignore"):
            return form.compute(*(np.asarray(array, np.float64) for array in stored))
    except _DoNotFit:
        shapes = ", ".join(
            f"{part} {array.dtype} {array.shape}" for part, array in zip(form.parts, stored, strict=True)
        )
        message = f"'{weight}' is computed by {form.what}, from tensors that do not fit each other: {shapes}"
        advice = (
            "save the state_dict again, of a model in evaluation, or after "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )
        raise FileError(message, where=path, next=advice) from None


def _compute_weight_norm(scale: Numbers, value: Numbers) -> Numbers:
    """Compute the weight of torch.nn.utils.weight_norm: one norm for each index of an axis, or one for
    all.
    """
    sizes = scale.shape or (1,) * value.ndim
    axes_of_norm = [axis for axis, size in enumerate(sizes) if size != 1]
    if len(sizes) != value.ndim or len(axes_of_norm) > 1:
        raise _DoNotFit
    if any(sizes[axis] != value.shape[axis] for axis in axes_of_norm):
        raise _DoNotFit
    # A scale of axes 1×1×... is one norm: the axis that it is for has a single index.
    if scale.ndim and not axes_of_norm and 1 not in value.shape:
        raise _DoNotFit
    reduced_axes = tuple(axis for axis in range(value.ndim) if axis not in axes_of_norm)
    return with_norms(value, scale.reshape(sizes), reduced_axes)


def _compute_spectral_norm(value: Numbers, left: Numbers, right: Numbers) -> Numbers:
    """Compute the weight of torch.nn.utils.spectral_norm: the value over its largest singular value, by the
    singular vectors that training has left. The matrix has the filters as rows: the first axis, or of a
    transposed convolution the second one.
    """
    # The axes that may be the filters'; a dense layer's kernel has them first, and a scalar has none.
    axes = range(2 if value.ndim > 2 else min(value.ndim, value.size, 1))
    matrices = [np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1) for axis in axes]
    fitting = [
        matrix for matrix in matrices if (matrix.shape[:1], matrix.shape[1:]) == (left.shape, right.shape)
    ]
    # Both axes may be the filters': of that one, the stored vectors are singular vectors.
    if len(fitting) > 1:
        fitting = [
            matrix
            for matrix in fitting
            if left @ matrix @ right > _LEAST_COSINE * np.linalg.norm(left @ matrix)
        ]
    if len(fitting) != 1:
        raise _DoNotFit
    return np.asarray(value / (left @ fitting[0] @ right))


def _compute_pruned(value: Numbers, mask: Numbers) -> Numbers:
    """Compute a pruned weight: the stored one times its mask. Raise _DoNotFit for other shapes."""
    if value.shape != mask.shape:
        raise _DoNotFit
    return value * mask


_FORMS = (
    _ComputedForm("weight norm", ("g", "v"), _compute_weight_norm),
    _ComputedForm("weight norm", ("original0", "original1"), _compute_weight_norm),
    _ComputedForm("spectral norm", ("orig", "u", "v"), _compute_spectral_norm),
    _ComputedForm("spectral norm", ("original", "0._u", "0._v"), _compute_spectral_norm),
    _ComputedForm("pruning", ("orig", "mask"), _compute_pruned),
)
