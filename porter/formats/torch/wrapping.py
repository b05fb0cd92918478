"""Finds the state_dict in files that training scripts save. It works on plain mappings, with tensors of any
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from porter.base.errors import FileError, some
from porter.formats.torch.objects import SAVE

TIMM_AVERAGES = "state_dict_ema"
"""The key of averaged weights in files of timm's training script (utils/checkpoint_saver.py)."""
KEYS_OF_AVERAGES = (TIMM_AVERAGES, "model_ema", "ema_state_dict", "params_ema", "ema")
"""Keys of averaged weights: timm's (utils/checkpoint_saver.py), those of torchvision's references
(classification/train.py), and others'. Where a file has both averages and raw weights, the averages were
evaluated; timm's loader prefers them too (timm/models/_helpers.py, `use_ema`).
"""
KEYS_OF_RAW = ("state_dict", "model_state_dict", "model", "net", "network", "params", "module", "shadow")
"""Keys of the weights as the optimiser left them, likeliest first."""
_KNOWN_KEYS = frozenset((*KEYS_OF_AVERAGES, *KEYS_OF_RAW))

_PREFIXES = ("module.", "_orig_mod.")
"""Prefixes that DataParallel, AveragedModel and torch.compile put before every key."""
_COUNTERS = ("num_batches_tracked", "n_averaged")
"""Last parts of the names of counters. No model computes with them."""
_PACKED = "._packed_params._packed_params"
"""Ends the name of the weights of a layer that torch.ao.quantization has quantised."""
_MOST_NESTED = 6
"""How deep wrappers may be nested, both mappings and prefixes."""

IsTensor = Callable[[object], bool]


@dataclass(frozen=True)
class StateDict:
    """Tensors by name, and notes on how they were found, one line each."""

    tensors: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def unwrap(loaded: object, is_tensor: IsTensor, path: Path) -> StateDict:
    """Return the state_dict in the result of `torch.load`, which may be wrapped several times, as training
    scripts wrap it.

    Averaged weights are preferred to raw ones. Mappings of tensors under keys that porter does not know are
    read too: a single one under its own names, several with `KEY.` before their names. Only the prefixes of
    wrapping modules are removed.

    Args:
        loaded: what the file holds.
        path: the file, for messages.

    Raises:
        FileError: it is not a mapping, has no tensor, or has averages of only some tensors.
    """
    if not isinstance(loaded, Mapping):
        raise FileError(f"expected a state_dict, got a {type(loaded).__name__}", where=path, next=SAVE)
    search = _StateDictSearch(is_tensor, path)
    best = search.find_under_known_keys(loaded, 0)
    if best is None:
        # A training file may keep one tensor, such as its best accuracy, beside a state_dict under a key that
        # porter does not know: the one with the most tensors counts.
        candidates = (search.tensors_of(loaded), search.find_under_other_keys(loaded))
        states = [state for state in candidates if state is not None]
        best = max(states, key=lambda state: len(state.tensors), default=None)
    if best is None:
        content = (
            "an optimiser's state" if _has_optimiser_state(loaded) else f"no tensor among {list_keys(loaded)}"
        )
        raise FileError(f"expected a state_dict, found {content}", where=path, next=SAVE)
    return best


def _has_optimiser_state(loaded: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is the state_dict of an optimiser of torch's, or has one under a key."""
    mappings = (value for value in (loaded, *loaded.values()) if isinstance(value, Mapping))
    return any({"state", "param_groups"} <= value.keys() for value in mappings)


def list_keys(keys: Iterable[object]) -> str:
    """Return keys for a message: the first few, quoted and cut."""
    return some(sorted(repr(str(key))[:80] for key in keys)) or "nothing"


class _StateDictSearch:
    """Finds state_dicts in mappings. It looks into each once, because a stranger's mappings may hold one
    another and themselves.
    """

    def __init__(self, is_tensor: IsTensor, path: Path) -> None:
        self.is_tensor = is_tensor
        self.path = path
        self.found: dict[int, StateDict | None] = {}

    def find_in(self, value: object, depth: int) -> StateDict | None:
        """Return the state_dict under a key that porter knows, otherwise the one that `value` itself is; None
        if there is none.
        """
        if not isinstance(value, Mapping) or depth > _MOST_NESTED:
            return None
        if id(value) not in self.found:
            # This comes before the search, so that a mapping that holds itself is searched once.
            self.found[id(value)] = None
            self.found[id(value)] = self.find_under_known_keys(value, depth) or self.tensors_of(value)
        return self.found[id(value)]

    def find_under_known_keys(self, value: Mapping[Any, Any], depth: int) -> StateDict | None:
        """Return the state_dict under a key that porter knows; the averaged one if there are two; None if
        there is none.
        """
        averaged_key, averaged = self._find_first(KEYS_OF_AVERAGES, value, depth)
        raw_key, raw = self._find_first(KEYS_OF_RAW, value, depth)
        if averaged is None:
            return None if raw is None else _with_note(raw, f"read under '{raw_key}'", value, {raw_key})
        note = f"read the averaged weights under '{averaged_key}'"
        if raw is None:
            return _with_note(averaged, note, value, {averaged_key})
        _expect_complete_averages(averaged, raw, averaged_key, raw_key, self.path)
        return _with_note(
            averaged, f"{note}, not the raw ones under '{raw_key}'", value, {averaged_key, raw_key}
        )

    def _find_first(
        self, keys: Iterable[str], value: Mapping[Any, Any], depth: int
    ) -> tuple[str, StateDict | None]:
        """Return the first of the keys that has a state_dict, and that state_dict; None if no key has one."""
        states = ((key, self.find_in(value.get(key), depth + 1)) for key in keys)
        return next(((key, state) for key, state in states if state is not None), ("", None))

    def tensors_of(self, value: Mapping[Any, Any]) -> StateDict | None:
        """Return the tensors that `value` itself holds, without the prefixes of wrapping modules and with a
        note on what else it holds; None if it holds none. Raise FileError for a quantised layer.
        """
        tensors = {
            name: tensor for name, tensor in value.items() if isinstance(name, str) and self.is_tensor(tensor)
        }
        others = [key for key in value if key not in tensors]
        packed = next((key for key in others if isinstance(key, str) and key.endswith(_PACKED)), None)
        if packed is not None:
            raise FileError(
                f"layer '{packed.removesuffix(_PACKED)}' is quantised: its weights are packed, not a tensor",
                where=self.path,
                next="save the state_dict of the model as it was before it was quantised",
            )
        state = _without_prefixes(tensors)
        if not state.tensors:
            return None
        if not others:
            return state
        note = f"ignored {list_keys(others)}, which are not tensors"
        return replace(state, notes=(note, *state.notes))

    def find_under_other_keys(self, value: Mapping[Any, Any]) -> StateDict | None:
        """Return the state_dicts under keys that porter does not know, such as a student's and a teacher's,
        as one; None if there is none.
        """
        by_key = {
            key: self.find_in(inner, 1)
            for key, inner in value.items()
            if isinstance(key, str) and key not in _KNOWN_KEYS
        }
        states = {key: state for key, state in by_key.items() if state is not None}
        if not states:
            return None
        if len(states) == 1:
            ((key, state),) = states.items()
            return _with_note(state, f"read under {list_keys([key])}", value, {key})
        tensors = {
            f"{key}.{name}": tensor for key, state in states.items() for name, tensor in state.tensors.items()
        }
        notes = tuple(f"{list_keys([key])}: {note}" for key, state in states.items() for note in state.notes)
        return _with_note(
            StateDict(tensors, notes),
            f"read under {list_keys(states)}, with each key before its names",
            value,
            states,
        )


def _with_note(state: StateDict, note: str, value: Mapping[Any, Any], used: Collection[str]) -> StateDict:
    """Return `state` with `note` before its own notes. The note also lists the keys of `value` that are not
    used.
    """
    others = [key for key in value if key not in used]
    return replace(state, notes=(f"{note}; ignored {list_keys(others)}" if others else note, *state.notes))


def _without_prefixes(tensors: Mapping[str, Any]) -> StateDict:
    """Return the tensors without the prefixes of wrapping modules, such as `module.`, and without
    AveragedModel's counter, with a note on each.
    """
    notes: list[str] = []
    # torch.optim.swa_utils.AveragedModel keeps the model as `module` and the counter beside it.
    if "n_averaged" in tensors and all(
        name.startswith("module.") for name in tensors if name != "n_averaged"
    ):
        tensors = {name: tensor for name, tensor in tensors.items() if name != "n_averaged"}
        notes.append("ignored 'n_averaged', which counts the steps of an average")
    for _ in range(_MOST_NESTED):
        prefix = next(
            (prefix for prefix in _PREFIXES if all(name.startswith(prefix) for name in tensors)), None
        )
        if prefix is None or not tensors:
            break
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
        notes.append(f"prefix '{prefix}' removed")
    return StateDict(tensors, tuple(notes))


def _expect_complete_averages(
    averaged: StateDict, raw: StateDict, averaged_key: str, raw_key: str, path: Path
) -> None:
    """Expect that averaged weights have every tensor of the raw ones, except counters. Raise FileError if
    they lack one.
    """
    counted = [name for name in raw.tensors if name.rpartition(".")[2] not in _COUNTERS]
    lacking = [name for name in counted if name not in averaged.tensors]
    if lacking:
        raise FileError(
            f"the averaged weights under '{averaged_key}' lack {len(lacking)} of the {len(counted)} "
            f"tensors under '{raw_key}': "
            f"{list_keys(lacking)}",
            where=path,
            next=f"save the weights that you want in another file: torch.save(checkpoint['{raw_key}'], FILE)",
        )
