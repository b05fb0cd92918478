"""The rooms of ARCHITECTURE.md: imports run downward, those for type checkers too, so that there is no circle
between rooms.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.support.checkout import ROOT

ROOMS = (
    "base",
    "files",
    "padding",
    "graph",
    "filegraph",
    "data",
    "formats",
    "frameworks",
    "zoos",
    "recipe",
    "port",
    "source",
    "verification",
    "conversion",
    "comparison",
    "authoring",
    "evaluation",
    "reporting",
    "batch",
    "api",
    "testing",
    "cli",
)
"""From the lowest to the highest."""
DOORS = ("__init__", "__main__")


def room_of(module: str) -> str | None:
    """The room of `porter.graph.plan` is `graph`."""
    parts = module.split(".")
    return parts[1] if parts[0] == "porter" and len(parts) > 1 else None


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache  # most tests here look through all of porter
def _statements(path: Path) -> tuple[ast.Import | ast.ImportFrom | ast.ClassDef | ast.Assign | str, ...]:
    """The imports, classes and assignments of a file, wherever they stand, and the modules of porter that it
    names in one of its strings.
    """
    found = list[ast.Import | ast.ImportFrom | ast.ClassDef | ast.Assign | str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.Assign):
            found.append(node)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"porter(\.\w+)+", node.value)
        ):
            found.append(node.value)
    return tuple(found)


def imported(path: Path, strings: bool = True) -> Iterator[str]:
    """Every module of porter that a file imports, wherever the import stands, and every one that it names in
    one of its `strings`.
    """
    for node in _statements(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "porter":
            yield from (f"porter.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [name for each in node.names if file_of(name := f"{node.module}.{each.name}").is_file()]
            if len(modules) < len(node.names):  # a name of the package itself
                yield node.module
            yield from modules
        elif isinstance(node, str) and strings:
            yield node


def reached(module: str) -> set[str]:
    """Every module of porter that a module imports, and those that they import."""
    found, ahead = set[str](), [module]
    while ahead:
        file = file_of(ahead.pop())
        new = (
            {name for name in imported(file) if name.startswith("porter")} - found
            if file.is_file()
            else set()
        )
        found |= new
        ahead += new
    return found


def test_the_package_has_these_rooms_and_no_others() -> None:
    found = {
        path.stem
        for path in (ROOT / "porter").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert found == {*ROOMS, *DOORS} and len(ROOMS) <= 22
    stray = [path for path in (ROOT / "porter").rglob("*.py") if not (path.parent / "__init__.py").is_file()]
    assert not stray, "a folder without __init__.py is no package"


def test_imports_run_downward() -> None:
    upward = []
    for path in sorted((ROOT / "porter").rglob("*.py")):
        own = path.relative_to(ROOT / "porter").parts[0].removesuffix(".py")
        for module in imported(path) if own not in DOORS else ():
            room = room_of(module)
            if room in ROOMS and ROOMS.index(room) > ROOMS.index(own):
                upward.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not upward, "\n".join(upward)


def test_jax_is_imported_in_its_room_only() -> None:
    """Nothing else may need it, and the room itself only runs with it: ports are written and read without."""
    found = {
        path.relative_to(ROOT / "porter").as_posix()
        for path in (ROOT / "porter").rglob("*.py")
        for module in _modules(path)
        if module.split(".")[0] in ("jax", "flax", "orbax")
    }
    own = (
        "evaluate",
        "graph_module",
        "in_memory",
        "layers",
        "own_state",
        "reference_models",
        "tracing/trace",
        "tracing/windows",
    )
    for_types = {"base/commands.py"}
    assert found == {f"frameworks/flax/{name}.py" for name in own} | for_types, "the last one only for types"


def test_mlx_is_imported_in_its_room_only() -> None:
    found = {
        path.relative_to(ROOT / "porter").as_posix()
        for path in (ROOT / "porter").rglob("*.py")
        for module in _modules(path)
        if module.split(".")[0] == "mlx"
    }
    assert found == {f"frameworks/mlx/{name}.py" for name in ("exact_operations", "graph_module", "layers")}


def _modules(path: Path) -> Iterator[str]:
    for node in _statements(path):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def test_only_the_command_line_imports_the_package_above_it() -> None:
    modules = {path.stem for path in (ROOT / "porter").iterdir()}
    for path in (ROOT / "porter").rglob("*.py"):
        for node in _statements(path):
            if isinstance(node, ast.ImportFrom) and node.module == "porter":
                assert modules.issuperset(name.name for name in node.names), path
            elif isinstance(node, ast.Import) and path != ROOT / "porter/cli/app.py":
                assert "porter" not in [name.name for name in node.names], path


def test_the_page_has_every_room_and_names_files_that_exist() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawing = page.split("```")[1]
    assert all(re.search(rf"\b{room}\b", drawing) for room in ROOMS)
    named = re.findall(r"`((?:\w+/)+\w+\.(?:py|md))`", page)
    places = ("", "porter/")
    assert (
        named
        and [name for name in named if not any((ROOT / place / name).is_file() for place in places)] == []
    )


def test_every_file_of_unit_tests_names_its_module() -> None:
    """tests/unit/graph/test_plan.py has the tests of porter/graph/plan.py, and so would
    test_plan_sizes.py.
    """
    unit, astray = ROOT / "tests" / "unit", []
    for path in unit.rglob("test_*.py"):
        folder, name = (
            ROOT / "porter" / path.parent.relative_to(unit),
            path.stem.removeprefix("test_").split("_"),
        )
        names = ["_".join(name[:count]) for count in range(1, len(name) + 1)]
        if path != Path(__file__) and not any(
            (folder / f"{each}.py").is_file() or (folder / each).is_dir() for each in names
        ):
            astray.append(str(path.relative_to(ROOT)))
    assert not astray


def test_no_two_modules_import_each_other() -> None:
    """Wherever the imports stand. Packages, which name what they give, are left out."""
    modules = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts): file
        for file in (ROOT / "porter").rglob("*.py")
        if file.stem not in DOORS
    }
    ahead = {module: modules.keys() & imported(file, strings=False) for module, file in modules.items()}
    # What imports only modules that are in no circle is in none.
    while free := [module for module, names in ahead.items() if names.isdisjoint(ahead)]:
        for module in free:
            del ahead[module]
    assert not ahead


SHARED_CLASSES = {
    "a plan's module": "GraphModule",
    "an op, and the layer of a framework that has none of its own": """
        AddArray Affine Attention ChannelScale CropAxis CropLike DepthToSpace HardSigmoid Join MatMul
        MultiplyArray PadAxis PadChannels PadLike Power Rearrange Reduce Resize ResizeLike SliceChannels
        SpaceToDepth Step Tokens
    """,
    "the layer of several frameworks that have none of their own": "CroppedConvTranspose2d Layers",
}
SHARED_MODULES = {
    "a part of each framework": """
        code destination dialect engine evaluate file_reference graph_module in_memory language layout maker
        own_state port_files reference_models run running sites spellings
    """,
    "a part of each format": """
        calls graph network nodes objects operators ops plain read rows tensors witness
    """,
    "operators of one topic, read, computed and written": """
        activations arithmetic arrays attention axes constants joins layers moves norms operations patches
        products reductions resampling resizing windows
    """,
    "the same part of a file that is read and of one that is written": "archive build config construction",
    "what has this name, in a file and in a port": "model",
    "the fields that a file may have": "schema",
    "the layout of a data set, and what it consists of": "folders",
    "what a recipe's user sees of it, and what its reader has": "steps template",
    "the same thing in the room that makes it and in one that uses it": """
        heads kinds left_out origin reading refusals results sizes study tensorflow
    """,
}
"""Names that several of them have, under the reason why these are one thing."""


def test_a_name_stands_for_one_thing() -> None:
    classes, modules = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "porter").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if path.stem != "__init__":
            modules[path.stem].append(where)
        for node in _statements(path):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(where)
    _expect_reasons(classes, SHARED_CLASSES.values())
    _expect_reasons(modules, SHARED_MODULES.values())


def _expect_reasons(places: dict[str, list[str]], reasons: Iterable[str]) -> None:
    shared = {name: where for name, where in places.items() if len(where) > 1}
    reasoned = " ".join(reasons).split()
    unreasoned = {name: where for name, where in shared.items() if name not in reasoned}
    assert not unreasoned, "rename all but one, or give the reason why they are one thing"
    assert sorted(reasoned) == sorted(shared), "a reason for what is no longer shared, or twice"


def test_a_statement_says_one_thing() -> None:
    """Values are assigned together where they say one thing: on one line, and not several computed ones of
    different forms. `source, port = norm(a), norm(b)` is such a pair.
    """
    packed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "porter").rglob("*.py")
        for node in _statements(path)
        if isinstance(node, ast.Assign) and _says_two_things(node)
    ]
    assert packed == []


_COMPUTED = ast.Call | ast.IfExp | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp | ast.Lambda


def _says_two_things(node: ast.Assign) -> bool:
    target, value = node.targets[0], node.value
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return False
    computed = [each for each in value.elts if any(isinstance(part, _COMPUTED) for part in ast.walk(each))]
    forms = {tuple(type(part) for part in ast.walk(each)) for each in value.elts}
    return len(forms) > 1 and (len(computed) > 1 or node.end_lineno != node.lineno)
