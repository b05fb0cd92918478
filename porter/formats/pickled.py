"""A stranger's pickle, read opcode by opcode before any of it is run. Nothing is made here."""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from porter.base.errors import FileError

_MOST_OPCODES = 1 << 20
"""A tensor takes some thirty; an opcode of one byte can take a hundred bytes of memory."""
_MOST_DEPTH = 100
"""Python recurses into a tuple to hash it, and crashes in one that is nested a hundred thousand deep."""
_MOST_VALUES = 1 << 24
"""In one value, counted at every place: hashing a tuple of twice the same tuple, sixty deep, would not end."""
_FILL = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"})
"""Opcodes that put values into the value below them on the stack."""


def read_opcodes(stream: bytes | IO[bytes], where: str, next: str) -> Iterator[str]:
    """The names of the opcodes of one pickle, up to its STOP; each has its arguments.

    Args:
        where, next: the file, and what to do, for messages.

    Raises:
        FileError: it has too many opcodes, a place in the memo far beyond those before it, or too deeply nested values.
        Exception: any that pickletools raises for bytes that are not a pickle, or cut short.
    """
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        # The memo is allocated up to the place's number; writers count places up from 0 or 1.
        if count > _MOST_OPCODES or (opcode.name == "LONG_BINPUT" and isinstance(argument, int) and argument > count):
            raise FileError("this pickle asks for more memory than tensors need", where=where, next=next)
        machine.run(opcode, argument)
        top = machine.stack[-1] if machine.stack else None
        if top is not None and (top.depth > _MOST_DEPTH or top.values > _MOST_VALUES):
            raise FileError("this pickle nests values deeper than any weights", where=where, next=next)
        yield opcode.name


class _Size(NamedTuple):
    """How deep a value is nested, and how many values are in it, itself included."""

    depth: int
    values: int


_NOTHING = _Size(0, 1)


@dataclass
class _Machine:
    """An unpickler that knows only the size of each value on its stack; None is a mark."""

    stack: list[_Size | None] = field(default_factory=list)
    memo: dict[object, _Size] = field(default_factory=dict)

    def run(self, opcode: pickletools.OpcodeInfo, argument: object) -> None:
        match opcode.name:
            case "MARK":
                self.stack.append(None)
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self.memo[len(self.memo) if opcode.name == "MEMOIZE" else argument] = self.stack[-1] or _NOTHING
            case "GET" | "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "DUP":
                self.stack.append(self.stack[-1])
            case name:
                taken = self._take(opcode)
                depths = [size.depth for size in taken]
                inner = depths[1:] if name in _FILL else depths
                depth = max(1 + max(inner, default=-1), depths[0] if name in _FILL else 0)
                self.stack += [_Size(depth, 1 + sum(size.values for size in taken))] * len(opcode.stack_after)

    def _take(self, opcode: pickletools.OpcodeInfo) -> Sequence[_Size]:
        """What an opcode takes off the stack, the lowest first."""
        taken: list[_Size] = []
        before = opcode.stack_before
        if pickletools.markobject in before:
            while (size := self.stack.pop()) is not None:
                taken.append(size)
            before = before[: before.index(pickletools.markobject)]
        taken += [self.stack.pop() or _NOTHING for _ in before]
        return taken[::-1]
