"""What pydantic refuses in a section, in porter's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pydantic import ValidationError

from porter.base.errors import RecipeError
from porter.recipe.faults import Faults
from porter.recipe.source import Location, RecipeSource
from porter.recipe.spelling import hint

_EXPECTED_WORDS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(
        ("dict_type", "model_type", "dataclass_type", "mapping_type"), "a mapping of keys to values"
    ),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    "string_type": "a word or a text",
    "string_pattern_mismatch": "a word of letters, digits and _ . + -",
    "string_too_long": "{max_length} characters at most",
    "too_short": "{min_length} or more",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "literal_error": "one of {expected}",
}
_ADVICE = {"string_type": "put it in quotes", "too_short": "write at least one"}
_PERCENT_LIMIT = {"le": 100.0}
"""The limit that only figures in percent have."""


def raise_refusal(source: RecipeSource, location: Location, error: ValidationError) -> NoReturn:
    """Raise what pydantic found in a section of a recipe as RecipeErrors with the line and key of each value.

    Args:
        location: the keys that lead to the section.
        error: pydantic's, whose locations begin at the section. Details of one key are one error: a value of
            a union has one detail for each type that was tried.
    """
    by_place: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        inner_location = detail["loc"]
        is_missing = detail["type"] in ("missing", "missing_argument")
        # pydantic also names the branch of a union that it tried, which is not in the file.
        keys = [
            str(key)
            for end, key in enumerate(inner_location, 1)
            if is_missing or source.mark((*location, *inner_location[:end]))
        ]
        # pydantic says so if it refuses a key, not its value.
        is_about_key = inner_location[-1:] == ("[key]",)
        where = source.where((*location, *inner_location), key=is_about_key)
        by_place.setdefault((where, ".".join(keys)), []).append(detail)
    faults = Faults()
    for (where, key), details in by_place.items():
        with faults.collect():
            raise _error_of_key(where, key, details)
    faults.expect_none()
    raise AssertionError("pydantic refused a section without an error")


def _error_of_key(where: str, key: str, details: Sequence[Mapping[str, Any]]) -> RecipeError:
    """Return the error for all that pydantic says of one key: that it is missing, or what its value must be,
    joined by `or` where it tried several types.
    """
    first_detail = details[0]
    if first_detail["type"] in ("missing", "missing_argument"):
        name = key.rpartition(".")[2]
        return RecipeError(f"the key '{name}' is missing", where=where, next=f"add {name}: ...")
    # `ctx` has the numbers of a limit, such as {"ge": 1}.
    alternatives = [
        _EXPECTED_WORDS.get(detail["type"], detail["msg"]).format_map(detail.get("ctx", {}))
        for detail in details
    ]
    expected = " or ".join(dict.fromkeys(alternatives))
    # A closed list of words stands in quotes in the message.
    words = re.findall("'([^']*)'", expected) if first_detail["type"] == "literal_error" else []
    advice = hint(str(first_detail["input"]), words) if words else _ADVICE.get(first_detail["type"])
    if first_detail.get("ctx") == _PERCENT_LIMIT:
        advice = "figures are in percent"
    value = repr(first_detail["input"])
    if len(value) > 80:
        value = f"{value[:77]}..."
    return RecipeError(f"'{key}' must be {expected}, got {value}", where=where, next=advice)
