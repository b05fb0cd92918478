"""A comparison as a JUnit XML file, as the services that run tests read it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from porter.comparison.compare import Comparison
from porter.files import write_whole


def write_junit(path: Path, found: Comparison) -> None:
    """Write a comparison as JUnit's XML: the verdict is one test, and each difference is another one, which
    failed.
    """
    failed = [("the same function", found.summary if not found.ok else None)]
    failed += [(f"{each.kind} {number}", each.text) for number, each in enumerate(found.differences, 1)]
    suite = ElementTree.Element(
        "testsuite",
        name=f"{found.a} and {found.b}",
        tests=str(len(failed)),
        failures=str(sum(text is not None for _, text in failed)),
    )
    for name, text in failed:
        case = ElementTree.SubElement(suite, "testcase", classname="porter.compare", name=name)
        if text is not None:
            ElementTree.SubElement(case, "failure", message=text).text = str(found)
    write_whole(path, ElementTree.tostring(suite, encoding="unicode", xml_declaration=True))
