"""Mistakes in one tensor: its order, its numbers, or another layer's in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import ml_dtypes
import numpy as np

from porter.graph import INPUT, Affine, BatchNorm, Dense, Flatten, Identity, Node
from tests.mutation.mistakes import Change, Planter, Right
from tests.support.arrays import Array

Rng = np.random.Generator


def _kernel(what: str, change: Callable[[Array, Rng], Array | None], least: int = 2) -> Planter:
    """Mistakes in a kernel of `least` dimensions or more."""

    def planter(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
        kernel = right.tensors.get(node.path, {}).get("kernel")
        found = None if kernel is None or kernel.ndim < least else change(kernel, rng)
        if found is not None and kernel is not None and found.shape == kernel.shape:
            yield Change(what, tensors={node.path: {"kernel": np.ascontiguousarray(found)}})

    return planter


def _role(wanted: Mapping[str, float]) -> Planter:
    """Tensors that are missing: filled with what a framework begins with."""

    def planter(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
        for role, array in right.tensors.get(node.path, {}).items():
            if role in wanted:
                yield Change(
                    f"its {role} is all {wanted[role]:g}",
                    tensors={node.path: {role: np.full_like(array, wanted[role])}},
                )

    return planter


def _number(what: str, change: Callable[[float], float]) -> Planter:
    def planter(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
        for role, array in right.tensors.get(node.path, {}).items():
            if role != "batches" and array.size:
                at = tuple(int(rng.integers(n)) for n in array.shape)
                changed = array.copy()
                changed[at] = change(float(array[at]))
                yield Change(
                    f"{what}: {role}[{', '.join(map(str, at))}] = {array[at]:g}",
                    tensors={node.path: {role: changed}},
                )

    return planter


def _rounded(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    for role, array in right.tensors.get(node.path, {}).items():
        for kind in (ml_dtypes.bfloat16, np.float16) if role != "batches" else ():
            with np.errstate(over="ignore"):
                rounded = array.astype(kind).astype(array.dtype)
            yield Change(
                f"its {role} was rounded to {np.dtype(kind).name}", tensors={node.path: {role: rounded}}
            )


def _swapped_roles(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    roles = right.tensors.get(node.path, {})
    for one, other in (("mean", "variance"), ("gamma", "beta"), ("beta", "mean")):
        if isinstance(node.op, BatchNorm) and one in roles and other in roles:
            yield Change(
                f"{one} and {other} are swapped", tensors={node.path: {one: roles[other], other: roles[one]}}
            )


def _swapped_layers(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """Two tensors of one shape swapped, the other one at any later node."""
    for role, array in right.tensors.get(node.path, {}).items():
        alike = [
            path
            for path, other in right.tensors.items()
            if role in other and other[role].shape == array.shape
        ]
        others = [path for path in alike if path != node.path]
        if others and role != "batches":
            other = others[int(rng.integers(len(others)))]
            changed = {node.path: {role: right.tensors[other][role]}, other: {role: array}}
            yield Change(f"its {role} is swapped with that of {other}", tensors=changed)


def _two_filters(kernel: Array, rng: Rng) -> Array | None:
    if len(kernel) < 2:
        return None
    one, other = rng.choice(len(kernel), 2, replace=False)
    changed = kernel.copy()
    changed[[one, other]] = kernel[[other, one]]
    return changed


def _channels_reversed(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """RGB for BGR: the kernels that read the input, or a scaling of it."""
    source = node.inputs[0]
    while source in right.graph.by_path and isinstance(right.graph.by_path[source].op, Affine | Identity):
        source = right.graph.by_path[source].inputs[0]
    kernel = right.tensors.get(node.path, {}).get("kernel")
    if source == INPUT and kernel is not None and kernel.ndim == 4 and kernel.shape[1] > 1:
        yield Change("BGR for RGB", tensors={node.path: {"kernel": np.ascontiguousarray(kernel[:, ::-1])}})


def _grouped(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """The filters of a grouped convolution in the other order: (groups, n) as (n, groups)."""
    kernel, groups = right.tensors.get(node.path, {}).get("kernel"), getattr(node.op, "groups", 1)
    if kernel is None or groups < 2 or len(kernel) % groups:
        return
    each = len(kernel) // groups
    if each > 1:
        moved = kernel.reshape(groups, each, *kernel.shape[1:]).swapaxes(0, 1).reshape(kernel.shape)
        yield Change("the order of its groups", tensors={node.path: {"kernel": np.ascontiguousarray(moved)}})
    yield Change(
        "its groups are moved by one", tensors={node.path: {"kernel": np.roll(kernel, each, axis=0)}}
    )


def _flattened(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """A dense kernel behind a flatten, for the other order of its features."""
    before = right.graph.by_path.get(node.inputs[0])
    if isinstance(node.op, Dense) and before is not None and isinstance(before.op, Flatten):
        kernel, (channels, rows, columns) = right.tensors[node.path]["kernel"], right.known[before.inputs[0]]
        shape = (len(kernel), channels or 0, rows or 0, columns or 0)
        moved = kernel.reshape(shape).transpose(0, 2, 3, 1).reshape(kernel.shape)
        yield Change(
            "its features in the other order", tensors={node.path: {"kernel": np.ascontiguousarray(moved)}}
        )


def _rolled(right: Right, node: Node, rng: Rng) -> Iterator[Change]:
    """The classes moved by one, as where a background class is dropped at the wrong end."""
    roles = right.tensors.get(node.path, {})
    if node.path in right.graph.outputs and "kernel" in roles and len(roles["kernel"]) > 1:
        yield Change(
            "its rows are moved by one",
            tensors={node.path: {role: np.roll(array, 1, axis=0) for role, array in roles.items()}},
        )


OF_TENSORS: Mapping[str, Planter] = {
    "number by 1 %": _number("by 1 %", lambda number: number * 1.01),
    "number lost": _number("0 for it", lambda number: 0.0),
    "sign of a number": _number("its sign", lambda number: -number),
    "tensor rounded": _rounded,
    "kernel transposed": _kernel("rows and columns are swapped", lambda kernel, _: kernel.swapaxes(2, 3), 4),
    "kernel rotated": _kernel("it is turned by 180 degrees", lambda kernel, _: kernel[:, :, ::-1, ::-1], 4),
    "kernel mirrored": _kernel("its columns are reversed", lambda kernel, _: kernel[:, :, :, ::-1], 4),
    "filters for channels": _kernel(
        "filters and channels are swapped", lambda kernel, _: kernel.swapaxes(0, 1)
    ),
    "filters swapped": _kernel("two filters are swapped", _two_filters),
    "channel order": _channels_reversed,
    "group order": _grouped,
    "dense behind flatten": _flattened,
    "classes by one": _rolled,
    "bias missing": _role({"bias": 0.0, "beta": 0.0}),
    "scale missing": _role({"gamma": 1.0, "alpha": 0.0}),
    "statistics missing": _role({"mean": 0.0, "variance": 1.0}),
    "norm's tensors swapped": _swapped_roles,
    "tensors of two layers": _swapped_layers,
}
