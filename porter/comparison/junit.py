"""A comparison as a JUnit XML file, as the services that run tests read it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from porter.comparison.comparison_result import Comparison
from porter.files import write_whole

_NOT_XML = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A character that XML has no way to write, such as a control character or a byte that is no text."""


def write_junit(path: Path, comparison: Comparison) -> None:
    """Write a comparison as JUnit's XML: the verdict is one test, and each difference is another one, which
    failed. Characters that XML lacks are escaped.
    """
    # Each test: its name, and what failed; None where nothing did.
    tests = [("the same function", comparison.summary if not comparison.ok else None)]
    tests += [(f"{each.kind} {number}", each.text) for number, each in enumerate(comparison.differences, 1)]
    suite = ElementTree.Element(
        "testsuite",
        name=f"{comparison.a} and {comparison.b}",
        tests=str(len(tests)),
        failures=str(sum(text is not None for _, text in tests)),
    )
    for name, text in tests:
        case = ElementTree.SubElement(suite, "testcase", classname="porter.compare", name=name)
        if text is not None:
            ElementTree.SubElement(case, "failure", message=text).text = str(comparison)
    text = ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
    write_whole(path, _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), text))
