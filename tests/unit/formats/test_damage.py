"""Damaged inputs of every reader are read, or refused with one error. scripts/fuzz makes as many as one has
time for.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import porter.formats
from tests.fuzzing.run import scratch
from tests.fuzzing.seeds import SEEDS, seeds_of
from tests.fuzzing.trial import FIND, OWN, READ, Place, mutant, read, tried

FEWER = {
    **dict.fromkeys(("caffe", "torch7", "keras", "tf_graph", "recipe"), 700),
    **dict.fromkeys(("tflite", "tfjs", "port", "torch_export", "saved-model"), 300),
    "keras-h5": 150,  # some are read in a process of their own
    "orbax": 20,  # each is
}
"""Inputs of the readers that take longest; of the others 2,000 are made. CI tries the first eighth of
them.
"""


def test_every_format_is_damaged() -> None:
    formats = (folder.parent.name for folder in Path(porter.formats.__path__[0]).glob("*/__init__.py"))
    assert {*formats} <= {*SEEDS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [slice(0, 1), pytest.param(slice(1, 8), marks=pytest.mark.full)])
@pytest.mark.parametrize("reader", SEEDS)
def test_a_damaged_input_is_read_or_refused(reader: str, part: slice, tmp_path: Path) -> None:
    count = FEWER.get(reader, 2000) // 8
    seeds, of_reader = seeds_of(reader, tmp_path / "made"), OWN.get(reader, read)
    with scratch() as folder:
        place = Place(folder, seeds)
        assert [tried(of_reader, path)[0] for path in place.paths] == [READ] * len(seeds)
        for index in range(part.start * count, part.stop * count):
            with place.holding(*mutant(reader, seeds, 0, index)) as path:
                state, what, _ = tried(of_reader, path)
                assert state != FIND, f"scripts/fuzz {reader} --only {index}: {what}"
