"""Right ports to plant mistakes in: recipes made narrow, and random graphs, with weights that behave well or
badly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed as seeded, settings

import porter
from porter.base.errors import PorterError, UsageError
from porter.data.preprocess import Preprocess
from porter.frameworks import Tensors, get_destination
from porter.graph import (
    INPUT,
    Conv,
    Dense,
    Flatten,
    Graph,
    Node,
    PadChannels,
    Sigmoid,
    SliceChannels,
    Softmax,
    shapes,
    tensor_shapes,
)
from porter.padding import ANY
from porter.port import StoredPort
from porter.recipe import expand, find_recipe
from porter.source.reopening import reopen_source
from porter.verification.inputs import SIGNED, InputRange, stated_range
from porter.verification.references.source_references import references_of
from tests.mutation.by_hand import SIZE, by_hand
from tests.mutation.judge import Judge
from tests.mutation.made_files import MADE, SIDE
from tests.mutation.memory import MemoryPort, MemorySource, given_source, memory_port, memory_source
from tests.mutation.weights import SCALES
from tests.support.arrays import Array
from tests.support.parity import Remembered
from tests.support.random_graphs import Sample, samples
from tests.support.standin import calibrated_tensors


@dataclass(frozen=True)
class Subject:
    """A right port and its source.

    Attributes:
        key: makes it again (`subject`).
        taken: the inputs that the network takes; None if nothing states them.
        sizes: rows and columns that the judge runs.
    """

    key: str
    port: MemoryPort
    source: MemorySource
    taken: InputRange | None
    sizes: Sequence[tuple[int, int]]

    @property
    def seed(self) -> int:
        return seed_of(self.key)


SMALL = ("squeezenet", "vgg", "resnet18", "cifar", "mobilenet_v1")
"""Recipes of few enough layers to be built in TensorFlow for each mutant."""
NARROW = {
    "vgg": 16,
    "inception_v3": 8,
    "googlenet": 8,
    "mobilenet_v1": 2,
    "mobilenet_v2": 2,
    "mnasnet": 4,
    "mobilenet_v3": 2,
    "resnet_cifar": 2,
}
"""By architecture, how many times fewer filters the narrow one has; 8 for the others."""
SIDES = {"inception_v3": 79, "xception": 71, "googlenet": 48, "resnet_cifar": 32, "densenet": 64}
"""By architecture, the native side; 48 for the others."""
CLASSES = 7
RECIPES = (
    "mobilenet_v1_0.25/keras",
    "mobilenet_v1_0.25/slim",
    "mobilenet_v2_0.35/keras",
    "mobilenet_v2_0.35/torchvision",
    "mobilenet_v3_small/keras",
    "mobilenet_v3_small/torchvision",
    "mobilenet_v3_small_minimalistic/keras",
    "squeezenet1_0/torchvision",
    "squeezenet1_1/torchvision",
    "shufflenet_v2_x0_5/torchvision",
    "mnasnet_0.5/torchvision",
    "efficientnet_lite0/timm",
    "cifar_resnet20/akamaster",
    "resnet18/torchvision",
    "resnet18/timm",
    "resnet50/keras",
    "resnet50/slim",
    "resnet50v2/keras",
    "resnet50v2/slim",
    "resnet200v2/tensornets",
    "resnext50_32x4d/keras",
    "resnext50_32x4d/torchvision",
    "wide_resnet50_2/torchvision",
    "densenet121/keras",
    "densenet121/torchvision",
    "googlenet/torchvision",
    "inception_v3/keras",
    "inception_v3/torchvision",
    "vgg11/torchvision",
    "vgg11_bn/torchvision",
    "vgg16/keras",
    "xception/keras",
    "xception/timm",
)


def seed_of(key: str) -> int:
    """Of a subject's random numbers: a file's folder does not matter."""
    family, _, rest = key.partition(":")
    return zlib.crc32((f"{family}:{rest.rpartition('/')[2]}" if family == "file" else key).encode())


def keys(seed: int, files: Sequence[Path] = ()) -> Iterator[str]:
    """Subjects without end: each recipe, four random graphs for each, and the files in turn, each time with
    other weights.
    """
    n = 0
    others = [*(f"made:{name}" for name in MADE), *(f"file:{path}" for path in files)]
    while True:
        turn, at = divmod(n, len(RECIPES))
        scale, head, shown = (
            list(table)[(n + n // len(table)) % len(table)] for table in (SCALES, HEADS, SHOWN)
        )
        destination = (
            "onnx" if n % 12 == 5 else "tf" if RECIPES[at].startswith(SMALL) and turn % 2 else "torch"
        )
        yield f"recipe:{RECIPES[at]}:{scale}:{head}:{shown}:{destination}:{seed + turn}"
        for more in range(4):
            scale, shown = list(SCALES)[(n + more) % len(SCALES)], list(SHOWN)[(n // 2 + more) % len(SHOWN)]
            yield f"random:{4 * n + more}:{scale}:plain:{shown}:{_destination(n + more)}:{seed}"
        if n % 4 == 3:
            turn, at = divmod(n // 4, len(others) + 1)
            if at == len(others):
                yield f"hand:net:{scale}:{head}:{shown}:torch:{seed + turn}"
                n += 1
                continue
            yield f"{others[at]}:own:plain:own:{_destination(n // 4)}:{seed + turn}"
        n += 1


def _destination(n: int) -> str:
    """torch mostly, because it is the fastest."""
    return {5: "onnx", 11: "tf"}.get(n % 12, "torch")


def subject(key: str) -> Subject | None:
    """The right port of a key; None if it cannot be made, such as where weights that are too large give
    nothing finite.
    """
    family, name, scale, head, shown, destination, seed = key.split(":")
    rng = np.random.default_rng(seed_of(key))
    if family in ("made", "file"):
        return _of_file(key, family, name, destination, int(seed), rng)
    if family == "recipe":
        graph, tensors, native, protocol = _of_recipe(name, int(seed))
    elif family == "hand":
        graph, native, protocol = by_hand(), SIZE, None
        tensors = calibrated_tensors(graph, SIZE, int(seed))
    else:
        sample = random_sample(1_000_003 * int(seed) + int(name))
        graph, native, protocol = sample.graph, _wider(sample, int(name)), None
        tensors = {
            path: {role: array.astype(np.float32) for role, array in roles.items()}
            for path, roles in sample.tensors.items()
        }
    graph = HEADS[head](graph)
    tensors = SCALES[scale](graph, tensors, rng)
    if family == "random" and int(name) % 4:
        varying = _varying(graph, tensors, native)
        if not varying:
            return None
        graph = _leading_to(graph, varying)
        tensors = {path: roles for path, roles in tensors.items() if path in graph.by_path}
    size = ANY if rng.random() < 0.5 else native
    if destination != "torch" and family == "random":
        size = native
    try:
        port = memory_port(graph, tensors, size, native, destination, preprocess=protocol)
    except PorterError:
        try:
            port = memory_port(graph, tensors, native, native, destination, preprocess=protocol)
        except PorterError:
            return None
    source = memory_source(graph, tensors, SHOWN[shown](graph, rng))
    if shown == "given":
        source = given_source(source, port.plan.only_size or native, _names(graph, native, rng))
    return Subject(key, port, source, stated_range(graph, protocol), _judged_sizes(port, rng))


def _leading_to(graph: Graph, outputs: tuple[str, ...]) -> Graph:
    """The graph with fewer outputs, without the nodes that lead to the others only."""
    read = set(outputs)
    for node in graph.nodes[::-1]:
        read |= {*node.inputs} if node.path in read else set()
    nodes = tuple(node for node in graph.nodes if node.path in read)
    return replace(graph, nodes=nodes, output=outputs[0], further=outputs[1:])


def _of_file(
    key: str, family: str, name: str, destination: str, seed: int, rng: np.random.Generator
) -> Subject:
    """A port of a file, made and opened again as `porter verify` opens it, and compared with the file's own
    graph.
    """
    with TemporaryDirectory() as folder:
        path = MADE[name](Path(folder), seed) if family == "made" else Path(name)
        made = _converted(path, destination, Path(folder) / "port")
        opened = reopen_source(made, path, None)
        held = made.tensors()
    record = made.record
    reference = next(references_of(opened, "float64" if record.computed else record.dtype))
    port = MemoryPort(made.folder, record, made.graph, made.plan, made.destination, held)
    source = MemorySource(
        Remembered(reference), opened.graph, opened.tensors, opened.framework, opened.built_size
    )
    return Subject(key, port, source, stated_range(made.graph, record.preprocess), _judged_sizes(port, rng))


def _converted(path: Path, destination: str, out: Path) -> StoredPort:
    try:
        return porter.convert(path, to=destination, out=out, check=False).port
    except UsageError:  # it states no size
        return porter.convert(path, to=destination, out=out, check=False, input_size=str(SIDE)).port


def _varying(graph: Graph, tensors: Tensors, size: tuple[int, int]) -> tuple[str, ...]:
    """The outputs that depend on the input."""
    judge, values = Judge(graph, tensors, SIGNED, (size,)), dict[str, list[Array]]()
    with np.errstate(all="ignore"):
        for _, outputs, _ in judge.batches():
            for path, value in outputs.items():
                values.setdefault(path, []).append(value)
        spread = {
            path: np.concatenate(parts).std(axis=0).max() / np.abs(np.concatenate(parts)).max()
            for path, parts in values.items()
        }
    return tuple(path for path in graph.outputs if spread[path] > 1e-3)


def _wider(sample: Sample, number: int) -> tuple[int, int]:
    """Rows and columns of a random graph: its own, or of two in three those of an image, if it takes them."""
    rows, columns = (23 + number % 7, 29 - number % 5) if number % 3 else sample.size
    try:
        shapes(sample.graph, (rows, columns))
    except PorterError:
        return sample.size
    return rows, columns


def _judged_sizes(port: MemoryPort, rng: np.random.Generator) -> list[tuple[int, int]]:
    native = port.record.input.native_size
    if port.plan.only_size is not None:
        return [port.plan.only_size]
    for _ in range(8):
        other = tuple(max(1, int(n + rng.integers(-2, 8))) for n in native)
        try:
            shapes(port.graph, (other[0], other[1]))
        except PorterError:
            continue
        return [native, (other[0], other[1])]
    return [native]


@lru_cache(maxsize=4)
def _of_recipe(name: str, seed: int) -> tuple[Graph, Tensors, tuple[int, int], Preprocess | None]:
    variant, zoo = name.split("/")
    recipe = find_recipe(variant, shallow_folder())
    side = SIDES.get(recipe.architecture, 48)
    graph = narrow(
        expand(recipe.member(variant, zoo), {"classes": CLASSES}),
        NARROW.get(recipe.architecture, 8),
        (side, side),
    )
    protocol = recipe.zoo(zoo, variant).preprocess
    pools = [graph.by_path.get(node.inputs[0]) for node in graph.nodes if node.op_name == "max_pool"]
    lowered = [node.path for node in pools if node is not None and isinstance(node.op, Conv) and node.op.bias]
    tensors = calibrated_tensors(graph, (side, side), seed, lowered=lowered)
    taken = stated_range(graph, protocol) or SIGNED
    spread = float(np.std(taken.of(np.random.default_rng(0).uniform(0, 1, (2, 3, 32, 32)))))
    for node in graph.nodes:  # the norms were calibrated on numbers about 1 in size
        if node.inputs[0] == INPUT and "kernel" in tensors.get(node.path, {}):
            tensors[node.path]["kernel"] = (tensors[node.path]["kernel"] / np.float32(spread)).astype(
                np.float32
            )
    return graph, tensors, (side, side), protocol


@lru_cache(maxsize=1)
def shallow_folder() -> Path:
    from tests.support.shallow import shallow_recipes

    folder = TemporaryDirectory()
    _KEPT.append(folder)
    return shallow_recipes(Path(folder.name) / "recipes", (2, 2, 2, 2))


_KEPT: list[Any] = []


def narrow(graph: Graph, times: int, size: tuple[int, int]) -> Graph:
    """The graph with so many times fewer filters, for images of `size`."""
    channels, nodes = {INPUT: graph.channels}, list[Node]()
    for node in graph.nodes:
        op, old, new = node.op, graph.channels_by_path[node.inputs[0]], channels[node.inputs[0]]
        if isinstance(op, Conv) and op.groups == old and op.groups > 1:
            op = replace(op, groups=new, filters=new * (op.filters // old))
        elif isinstance(op, Conv) and node.path not in graph.outputs and op.filters != CLASSES:
            groups = max(2, op.groups // times) if op.groups > 1 else 1
            filters = max(4, -(-op.filters // times))
            groups = next(n for n in range(groups, 0, -1) if new % n == 0 and filters % n == 0)
            op = replace(op, filters=filters, groups=groups)
        elif isinstance(op, Dense) and node.path not in graph.outputs and op.units > CLASSES:
            op = replace(op, units=max(4, op.units // times))
        elif isinstance(op, SliceChannels):
            op = replace(op, start=op.start * new // old, stop=op.stop * new // old)
        elif isinstance(op, PadChannels):
            more = max(0, max(4, -(-(old + op.before + op.after) // times)) - new)
            op = replace(op, before=more // 2, after=more - more // 2)
        elif isinstance(op, Flatten):
            known = shapes(
                replace(graph, nodes=tuple(nodes), output=nodes[-1].path, further=(), scopes=()), size
            )
            _, rows, columns = known[node.inputs[0]]
            op = replace(op, rows=rows or 1, columns=columns or 1)
        elif hasattr(op, "groups") and not isinstance(op, Conv) and new % op.groups:
            grouped: Any = op
            op = replace(grouped, groups=next(n for n in range(op.groups, 0, -1) if new % n == 0))
        nodes.append(replace(node, op=op))
        known_channels = op.shape(*[_unsized(channels[path], node, graph) for path in node.inputs])[0]
        channels[node.path] = known_channels or 0
    return replace(graph, nodes=tuple(nodes), scopes=())


def _unsized(channels: int, node: Node, graph: Graph) -> tuple[int | None, ...]:
    rank = len(shapes(graph, ANY)[node.inputs[0]])
    return (channels, None, None)[:rank]


def random_sample(seed: int) -> Sample:
    """A graph of any ops."""
    found: list[Sample] = []

    # Of a few, because hypothesis begins with the smallest, and makes later ones alike.
    @seeded(seed)
    @settings(
        max_examples=3,
        database=None,
        phases=(Phase.generate,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(samples(get_destination("torch").CAPABILITIES, least=3, most=14))
    def collect(sample: Sample) -> None:
        found.append(sample)

    collect()
    return found[-1]


def _ended(op: Any) -> Callable[[Graph], Graph]:
    def ended(graph: Graph) -> Graph:
        return replace(
            graph, nodes=(*graph.nodes, Node("ending", op, (graph.output,))), output="ending", scopes=()
        )

    return ended


HEADS: Mapping[str, Callable[[Graph], Graph]] = {
    "plain": lambda graph: graph,
    "softmax": _ended(Softmax()),
    "bare": lambda graph: graph,
    "sigmoid": _ended(Sigmoid()),
    "logits": lambda graph: graph,
}


def _names(graph: Graph, size: tuple[int, int], rng: np.random.Generator) -> dict[str, str]:
    """By path, whose value a layer of that name gives: one in ten is another one of its shape."""
    known, found = shapes(graph, size), dict[str, str]()
    for path in sorted(_layers(graph, rng) - {*graph.outputs}):
        others = [other for other in known if known[other] == known[path] and other != INPUT]
        found[path] = str(rng.choice(others)) if rng.random() < 0.1 else path
    return found


def _all(graph: Graph, rng: np.random.Generator) -> frozenset[str]:
    return frozenset(graph.by_path)


def _layers(graph: Graph, rng: np.random.Generator) -> frozenset[str]:
    return frozenset(tensor_shapes(graph)) | frozenset(graph.outputs)


def _some(graph: Graph, rng: np.random.Generator) -> frozenset[str]:
    return frozenset(path for path in graph.by_path if rng.random() < 0.3) | frozenset(graph.outputs)


def _outputs(graph: Graph, rng: np.random.Generator) -> frozenset[str]:
    return frozenset(graph.outputs)


SHOWN: Mapping[str, Callable[[Graph, np.random.Generator], frozenset[str]]] = {
    "all": _all,
    "layers": _layers,
    "outputs": _outputs,
    "some": _some,
    "given": _layers,
}
"""Which values a reference shows: a file's graph nearly all, a zoo's code those of its layers, a given file
its outputs at least; and somebody's own code, given as a reference, values of layers by names of which some
are another layer's.
"""
