"""The body of a generated `forward`: the inputs of each part, as statements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from porter.frameworks.code.language import Apply, Language
from porter.frameworks.code.loops import PartRun
from porter.frameworks.code.template import Edge, FlagKey, Template, TemplatePart
from porter.frameworks.code.text import Bracketed, Choice, Code, Expression, call, flat

OPERATORS = {"add": " + ", "multiply": " * ", "divide": " / "}
"""Functions that are written between their values."""
_NESTED = 3
"""How many calls are nested in one statement."""


class _Pending(NamedTuple):
    """A statement that is not written yet: its variable gets an expression of so many nested calls."""

    variable: str
    expression: Expression
    calls: int


class Forward:
    """Writes one `forward`.

    Args:
        flags: attribute names of conditions.
        runs: the loops, by their first parts.
        inlined: how parts are applied that are no attributes of the module, by their names.
    """

    def __init__(
        self,
        language: Language,
        template: Template,
        flags: Mapping[FlagKey, str],
        runs: Mapping[str, PartRun],
        inlined: Mapping[str, Apply],
    ) -> None:
        self.language, self.template, self.flags, self.runs, self.inlined = (
            language,
            template,
            flags,
            runs,
            inlined,
        )
        # Where values are joined, they keep names of their own instead of `x` and `out`.
        self.joins = any(self._function_of(part) == "concat" for part in template.parts)
        self.readers: dict[str, list[TemplatePart | None]] = {}  # of each part; None reads the outputs
        self.last_read: dict[str, int] = {}
        readers = (*((part, part.inputs) for part in template.parts), (None, template.outputs))
        for number, (reader, edges) in enumerate(readers):
            for source in {source for edge in edges for source in edge.sources}:
                self.readers.setdefault(source, []).append(reader)
                self.last_read[source] = number
        self.variables = {**template.variables}
        self.pending: _Pending | None = None
        self.code = Code(depth=2)

    def statements(self) -> list[str]:
        """Return the lines of the method's body, at their indentation. Before each part, `live` are the
        variables of values that the parts after it still read.
        """
        skipped: set[str] = set()
        for number, part in enumerate(self.template.parts):
            if part.name in skipped:
                continue
            live = {
                self.variables[name]
                for name, last in self.last_read.items()
                if last > number and name in self.variables
            }
            if part.name in self.runs:
                skipped.update(self._write_loop(part, live))
            else:
                self._add_statement(part, live)
        self._write_return()
        return self.code.lines

    def _write_loop(self, part: TemplatePart, live: set[str]) -> Sequence[str]:
        """Write the loop over the parts of a run, and return their names.

        In torch:

            for index in range(17):
                x = self.get_submodule(f"block{index}")(x)
        """
        run = self.runs[part.name]
        self._write_pending()
        source = variable = self.variables[part.inputs[0].source]
        # The loop overwrites its variable, so a value that is still read is copied to another one.
        if source in live:
            variable = self._free_variable(part, live)
            self.code.line(f"{variable} = {source}")
        loop = self.code.within(f"for index in {run.numbers}:")
        loop.line(f"{variable} = {self.language.get_part(run.pattern)}({variable})")
        self.variables[run.names[-1]] = variable
        return run.names

    def _add_statement(self, part: TemplatePart, live: set[str]) -> None:
        """Make the statement of a part, such as `x = self.conv(x)`, the pending one. The statement that is
        pending before goes into it, nested or as a term of a sum; where that is not possible, it is written.

        Args:
            live: variables of values that later parts still read.
        """
        variable = self._variable_for(part, live)
        pending = self._nest_pending(part, variable)
        if pending is None:
            expression = self._sum_with_pending(part, live)
            if expression is None:
                self._write_pending()
                expression = self._part_expression(part, self.variables)
            pending = _Pending(variable, expression, 1)
        self.pending = pending
        self.variables[part.name] = variable

    def _variable_for(self, part: TemplatePart, live: set[str]) -> str:
        """Return the variable that a part's value is assigned to: that of its first input, or a new one where
        that is still read, where the input could be either of two, or where values are joined.
        """
        first_input = part.inputs[0]
        variable = self.variables[first_input.source]
        is_read_later = variable in live
        is_either = first_input.other is not None
        # In a module that joins values, they have names beside `x`.
        is_joined = self._function_of(part) == "concat" or (self.joins and variable == "x" and bool(live))
        return self._free_variable(part, live) if is_read_later or is_either or is_joined else variable

    def _nest_pending(self, part: TemplatePart, variable: str) -> _Pending | None:
        """Return `x = self.norm(self.conv(x))`: the pending statement with its call put into that of a part,
        which alone reads it. None where the two cannot be one statement.
        """
        pending, first_input = self.pending, part.inputs[0]
        if pending is None or len(part.inputs) > 1 or first_input.other is not None:
            return None
        if self._function_of(part) is not None or pending.calls == _NESTED:
            return None
        # The part reads the pending value and overwrites its variable.
        if not self.variables[first_input.source] == pending.variable == variable:
            return None
        nested = self._call_part(part, [pending.expression])
        return _Pending(variable, nested, pending.calls + 1) if self._fits_return(nested) else None

    def _fits_return(self, expression: Expression) -> bool:
        """Say whether one line is long enough to return an expression."""
        return self.code.fits(f"return {flat(expression)}")

    def _write_return(self) -> None:
        """Write the last line, `return x` or `return x, features`. A pending statement goes into it if its
        value is the only output, `return self.head(x)`; otherwise it is written before.
        """
        outputs = [
            self._edge_expression(edge, FlagKey(None, number), self.variables)
            for number, edge in enumerate(self.template.outputs)
        ]
        if self.pending is not None and outputs == [self.pending.variable]:
            outputs = [self.pending.expression]
        else:
            self._write_pending()
        self.code.say_tuple("return ", outputs)

    def _write_pending(self) -> None:
        """Write the pending statement, if there is one."""
        if self.pending is not None and self.pending.expression != self.pending.variable:
            self.code.say(f"{self.pending.variable} = ", self.pending.expression)
        self.pending = None

    def _free_variable(self, part: TemplatePart, live: set[str]) -> str:
        """Return a name for a part's value that no value still read has: `gate` for one that scales another,
        `out` or `x` where these are clear, otherwise the part's name, without its number if possible.
        """
        full = part.name.replace(".", "_")
        short = re.sub(r"_\d+[a-z]?$", "", full)  # `conv` of `conv_2` and of `conv_2a`
        ordinary = ["gate"] if self._is_gate(part) else []
        # `out` and `x` say too little where values are joined, or where the input could be either of two.
        if not self.joins and part.inputs[0].other is None:
            ordinary += ["out", "x"]
        taken = self.language.reserved | live
        candidates = [name for name in [*ordinary, short, full] if name.isidentifier() and name not in taken]
        name = candidates[0] if candidates else f"{full}_"
        while name in live:
            name += "_"
        return name

    def _is_gate(self, part: TemplatePart) -> bool:
        """Say whether a part's value goes through layers into a product and nowhere else, as that of a
        squeeze-and-excitation's pool does.
        """
        while True:
            reader, *others = self.readers.get(part.name, [None])
            # The value is an output, or several parts read it.
            if reader is None or others:
                return False
            if self._function_of(reader) is not None:
                return self._function_of(reader) == "multiply"
            part = reader

    def _part_expression(self, part: TemplatePart, variables: Mapping[str, str]) -> Expression:
        """Return the expression of a part's value, from the variables of the values that it reads: the call
        of a module, or a function of them. Where some uses lack the function, it is a choice, and they take
        the input that the part passes through.
        """
        inputs = [
            self._edge_expression(edge, FlagKey(part.name, number), variables)
            for number, edge in enumerate(part.inputs)
        ]
        function = self._function_of(part)
        if function is None:
            return self._call_part(part, inputs)
        applied = self.language.apply_function(function, inputs)
        flag = self.flags.get(FlagKey(part.name))
        if flag is None:
            return applied
        return Choice(applied, f"self.{flag}", inputs[part.through or 0])

    def _call_part(self, part: TemplatePart, inputs: Sequence[Expression]) -> Expression:
        """Return the call of a part: by its class and arguments if it is inlined, otherwise by its name."""
        if part.name in self.inlined:
            return self.inlined[part.name](inputs)
        return call(f"self.{part.again or part.name}", *inputs)

    def _function_of(self, part: TemplatePart) -> str | None:
        """Return the function that a part is, such as `add`; None for a module."""
        kinds = (alternative.kind for alternative in part.alternatives)
        return next((kind for kind in kinds if kind in self.language.functions), None)

    def _sum_with_pending(self, part: TemplatePart, live: set[str]) -> Expression | None:
        """Return a sum, product or quotient with the pending call as one of its terms, `shortcut +
        self.conv(out)`. None where the part is no such function in every use, where anything else reads the
        call, or where the line would be too long.
        """
        pending = self.pending
        if pending is None or pending.variable in live or not isinstance(pending.expression, Bracketed):
            return None
        if self._function_of(part) not in OPERATORS or FlagKey(part.name) in self.flags:
            return None
        if any(edge.other is not None for edge in part.inputs):
            return None
        # The inputs that read the pending value, and its call as text.
        sources = [edge.source for edge in part.inputs if self.variables[edge.source] == pending.variable]
        term = flat(pending.expression)
        if len(sources) != 1 or term is None:
            return None
        expression = self._part_expression(part, {**self.variables, sources[0]: term})
        return expression if self._fits_return(expression) else None

    def _edge_expression(self, edge: Edge, key: FlagKey, variables: Mapping[str, str]) -> Expression:
        """Return what feeds an input, `x`, or `x if self.shortcut_from_input else out` where it differs
        between uses.
        """
        if edge.other is None:
            return variables[edge.source]
        return Choice(variables[edge.source], f"self.{self.flags[key]}", variables[edge.other])
