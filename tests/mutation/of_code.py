"""Mistakes in porter's own source, one at a time: another constant, comparison, sign, order, branch or
argument, in a function or in a module's table.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

Place = tuple[str, str, int]
"""Of a function's code: its file, qualified name and first line."""
Functions = dict[Place, list[FunctionType]]

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_LEFT_OUT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.AnnAssign)
"""What only words a message or a type."""


@dataclass(frozen=True)
class Mistake:
    """A mistake in a file of source: the `place`-th that its functions and tables can have.

    Attributes:
        table: the name of the module's value that it is in; None in a function.
    """

    file: Path
    line: int
    kind: str
    place: int
    table: str | None = None

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}:{self.kind}:{self.place}"


def mistakes_in(file: Path) -> list[Mistake]:
    """All mistakes that can be planted in a file, in their order."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tables: dict[ast.AST, str] = {
        node: name for name, value in _tables(tree).items() for node in _in_table(value)
    }
    return [
        Mistake(file, node.lineno, kind, place, tables.get(node))
        for place, (node, kind, _) in enumerate(_changes(tree))
    ]


def plant(mistake: Mistake, functions: Functions | None = None) -> int:
    """Gives this process the mistake; returns how many of its functions, or of its modules' names, have it
    now.

    Args:
        functions: those of the process, if they were looked for before.
    """
    if mistake.table is not None:
        return _give_table(mistake, mistake.table)
    return give(codes_with(mistake), functions_of(gc.get_objects()) if functions is None else functions)


def functions_of(objects: Iterable[object]) -> Functions:
    """The functions among objects, by the file, name and line of their code."""
    found: Functions = {}
    for each in objects:
        if isinstance(each, FunctionType):
            found.setdefault(_place(each.__code__), []).append(each)
    return found


def codes_with(mistake: Mistake) -> dict[Place, CodeType]:
    """The codes of the file that are others with the mistake."""
    before = _codes_of(mistake.file)
    after = _codes(compile(_with(mistake), str(mistake.file), "exec"))
    return {key: code for key, code in after.items() if code != before.get(key)}


def _with(mistake: Mistake) -> ast.Module:
    """The file with the mistake."""
    tree = ast.parse(mistake.file.read_text(encoding="utf-8"))
    node, _, changed = next(islice(_changes(tree), mistake.place, None))
    _replace(tree, node, changed)
    return ast.fix_missing_locations(tree)


def _give_table(mistake: Mistake, name: str) -> int:
    """Puts another value in place of a module's, wherever a module has it or a larger table that took it
    in.
    """
    (module,) = [each for each in _modules() if getattr(each, "__file__", None) == str(mistake.file)]
    stated = next(each for each in _with(mistake).body if name in _targets(each))
    space = dict(vars(module))
    future = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module([*future, stated], []), str(mistake.file), "exec"), space)
    old, new, count = vars(module)[name], space[name], 0
    for each in _modules():
        for held, value in list(vars(each).items()):
            if value is old:
                setattr(each, held, new)
            elif (
                type(value) is type(old) is dict
                and old
                and all(value.get(key) is own for key, own in old.items())
            ):
                value.update(new)
            else:
                continue
            count += 1
    return count


def _modules() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]


def give(codes: Mapping[Place, CodeType], functions: Functions) -> int:
    """Gives functions their other codes; returns how many have one."""
    pairs = [(function, code) for place, code in codes.items() for function in functions.get(place, ())]
    for function, code in pairs:
        function.__code__ = code
    return len(pairs)


@cache
def _codes_of(file: Path) -> dict[Place, CodeType]:
    return _codes(compile(file.read_text(encoding="utf-8"), str(file), "exec"))


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _codes(code: CodeType) -> dict[Place, CodeType]:
    found = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found[_place(each)] = each
            found |= _codes(each)
    return found


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(each is old for each in value):
                value[next(index for index, each in enumerate(value) if each is old)] = new
                return


def _changes(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, str, ast.AST]]:
    """Each node within a function or a table, with a kind of mistake and what stands in its place then."""
    for node in chain(_in_functions(tree, False), *map(_in_table, _tables(tree).values())):
        for kind, changed in _of(node):
            yield node, kind, ast.copy_location(changed, node)


def _tables(tree: ast.AST) -> dict[str, ast.expr]:
    """The values that a module gives its own names."""
    return {
        name: each.value
        for each in getattr(tree, "body", ())
        for name in _targets(each)
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None
    }


def _targets(statement: ast.stmt) -> list[str]:
    found = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [target.id for target in found if isinstance(target, ast.Name)]


def _in_table(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions of a module's value, but for functions without a name in it."""
    if isinstance(node, ast.Lambda | ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_table(child)


def _in_functions(node: ast.AST, inside: bool) -> Iterator[ast.expr | ast.stmt]:
    if isinstance(node, _LEFT_OUT):
        return
    if inside and isinstance(node, ast.expr | ast.If):
        yield node
    if isinstance(node, ast.FunctionDef):
        for statement in node.body:
            yield from _in_functions(statement, True)
        return
    inside = inside or isinstance(node, ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _in_functions(child, inside)


def _of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int(whole)):
            yield "constant", ast.Constant(whole + 1)
        case ast.Constant(value=float(number)):
            yield "constant", ast.Constant(number * 1.5 + (number == 0))
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            yield "comparison", ast.Compare(node.left, [_COMPARED[type(op)]()], node.comparators)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            yield "operator", ast.BinOp(node.left, _COMPUTED[type(op)](), node.right)
        case ast.BoolOp():
            yield "and, or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield "sign", node.operand
        case ast.IfExp():
            yield "branch", ast.IfExp(node.test, node.orelse, node.body)
        case ast.If():
            yield "branch", ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.Tuple(elts=[first, second], ctx=ast.Load()) if not any(
            isinstance(each, ast.Starred) for each in (first, second)
        ):
            yield "order", ast.Tuple([second, first], ast.Load())
        case ast.Call():
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    if len(node.args) > 1 and not any(isinstance(each, ast.Starred) for each in node.args[:2]):
        yield (
            "swapped arguments",
            ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords),
        )
    for index in range(len(node.keywords)):
        rest = [*node.keywords[:index], *node.keywords[index + 1 :]]
        yield "dropped argument", ast.Call(node.func, node.args, rest)
