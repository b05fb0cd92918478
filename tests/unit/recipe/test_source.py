from pathlib import Path

import pytest

from porter.base.errors import RecipeError
from porter.recipe.source import MAX_BYTES, SourcePart, assemble, read_source
from tests.support.recipe.recipes import line_of, write


def test_values_and_their_places(tmp_path: Path) -> None:
    path = write(tmp_path, "a: 1\nb:\n  - {c: no}\n  - [1.5, 1e-5, -.inf, '2', null]\n")
    source = read_source(path)
    assert source.data == {"a": 1, "b": ({"c": False}, (1.5, 1e-5, float("-inf"), "2", None))}
    assert source.where(("b", 1)) == f"{path}:4:5" and source.where(("b", 1, 1)) == f"{path}:4:11"
    assert source.where(("b", 0, "c")) == source.where(("b", 0, "c", "deeper")) == f"{path}:3:9"
    assert (
        source.where(("b", 0, "c"), key=True) == f"{path}:3:6"
        and source.where(("b", 0), key=True) == f"{path}:3:5"
    )
    assert source.where(("b",)) == f"{path}:2:1", "the key of a value that begins below it"
    assert source.where(()) == f"{path}:1:1"


def test_values_of_several_files_keep_their_places(tmp_path: Path) -> None:
    graph = read_source(
        write(tmp_path, "graph: [a]\nzoos:\n  home: {names: {a: x}, only: [a]}\n", "graph.yaml")
    )
    zoo = read_source(write(tmp_path, "names: {b: y}\nonly: [b]\ngroup: {names: {a: z, c: w}}\n", "zoo.yaml"))
    home = ("zoos", "home")
    whole = assemble(
        graph.path,
        [
            SourcePart((), graph, ()),
            SourcePart(home, zoo, ("group",)),
            SourcePart((*home, "only"), zoo, ("only",)),
        ],
    )
    assert whole.data == {"graph": ("a",), "zoos": {"home": {"names": {"a": "x", "c": "w"}, "only": ("a",)}}}
    assert list(whole.data["zoos"]["home"]["names"]) == ["a", "c"]
    assert whole.where((*home, "names", "a")) == f"{graph.path}:3:21"
    assert whole.where((*home, "names", "c")) == f"{zoo.path}:3:26"
    assert whole.where((*home, "names", "c"), key=True) == f"{zoo.path}:3:23"
    assert (
        assemble(zoo.path, [SourcePart(("in",), whole, home)]).where(("in", "names", "c", "deeper"))
        == f"{zoo.path}:3:26"
    )
    assert (
        whole.where((*home, "absent")) == f"{graph.path}:3:9"
        and whole.where(("absent",)) == f"{graph.path}:1:1"
    )


BOMB = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*{'a' if i == 0 else f'b{i - 1}'}, *a]\n" for i in range(30))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (BOMB, 2, "aliases"),
        ("a: &a\n  - *a\n", 2, "aliases"),
        ("a: 1\nb: {\n", 3, "YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "twice"),
        ("a: 1\nb: " + "[" * 40 + "]" * 40, 2, "deep"),
        ("a: 1\n? [x]\n: 2\n", 2, "key"),
        ("a: 1\nb: !!python/object/apply:os.system [true]\n", 2, "not part of"),
        ("a: 1\nb: !!binary aGk=\n", 2, "binary"),
        ("a: 1\nb: 2020-01-01\n", 2, "timestamp"),
        ("a: 1\nb: .nan\n", 2, "float"),
        ("a: 1\nb: " + "9" * 5000 + "\n", 2, "int"),
        ("- a\n", 1, "mapping"),
        ("", 1, "mapping"),
        ("a: 1\n---\nb: 2\n", 2, "YAML"),
        ("a: \x07\n", 1, "YAML"),
    ],
)
def test_text_that_is_no_recipe(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RecipeError, match=words) as caught:
        read_source(path)
    assert line_of(caught.value) == f"{path}:{line}"


def test_files_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe"):
        read_source(tmp_path / "absent.yaml")
    with pytest.raises(RecipeError, match="no such recipe"):
        read_source(tmp_path)
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(RecipeError, match="UTF-8") as caught:
        read_source(path)
    assert caught.value.where == f"{path}:2:4"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(RecipeError, match="at most"):
        read_source(path)


def test_a_merge_key_is_a_key_like_any_other(tmp_path: Path) -> None:
    assert read_source(write(tmp_path, "<<: {a: 1}\n")).data == {"<<": {"a": 1}}
