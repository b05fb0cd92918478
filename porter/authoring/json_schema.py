"""The JSON Schema of recipes and of zoos' files, for editors: made from the sections, the operations and what
their values may be.

It says what one file shows by itself: keys, types, ranges and words. `porter recipe check` says the rest. It
is of draft 2020-12, and says the same to an editor that knows only draft 7.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import TypeAdapter

from porter.graph import OPS
from porter.padding import Average, Rounding, Rule
from porter.recipe.keys import KEYS
from porter.recipe.paddings import MAX_PAD
from porter.recipe.schema import (
    SECTIONS,
    Document,
    Extension,
    Holds,
    Schema,
    ZooDocument,
    any_of,
    list_of,
    reference_to,
    words_of,
)
from porter.recipe.steps import ATTRIBUTES, NORM, REQUIRED, WITH_NORM, Attribute
from porter.recipe.unrolling import MAX_REPEAT


def schema_text() -> str:
    """Write the schema as `porter recipe schema` prints it: a line for each definition, so that a change of
    one is a change of a line.
    """
    schema = json_schema()
    defined = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in schema.pop("$defs").items()
    )
    others = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in schema.items())
    return f'{{\n{others} "$defs": {{\n{defined}\n }}\n}}\n'


def json_schema() -> Schema:
    """Make the schema of all kinds of files: a zoo's file has the key `zoo`, a recipe that adds to another
    one the key `extends`.
    """
    sections = {_definition_name(kind): _section_schema(kind) for kind in SECTIONS}
    steps = {"step": _step_schema(), "operation": any_of(*({"required": [name]} for name in ATTRIBUTES))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "if": {"required": ["zoo"]},
        "then": reference_to(_definition_name(ZooDocument)),
        "else": {
            "if": {"required": ["extends"]},
            "then": reference_to(_definition_name(Extension)),
            "else": {"allOf": [reference_to(_definition_name(Document)), _WITHOUT_BLOCKS]},
        },
        "$defs": {
            **sections,
            **_VALUES,
            **steps,
            **_OR_EXPRESSIONS,
            **{f"step_{name}": _operation_schema(name) for name in ATTRIBUTES},
        },
    }


def _definition_name(kind: type[Any]) -> str:
    """Return the name of a section's definition in the schema: `zoo` for ZooSection."""
    return kind.__name__.removesuffix("Section").lower()


def _object_schema(properties: Mapping[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}


def _section_schema(kind: type[Any]) -> Schema:
    """Make the schema of a section: as pydantic reads it, with what its keys hold."""
    pydantic_schema = TypeAdapter(kind).json_schema()
    declared = getattr(kind, "model_fields", {})
    held_by_key = {
        key: metadata.schema
        for key, annotation in declared.items()
        for metadata in annotation.metadata
        if isinstance(metadata, Holds)
    }
    properties = {
        key: {"description": KEYS[key], **held_by_key.get(key, _without_titles(value))}
        for key, value in pydantic_schema["properties"].items()
    }
    required = {"required": pydantic_schema["required"]} if "required" in pydantic_schema else {}
    return _object_schema(properties, description=_first_paragraph(kind), **required)


def _without_titles(value: Schema) -> Schema:
    """Return what pydantic says of a value, without titles and without a null that nobody writes."""
    choices = [_without_titles(choice) for choice in value.get("anyOf", ()) if choice != {"type": "null"}]
    if choices:
        return choices[0] if len(choices) == 1 else any_of(*choices)
    if "prefixItems" in value:
        first, *_ = value["prefixItems"]
        return {**list_of(first), "minItems": value["minItems"], "maxItems": value["maxItems"]}
    return {key: item for key, item in value.items() if key not in ("title", "default")}


def _first_paragraph(kind: type[Any]) -> str:
    """Return the first paragraph of a class's docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


_WITHOUT_BLOCKS: Schema = {
    "if": {"required": ["blocks"]},
    "else": {"properties": {"graph": {"items": reference_to("operation")}}},
}
"""A recipe without blocks has only porter's operations."""
_COMMON = {key: reference_to(key) for key in ("from", "when", "repeat")}
_EXPRESSION = reference_to("expression")
_CELLS: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_PAD}
_AMOUNT = any_of(
    words_of(rule for rule in get_args(Rule) if rule != "explicit"),
    _CELLS,
    {**list_of(any_of(_CELLS, _EXPRESSION)), "minItems": 4, "maxItems": 4},
    _EXPRESSION,
)
_VALUES: Mapping[str, Schema] = {
    "path": {"type": "string", "pattern": "^[^/](.*[^/])?$"},
    "from": {"description": KEYS["from"], **any_of({"type": "string"}, list_of({"type": "string"}))},
    "when": {"description": KEYS["when"], **any_of({"type": "boolean"}, _EXPRESSION)},
    "repeat": {
        "description": KEYS["repeat"],
        **any_of({"type": "integer", "minimum": 0, "maximum": MAX_REPEAT}, _EXPRESSION),
    },
    "expression": {"type": "string", "pattern": "^="},
    "value": any_of(
        {"type": ["number", "string", "boolean", "null"]}, {"type": "array", "items": reference_to("value")}
    ),
    "padding": {
        "description": "a convention: how windows that reach past the input are padded",
        **any_of(
            _AMOUNT,
            _object_schema(
                {
                    "pad": _AMOUNT,
                    "fill": any_of({"type": "number"}, _EXPRESSION),
                    "average": any_of(words_of(get_args(Average)), _EXPRESSION),
                    "rounding": any_of(words_of(get_args(Rounding)), _EXPRESSION),
                }
            ),
        ),
    },
    "names": {
        "description": "patterns of paths with the zoo's names; a key that ends with / opens a scope",
        "type": "object",
        "properties": {"prefix": {"description": KEYS["prefix"], "type": "string"}},
        "patternProperties": {"/$": reference_to("names")},
        "additionalProperties": any_of({"type": "string"}, reference_to("name")),
    },
}


def _or_expressions(value: Schema) -> Schema:
    """Return a value's schema that also takes an expression (`=...`) for the value, and for each item of a
    list.
    """
    choices = [_items_or_expressions(choice) for choice in value.get("anyOf", [value])]
    return any_of(*choices, _EXPRESSION)


def _items_or_expressions(value: Schema) -> Schema:
    return {**value, "items": any_of(value["items"], _EXPRESSION)} if "items" in value else value


_KINDS = {
    attribute.kind.name: attribute.kind for known in ATTRIBUTES.values() for attribute in known.values()
}
_OR_EXPRESSIONS: Mapping[str, Schema] = {
    name: _or_expressions(dict(kind.schema)) for name, kind in _KINDS.items()
}


def operation_words(name: str) -> str:
    """Say what an operation computes."""
    return _OWN_WORDS.get(name) or _first_paragraph(OPS[name])


_OWN_WORDS: Mapping[str, str] = {"depthwise_conv": "A convolution with filters of its own for each channel."}


def _operation_schema(name: str) -> Schema:
    """Return the schema of a step with this operation, such as `{conv: PATH, filters: ...}`: its path, its
    attributes, and the keys that all steps have.
    """
    operation_attributes = ATTRIBUTES[name]
    attributes = {key: _attribute_schema(attribute) for key, attribute in operation_attributes.items()}
    needed = [key for key, attribute in operation_attributes.items() if attribute.default is REQUIRED]
    # `first` and `last` of a repeated step have the step's own attributes.
    references = {key: {"$ref": f"#/$defs/step_{name}/properties/{key}"} for key in operation_attributes}
    ends = {end: {"description": KEYS[end], **_object_schema(references)} for end in ("first", "last")}
    properties = {name: reference_to("path"), **attributes, **_COMMON, **ends}
    if name == "concat":
        branches = list_of(list_of(reference_to("step")))
        properties["branches"] = {"description": KEYS["branches"], **branches}
    if name in WITH_NORM:
        properties[NORM] = {"description": KEYS[NORM], **reference_to("path")}
    step = _object_schema(properties)
    if not needed:
        return step
    # A step whose `first` and `last` say everything needs nothing itself.
    return {**step, "if": {"required": ["first", "last"]}, "else": {"required": needed}}


def _attribute_schema(attribute: Attribute) -> Schema:
    """Make the schema of an operation's attribute: the values of its kind, and the default if it has one."""
    description = f"{attribute.says}: {attribute.kind.words}" if attribute.says else attribute.kind.words
    default = {} if attribute.default is REQUIRED else {"default": attribute.default}
    return {"description": description, **default, "allOf": [reference_to(attribute.kind.name)]}


def _step_schema() -> Schema:
    """Make the schema of a step with an operation, or with a block of the recipe, whose names a schema cannot
    know.
    """
    names = {name: {"description": operation_words(name)} for name in ATTRIBUTES}
    return {
        "type": "object",
        "properties": {**names, **_COMMON},
        "allOf": [{"if": {"required": [name]}, "then": reference_to(f"step_{name}")} for name in ATTRIBUTES],
    }
