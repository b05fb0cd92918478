"""What tells porter's own variants apart without their graphs, kept beside the recipes in fingerprints.json.

Only the variants that a file could be are then read and expanded. `python -m tests.support.fingerprints`
writes fingerprints.json, and a test holds it to the recipes. If it was made from other texts than those
beside it, it is not used: every variant is expanded.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from porter.graph import BatchNorm, Conv, ConvTranspose, Dense, Graph, Merge, head_of, ops, tensor_shapes
from porter.graph.walks import downstream, reads_within, upstream
from porter.recipe.load import recipes_folder
from porter.recipe.recipe import NodeNames
from porter.recipe.zoos import ZOOS

FILE = "fingerprints.json"
_NUMBER = re.compile(r"\d+")
_COUNTER = re.compile(r"(?:_\d+)+(?=/|$)")
_PASSED_OVER = ops.Identity | ops.Flatten | BatchNorm | ops.ChannelScale | ops.Affine
"""Ops that a file may lack, or have in place of another; a digest of what leads to a node leaves them out."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A variant's graph in numbers, as a zoo has it. Zoos with the same numbers share one.

    Attributes:
        nodes: their number.
        weighted: the number of convolutions and dense layers.
        trunk: the number of nodes that a file's graph has to have so that it is this variant with any head.
        convolutions: by kind (`kind_of_conv`), the number of nodes to which no path leads through more than
            0, 1, 2, ... convolutions of the kind, up to one less than the most on a path. The head is of no
            kind.
        sizes: the number of tensors by their number of elements, without those in `free`.
        free: the number of tensors that a file may have in another size: the head's, and those of transposed
            convolutions.
        norms: the number of batch norms.
        beginnings: by the digest of how the network begins, see `beginnings_of`: the number of nodes that a
            file's graph which does not begin so can have.
    """

    nodes: int
    weighted: int
    trunk: int
    convolutions: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    free: int
    norms: int
    beginnings: Mapping[str, int]


def kind_of_conv(op: Conv) -> str:
    """Return a text such as `3x3x64/1` (rows, columns, filters, groups) that is equal for two convolutions
    if one can stand for the other.
    """
    rows, columns = op.window.kernel
    return f"{rows}x{columns}x{op.filters}/{op.groups}"


def beginnings_of(
    nodes: Iterable[tuple[str, object, tuple[str, ...]]], inputs: Mapping[str, str]
) -> dict[str, str]:
    """Return a digest for each node of all that leads to it. A layer of a file can be a recipe's node only if
    both have the same digest (porter.source.fitting.alignment.align): ops that a file may lack or fold do not
    change it.

    Dense layers, concats (of which a file may have fewer) and all that is behind them have none: a layer may
    be nodes of several kinds there.

    Args:
        nodes: name, op and inputs of each, in order.
        inputs: the digests of the graph's inputs, by name.
    """
    digests = dict(inputs)
    for name, op, input_names in nodes:
        digests_before = [digests[input_name] for input_name in input_names if input_name in digests]
        all_have_digests = bool(input_names) and len(digests_before) == len(input_names)
        if not all_have_digests or isinstance(op, Dense | ops.ConcatChannels):
            continue
        if isinstance(op, _PASSED_OVER):
            digests[name] = digests_before[0]
            continue
        match op:
            case Conv():
                kind = kind_of_conv(op)
            case ops.AvgPool() | ops.GlobalAvgPool():
                kind = "average"
            case ops.Relu() | ops.Relu6():
                kind = "relu"
            case _:
                kind = type(op).__name__
        digests_of_inputs = sorted(digests_before) if isinstance(op, Merge) else digests_before
        digests[name] = f"{crc32(f'{kind} {digests_of_inputs}'.encode()):08x}"
    return digests


def fingerprint_of(graph: Graph) -> Fingerprint:
    """Return the fingerprint of a graph: the sizes of its tensors and numbers of its nodes."""
    head, shapes = head_of(graph), tensor_shapes(graph)
    free = {path for path in shapes if path == head.path or isinstance(graph.by_path[path].op, ConvTranspose)}
    sizes = Counter(math.prod(shape) for path in shapes.keys() - free for shape in shapes[path].values())
    kinds = dict.fromkeys(
        kind_of_conv(node.op) for node in graph.nodes if isinstance(node.op, Conv) and node is not head
    )
    return Fingerprint(
        nodes=len(graph.nodes),
        weighted=sum(isinstance(node.op, Conv | Dense) for node in graph.nodes),
        trunk=_trunk_size(graph),
        convolutions={kind: _nodes_within_convolutions(graph, kind) for kind in kinds},
        sizes={str(size): sizes[size] for size in sorted(sizes)},
        free=sum(len(shapes[path]) for path in free),
        norms=sum(isinstance(node.op, BatchNorm) for node in graph.nodes),
        beginnings=_nodes_without_beginnings(graph),
    )


def _trunk_size(graph: Graph) -> int:
    """Return `Fingerprint.trunk`, the number of nodes that a file with any other head still has: those that
    lead to the pool before the head, or to the map before that pool.
    """
    nodes, head = graph.by_path, head_of(graph)
    pool = nodes.get(head.source)
    end = pool.source if pool is not None and head.path == graph.output else graph.output
    return len(upstream([end], reads_within(nodes)) & nodes.keys())


def _nodes_within_convolutions(graph: Graph, kind: str) -> tuple[int, ...]:
    """Return `Fingerprint.convolutions` of a kind: at index n, the number of nodes to which every path leads
    through at most n convolutions of the kind.
    """
    convolutions_up_to: dict[str, int] = {}
    head = head_of(graph)
    for node in graph.nodes:
        is_of_kind = isinstance(node.op, Conv) and node is not head and kind_of_conv(node.op) == kind
        most_before = max(convolutions_up_to.get(source, 0) for source in node.inputs)
        convolutions_up_to[node.path] = most_before + is_of_kind
    counts = Counter(convolutions_up_to.values())
    # the most itself is left out: it would count all nodes
    return tuple(sum(counts[fewer] for fewer in range(most + 1)) for most in range(max(counts)))


def _nodes_without_beginnings(graph: Graph) -> dict[str, int]:
    """Return `Fingerprint.beginnings`, for every eighth node that has a digest of its own and for the last
    one: how many nodes neither have the digest nor come after a node that has it.
    """
    head = head_of(graph)
    inputs = {path: str(index) for index, path in enumerate(graph.inputs)}
    before_head = [(node.path, node.op, node.inputs) for node in graph.nodes if node is not head]
    digests = beginnings_of(before_head, inputs)
    own_digests = [digest for digest in dict.fromkeys(digests.values()) if digest not in inputs.values()]
    # a few of them, so that fingerprints.json stays small
    chosen = dict.fromkeys((*own_digests[7::8], *own_digests[-1:]))
    reads_within = {node.path: node.inputs for node in graph.nodes}

    def count_nodes_without(digest: str) -> int:
        nodes_with_digest = (path for path, node_digest in digests.items() if node_digest == digest)
        return len(graph.nodes) - len(downstream(reads_within, reads_within.__getitem__, nodes_with_digest))

    return {digest: count_nodes_without(digest) for digest in chosen}


LayersByName = Mapping[str, int]
"""How many convolutions and dense layers of a variant have a name such as this (`without_numbers`), or one of
several such as these, with `|` between them: those of older code.
"""


def without_numbers(text: str) -> str:
    """Return a layer's name, or a text in which it may stand, with each number as 0 and without the counters
    at the end of a part, because exporters write other numbers.
    """
    return _NUMBER.sub("0", _COUNTER.sub("", text.replace(".", "/")))


def layers_by_name(graph: Graph, tables: Iterable[NodeNames]) -> Counter[str]:
    """Return how many layers of a graph have each name, or each set of names in several tables; see
    `LayersByName`.

    Args:
        tables: the zoo's names by path, and those of its older code.
    """
    names = [{path: without_numbers(layer.name) for path, layer in table.items()} for table in tables]
    weighted = (node.path for node in graph.nodes if isinstance(node.op, Conv | Dense))
    return Counter("|".join(sorted({table_names[path] for table_names in names})) for path in weighted)


class Recorded(NamedTuple):
    """What fingerprints.json holds of a variant in a zoo."""

    fingerprint: Fingerprint
    names: LayersByName


Fingerprints = Mapping[str, Mapping[str, Mapping[str, Recorded]]]
"""Fingerprints by the name of the recipe's file, by variant and by zoo."""


def shipped_fingerprints() -> Fingerprints:
    """Return the fingerprints of porter's own recipes; none if fingerprints.json is not there, or was made
    from other texts.
    """
    return read_beside_recipes(recipes_folder() / FILE, _parse_fingerprints) or {}


def read_beside_recipes(file: Path, parse: Callable[[Any], T]) -> T | None:
    """Return the content of a file beside recipes that is computed from them; None if it is not there, or was
    made from other texts.

    Args:
        parse: makes the result of the file's JSON.
    """
    if not file.is_file():
        return None
    status = file.stat()
    texts = digest_of_recipes(file.parent)
    content: T | None = _read_cached(file, status.st_mtime_ns, status.st_size, texts, parse)
    return content


@lru_cache(maxsize=2)
def _read_cached(file: Path, changed: int, size: int, texts: str, parse: Callable[[Any], Any]) -> Any:
    """Return the parsed content of a file if it was made from these texts, otherwise None. The time of its
    change and its size are parameters for the cache only.

    Args:
        texts: the digest of all recipes beside the file.
    """
    content = json.loads(file.read_text(encoding="utf-8"))
    return parse(content) if content["sha256"] == texts else None


def _parse_fingerprints(content: Mapping[str, Any]) -> Fingerprints:
    """Return the fingerprints of a fingerprints.json, in which each fingerprint and table of names stands
    once and is referred to by its number.
    """
    fingerprints = [_parse_fingerprint(values) for values in content["fingerprints"]]
    names = content["names"]
    return {
        name: {
            variant: {
                zoo: Recorded(fingerprints[fingerprint], names[table])
                for zoo, (fingerprint, table) in zoos.items()
            }
            for variant, zoos in variants.items()
        }
        for name, variants in content["recipes"].items()
    }


def _parse_fingerprint(values: Mapping[str, Any]) -> Fingerprint:
    kinds = {kind: tuple(reached) for kind, reached in values["convolutions"].items()}
    return Fingerprint(**{**values, "convolutions": kinds})


def digest_of_recipes(folder: Path) -> str:
    """Return the SHA-256 of all recipes and zoos in a folder, whatever ends their lines."""
    sha = sha256()
    for file in (*sorted(folder.glob("*.yaml")), *sorted((folder / ZOOS).glob("*.yaml"))):
        text = file.read_bytes().replace(b"\r\n", b"\n")
        sha.update(f"{file.name} {len(text)}\n".encode() + text)
    return sha.hexdigest()
