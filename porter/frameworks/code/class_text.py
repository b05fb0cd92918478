"""A template as a class: its constructor, its `forward`, and the arguments that each use passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from porter.frameworks.code.forward import Forward
from porter.frameworks.code.language import CHAIN, ROW, Apply, Language
from porter.frameworks.code.loops import SHORTEST, Owner, PartRun, find_runs, find_whole_run
from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.code.template import Alternative, Edge, FlagKey, Template, TemplatePart
from porter.frameworks.code.text import (
    Bracketed,
    Choice,
    Code,
    Expression,
    Item,
    call,
    express,
    literal,
    spell,
)
from porter.frameworks.code.tree import Body
from porter.frameworks.code.written_class import Class, ClassesByName, Parameter
from porter.graph.blocks.parameters import Arguments, Vector


@dataclass(frozen=True)
class Known:
    """What the text above a class defines.

    Attributes:
        language: how it says layers.
        classes: those of nested blocks, by name.
        norms: kinds of batch norms that have a name of their own, with the texts of the arguments that the
            name includes.
        stages: calls that build the rows of a module that is used once, by the row's name.
    """

    language: Language
    classes: ClassesByName
    norms: Mapping[str, Mapping[str, str]]
    stages: Mapping[str, Bracketed] = field(default_factory=dict)


def write_class(
    name: str,
    template: Template,
    use_arguments: Mapping[str, Vector],
    known: Known,
    entry: Sequence[str] = (),
    defaults: bool = True,
) -> Class:
    """Write the class of a template: a constructor that makes the parts, whose arguments are the differences
    between uses, and a `forward` that calls them. Return it with its lines.

    The body is written twice where several of its expressions need one product: which they are is known only
    when all are written, and the second time they have the product's name in its place.

    Args:
        use_arguments: the recipe's arguments, and `channels`, in each use: `{"channels": {0: 64, 1: 128}}`.
        known: what the text above the class defines.
        entry: lines that `forward` begins with.
        defaults: whether arguments that are the same in most uses get a default.
    """
    writer = _BodyWriter(template, use_arguments, known, {})
    writer.write()
    product = writer.arguments.shared_product()
    if product is not None:
        taken = {*use_arguments, *writer.arguments.derived}
        local = next(name for name in ("width", "hidden", "hidden_") if name not in taken)
        writer = _BodyWriter(template, use_arguments, known, {product: local})
        writer.write()
    parameters = _make_parameters(writer.arguments.used_arguments(), defaults)
    language = known.language
    # The loops of `forward`, by the first part of each.
    runs = {run.names[0]: run for run in writer.runs}
    signature = ["self", *(p.name if p.default is None else f"{p.name}={p.default}" for p in parameters)]
    signature += ["*", *language.passed_names] if language.passed_names else []
    forward = Forward(language, template, writer.flags, runs, writer.inlined)
    code = Code()
    methods = code.within(f"class {name}({language.module}):")
    methods.say("def __init__", Bracketed("", tuple(map(Item, signature))), ":")
    is_empty = not language.begin and not writer.body.lines
    for line in ("pass",) if is_empty else language.begin:
        methods.deeper.line(line)
    code.lines.extend([*writer.body.lines, ""])
    methods.line(f"def {language.method}({', '.join(['self', *template.variables.values()])}):")
    code.lines.extend([*entry, *forward.statements()])
    return Class(name, parameters, tuple(code.lines))


def _sort_owners_first(parts: Sequence[TemplatePart]) -> list[TemplatePart]:
    """Return the parts in order, but each after the part that contains it by name: `a.norm` is set on the
    layer `a`.
    """
    places = {part.name: index for index, part in enumerate(parts)}

    def sort_key(part: TemplatePart) -> tuple[int, int]:
        """Return the last place among a part and its owners, and how many dots its name has, so that it comes
        behind an owner at the same place.
        """
        names = part.name.split(".")
        owners = [".".join(names[:depth]) for depth in range(1, len(names))]
        last_place = max(places[name] for name in (*owners, part.name) if name in places)
        return last_place, len(owners)

    return sorted(parts, key=sort_key)


def _make_parameters(used: Mapping[str, Vector], defaults: bool) -> tuple[Parameter, ...]:
    """Return the arguments of a class, those with a default last. A default is a value of 0 or 1 (or False or
    True) that more than a third of the uses share; without `defaults` no argument gets one.

    Args:
        used: the value in each use, by argument.
    """
    parameters = []
    for name, values in used.items():
        value, count = Counter(values.values()).most_common(1)[0]
        usual = defaults and value in (0, 1) and 3 * count > len(values)
        parameters.append(Parameter(name, values, literal(value) if usual else None))
    return tuple(sorted(parameters, key=lambda parameter: parameter.default is not None))


class _BodyWriter:
    """Writes a constructor's body and collects the arguments that the body needs.

    Attributes:
        flags: the names of the attributes that tell uses apart.
        runs: loops over parts.
        inlined: how `forward` applies the parts that it says itself, by the part's name.
    """

    def __init__(
        self,
        template: Template,
        use_arguments: Mapping[str, Vector],
        known: Known,
        products: Mapping[str, str],
    ) -> None:
        self.template, self.known, self.products = template, known, products
        self.arguments = Arguments(use_arguments, literal, products)
        self.flags: dict[FlagKey, str] = {}
        # Only a module that is used once has loops over its parts: their arguments are numbers.
        self.single = template.uses == 1
        runs = find_runs(template.parts, known.classes, template.outputs) if self.single else []
        self.runs: list[PartRun] = list(runs)
        self.inlined: dict[str, Apply] = {}
        self.body = Code(depth=2)

    def write(self) -> None:
        """Write the body: local names of products, then each part within its containers, then flags."""
        for product, local in self.products.items():
            self.body.line(f"{local} = {product}")
        run_of_part = {name: run for run in self.runs for name in run.names}
        written_containers: set[str] = set()
        for part in _sort_owners_first(self.template.parts):
            run = run_of_part.get(part.name)
            applied = self._inline(part)
            if applied is not None:
                self.inlined[part.name] = applied
            if part.again is None and applied is None:
                self._write_containers(part.name, written_containers)
            if run is None:
                self._write_part(part, self.single)
            # A run of parts is written as one loop, where its first part stands.
            elif run.names[0] == part.name:
                run.write(self.body, Owner(self.known.language, "self"), self._call_own_class)
            for number, edge in enumerate(part.inputs):
                self._write_source_flag(edge, part.name, number)
        for number, edge in enumerate(self.template.outputs):
            self._write_source_flag(edge, None, number)

    def _write_containers(self, name: str, written: set[str]) -> None:
        """Write the containers around the part `name` that are not there yet: for `stem.conv` the line
        `self.stem = nn.Module()`. They and the part are added to `written`, because a part may contain
        others.
        """
        parents = name.split(".")[:-1]
        for depth in range(1, len(parents) + 1):
            container = ".".join(parents[:depth])
            if container not in written:
                self.body.line(f"self.{container} = {self.known.language.module}()")
                written.add(container)
        written.add(name)

    def _inline(self, part: TemplatePart) -> Apply | None:
        """Return how a part is applied that is no attribute of the module, because `forward` says it where it
        is applied, such as `nnx.max_pool(x, (2, 2))`: a layer without tensors, the same in all uses. None
        for any other part.
        """
        if part.again is not None:
            return None
        language = self.known.language
        layer, *other_layers = part.alternatives
        needs_attribute = layer.kind in (CHAIN, ROW, *self.known.classes, *language.functions)
        is_called_again = any(other_part.again == part.name for other_part in self.template.parts)
        varies = other_layers or any(len(set(vector.values())) > 1 for vector in layer.arguments.values())
        is_absent = len(part.at) < self.template.uses
        if needs_attribute or layer.why or is_called_again or varies or is_absent:
            return None
        # an argument has one value in all uses
        texts = {slot: spell(set(vector.values()).pop()) for slot, vector in layer.arguments.items()}
        return language.inline(layer.kind, texts)

    def _write_source_flag(self, edge: Edge, name: str | None, number: int) -> None:
        """Write a flag that says in which uses another source feeds the input `number` of the part `name`, or
        of the outputs if that is None. Nothing is written where one source feeds it in all uses.
        """
        if edge.other is None:
            return
        source = (edge.source or "input").replace(".", "_")
        reader = (name or "output").replace(".", "_")
        self._write_flag(FlagKey(name, number), f"{reader}_from_{source}", edge.flag)

    def _write_flag(self, key: FlagKey, flag: str, values: Mapping[int, bool]) -> None:
        """Write an attribute that tells uses apart, such as `self.residual = stride == 1`, and note its name
        in `flags` under `key`.

        Args:
            flag: its name, which gets an underscore where a part has it.
            values: of the attribute, by the number of the use.
        """
        taken = {*self.flags.values(), *(part.name.split(".")[0] for part in self.template.parts)}
        while flag in taken:
            flag += "_"
        self.flags[key] = flag
        self.body.line(f"self.{flag} = {self.arguments.condition(values, flag)}")

    def _write_part(self, part: TemplatePart, single: bool) -> None:
        """Write what makes a part: nothing for another call of a part and for one that `forward` says itself;
        for a function only a flag, if some uses lack it; a call of its stage; a loop; otherwise a layer,
        under a condition if some uses lack it or have another one.
        """
        if part.again is not None or part.name in self.inlined:
            return
        everywhere = len(part.at) == self.template.uses
        functions = [
            alternative
            for alternative in part.alternatives
            if alternative.kind in self.known.language.functions
        ]
        if functions:
            if not everywhere:
                flag = "residual" if functions[0].kind == "add" else f"with_{part.name.replace('.', '_')}"
                has_part = {use: use in part.at for use in range(self.template.uses)}
                self._write_flag(FlagKey(part.name), flag, has_part)
            return
        if part.name in self.known.stages:
            self.body.say(f"self.{part.name} = ", self.known.stages[part.name])
            return
        language = self.known.language
        if single and part.alternatives[0].kind == language.in_a_row:
            run = find_whole_run(part.alternatives[0].parts, self.known.classes)
            if run is not None and len(run.names) >= SHORTEST:
                self.body.line(f"self.{part.name} = {language.row}")
                run.write(self.body, Owner(language, f"self.{part.name}"), self._call_own_class)
                return
        self._write_alternatives(part)

    def _write_alternatives(self, part: TemplatePart) -> None:
        """Write the layers that a part is in several uses: one line, or a branch of an `if` for each, and an
        identity for the uses that lack the part.
        """
        unwritten = set(range(self.template.uses))  # uses whose layer is not written yet
        word = "if"
        for alternative in part.alternatives:
            value = self._part_expression(alternative, part.name)
            left = unwritten - set(alternative.at)
            code = self.body
            if left:
                has_layer = {use: use in alternative.at for use in unwritten}
                flag = f"with_{part.name.replace('.', '_')}"
                condition = self.arguments.condition(has_layer, flag, part.name)
                code = self.body.within(f"{word} {condition}:")
            # the last of several alternatives needs no condition
            elif word == "elif":
                code = self.body.within("else:")
            code.comment(alternative.why)
            code.say(f"self.{part.name} = ", value)
            unwritten, word = left, "elif"
        if unwritten:
            self.body.within("else:").line(f"self.{part.name} = {self.known.language.identity}")

    def _part_expression(self, alternative: Alternative, owner: str) -> Expression:
        """Return the expression that makes a part in the uses of an alternative: a chain or a row of its
        members, or the call of its layer. Arguments that it needs are called after `owner`, the part's name.
        """
        if alternative.kind in (CHAIN, ROW):
            members = tuple(self._chain_member(member, alternative.at, owner) for member in alternative.parts)
            return self.known.language.chain(members, alternative.kind == ROW)
        texts = {
            slot: express(self.arguments, slot, vector, owner)
            for slot, vector in alternative.arguments.items()
        }
        return self._call_layer(alternative.kind, texts)

    def _chain_member(self, part: TemplatePart, at: Sequence[int], owner: str) -> Item:
        """Return a member of a chain in the uses `at`: one layer, or a choice between its alternatives, such
        as `nn.ReLU() if act else nn.Identity()`. The last one is the identity if some of the uses lack the
        member.
        """
        uncovered = set(at)  # uses that no choice covers yet
        choices: list[tuple[Expression, str]] = []  # layers with their conditions
        why = next((alternative.why for alternative in part.alternatives if alternative.why), "")
        for alternative in part.alternatives:
            value = self._part_expression(alternative, f"{owner}_{part.name}")
            left = uncovered - set(alternative.at)
            if not left:
                break
            has_layer = {use: use in alternative.at for use in uncovered}
            choices.append((value, self.arguments.condition(has_layer, f"with_{part.name}", part.name)))
            uncovered = left
        else:
            value = self.known.language.identity
        # The first choice becomes the outermost.
        for yes, condition in reversed(choices):
            value = Choice(yes, condition, value)
        return Item(value, part.name, why)

    def _call_own_class(self, kind: str, texts: Mapping[str, Expression]) -> Bracketed:
        """Return the call of a class of this file."""
        return call_class(self.known.classes[kind], texts, self.known.language)

    def _call_layer(self, kind: str, texts: Mapping[str, Expression]) -> Expression:
        """Return the call that makes a layer: of a class of this file; of a norm that has a name here,
        without the arguments that the name includes; or the framework's.
        """
        if kind in self.known.classes:
            return self._call_own_class(kind, texts)
        shared = self.known.norms.get(kind, {})
        if shared and all(texts[slot] == text for slot, text in shared.items()):
            rest = {slot: text for slot, text in texts.items() if slot not in shared}
            return self.known.language.construct(kind, rest, self.known.language.norms[kind].name)
        return self.known.language.construct(kind, texts, None)


def call_class(called: Class, texts: Mapping[str, Expression], language: Language) -> Bracketed:
    """Return the call that makes a module of a generated class, from the text of each argument: those without
    a default by place, others by name where they are not at their default.
    """
    positional = [texts[p.name] for p in called.parameters if p.default is None]
    named = {p.name: texts[p.name] for p in called.parameters if p.default not in (None, texts[p.name])}
    constructor_call = call(called.name, *positional, **named)
    return replace(constructor_call, items=(*constructor_call.items, *language.passed_items))


def recurring_norms(tree: Body, language: Language) -> dict[str, dict[str, str]]:
    """Return the kinds of batch norms whose epsilon and momentum, where not at their defaults, the text would
    state in several places, with these arguments: `{"BatchNorm2d": {"eps": "0.001"}}`. model.py defines
    them once, at its top.
    """
    # By kind and shared arguments: where norms with these stand.
    places: dict[tuple[str, tuple[tuple[str, str], ...]], set[tuple[str | None, ...]]] = {}
    for layer, path in _norms_with_places(tree, (), language):
        shared = tuple(
            (slot, str(literal(layer.arguments[slot]))) for slot in language.norms[layer.kind].shared
        )
        places.setdefault((layer.kind, shared), set()).add(path)
    norms: dict[str, dict[str, str]] = {}
    # Of several for one kind, the one with most places is last and wins.
    for (kind, arguments), where in sorted(places.items(), key=lambda item: len(item[1])):
        stated = {
            slot: text for slot, text in arguments if literal(language.norms[kind].shared[slot]) != text
        }
        if len(where) > 1 and stated:
            norms[kind] = stated
    return norms


def _norms_with_places(
    body: Body, place: tuple[str | None, ...], language: Language
) -> Iterator[tuple[Layer, tuple[str | None, ...]]]:
    """Yield the batch norms in a module, each with the place at which the text makes it: the name of its part
    behind those around it, up to the block whose class it is in.
    """
    for part in body.parts:
        if isinstance(part.content, Layer):
            if part.content.kind in language.norms:
                yield part.content, (*place, part.name)
        elif isinstance(part.content, Body):
            block = part.content.block
            yield from _norms_with_places(
                part.content, (*place, part.name) if block is None else (block,), language
            )
