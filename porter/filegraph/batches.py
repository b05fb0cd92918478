"""A file that takes a fixed number of images at once, as its exporter was given."""

from __future__ import annotations

from dataclasses import replace

from porter.base.errors import MappingError, MissingFramework
from porter.filegraph.file_graph import FileGraph
from porter.filegraph.to_graph import to_graph
from porter.graph import shapes
from porter.graph.bounds import MOST_IN_ALL, numbers

_GROWTH = 4096
"""So many numbers for each of the input's are assumed of a graph that porter cannot read whole: four times a network's most."""


def expect_batch(file: FileGraph, images: int, size: tuple[int, int]) -> None:
    """Refuses to fill a batch that takes more memory than any network's: a file may state any number of images.

    Args:
        images: that the file takes at once.
        size: of the images, rows and columns.

    Raises:
        MissingFramework: their values have too many numbers together, so that the file's graph cannot be run.
    """
    try:
        graph = to_graph(replace(file.to_logits, size=size), keep_activation=True).graph
        each = sum(map(numbers, shapes(graph, size).values()))
    except MappingError:
        each = _GROWTH * file.channels * size[0] * size[1]
    if images * each > MOST_IN_ALL:
        message = f"the file takes {images} images at once, whose values have {images * each} numbers, more than {MOST_IN_ALL}"
        raise MissingFramework(message, next="export it for fewer images, or for any number")
