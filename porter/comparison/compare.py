"""Compares two models: the same function, or what differs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from porter.base.calls import takes
from porter.base.commands import CompareOptions
from porter.base.errors import CannotRun, MappingError, UsageError
from porter.base.options import INPUT_SIZE, path_of
from porter.comparison.comparison_result import Comparison
from porter.comparison.found_difference import FoundDifference
from porter.comparison.judging import compare_graphs
from porter.comparison.outputs_only import outputs_only
from porter.comparison.sides import Side, side_of
from porter.padding import ANY, KnownSize, Size
from porter.padding.sizes import parse_size, size_text
from porter.source.opened import Opened
from porter.source.place import InMemory
from porter.verification.check import expect_tolerance

_USUAL = 224, 224
"""What most networks take: two that state no size are run at it where pads are compared for every size."""
_WRONG_OUTPUTS = 1e-3
"""Outputs in float32 further apart are no rounding."""


@takes(CompareOptions)
def compare(asked: CompareOptions) -> Comparison:
    """Compare two models and return whether they are the same function, and what differs if they are not.

    Each is opened as `convert` opens it, and its graph is proved against the model itself. Both graphs are
    brought to one normal form, aligned by structure and values, and compared layer by layer; pairs of layers
    are also run on the same numbers.

    Args:
        a, b: a file that carries its graph, a folder of the Hub, a port, `FILE.py:CALLABLE`, whose code is
            run, or a model in memory, each with its own weights.
        input_size: rows and columns at which they are compared: `224`, `(225, 201)`, or `any` to compare pads
            for every size. None for the size that one of them states.
        example: what modules of torch and Flax are exported with: a batch, or one for each input; None for
            zeros of the input size.
        tolerance: how far apart tensors may be, the largest difference in a filter over its largest number.
            None for 1e-12, which is rounding of float64, and 1e-6 where norms may have been folded before the
            weights were stored in float32.
        recipes: as `convert`.

    Raises:
        UsageError: an argument is wrong, or no size is known.
        FileError: a file is damaged.
    """
    expect_tolerance(asked.tolerance)
    size = None if asked.input_size is None else parse_size(asked.input_size)
    sides = side_of(asked.a, asked.example, "a"), side_of(asked.b, asked.example, "b")
    return _Comparing(sides, size, asked.tolerance, path_of(asked.recipes)).done()


@dataclass
class _Comparing:
    """Two models to be compared, and how.

    Attributes:
        unread: why a model's graph cannot be read, by its index in `sides`.
    """

    sides: tuple[Side, Side]
    size: Size | None
    tolerance: float | None
    recipes: Path | None
    unread: dict[int, str] = field(default_factory=dict)

    def done(self) -> Comparison:
        """Open both models, prove each graph, and return the comparison; only outputs are compared where a
        graph cannot be read.
        """
        opened_a, opened_b = self._opened()
        if opened_a is None or opened_b is None:
            return self._at_outputs((opened_a, opened_b))
        size = self._common(opened_a, opened_b)
        opened = opened_a, opened_b
        proofs = tuple(side.prove(model, size) for side, model in zip(self.sides, opened, strict=True))
        names = self.sides[0].name, self.sides[1].name
        return compare_graphs(names, opened, proofs, size, self.size == ANY, self.tolerance)

    def _opened(self) -> tuple[Opened | None, Opened | None]:
        """Open both models and return them, None for one whose graph cannot be read; `unread` then has the
        reason. The model that states its own size is opened first, because the other one may need it.

        Raises:
            UsageError: no size is known.
        """
        opened: list[Opened | None] = [None, None]
        size = None if self.size == ANY else self.size
        for index, side in sorted(enumerate(self.sides), key=lambda numbered: numbered[1].needs_size):
            if side.needs_size and size is None:
                usual_size = _USUAL if self.size == ANY else None
                sizes_of_opened = (model.sizes.built for model in opened if model is not None)
                size = next(sizes_of_opened, usual_size)
            if side.needs_size and size is None:
                raise UsageError(
                    f"{side.name} does not say the size of its input",
                    where=str(INPUT_SIZE),
                    next=f"add {INPUT_SIZE.placeholder}",
                )
            try:
                opened[index] = side.open(size, self.recipes)
            except (MappingError, UsageError, CannotRun) as error:
                # What a user typed wrongly is no graph that cannot be read.
                if not (isinstance(error, MappingError) or isinstance(side.place, InMemory)):
                    raise
                self.unread[index] = f"{'AB'[index]} cannot be read: {error}"
        return opened[0], opened[1]

    def _at_outputs(self, opened: tuple[Opened | None, Opened | None]) -> Comparison:
        """Compare only the outputs, where a graph of a model cannot be read, and return the comparison: it
        differs if the outputs do, and is otherwise undecided.
        """
        names, unread = (self.sides[0].name, self.sides[1].name), tuple(self.unread.values())
        asked = self.size if self.size != ANY else None
        rows, columns = asked or next((each.sizes.built for each in opened if each is not None), (None, None))
        if rows is None or columns is None:
            return Comparison(
                *names, "undecided", (), None, undecided=(*unread, f"add {INPUT_SIZE.placeholder}")
            )
        parity, why = outputs_only(self.sides, opened, (rows, columns))
        size = size_text((rows, columns))
        # not `>`, because NaN is a difference too
        if parity is not None and not parity.rel_l2 <= _WRONG_OUTPUTS:
            text = f"the outputs are {parity.rel_l2:.1e} apart (relative L2)"
            difference = FoundDifference("operator", None, None, text, parity.rel_l2)
            return Comparison(*names, "differs", (difference,), parity, size=size, notes=unread)
        outputs_note = () if parity is None else (f"the outputs are {parity.rel_l2:.1e} apart",)
        return Comparison(
            *names, "undecided", (), parity, size=size, undecided=(*unread, *([why] if why else outputs_note))
        )

    def _common(self, opened_a: Opened, opened_b: Opened) -> KnownSize:
        """Return the size at which both are compared: the one that was asked for, otherwise one that a model
        is bound to or was built for.

        Raises:
            UsageError: there is none that both take.
        """
        asked = None if self.size in (None, ANY) else self.size
        # `only`: the one size that a model takes; `built`: the size that its graph or its recipe states.
        rows, columns = (
            asked
            or opened_a.sizes.only
            or opened_b.sizes.only
            or opened_a.built_size
            or opened_b.built_size
            or opened_a.sizes.built
        )
        assert rows is not None and columns is not None
        for opened in (opened_a, opened_b):
            opened.sizes.expect((rows, columns))
        return rows, columns
