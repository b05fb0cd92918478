"""The classes of a model: uses of one block are unified into one class, whose arguments are the differences
between them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from keyword import iskeyword

from porter.frameworks.code.class_text import Known, call_class, recurring_norms, write_class
from porter.frameworks.code.language import Language
from porter.frameworks.code.loops import SHORTEST, PartRun, find_whole_run
from porter.frameworks.code.plan_layers import LayerStep
from porter.frameworks.code.stages import Stages, write_stages
from porter.frameworks.code.template import ClassUse, Template, signature, unify
from porter.frameworks.code.text import call, flat
from porter.frameworks.code.tree import Body
from porter.frameworks.code.written_class import Class
from porter.graph import INPUT, Graph, axes_text, batch_text
from porter.graph.blocks.block_uses import Unlike
from porter.graph.blocks.parameters import PlainValue, Vector
from porter.graph.plan import Plan, taken_shapes

_USED_BY_TEXT = ("Model", "load", "renamed", "index", "repeat", "repeats", "settings", "block", "row")
"""Names that the text of every framework uses itself."""


def model_classes(
    tree: Body, graph: Graph, steps: Sequence[LayerStep], language: Language, entry: list[str]
) -> str:
    """Return the text of a model's classes and functions, which stand in model.py behind the names of its
    norms. Every expression is checked against the values of every use before it is written.

    Args:
        tree: the model's modules.
        steps: the layers that they are made of.
        entry: the lines with which the model's `forward` begins.
    """
    channels = graph.channels_by_path
    # Pad layers are steps without a node: they keep the channels of what they read.
    pads = {step.path: channels[step.inputs[0]] for step in steps if step.path not in channels}
    classes = _Classes(language, tree, {**channels, **pads}, recurring_norms(tree, language))
    return "\n\n\n".join("\n".join(lines) for lines in classes.write_all(entry))


def docstring(plan: Plan, tree: Body, images: str) -> str:
    """Return the first line of model.py, which says what a model takes.

    Args:
        images: the axes of images of `{channels}`, as the framework has them.
    """
    further = taken_shapes(plan)
    first, graph = further.pop(INPUT), plan.lowered
    size = "any size" if plan.only_size is None else f"{plan.only_size[0]}x{plan.only_size[1]}"
    taken = axes_text(first) if graph.axes else f"{images.format(channels=graph.channels)}, {size}"
    taken += "".join(f"; {tree.further[path]}: {batch_text(shape)}" for path, shape in further.items())
    return f'"""Input: {taken}. Written by porter; `load()` reads the weights beside it."""'


def named_norms(tree: Body, language: Language) -> str:
    """Return the text of the norms that get a name because several places share them, a line for each:
    `BatchNorm = partial(nn.BatchNorm, eps=0.001)`.
    """
    norms = recurring_norms(tree, language).items()
    return "\n".join(
        f"{language.norms[kind].name} = {flat(call('partial', language.norms[kind].maker, **slots))}"
        for kind, slots in norms
    )


@dataclass
class _Classes:
    """The classes of a model's blocks, innermost first.

    Attributes:
        channels: of each value, by its path.
        norms: the batch norms that have a name of their own; see Known.norms.
        by_name: the classes that are written.
        uses: what class each use of a block is, with its arguments, by the path of the use.
    """

    language: Language
    tree: Body
    channels: Mapping[str, int]
    norms: Mapping[str, Mapping[str, str]]
    by_name: dict[str, Class] = field(default_factory=dict)
    uses: dict[str, ClassUse] = field(default_factory=dict)

    @property
    def _reserved_names(self) -> frozenset[str]:
        return self.language.taken | self.language.imported | {"self", *_USED_BY_TEXT}

    @cached_property
    def in_rows(self) -> set[str]:
        """Paths of the uses that loops make: at the root, and in the root's chains."""
        at_root = [part.content for part in self.tree.parts if isinstance(part.content, Body)]
        in_chains = [
            part.content
            for body in at_root
            if body.block is None
            for part in body.parts
            if isinstance(part.content, Body)
        ]
        return {body.path for body in (*at_root, *in_chains)}

    def write_all(self, entry: list[str]) -> list[tuple[str, ...]]:
        """Return the lines of each class and function, those of `Model` last; its `forward` begins with
        `entry`.
        """
        for block in dict.fromkeys(body.block for body in self.tree.bodies() if body is not self.tree):
            if block is not None:
                self._define_block(block, ())
        template = unify({0: self.tree}, self.uses, self.language.functions)
        stages = self._write_stages(template)
        calls = {row: call_of_row for stage in stages for row, call_of_row in stage.calls.items()}
        model = write_class(
            "Model", template, {}, Known(self.language, self.by_name, self.norms, calls), entry
        )
        return [
            *(written_class.lines for written_class in self.by_name.values()),
            *(stage.lines for stage in stages),
            model.lines,
        ]

    def _write_stages(self, template: Template) -> list[Stages]:
        """Write a function for each group of rows, modules one after the other, that have parts of the same
        class and numbered names: `stage` for `stage1` to `stage4`. Groups that no simple function makes are
        left out.
        """
        language = self.language
        # Rows that may be one function, by its name, their class, the names in them and the first number.
        alike: dict[tuple[str, str, str, int], dict[str, PartRun]] = {}
        for part in template.parts:
            content = part.alternatives[0]
            if content.kind != language.in_a_row:
                continue
            run = find_whole_run(content.parts, self.by_name)
            if run is not None:
                name = re.sub(r"\d+$", "", part.name)
                alike.setdefault((name, run.kind, run.pattern, run.start), {})[part.name] = run
        loops = [
            write_stages(
                f"make_{name}" if name in self._reserved_names else name,
                runs,
                language,
                lambda kind, texts: call_class(self.by_name[kind], texts, language),
            )
            for (name, *_), runs in alike.items()
            if len(runs) > 1 and name.isidentifier() and not iskeyword(name)
        ]
        return [stages for stages in loops if stages is not None]

    def _define_block(self, block: str, outer: tuple[str, ...]) -> None:
        """Define the class of a block, after those of the blocks within it; several classes where its uses
        have no common form, one for uses that differ in arguments only. A block that is defined already, or
        is being defined around this one (`outer`), is left alone.
        """
        uses = [body for body in self.tree.bodies() if body.block == block and body is not self.tree]
        is_defined = uses[0].path in self.uses
        if is_defined or block in outer:
            return
        for inner in dict.fromkeys(body.block for use in uses for body in use.bodies()):
            if inner is not None and inner != block:
                self._define_block(inner, (*outer, block))
        try:
            self._write_block(block, uses)
        except Unlike:
            alike: dict[object, list[Body]] = {}
            for use in uses:
                alike.setdefault(signature(use, self.uses), []).append(use)
            for group in alike.values():
                self._write_block(block, group)

    def _write_block(self, block: str, uses: list[Body]) -> None:
        """Write the class of a block from its uses into `by_name`, and its calls into `uses`.

        Raises:
            Unlike: the uses have no common form.
        """
        bodies = dict(enumerate(uses))
        template = unify(bodies, self.uses, self.language.functions)
        use_arguments = self._arguments_of_uses(bodies)
        # Where a loop makes all uses, its one call states the arguments, so defaults would save nothing.
        in_a_row = len(uses) >= SHORTEST and all(use.path in self.in_rows for use in uses)
        known = Known(self.language, self.by_name, self.norms)
        written_class = write_class(
            self._free_name(block), template, use_arguments, known, defaults=not in_a_row
        )
        self.by_name[written_class.name] = written_class
        for number, use in bodies.items():
            self.uses[use.path] = ClassUse(
                written_class.name, {p.name: p.values[number] for p in written_class.parameters}
            )

    def _arguments_of_uses(self, bodies: Mapping[int, Body]) -> dict[str, Vector]:
        """Return what the recipe passes to the uses of a block, by argument and number of the use, and their
        `channels`: `{"stride": {0: 1, 1: 2}, "channels": {0: 64, 1: 128}}`. Arguments that some use lacks, or
        whose name the text cannot have, are left out.
        """
        arguments = {use: body.arguments or {} for use, body in bodies.items()}
        channels: Vector = {use: self.channels[body.source] for use, body in bodies.items()}
        use_arguments: dict[str, Vector] = {}
        for name in arguments[0]:
            is_usable = name.isidentifier() and not iskeyword(name) and name not in self._reserved_names
            if not is_usable or any(name not in stated for stated in arguments.values()):
                continue
            vector = {use: _hashable(stated[name]) for use, stated in arguments.items()}
            # An argument that is the number of channels everywhere goes by that name.
            if vector != channels:
                use_arguments[name] = vector
        return {**use_arguments, "channels": channels}

    def _free_name(self, block: str) -> str:
        """Return a class's name that no other class has: `InvertedResidual` of the block `inverted_residual`,
        or with a number behind it, from 2 on.
        """
        name = base = "".join(word[:1].upper() + word[1:] for word in block.split("_"))
        number = 2
        while name in self._reserved_names | self.by_name.keys():
            name, number = f"{base}{number}", number + 1
        return name


def _hashable(value: object) -> PlainValue:
    """Return a recipe's argument as a value that can be hashed: a list becomes a tuple."""
    return tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
