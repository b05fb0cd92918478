"""Inputs of one reader, chosen by the lines of porter that they reach: `python -m
tests.fuzzing.guided READER SECONDS DIR`.

The first two bytes of an input say which seed and which of its files it stands for.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["porter"]):
    from tests.fuzzing.run import MOST_SECONDS, made_seeds, scratch
    from tests.fuzzing.trial import FIND, OWN, Place, inspect, tried

from tests.fuzzing.mutations import damaged


def main() -> None:
    reader, seconds, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    seeds, read, known = made_seeds(reader), OWN.get(reader, inspect), set[str]()
    folder.mkdir(parents=True, exist_ok=True)
    with scratch() as temporary:
        place, corpus = Place(temporary / "seeds", seeds), temporary / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(seeds):
            for file, content in enumerate(seed.files.values()):
                (corpus / f"{number}-{file}").write_bytes(bytes([number, file]) + content)

        def one(data: bytes) -> None:
            if len(data) < 2:
                return
            number = data[0] % len(seeds)
            name = list(seeds[number].files)[data[1] % len(seeds[number].files)]
            with place.holding(number, {name: data[2:]}) as path:
                state, what, _ = tried(read, path)
            last = what.strip().splitlines()[-1:]
            if state == FIND and str(last) not in known:  # libFuzzer would stop at the first
                known.add(str(last))
                found = folder / f"{reader}-guided-{len(known)}"
                found.mkdir(exist_ok=True)
                (found / Path(name).name).write_bytes(data[2:])
                (found / "find.txt").write_text(f"{what}\n\nthe file {name} of the seed {number}\n")
                print(f"{reader}: {last}: {found}", flush=True)

        def mutated(data: bytes, most: int, seed: int) -> bytes:
            random = Random(seed)
            return (
                (data[:2] + damaged(data[2:], random))[:most]
                if random.random() < 0.5
                else atheris.Mutate(data, most)
            )

        limits = [
            f"-timeout={MOST_SECONDS:.0f}",
            "-rss_limit_mb=4096",
            "-max_len=100000",
            f"-artifact_prefix={folder}/{reader}-",
        ]
        atheris.Setup(
            [sys.argv[0], f"-max_total_time={seconds}", *limits, str(corpus)], one, custom_mutator=mutated
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
