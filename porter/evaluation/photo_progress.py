"""The progress bar of a pass over photos."""

from __future__ import annotations

from types import TracebackType

from porter.base.progress import progress_bar


class Progress:
    """A bar on stderr with images per second and, for labelled photos, the top-1 so far; nothing if stderr is
    no terminal or `shown` is false. `done` photos were counted in an earlier run.
    """

    def __init__(self, photos: int, shown: bool = True, labelled: bool = True, done: int = 0) -> None:
        label = f"goes on at photo {done:,}" if done else None
        self._bar = progress_bar(shown=shown, total=photos, initial=done, desc=label, unit=" images")
        self._done = self._right = 0
        self._labelled = labelled

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def advance(self, photos: int, right: int) -> None:
        """Count `photos` more photos; `right` of them were recognised."""
        self._done += photos
        self._right += right
        if self._labelled:
            self._bar.set_postfix_str(f"top-1 {self._right / max(1, self._done):.2%}", refresh=False)
        self._bar.update(photos)
