"""The body of a generated `forward`: the inputs of each part, as statements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from porter.frameworks.code.language import Language
from porter.frameworks.code.template import Edge, Template, TemplatePart
from porter.frameworks.code.text import WIDTH, Call, Choice, Expression, call, flat, lines, tuple_lines

OPERATORS = {"add": " + ", "multiply": " * ", "divide": " / "}
"""Functions that are written between their values."""
_NESTED = 3
"""How many calls are nested in one statement."""


class Forward:
    """Writes one `forward`.

    Args:
        flags: attribute names of conditions. The key is (name, None) for a part that some uses lack, and
            (name, number) for an input that differs; the output's name is None.
        runs: first part of a loop to the names of its parts, their pattern `block{index}` and the range.
        inlined: names of parts that are said where they are applied, with the texts of their arguments.
    """

    def __init__(
        self,
        language: Language,
        template: Template,
        flags: Mapping[tuple[str | None, int | None], str],
        runs: Mapping[str, tuple[Sequence[str], str, str]],
        inlined: Mapping[str, Mapping[str, Expression]],
    ) -> None:
        self.language, self.template, self.flags, self.runs, self.inlined = (
            language,
            template,
            flags,
            runs,
            inlined,
        )
        self.joins = any(self._function(part) == "concat" for part in template.parts)
        self.readers: dict[str, list[TemplatePart | None]] = {}  # of each part; None reads the outputs
        for reader, edges in (*((part, part.inputs) for part in template.parts), (None, template.outputs)):
            for source in {source for edge in edges for source in edge.sources}:
                self.readers.setdefault(source, []).append(reader)
        self.written: list[str] = []

    def statements(self) -> list[str]:
        """The lines, at the indentation of a method's body."""
        parts = self.template.parts
        last_read = {
            source: number
            for number, part in enumerate(parts)
            for edge in part.inputs
            for source in edge.sources
        }
        last_read |= {source: len(parts) for edge in self.template.outputs for source in edge.sources}
        variables = {**self.template.variables}
        skipped: set[str] = set()
        # Of the statement not written yet: variable, expression, depth.
        pending: tuple[str, Expression, int] | None = None
        for number, part in enumerate(parts):
            if part.name in skipped:
                continue
            source = part.inputs[0].source
            live = {
                variables[name] for name, last in last_read.items() if last > number and name in variables
            }
            if part.name in self.runs:
                names, template_name, numbers = self.runs[part.name]
                skipped.update(names)
                self._write(pending)
                pending = None
                variable = variables[source]
                if variable in live:
                    variable = self._fresh(part, live)
                    self.written.append(f"        {variable} = {variables[source]}")
                self.written.append(f"        for index in {numbers}:")
                self.written.append(
                    f"            {variable} = {self.language.got(template_name)}({variable})"
                )
                variables[names[-1]] = variable
                continue
            variable = variables[source]
            beside = self.joins and variable == "x" and bool(live)
            if (
                variable in live
                or beside
                or len(part.inputs[0].sources) > 1
                or self._function(part) == "concat"
            ):
                variable = self._fresh(part, live)
            nests = (
                pending is not None
                and self._function(part) is None
                and len(part.inputs) == 1
                and part.inputs[0].other is None
            )
            if (
                nests
                and pending is not None
                and variables[source] == pending[0] == variable
                and pending[2] < _NESTED
            ):
                nested = self._called(part, [pending[1]])
                if len(f"        return {flat(nested)}") <= WIDTH:
                    pending = variable, nested, pending[2] + 1
                    variables[part.name] = variable
                    continue
            summed = self._summed(part, variables, pending, live)
            if summed is None:
                self._write(pending)
            pending = variable, summed or self._expression(part, variables), 1
            variables[part.name] = variable
        self._finish(pending, variables)
        return self.written

    def _finish(self, pending: tuple[str, Expression, int] | None, variables: Mapping[str, str]) -> None:
        outputs = [
            self._edge(edge, (None, number), variables) for number, edge in enumerate(self.template.outputs)
        ]
        if pending is not None and outputs == [pending[0]]:
            self.written += lines("return ", pending[1], depth=2)
            return
        self._write(pending)
        self.written += (
            tuple_lines("return ", outputs, depth=2)
            if len(outputs) > 1
            else lines("return ", outputs[0], depth=2)
        )

    def _write(self, pending: tuple[str, Expression, int] | None) -> None:
        if pending is not None and pending[1] != pending[0]:
            self.written += lines(f"{pending[0]} = ", pending[1], depth=2)

    def _fresh(self, part: TemplatePart, live: set[str]) -> str:
        short = re.sub(r"_\d+[a-z]?$", "", part.name.replace(".", "_"))
        full = part.name.replace(".", "_")
        ordinary = ["gate"] if self._is_gate(part) else []
        ordinary += [] if self.joins or len(part.inputs[0].sources) > 1 else ["out", "x"]
        taken = self.language.reserved | live
        candidates = [name for name in [*ordinary, short, full] if name.isidentifier() and name not in taken]
        name = candidates[0] if candidates else f"{full}_"
        while name in live:
            name += "_"
        return name

    def _is_gate(self, part: TemplatePart) -> bool:
        """Whether a product is all that becomes of a part: layers that have one reader each, and then the
        product.
        """
        while True:
            reader, *others = self.readers.get(part.name, [None])
            if reader is None or others:
                return False
            if self._function(reader) is not None:
                return self._function(reader) == "multiply"
            part = reader

    def _expression(self, part: TemplatePart, variables: Mapping[str, str]) -> Expression:
        inputs = [self._edge(edge, (part.name, number), variables) for number, edge in enumerate(part.inputs)]
        function = self._function(part)
        if function is None:
            return self._called(part, inputs)
        joined = self.language.applied(function, inputs)
        flag = self.flags.get((part.name, None))
        return joined if flag is None else Choice(joined, f"self.{flag}", inputs[part.through or 0])

    def _called(self, part: TemplatePart, inputs: Sequence[Expression]) -> Expression:
        if part.name in self.inlined and self.language.inline is not None:
            return self.language.inline(part.alternatives[0].kind, self.inlined[part.name], inputs)
        return call(f"self.{part.again or part.name}", *inputs)

    def _function(self, part: TemplatePart) -> str | None:
        return next((each.kind for each in part.alternatives if each.kind in self.language.functions), None)

    def _summed(
        self,
        part: TemplatePart,
        variables: Mapping[str, str],
        pending: tuple[str, Expression, int] | None,
        live: set[str],
    ) -> Expression | None:
        """A sum with the call that is not written yet as one of its terms, if nothing else reads that
        call.
        """
        sources = [edge.source for edge in part.inputs if edge.other is None]
        mine = [source for source in sources if pending is not None and variables[source] == pending[0]]
        plain = (
            self._function(part) in OPERATORS
            and (part.name, None) not in self.flags
            and len(sources) == len(part.inputs)
        )
        if (
            pending is None
            or not plain
            or len(mine) != 1
            or pending[0] in live
            or not isinstance(pending[1], Call)
        ):
            return None
        term = flat(pending[1])
        found = self._expression(part, {**variables, mine[0]: term or ""})
        return found if term is not None and len(f"        return {flat(found)}") <= WIDTH else None

    def _edge(self, edge: Edge, key: tuple[str | None, int], variables: Mapping[str, str]) -> Expression:
        if edge.other is None:
            return variables[edge.source]
        return Choice(variables[edge.source], f"self.{self.flags[key]}", variables[edge.other])
