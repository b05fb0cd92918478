"""A port's README.md as the Hub shows it: a model card of what port.json says, with front matter in YAML.

Names in a record are a stranger's. Everything that the template is given is escaped, but what it has made
code of.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from porter.base.errors import escaped
from porter.base.package import __version__
from porter.data.labels import IMAGENET
from porter.files import write_whole
from porter.padding.sizes import size_text
from porter.port import Record
from porter.reporting import command_lines
from porter.reporting.records import Contents, read_contents
from porter.reporting.sentences import conclude, facts, steps, warn

CARD = "README.md"
_FRAMEWORKS = {"tf": "keras", "torch": "pytorch"}
"""The Hub's names of libraries, where they are not porter's names of frameworks."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>#!|~&$])")
_MOST_PADS = 40


def write_card(folder: Path, name: str | None = None) -> Path:
    """Write the card beside a port's files, or replace the one there.

    Args:
        name: of the folder, if it is not its own yet.

    Raises:
        PorterError: there is no port, a record is damaged, or the card cannot be written.
    """
    path = folder / CARD
    write_whole(path, model_card(read_contents(folder), name or folder.resolve().name))
    return path


def model_card(contents: Contents, name: str) -> str:
    """Return the text of the whole card, the same for the same contents.

    Args:
        name: the folder's, in commands.
    """
    record = contents.record
    shown = [pad for pad in record.pads if not pad.is_native]
    parts: dict[str, Any] = {
        "front": front_matter(contents),
        "record": record,
        "framework": _hub_library(record),
        "conclusion": conclude(contents),
        "warnings": warn(contents),
        "facts": facts(record),
        "steps": steps(record),
        "evaluation": contents.evaluation,
        "pads": shown[:_MOST_PADS],
        "more_pads": len(shown[_MOST_PADS:]),
        "native_pads": len(record.pads) - len(shown),
        "commands": command_lines.reproduce(contents, name),
        "size": size_text(record.input.native_size),
        "timm": _is_timm_class(record),
        "porter": __version__,
    }
    return _environment().get_template("model_card.md").render(parts)


def front_matter(contents: Contents) -> dict[str, Any]:
    """Return what the Hub reads at the top of the card, by its keys, with nothing that is not known. A
    licence that the Hub does not list is `other`, with its name.
    """
    record = contents.record
    licence = re.sub(r"\s+", "-", (record.licence or "").lower())
    licences = {"license": licence} if licence else {}
    if licence and not _hub_knows(licence):
        licences = {"license": "other", "license_name": licence}
    classifies = record.output == "logits" and record.classes > 0 and record.input.channels == 3
    task = {"pipeline_tag": "image-classification"} if classifies else {}
    is_of_imagenet = record.source.published and record.labels == IMAGENET
    trained_on = {"datasets": ["imagenet-1k"]} if is_of_imagenet else {}
    names = [name for name in (record.architecture, record.zoo) if name is not None]
    return {
        **licences,
        "library_name": "timm" if _is_timm_class(record) else _hub_library(record),
        **task,
        "tags": ["porter", _hub_library(record), *names],
        **trained_on,
    }


def _hub_knows(licence: str) -> bool:
    """Return whether the Hub has a licence by this name."""
    known = r"apache-2\.0|mit|bsd(-[23]-clause)?|cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.0|openrail"
    return re.fullmatch(known, licence) is not None


def _hub_library(record: Record) -> str:
    """Return the Hub's name of the port's framework, such as `pytorch`."""
    return _FRAMEWORKS.get(record.framework, record.framework)


def _is_timm_class(record: Record) -> bool:
    return (record.stock_class or "").startswith("timm.")


def _environment() -> Environment:
    """Make the environment of the template, which escapes everything but what `code` and `json` made."""
    environment = Environment(
        loader=PackageLoader("porter.reporting"),
        autoescape=False,  # HTML's escapes are not Markdown's: `finalize` escapes
        finalize=lambda value: value if isinstance(value, Markup) else _escape_markdown(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "code": _escape_code,
        "json": lambda value: Markup(json.dumps(value, ensure_ascii=False)),
    }
    return environment


def _escape_markdown(value: object) -> str:
    """Return a text in one line in which nothing is Markdown or HTML."""
    return _MARKDOWN.sub(r"\\\1", escaped(str(value)))


def _escape_code(value: object) -> Markup:
    """Return a text in one line that ends neither code nor a cell of a table."""
    return Markup(escaped(str(value)).replace("`", "'").replace("|", "¦"))
