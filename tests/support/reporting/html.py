"""What is wrong with a page of HTML, as far as the standard library's parser tells."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "input", "hr"}


@dataclass
class Page:
    """A parsed page.

    Attributes:
        tags: every element's name and attributes, in order.
        text: what is read.
        faults: closing tags without their opening ones, and elements left open.
    """

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: str = ""
    faults: list[str] = field(default_factory=list)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page, self.open = Page(), list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append((tag, dict(attrs)))
        if len(dict(attrs)) != len(attrs):
            self.page.faults.append(f"<{tag}> has an attribute twice")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.append((tag, dict(attrs)))
        if "svg" not in self.open:
            self.page.faults.append(f"<{tag}/> closes itself outside a drawing")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.page.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.page.text += data


def parse(text: str) -> Page:
    parser = _Parser()
    parser.feed(text)
    parser.close()
    parser.page.faults += [f"<{tag}> is left open" for tag in parser.open]
    return parser.page
