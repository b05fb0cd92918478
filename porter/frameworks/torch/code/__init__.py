"""`model.py` of a port: the plan as a person would write it. It needs torch, safetensors and the standard library only.

It is made from the same steps as the built module, without torch. Uses of one block are unified into one class, whose arguments are
the differences between them. Every expression is checked against the values of every use before it is written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword

from porter.frameworks.torch.code.classes import Class, Known, recurring_norms, use_of, write_class
from porter.frameworks.torch.code.loader import CHAIN_FUNCTION, fixed_size, loader
from porter.frameworks.torch.code.runs import SHORTEST, Run, whole_run
from porter.frameworks.torch.code.signatures import NORMS, OWN_LAYERS, own_layers
from porter.frameworks.torch.code.stages import Stages, write_stages
from porter.frameworks.torch.code.template import ClassUse, Template, signature, unify
from porter.frameworks.torch.code.text import call, flat
from porter.frameworks.torch.code.tree import Body, make_tree
from porter.frameworks.torch.steps import make_steps
from porter.graph import INPUT, axes_text, batch_text, channels_of
from porter.graph.blocks.arguments import Value, Vector
from porter.graph.blocks.kinds import Unlike
from porter.graph.plan import Plan, taken_shapes

# Names that the generated text uses itself.
_TAKEN = {
    "Model",
    "Path",
    "F",
    "DTYPES",
    "self",
    "torch",
    "nn",
    "chain",
    "load",
    "load_file",
    "pair",
    "renamed",
    "index",
    "repeat",
    "repeats",
    "settings",
    "block",
    "row",
    "partial",
    *NORMS,
    *OWN_LAYERS,
}


def model_source(plan: Plan, names: Mapping[str, str] | None = None) -> str:
    """The text of model.py.

    Args:
        names: modules that have another name in the state_dict beside it: that name to the name here.

    Raises:
        GraphError: part of a path is no Python name. PaddingError: torch's layers lack a realisation.
    """
    steps = make_steps(plan)
    tree = make_tree(plan.graph, steps)
    channels = channels_of(plan.graph)
    pads = {step.path: channels[step.inputs[0]] for step in steps if step.path not in channels}
    norms = recurring_norms(tree)
    body = "\n\n\n".join(
        "\n".join(lines)
        for lines in _Classes(tree, {**channels, **pads}, norms).written(fixed_size(plan, {INPUT: "x", **tree.further}))
    )
    own = own_layers(body)
    size = "any size" if plan.only_size is None else f"{plan.only_size[0]}x{plan.only_size[1]}"
    further = taken_shapes(plan)
    first = further.pop(INPUT)
    taken = axes_text(first) if plan.graph.axes else f"N x {plan.graph.channels} x H x W, {size}"
    taken += "".join(f"; {tree.further[path]}: {batch_text(shape)}" for path, shape in further.items())
    parts = [
        _head(taken, norms, own + body),
        *([CHAIN_FUNCTION] if "chain(" in body else []),
        *([own] if own else []),
        body,
        loader(names or {}),
    ]
    return "\n\n\n".join(parts) + "\n"


def _head(taken: str, norms: Mapping[str, Mapping[str, str]], body: str) -> str:
    functional = "from torch.nn import functional as F\n" if "F." in body else ""
    standard = "".join(f"import {name}\n" for name in ("math", "re") if re.search(rf"\b{name}\.", body))
    standard += "from collections import OrderedDict\n" if "chain(" in body else ""
    standard += "from collections.abc import Callable, Sequence\n" if "Callable[" in body else ""
    standard += "from functools import partial\n" if norms else ""
    paths = "from pathlib import Path\n" + ("from typing import Any\n" if "Any," in body else "")
    return (
        f'"""Input: {taken}. Written by porter; `load()` reads the weights beside it."""\n\n'
        f"{standard}{paths}\nimport torch\nfrom safetensors.torch import load_file\nfrom torch import nn\n"
        f"{functional}\n" + "\n".join(f"{kind} = {flat(call('partial', f'nn.{kind}', **slots))}" for kind, slots in norms.items())
    ).rstrip()


@dataclass
class _Classes:
    """The classes of a model's blocks, innermost first."""

    tree: Body
    channels: Mapping[str, int]
    norms: Mapping[str, Mapping[str, str]]
    by_name: dict[str, Class] = field(default_factory=dict)
    uses: dict[str, ClassUse] = field(default_factory=dict)

    @cached_property
    def in_rows(self) -> set[str]:
        """Paths of the uses that loops make: at the root, and in the root's chains."""
        root = [part.content for part in self.tree.parts if isinstance(part.content, Body)]
        chained = [part.content for body in root if body.block is None for part in body.parts if isinstance(part.content, Body)]
        return {body.path for body in (*root, *chained)}

    def written(self, entry: list[str]) -> list[tuple[str, ...]]:
        """The lines of each class and function, those of `Model` last; its `forward` begins with `entry`."""
        for block in dict.fromkeys(body.block for body in self.tree.bodies() if body is not self.tree):
            if block is not None:
                self._define(block, ())
        template = unify({0: self.tree}, self.uses)
        stages = self._stages(template)
        calls = {row: made for stage in stages for row, made in stage.calls.items()}
        model = write_class("Model", template, {}, Known(self.by_name, self.norms, calls), entry)
        return [*(found.lines for found in self.by_name.values()), *(stage.lines for stage in stages), model.lines]

    def _stages(self, template: Template) -> list[Stages]:
        """Functions for the rows that have parts of the same class and numbered names: `stage` for `stage1` to `stage4`."""
        alike: dict[tuple[str, str, str, int], dict[str, Run]] = {}
        for part in template.parts:
            run = whole_run(part.alternatives[0].parts, self.by_name)
            if run is not None:
                name = re.sub(r"\d+$", "", part.name)
                alike.setdefault((name, run.kind, run.pattern, run.start), {})[part.name] = run
        taken = frozenset(_TAKEN)
        found = [
            write_stages(
                f"make_{name}" if name in _TAKEN else name, runs, taken, lambda kind, texts: use_of(self.by_name[kind], texts)
            )
            for (name, *_), runs in alike.items()
            if len(runs) > 1 and name.isidentifier() and not iskeyword(name)
        ]
        return [stages for stages in found if stages is not None]

    def _define(self, block: str, outer: tuple[str, ...]) -> None:
        uses = [body for body in self.tree.bodies() if body.block == block and body is not self.tree]
        if block in outer or uses[0].path in self.uses:
            return
        for inner in dict.fromkeys(body.block for use in uses for body in use.bodies()):
            if inner is not None and inner != block:
                self._define(inner, (*outer, block))
        try:
            self._write(block, uses)
        except Unlike:
            alike: dict[object, list[Body]] = {}
            for use in uses:
                alike.setdefault(signature(use, self.uses), []).append(use)
            for group in alike.values():
                self._write(block, group)

    def _write(self, block: str, uses: list[Body]) -> None:
        bodies = dict(enumerate(uses))
        template = unify(bodies, self.uses)
        names = [
            name
            for name in uses[0].arguments or {}
            if name.isidentifier()
            and not iskeyword(name)
            and name not in _TAKEN
            and all(name in (use.arguments or {}) for use in uses)
        ]
        given: dict[str, Vector] = {name: {i: _value((use.arguments or {})[name]) for i, use in bodies.items()} for name in names}
        channels: Vector = {i: self.channels[use.source] for i, use in bodies.items()}
        given = {**{name: vector for name, vector in given.items() if vector != channels}, "channels": channels}
        in_a_row = len(uses) >= SHORTEST and all(use.path in self.in_rows for use in uses)
        found = write_class(self._name(block), template, given, Known(self.by_name, self.norms), defaults=not in_a_row)
        self.by_name[found.name] = found
        for number, use in bodies.items():
            self.uses[use.path] = ClassUse(found.name, {p.name: p.values[number] for p in found.parameters})

    def _name(self, block: str) -> str:
        name = base = "".join(word[:1].upper() + word[1:] for word in block.split("_"))
        number = 2
        while name in _TAKEN | self.by_name.keys():
            name, number = f"{base}{number}", number + 1
        return name


def _value(value: object) -> Value:
    """A recipe's argument as a value that can be hashed."""
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
