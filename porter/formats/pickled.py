"""The only unpickler. It runs a stranger's pickle on values of its own. A name that the format does not take
is refused, and never looked up; what is called is the format's own functions, which check their arguments.

Python's unpickler is not used, because what it sets, hashes and allocates on a stranger's word has no bounds.
"""

from __future__ import annotations

import mmap
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from porter.base.errors import FileError, first_line

_MOST_OPCODES = 1 << 20
"""A tensor takes some thirty; an opcode of one byte can take a hundred bytes of memory."""
_MOST_DIGITS = 20
_MOST_KEY = 1 << 60
"""Larger numbers can all have one hash. A dictionary of such keys takes the square of their number."""

Maker = Callable[..., object]


class PickledObject:
    """An object that a pickle makes; by itself, one that nobody reads. A format's own objects take their
    state with `build`.
    """

    def __init__(self, *_: object) -> None:
        pass

    def build(self, state: Any, /) -> None:
        """Ignore the state that a pickle gives its object."""


class PickledGlobal(PickledObject):
    """A class or function by its name in a pickle.

    Attributes:
        make: is called in its place.
    """

    def __init__(self, name: str, make: Maker) -> None:
        self.name, self.make = name, make


class _UnhashedKey(PickledObject):
    """Replaces a key that is neither text nor a small number. No format looks for such keys, and hashing one
    may not end.
    """

    def __init__(self, key: object) -> None:
        self.text = str(key) if isinstance(key, float | bool | None) else type(key).__name__

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Vocabulary:
    """What a format's pickles may say.

    Attributes:
        names: the functions that take the place of its classes and functions, by their names.
        next: what to do about a file that says more, for messages.
        text: whether Python 2's strings are text; otherwise they are bytes.
        most: bytes of the longest text and the longest bytes that the format reads. Longer ones are not
            copied.
        stored: returns the object with an id that the file keeps outside of the pickle; None if it keeps
            none.
    """

    names: Mapping[str, Maker]
    next: str
    text: bool
    most: int
    stored: Callable[[Any], object] | None = None


def unpickle(data: bytes | mmap.mmap, vocabulary: Vocabulary, where: str, at: int = 0) -> tuple[object, int]:
    """Return the value of the pickle that begins at byte `at`, and the byte after it.

    Mappings of every class become dictionaries.

    Raises:
        FileError: it is damaged, names something else than `vocabulary`, or has more opcodes than weights
            need.
    """
    machine = _PickleMachine(data, vocabulary, where, at)
    try:
        for _ in range(_MOST_OPCODES):
            code = data[machine.at]
            machine.at += 1
            if code == _STOP:
                return machine.stack.pop(), machine.at
            step = _STEPS.get(code)
            if step is None:
                raise machine.refusal(f"a pickle of tensors has no opcode {code:#x}")
            step(machine)
    except FileError:
        raise
    # A stranger's pickle may fail in every way that Python knows; none is a bug of porter's.
    except Exception as error:
        raise FileError(
            f"this pickle is cut short or damaged: {first_line(error)}", where=where, next="fetch it again"
        ) from None
    raise machine.refusal("this pickle asks for more memory than tensors need")


def read_mapping_items(
    items: dict[object, object] | Iterable[tuple[object, object]] = (),
) -> dict[object, object]:
    """Return a dictionary from pairs, as Python 2 pickles an OrderedDict, or from another dictionary, as
    Python pickles a Counter. Keys that are not safe to hash are replaced.
    """
    entries: dict[object, object] = {}
    for key, value in items.items() if isinstance(items, dict) else items:
        entries[_safe_key(key)] = value
    return entries


def _safe_key(key: object) -> object:
    """Return a key that can be hashed without harm: text and small numbers as they are, otherwise a key that
    no format looks for.
    """
    plain = type(key) is str or (type(key) is int and -_MOST_KEY < key < _MOST_KEY)
    return key if plain else _UnhashedKey(key)


class _PickleMachine:
    """The state of an unpickler: its stack, the stacks below its marks, the memo, and where in the bytes it
    is.
    """

    def __init__(self, data: bytes | mmap.mmap, vocabulary: Vocabulary, where: str, at: int) -> None:
        self.data, self.vocabulary, self.where, self.at = data, vocabulary, where, at
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, object] = {}
        self.copied = 0

    def refusal(self, message: str) -> FileError:
        """Return the error for a pickle that is refused."""
        return FileError(message, where=self.where, next=self.vocabulary.next)

    def number(self, form: struct.Struct) -> Any:
        """Read the number of a form of `struct`, and go on behind it."""
        (number,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return number

    def cut(self, length: int) -> bytes | None:
        """Read the next bytes; return None if they are more than the format reads. Raise EOFError where the
        pickle ends before.
        """
        start = self.at
        self.at = self.at + length
        if self.at > len(self.data):
            raise EOFError("it ends inside a value")
        return self.data[start : self.at] if length <= self.vocabulary.most else None

    def line(self) -> str:
        """Read the text up to the end of its line, and go on behind that."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise EOFError("it ends inside a name")
        start = self.at
        self.at = end + 1
        return self.data[start:end].decode()

    def pop_to_mark(self) -> list[Any]:
        """Return the values above the last mark, and go back to the stack below it."""
        values = self.stack
        self.stack = self.below.pop()
        return values

    def name(self, module: str, word: str) -> None:
        """Push a class or a function by its name; refuse one outside of the vocabulary."""
        name = f"{'builtins' if module == '__builtin__' else module}.{word}"
        make = self.vocabulary.names.get(name)
        if make is None:
            raise self.refusal(
                f"the file pickles '{name[:100]}', not only tensors; porter runs no code from files"
            )
        self.stack.append(PickledGlobal(name, make))


def _push_mark(machine: _PickleMachine) -> None:
    """Put the stack aside, and begin a new one above it."""
    machine.below.append(machine.stack)
    machine.stack = []


def _push(make: Callable[[], object], machine: _PickleMachine) -> None:
    """Push what `make` gives, such as an empty list."""
    machine.stack.append(make())


def _read_number(form: struct.Struct, machine: _PickleMachine) -> None:
    machine.stack.append(machine.number(form))


def _read_long(machine: _PickleMachine) -> None:
    """Push a whole number of up to 255 bytes; one that is longer than the format reads becomes 0."""
    machine.stack.append(int.from_bytes(machine.cut(machine.number(_BYTE)) or b"", "little", signed=True))


def _read_text(length: struct.Struct, machine: _PickleMachine) -> None:
    """Push a text; one that is longer than the format reads becomes an object that nobody reads."""
    content = machine.cut(machine.number(length))
    machine.stack.append(PickledObject() if content is None else content.decode("utf-8", "surrogatepass"))


def _read_bytes(length: struct.Struct, machine: _PickleMachine) -> None:
    """Push bytes; those that are longer than the format reads become an object that nobody reads."""
    content = machine.cut(machine.number(length))
    machine.stack.append(PickledObject() if content is None else content)


def _read_string(length: struct.Struct, machine: _PickleMachine) -> None:
    """Push a string of Python 2, which is text or the content of an array."""
    content = machine.cut(machine.number(length))
    if content is None:
        machine.stack.append(PickledObject())
    else:
        machine.stack.append(content.decode("utf-8", "replace") if machine.vocabulary.text else content)


def _read_decimal(machine: _PickleMachine) -> None:
    """Push a whole number that Python 2 writes in digits, because it has more than 32 bits."""
    machine.stack.append(int(machine.line()[:_MOST_DIGITS]))


def _put_memo(form: struct.Struct, machine: _PickleMachine) -> None:
    """Keep the value on the stack under a stated number."""
    machine.memo[machine.number(form)] = machine.stack[-1]


def _append_memo(machine: _PickleMachine) -> None:
    """Keep the value on the stack under the next number."""
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _get_memo(form: struct.Struct, machine: _PickleMachine) -> None:
    """Push the value that is kept under a stated number."""
    machine.stack.append(machine.memo[machine.number(form)])


def _make_tuple(count: int, machine: _PickleMachine) -> None:
    """Replace the last `count` values on the stack by a tuple of them."""
    if len(machine.stack) < count:
        raise IndexError("its stack is empty")
    machine.stack[-count:] = [tuple(machine.stack[-count:])]


def _make_tuple_to_mark(machine: _PickleMachine) -> None:
    """Push a tuple of the values above the last mark, which leave the stack."""
    values = tuple(machine.pop_to_mark())
    machine.stack.append(values)


def _append_value(machine: _PickleMachine) -> None:
    value = machine.stack.pop()
    _extend_list(machine, [value])


def _append_values(machine: _PickleMachine) -> None:
    """Append the values above the last mark to the list below it."""
    values = machine.pop_to_mark()
    _extend_list(machine, values)


def _extend_list(machine: _PickleMachine, values: list[object]) -> None:
    """Append values to the list on the stack; an object that nobody reads ignores them."""
    target = machine.stack[-1]
    if type(target) is list:
        target += values
    elif not isinstance(target, PickledObject):  # a set, which nobody reads
        raise TypeError(f"it appends to {type(target).__name__}")


def _set_item(machine: _PickleMachine) -> None:
    """Set the item of a key and a value, which are on the stack, in the dictionary below them."""
    value, key = machine.stack.pop(), machine.stack.pop()
    _update_dict(machine, [(key, value)])


def _set_items(machine: _PickleMachine) -> None:
    """Set the items of the keys and values above the last mark in the dictionary below it."""
    values = machine.pop_to_mark()
    _update_dict(machine, zip(values[::2], values[1::2], strict=True))


def _update_dict(machine: _PickleMachine, items: Iterable[tuple[object, object]]) -> None:
    """Set items of the dictionary on the stack. Raise TypeError if it is none."""
    target = machine.stack[-1]
    if type(target) is not dict:
        raise TypeError(f"it sets items of {type(target).__name__}")
    target.update(read_mapping_items(items))


def _push_global(machine: _PickleMachine) -> None:
    """Push a class or a function by its module and its name, which stand in two lines."""
    module = machine.line()
    machine.name(module, machine.line())


def _push_stack_global(machine: _PickleMachine) -> None:
    """Push a class or a function by its module and its name, which are on the stack."""
    word, module = machine.stack.pop(), machine.stack.pop()
    if not isinstance(module, str) or not isinstance(word, str):
        raise TypeError("a name is not text")
    machine.name(module, word)


def _call(machine: _PickleMachine) -> None:
    """Replace a function and its arguments on the stack by the result of the call. Only the vocabulary's own
    functions are called.
    """
    arguments, function = machine.stack.pop(), machine.stack.pop()
    if not isinstance(function, PickledGlobal) or type(arguments) is not tuple:
        raise TypeError(f"it calls {type(function).__name__}")
    machine.copied += sum(len(items) for items in arguments if isinstance(items, list | tuple | dict))
    if machine.copied > _MOST_OPCODES:  # through the memo, one long list can be copied by any number of calls
        raise machine.refusal("this pickle asks for more memory than tensors need")
    machine.stack.append(function.make(*arguments))


def _build_object(machine: _PickleMachine) -> None:
    """Give the object on the stack the state that stands above it. A dictionary's state is dropped; other
    objects are refused.
    """
    state = machine.stack.pop()
    built = machine.stack[-1]
    if isinstance(built, PickledObject):
        built.build(state)
    elif type(built) is not dict:  # the state of a state_dict is the versions of its modules
        raise TypeError(f"it builds {type(built).__name__}")


def _push_stored(machine: _PickleMachine) -> None:
    """Push the object that the format makes of the id on the stack, which the file keeps outside of the
    pickle.
    """
    stored = machine.vocabulary.stored
    if stored is None:
        raise machine.refusal("this pickle refers to objects outside of it")
    machine.stack.append(stored(machine.stack.pop()))


_BYTE, _SHORT, _INT, _UNSIGNED, _LONG = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<Q"))
_STOP = pickle.STOP[0]
_STEPS: dict[int, Callable[[_PickleMachine], None]] = {
    code[0]: step
    for code, step in (
        (pickle.PROTO, lambda machine: machine.number(_BYTE)),
        (pickle.FRAME, lambda machine: machine.number(_LONG)),
        (pickle.MARK, _push_mark),
        (pickle.NONE, partial(_push, lambda: None)),
        (pickle.NEWTRUE, partial(_push, lambda: True)),
        (pickle.NEWFALSE, partial(_push, lambda: False)),
        (pickle.EMPTY_TUPLE, partial(_push, tuple)),
        (pickle.EMPTY_LIST, partial(_push, list)),
        (pickle.EMPTY_DICT, partial(_push, dict)),
        (pickle.EMPTY_SET, partial(_push, PickledObject)),
        (pickle.BININT, partial(_read_number, _INT)),
        (pickle.BININT1, partial(_read_number, _BYTE)),
        (pickle.BININT2, partial(_read_number, _SHORT)),
        (pickle.BINFLOAT, partial(_read_number, struct.Struct(">d"))),
        (pickle.LONG1, _read_long),
        (pickle.INT, _read_decimal),
        (pickle.BINUNICODE, partial(_read_text, _UNSIGNED)),
        (pickle.SHORT_BINUNICODE, partial(_read_text, _BYTE)),
        (pickle.BINUNICODE8, partial(_read_text, _LONG)),
        (pickle.BINBYTES, partial(_read_bytes, _UNSIGNED)),
        (pickle.SHORT_BINBYTES, partial(_read_bytes, _BYTE)),
        (pickle.BINBYTES8, partial(_read_bytes, _LONG)),
        (pickle.BINSTRING, partial(_read_string, _UNSIGNED)),
        (pickle.SHORT_BINSTRING, partial(_read_string, _BYTE)),
        (pickle.BINPUT, partial(_put_memo, _BYTE)),
        (pickle.LONG_BINPUT, partial(_put_memo, _UNSIGNED)),
        (pickle.MEMOIZE, _append_memo),
        (pickle.BINGET, partial(_get_memo, _BYTE)),
        (pickle.LONG_BINGET, partial(_get_memo, _UNSIGNED)),
        (pickle.TUPLE, _make_tuple_to_mark),
        (pickle.TUPLE1, partial(_make_tuple, 1)),
        (pickle.TUPLE2, partial(_make_tuple, 2)),
        (pickle.TUPLE3, partial(_make_tuple, 3)),
        (pickle.APPEND, _append_value),
        (pickle.APPENDS, _append_values),
        (pickle.ADDITEMS, _append_values),
        (pickle.SETITEM, _set_item),
        (pickle.SETITEMS, _set_items),
        (pickle.GLOBAL, _push_global),
        (pickle.STACK_GLOBAL, _push_stack_global),
        (pickle.REDUCE, _call),
        (pickle.NEWOBJ, _call),
        (pickle.BUILD, _build_object),
        (pickle.BINPERSID, _push_stored),
    )
}
"""The opcodes that torch and numpy write, in protocols 2 to 4, of Python 2 and 3."""
