"""The JSON Schema of recipes and of zoos' files, for editors: made from the sections, the operations and what their values may be.

It says what one file shows by itself: keys, types, ranges and words. `porter recipe check` says the rest. It is of draft
2020-12, and says the same to an editor that knows only draft 7.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import TypeAdapter

from porter.data.labels import LABEL_MAPS
from porter.data.preprocess import Preprocess
from porter.graph import OPS
from porter.padding import Average, Rounding, Rule
from porter.recipe.fixed import FIXED
from porter.recipe.keys import KEYS
from porter.recipe.paddings import MAX_PAD
from porter.recipe.published import LABEL_FILE
from porter.recipe.schema import (
    BlockSection,
    Document,
    Extension,
    GenerationSection,
    GroupSection,
    IgnoreSection,
    InputSection,
    NameSection,
    OverrideSection,
    WeightsSection,
    ZooDocument,
    ZooSection,
)
from porter.recipe.steps import ATTRIBUTES, NORM, NORMED, REQUIRED, Attribute
from porter.recipe.transforms import TRANSFORMS
from porter.recipe.unrolling import MAX_REPEAT
from porter.recipe.zoos import NO_REFERENCE
from porter.zoos.tables import REFERENCES

Schema = dict[str, Any]


def schema_text() -> str:
    """The schema as `porter recipe schema` prints it: a line for each definition, so that a change of one is a change of a line."""
    schema = json_schema()
    defined = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in schema.pop("$defs").items()
    )
    others = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in schema.items())
    return f'{{\n{others} "$defs": {{\n{defined}\n }}\n}}\n'


def json_schema() -> Schema:
    """The schema of all kinds of files: a zoo's file has the key `zoo`, a recipe that adds to another one the key `extends`."""
    sections = {_name(kind): _section(kind) for kind in SECTIONS}
    steps = {"step": _step(), "operation": _either(*({"required": [name]} for name in ATTRIBUTES))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "if": {"required": ["zoo"]},
        "then": _ref(_name(ZooDocument)),
        "else": {
            "if": {"required": ["extends"]},
            "then": _ref(_name(Extension)),
            "else": {"allOf": [_ref(_name(Document)), _WITHOUT_BLOCKS]},
        },
        "$defs": {**sections, **_VALUES, **steps, **_OR_EXPRESSIONS, **{f"step_{name}": _operation(name) for name in ATTRIBUTES}},
    }


def _name(kind: type[Any]) -> str:
    return kind.__name__.removesuffix("Section").lower()


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _list_of(item: Schema) -> Schema:
    return {"type": "array", "items": item, "minItems": 1}


def _table_of(item: Schema) -> Schema:
    return {"type": "object", "additionalProperties": item}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _one_of(words: Iterable[str]) -> Schema:
    return {"enum": list(words)}


def _object(properties: Mapping[str, Schema], **more: Any) -> Schema:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **more}


_STEPS, _OPTIONS, _NAMES, _PADDING = _list_of(_ref("step")), _table_of(_ref("value")), _ref("names"), _table_of(_ref("padding"))
_PROTOCOL = _either({"type": "string"}, {"type": "null"}, _ref(_name(Preprocess)))
_LABELS = _either(_one_of(LABEL_MAPS), {"type": "string", "pattern": rf"^\w[\w.+-]*\{LABEL_FILE}$"})
_FACTS: Mapping[str, Schema] = {
    "framework": _one_of(tuple(REFERENCES)),
    "reference": _one_of([*dict.fromkeys(name for names in REFERENCES.values() for name in names), NO_REFERENCE]),
    "labels": _LABELS,
    "options": _OPTIONS,
    "ignore": _table_of(_either({"type": "string"}, _ref(_name(IgnoreSection)))),
    "protocols": _table_of(_ref(_name(Preprocess))),
    "protocol": _PROTOCOL,
}
_GROUP = {**_FACTS, "weights": _table_of(_ref(_name(WeightsSection)))}
SECTIONS: Mapping[type[Any], Mapping[str, Schema]] = {
    Document: {
        "variants": _table_of(_OPTIONS),
        "options": _OPTIONS,
        "constants": _OPTIONS,
        "input": _ref(_name(InputSection)),
        "graph": _STEPS,
        "blocks": _table_of(_ref(_name(BlockSection))),
        "zoos": _table_of(_ref(_name(ZooSection))),
    },
    Extension: {
        "variants": _table_of(_OPTIONS),
        "options": _OPTIONS,
        "constants": _OPTIONS,
        "zoos": _table_of(_ref(_name(ZooSection))),
    },
    InputSection: {},
    BlockSection: {"parameters": _OPTIONS, "inputs": _list_of({"type": "string"}), "steps": _STEPS},
    ZooSection: {
        **_GROUP,
        "padding": _PADDING,
        "padding_as_trained": _PADDING,
        "names": _NAMES,
        "generations": _table_of(_ref(_name(GenerationSection))),
        "taps": _NAMES,
        "variants": _table_of(_ref(_name(OverrideSection))),
    },
    GenerationSection: {"names": _NAMES, "options": _OPTIONS, "padding": _PADDING},
    OverrideSection: {"options": _OPTIONS, "padding": _PADDING},
    NameSection: {"transforms": {"type": "array", "items": _one_of(TRANSFORMS)}},
    IgnoreSection: {"equals": _either({"type": "number"}, _one_of(FIXED))},
    WeightsSection: {"protocol": _PROTOCOL, "labels": _LABELS},
    Preprocess: {},
    ZooDocument: {**_FACTS, "architectures": _table_of(_ref(_name(GroupSection)))},
    GroupSection: _GROUP,
}
"""Every section, and of each the keys whose values are not plain, with what they hold."""


def _section(kind: type[Any]) -> Schema:
    """A section as pydantic reads it, with its held values."""
    read = TypeAdapter(kind).json_schema()
    properties = {
        key: {"description": KEYS[key], **SECTIONS[kind].get(key, _plain(value))} for key, value in read["properties"].items()
    }
    required = {"required": read["required"]} if "required" in read else {}
    return _object(properties, description=_said(kind), **required)


def _plain(value: Schema) -> Schema:
    """What pydantic says of a value, without titles and without a null that nobody writes."""
    choices = [_plain(choice) for choice in value.get("anyOf", ()) if choice != {"type": "null"}]
    if choices:
        return choices[0] if len(choices) == 1 else _either(*choices)
    if "prefixItems" in value:
        first, *_ = value["prefixItems"]
        return {**_list_of(first), "minItems": value["minItems"], "maxItems": value["maxItems"]}
    return {key: item for key, item in value.items() if key not in ("title", "default")}


def _said(kind: type[Any]) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


_WITHOUT_BLOCKS: Schema = {
    "if": {"required": ["blocks"]},
    "else": {"properties": {"graph": {"items": _ref("operation")}}},
}
"""A recipe without blocks has only porter's operations."""
_COMMON = {key: _ref(key) for key in ("from", "when", "repeat")}
_EXPRESSION = _ref("expression")
_CELLS: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_PAD}
_AMOUNT = _either(
    _one_of(rule for rule in get_args(Rule) if rule != "explicit"),
    _CELLS,
    {**_list_of(_either(_CELLS, _EXPRESSION)), "minItems": 4, "maxItems": 4},
    _EXPRESSION,
)
_VALUES: Mapping[str, Schema] = {
    "path": {"type": "string", "pattern": "^[^/](.*[^/])?$"},
    "from": {"description": KEYS["from"], **_either({"type": "string"}, _list_of({"type": "string"}))},
    "when": {"description": KEYS["when"], **_either({"type": "boolean"}, _EXPRESSION)},
    "repeat": {"description": KEYS["repeat"], **_either({"type": "integer", "minimum": 0, "maximum": MAX_REPEAT}, _EXPRESSION)},
    "expression": {"type": "string", "pattern": "^="},
    "value": _either({"type": ["number", "string", "boolean", "null"]}, {"type": "array", "items": _ref("value")}),
    "padding": {
        "description": "a convention: how windows that reach past the input are padded",
        **_either(
            _AMOUNT,
            _object(
                {
                    "pad": _AMOUNT,
                    "fill": _either({"type": "number"}, _EXPRESSION),
                    "average": _either(_one_of(get_args(Average)), _EXPRESSION),
                    "rounding": _either(_one_of(get_args(Rounding)), _EXPRESSION),
                }
            ),
        ),
    },
    "names": {
        "description": "patterns of paths with the zoo's names; a key that ends with / opens a scope",
        "type": "object",
        "properties": {"prefix": {"description": KEYS["prefix"], "type": "string"}},
        "patternProperties": {"/$": _ref("names")},
        "additionalProperties": _either({"type": "string"}, _ref(_name(NameSection))),
    },
}


def _or_expressions(value: Schema) -> Schema:
    """A value's schema, where an expression may stand for the value and for each item of a list."""
    choices = [_items_or_expressions(choice) for choice in value.get("anyOf", [value])]
    return _either(*choices, _EXPRESSION)


def _items_or_expressions(value: Schema) -> Schema:
    return {**value, "items": _either(value["items"], _EXPRESSION)} if "items" in value else value


_KINDS = {attribute.kind.name: attribute.kind for known in ATTRIBUTES.values() for attribute in known.values()}
_OR_EXPRESSIONS: Mapping[str, Schema] = {name: _or_expressions(dict(kind.schema)) for name, kind in _KINDS.items()}


def operation_words(name: str) -> str:
    """What an operation computes."""
    return _OWN_WORDS.get(name) or _said(OPS[name])


_OWN_WORDS: Mapping[str, str] = {"depthwise_conv": "A convolution with filters of its own for each channel."}


def _operation(name: str) -> Schema:
    """A step with this operation."""
    here, known = f"#/$defs/step_{name}/properties", ATTRIBUTES[name]
    attributes = {key: _attribute(attribute) for key, attribute in known.items()}
    needed = [key for key, attribute in known.items() if attribute.default is REQUIRED]
    again = {key: {"$ref": f"{here}/{key}"} for key in known}
    ends = {end: {"description": KEYS[end], **_object(again)} for end in ("first", "last")}
    branches = {"branches": {"description": KEYS["branches"], **_list_of(_STEPS)}} if name == "concat" else {}
    norm = {NORM: {"description": KEYS[NORM], **_ref("path")}} if name in NORMED else {}
    step = _object({name: _ref("path"), **attributes, **_COMMON, **ends, **branches, **norm})
    return {**step, "if": {"required": ["first", "last"]}, "else": {"required": needed}} if needed else step


def _attribute(attribute: Attribute) -> Schema:
    said = f"{attribute.says}: {attribute.kind.words}" if attribute.says else attribute.kind.words
    default = {} if attribute.default is REQUIRED else {"default": attribute.default}
    return {"description": said, **default, "allOf": [_ref(attribute.kind.name)]}


def _step() -> Schema:
    """A step with an operation, or with a block of the recipe, whose names a schema cannot know."""
    names = {name: {"description": operation_words(name)} for name in ATTRIBUTES}
    return {
        "type": "object",
        "properties": {**names, **_COMMON},
        "allOf": [{"if": {"required": [name]}, "then": _ref(f"step_{name}")} for name in ATTRIBUTES],
    }
