"""The smallest exact way to say a source's padding in a destination framework.

Two ways of padding are the same function if their rows of windows are equal (porter.padding). If these
differ, the two can agree only on inputs shorter than a window. So nothing below reasons about frameworks case
by case: it writes down what the source computes, tries the destination's spellings from the simplest to the
largest, and takes the first whose windows are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import product

from porter.base.errors import PaddingError
from porter.base.options import INPUT_SIZE
from porter.padding.realisation import Capabilities, Front, Realisation, realised_row, subtract_pads
from porter.padding.windows import (
    LARGEST,
    LOWEST,
    Average,
    Convention,
    Pads,
    Rounding,
    Site,
    SiteKind,
    Size,
    Window,
    WindowRow,
    count_windows,
    row,
    sizes_to_try,
)


@lru_cache(maxsize=4096)
def realise(site: Site, size: Size, capabilities: Capabilities, nonnegative: bool = False) -> Realisation:
    """Return the smallest exact realisation of a padding site in a destination framework.

    A realisation that is exact at every size comes first, so that a port is not tied to one size without
    need. If the size is known, a pad layer with fixed pads is preferred to one that computes its pads at run
    time, and a pool's own pads to one that runs at stride 1.

    Args:
        site: the layer and its source's convention.
        size: rows and columns of its input; if one is None, the realisation is exact at every size.
        capabilities: what the destination's own layers can express.
        nonnegative: the input is provably >= 0 (after a ReLU), so that a zero stands for -inf in a max pool.

    Raises:
        PaddingError: the source computes nothing at this size, or nothing exact exists; it says what is
            missing.
    """
    for axis, cells in enumerate(size):
        _expect_windows(site, axis, cells)
    if site.kind == "avg_pool" and _is_dilated(site, capabilities):
        raise PaddingError("the destination has no dilated average pool")
    for_every_size = _smallest(site, (None, None), capabilities, nonnegative)
    if for_every_size is None:
        for_size = None if None in size else _smallest(site, size, capabilities, nonnegative)
        if for_size is None:
            raise _no_exact_form(site, size, capabilities)
        return for_size
    if None in size:
        return for_every_size
    front = for_every_size.front
    computes_pads = front is not None and front.rule != "explicit"
    if computes_pads:
        return _smallest(site, size, capabilities, nonnegative) or for_every_size
    # a pool's own pads may do at this size, instead of every stride-th cell
    if for_every_size.subsample and site.kind != "conv":
        for_size = _smallest(site, size, capabilities, nonnegative)
        if for_size is not None and for_size.kind == "native":
            return for_size
    return for_every_size


def _is_dilated(site: Site, capabilities: Capabilities) -> bool:
    """Return whether a site is a dilated pool, and the destination's pools of this kind take no dilation."""
    is_dilated_pool = site.kind != "conv" and site.window.dilation != (1, 1)
    return is_dilated_pool and site.kind not in capabilities.dilated_pools


Rows = list[tuple[int, WindowRow]]
"""Input sizes with the source's row at each."""


@lru_cache(maxsize=4096)
def _smallest(site: Site, size: Size, capabilities: Capabilities, nonnegative: bool) -> Realisation | None:
    """Return the first candidate, smallest first, that has the source's windows at this size, with its
    reason, and with whether it has them at every size; None if none has.
    """
    sources = [_source_rows(site, axis, cells) for axis, cells in enumerate(size)]
    for candidate in _candidates(site, sources, capabilities, nonnegative):
        if _gives_source_windows(site, candidate, sources, nonnegative):
            sources_at_every_size = [_source_rows(site, axis, None) for axis in (0, 1)]
            every_size = _gives_source_windows(site, candidate, sources_at_every_size, nonnegative)
            realisation = replace(candidate, every_size=every_size)
            return replace(realisation, why=_why(site, realisation, capabilities))
    return None


def _source_rows(site: Site, axis: int, size: int | None) -> Rows:
    """Return the source's windows along one axis at input sizes that stand for `size` (for every size if it
    is None), without the sizes at which it computes nothing.
    """
    rows = [
        (cells, row(site.convention, site.window, axis, cells))
        for cells in sizes_to_try(site.window, axis, size)
    ]
    return [(cells, windows) for cells, windows in rows if windows.count and not _has_void(site, windows)]


def _has_void(site: Site, windows: WindowRow) -> bool:
    """Return whether a pool has a window without a number: an average of no cells, or a maximum over pads
    only, which take no part.

    For such a maximum torch gives -inf and TensorFlow the lowest finite number.
    """
    if site.kind == "avg_pool":
        return 0 in windows.divisors
    return site.kind == "max_pool" and site.convention.fill == LOWEST and windows.has_empty_window


def _expect_windows(site: Site, axis: int, size: int | None) -> None:
    """Expect that a site has a window at `size`, or at some size for None, and none over pads only. Raises
    PaddingError if it has not.
    """
    if _source_rows(site, axis, size):
        return
    cells = f"{site.window.extent(axis)} {('rows', 'columns')[axis]}"
    if size is not None and count_windows(site.convention, site.window, axis, size) == 0:
        raise PaddingError(f"no window of {cells} fits into an input of {size}, padded '{site.convention}'")
    raise PaddingError(
        f"windows of {cells}, padded '{site.convention}', have one over pads only, which gives no number"
    )


def same_function(site: Site, convention: Convention, size: Size, nonnegative: bool = False) -> bool:
    """Return whether a site padded by `convention` instead of its own computes the same for an input of
    `size`; None in it stands for every size. SAME and a pad of 1 are the same for a 3x3 window of stride 1.

    Args:
        nonnegative: the input is provably >= 0, so that a zero stands for -inf in a max pool.
    """
    sources = [_source_rows(site, axis, cells) for axis, cells in enumerate(size)]
    return _gives_source_windows(site, Realisation(convention), sources, nonnegative)


def _gives_source_windows(
    site: Site, realisation: Realisation, sources: list[Rows], nonnegative: bool
) -> bool:
    """Return whether a realisation gives the source's windows along both axes."""
    return all(
        _same_row(site.kind, wanted, realised_row(realisation, site.window, axis, size), nonnegative)
        for axis, rows in enumerate(sources)
        for size, wanted in rows
    )


def _same_row(kind: SiteKind, source: WindowRow, realised: WindowRow, nonnegative: bool) -> bool:
    """Return whether windows along an axis give the same values as the source's: they are as many, begin at
    the same cell, and divide by the same (an average), or read pads of the same fill (a maximum).
    """
    if (source.start, source.count) != (realised.start, realised.count):
        return False
    if kind == "avg_pool":
        return source.divisors == realised.divisors
    if kind == "conv" or source.fills == realised.fills:
        return True
    # beside numbers of 0 or more, a maximum over pads of 0 is that over pads of -inf
    are_zero_or_lowest = source.fills | realised.fills <= {0.0, LOWEST}
    return nonnegative and not source.has_empty_window and are_zero_or_lowest


def _candidates(
    site: Site, sources: list[Rows], capabilities: Capabilities, nonnegative: bool
) -> Iterator[Realisation]:
    """Yield realisations that the destination can express, from the smallest to the largest: its own layer,
    with and without skipped pads, then a pad layer before one without pads. The caller finds out which of
    them are exact.

    Args:
        sources: the source's windows along rows and along columns.
    """
    window, convention = site.window, site.convention
    pads = _constant_pads(window, sources)
    strided_and_dilated = site.kind == "conv" and max(window.stride) > 1 and max(window.dilation) > 1
    subsample = strided_and_dilated and not capabilities.dilated_strides
    by_cell = site.kind == "max_pool" and _is_dilated(site, capabilities)
    if not subsample and not by_cell:
        yield from _with_own_pads(site, pads, capabilities)

    # A pad layer before an unpadded layer. Its pads count as input, so an average over it divides by the full
    # window.
    unpadded_layers = [(Convention(), subsample)]
    if site.kind != "conv" and not by_cell and "floor" not in capabilities.roundings:
        unpadded_layers = [(_unpadded(window, capabilities), False), (Convention(), True)]
    fronts = _fronts(site, pads, capabilities, nonnegative)
    for front, (native, keeps_every_stride_th) in product(fronts, unpadded_layers):
        yield Realisation(native, front, None, keeps_every_stride_th, by_cell)
    # the same with a mask, over the pads that the source's average counts
    if site.kind == "avg_pool" and convention.average != "full_window":
        counted_by_source = (0, 0, 0, 0) if convention.average == "real_cells" else convention.pads
        for front, (native, keeps_every_stride_th) in product(fronts, unpadded_layers):
            if front is not None:
                top, bottom, left, right = map(min, counted_by_source, front.pads)
                yield Realisation(native, front, (top, bottom, left, right), keeps_every_stride_th)


def _with_own_pads(site: Site, pads: Pads | None, capabilities: Capabilities) -> Iterator[Realisation]:
    """Yield realisations by the destination's own layer, without a pad layer: as it is, with a mask where its
    average counts pads and the source's does not, and with skipped pads.

    Args:
        pads: constant ones, if they are enough.
    """
    natives = list(_native_conventions(site, pads, capabilities))
    yield from map(Realisation, natives)
    leaves_pads_out = site.kind == "avg_pool" and site.convention.average == "real_cells"
    if leaves_pads_out and "real_cells" not in capabilities.averages:
        yield from (Realisation(native, None, (0, 0, 0, 0)) for native in natives)
    if capabilities.one_sided and pads is not None:
        yield from _with_skipped_pads(site, pads, capabilities)


def _fronts(
    site: Site, pads: Pads | None, capabilities: Capabilities, nonnegative: bool
) -> list[Front | None]:
    """Return the pad layers that may stand before the layer, None for no pad layer: with constant pads first,
    then those that compute the source's own rule. Without the latter, a site whose pads are not constant has
    none.

    Args:
        pads: constant ones, if they are enough.
    """
    source_fill = site.convention.fill if site.kind == "max_pool" else 0.0
    fill = 0.0 if nonnegative and source_fill == LOWEST else source_fill
    can_fill = not capabilities.zeros_only or fill == 0
    fronts: list[Front | None] = []
    if pads is not None and not any(pads):
        fronts.append(None)
    elif pads is not None and can_fill:
        fronts.append(Front("explicit", pads, fill))
    if can_fill:
        rules = [rule for rule in capabilities.dynamic if rule == site.convention.rule]
        fronts += [Front(rule, (0, 0, 0, 0), fill) for rule in rules]
    return fronts


def _with_skipped_pads(site: Site, pads: Pads, capabilities: Capabilities) -> Iterator[Realisation]:
    """Yield realisations whose layer pads both sides alike, by the larger pad, and leaves out what one side
    then has too much: a convolution by zeros around its kernel, a pool by running at stride 1 and not keeping
    some windows. The caller finds out which of them are exact.
    """
    top, bottom, left, right = pads
    pad_down, pad_across = max(top, bottom), max(left, right)
    symmetric = pad_down, pad_down, pad_across, pad_across
    skipped = subtract_pads(symmetric, pads)
    if site.kind == "conv":
        # zeros around a dilated kernel are as far apart as its cells
        skipped_top, skipped_bottom, skipped_left, skipped_right = skipped
        dilation_down, dilation_across = site.window.dilation
        fits_rows = skipped_top % dilation_down == skipped_bottom % dilation_down == 0
        fits_columns = skipped_left % dilation_across == skipped_right % dilation_across == 0
        if fits_rows and fits_columns:
            yield Realisation(Convention.stated(symmetric), skipped=skipped)
        return
    kernel_rows, kernel_columns = site.window.kernel
    takes_rows = pad_down <= _widest(kernel_rows, capabilities)
    takes_columns = pad_across <= _widest(kernel_columns, capabilities)
    if takes_rows and takes_columns:
        fill = LOWEST if site.kind == "max_pool" else 0.0
        average = capabilities.averages[0] if site.kind == "avg_pool" else "real_cells"
        native = Convention.stated(symmetric, fill, average)
        yield Realisation(native, subsample=True, skipped=skipped)
        if site.kind == "avg_pool":  # and with a mask that leaves all pads out of the divisor
            yield Realisation(native, counted=(0, 0, 0, 0), subsample=True, skipped=skipped)


def _unpadded(window: Window, capabilities: Capabilities) -> Convention:
    """Return the convention of a pool without pads as a destination's pools round, which may lack rounding
    down: by their first rounding, or `full` where they keep a last window that a long stride puts past the
    input.
    """
    ends_past = capabilities.keeps_last and _strides_past(window)
    return Convention(rounding="full" if ends_past else capabilities.roundings[0])


def _native_conventions(
    site: Site, constant: Pads | None, capabilities: Capabilities
) -> Iterator[Convention]:
    """Yield the conventions of the destination's own layer that may be exact, smallest first.

    Args:
        constant: pads that are the same at every size asked for; None if there are none.
    """
    window, convention = site.window, site.convention
    is_pool = site.kind != "conv"
    fill = LOWEST if site.kind == "max_pool" else 0.0
    pads_to_try: list[Pads] = []
    if constant is not None and (capabilities.symmetric or capabilities.explicit):
        top, _, left, _ = constant
        pads_to_try.append((top, top, left, left))
        if capabilities.explicit:
            pads_to_try += [convention.pads, constant]
    is_compact = window.dilation == (1, 1) and not _strides_past(window)
    rules_hold = (capabilities.same_of_any or is_compact) and not _strides_too_wide(site, capabilities)
    rules = capabilities.same if rules_hold else ()
    spellings = [
        Convention("valid", fill=fill),
        *(Convention("explicit", pads, fill) for pads in pads_to_try if any(pads)),
    ]
    spellings += [Convention(rule, fill=fill) for rule in rules]
    # the source's own rule first
    spellings.sort(key=lambda spelling: spelling.rule != convention.rule or spelling.rule not in rules)
    roundings: tuple[Rounding, ...] = capabilities.roundings if is_pool else ("floor",)
    averages: tuple[Average, ...] = capabilities.averages if site.kind == "avg_pool" else ("real_cells",)
    for rounding, spelling, average in product(roundings, spellings, averages):
        if is_pool and not _takes_pads(window, spelling.pads, capabilities):
            continue
        keeps_last = is_pool and spelling.rule == "valid" and capabilities.keeps_last
        own_rounding = _unpadded(window, capabilities).rounding if keeps_last else rounding
        # the rules that compute their pads also fix how many windows there are
        if own_rounding == "floor" or spelling.rule not in rules:
            yield replace(spelling, rounding=own_rounding, average=average)


def _takes_pads(window: Window, pads: Pads, capabilities: Capabilities) -> bool:
    """Return whether the destination's pools take such large pads for a window."""
    top, bottom, left, right = pads
    rows, columns = window.kernel
    takes_rows = max(top, bottom) <= _widest(rows, capabilities)
    return takes_rows and max(left, right) <= _widest(columns, capabilities)


def _strides_past(window: Window) -> bool:
    """Return whether a window's stride is larger than its kernel, so that it leaves out cells."""
    return any(side < step for side, step in zip(window.kernel, window.stride, strict=True))


def _strides_too_wide(site: Site, capabilities: Capabilities) -> bool:
    """Return whether a site is a convolution whose stride is larger than its kernel, and the destination's
    own SAME rules do not hold for these (`Capabilities.wide_strides`).
    """
    return site.kind == "conv" and bool(capabilities.wide_strides) and _strides_past(site.window)


def _widest(kernel: int, capabilities: Capabilities) -> int:
    """Return the largest pad that the destination's pools take for a kernel."""
    return {"half": kernel // 2, "less": kernel - 1, "any": LARGEST}[capabilities.pool_pads]


def _constant_pads(window: Window, sources: list[Rows]) -> Pads | None:
    """Return the smallest pads that the source's windows need at these sizes; None where the first window
    moves with the size. If any constant pads before an unpadded, floored layer are exact, these are: a larger
    pad after the input can only add windows.

    Args:
        sources: the source's windows along rows and along columns, at several sizes.
    """
    pads: list[int] = []
    for axis, rows in enumerate(sources):
        extent, stride = window.extent(axis), window.stride[axis]
        starts = {source.start for _, source in rows}
        if len(starts) != 1:
            return None
        (start,) = starts
        cells_past_end = max(start + (source.count - 1) * stride + extent - size for size, source in rows)
        # a first window that starts at -2 needs two cells before the input
        pads += [-start, max(cells_past_end, 0)]
    top, bottom, left, right = pads
    return top, bottom, left, right


_RULE_NAMES = {"same": "SAME", "same_lower": "SAME_LOWER", "cntk": "CNTK's autopadding"}
_KIND_WORDS = {"conv": "a convolution", "max_pool": "a max pool", "avg_pool": "an average pool"}


REACHES_NOWHERE = "no window reaches past the input"
"""Why a site pads nothing at all."""


def _why(site: Site, found: Realisation, capabilities: Capabilities) -> str:
    """Say, for the reader of a table of pads, why a site is realised so. A composition's reason takes the
    place of the others.
    """
    reason = _why_native(site, found) if found.front is None else _why_front(site, found.front, capabilities)
    if any(found.skipped):
        uneven = _say_uneven(site.convention)
        reason = f"{uneven}; the destination pads both sides alike, with zeros around its kernel"
    if found.counted is not None:
        reason += (
            "; the source's average leaves out cells that the pad layer adds, so a mask corrects the divisor"
        )
    if found.by_cell:
        reason = (
            "the destination has no dilated max_pool: it takes the largest of the map's parts that "
            "the window's cells read"
        )
    if found.subsample:
        lacking = (
            "cannot stride and dilate at once"
            if site.kind == "conv"
            else "rounds up, and pads both sides alike"
        )
        reason = f"the destination {lacking}: it runs at stride 1 and keeps every stride-th cell"
    fill = found.native.fill if found.front is None else found.front.fill
    if site.kind == "max_pool" and fill != site.convention.fill and _reads_pads(site):
        reason += "; zero and -inf are alike here, because the input is never negative"
    return reason


def _reads_pads(site: Site) -> bool:
    """Return whether some window of a site reaches past its input, at some size."""
    return any(source.fills for axis in (0, 1) for _, source in _source_rows(site, axis, None))


def _why_native(site: Site, found: Realisation) -> str:
    """Say why the destination's own layer can pad the site: nothing is padded, it does the same, or the same
    at these sizes.
    """
    convention, native = site.convention, found.native
    if not _reads_pads(site):
        return REACHES_NOWHERE
    if (native.rule, native.pads, native.rounding) == (convention.rule, convention.pads, convention.rounds):
        reason = "the destination does the same"
    else:
        source_name = _RULE_NAMES.get(convention.rule, f"pad {convention}")
        native_name = f"pad {native}" if any(native.pads) else str(native)
        sizes = "every size" if found.every_size else "this size"
        reason = f"{source_name} equals the destination's {native_name} at {sizes}"
    if site.kind == "avg_pool":
        reason += f"; its average {'leaves pads out' if native.average == 'real_cells' else 'counts pads'}"
    return reason


_LIMIT_WORDS = {"half": "larger than half", "less": "as large as"}


def _say_uneven(convention: Convention) -> str:
    """Say how the two sides of the pads differ."""
    sides = {
        "same": "SAME puts the odd cell at the bottom and right",
        "same_lower": "SAME_LOWER puts the odd cell at the top and left",
    }
    return sides.get(convention.rule, "the source pads its two sides differently")


def _why_front(site: Site, front: Front, capabilities: Capabilities) -> str:
    """Say why there is a pad layer in front: the first of the destination's limits that the site meets."""
    convention = site.convention
    if front.rule != "explicit":
        return (
            f"{_RULE_NAMES[front.rule]} depends on the input size, so the pad layer works out its padding "
            "for each input size"
        )
    top, bottom, left, right = front.pads
    takes_part = (
        f"the source's pool reads its pads as {convention.fill:g}, the destination's own pool "
        "ignores its pads"
    )
    if convention.rounds != "floor":
        return (
            "the source rounds up, so its last window may reach past the end: the pad layer adds the "
            "cells that it reads"
        )
    if _strides_too_wide(site, capabilities):
        return capabilities.wide_strides
    if not (capabilities.symmetric or capabilities.explicit):
        if convention.rule in capabilities.same:
            return takes_part
        return f"the destination's layers offer only {'same or ' if capabilities.same else ''}valid"
    if (top, left) != (bottom, right) and not capabilities.explicit:
        return f"{_say_uneven(convention)}; the destination pads both sides alike"
    if site.kind == "max_pool" and convention.fill != LOWEST:
        return takes_part
    if site.kind != "conv" and capabilities.pool_pads != "any":
        return f"the destination's pools take no pad {_LIMIT_WORDS[capabilities.pool_pads]} their window"
    return "the destination's own pads read other cells"


def _no_exact_form(site: Site, size: Size, capabilities: Capabilities) -> PaddingError:
    """Make the error of a site that the destination cannot pad exactly, with what is missing."""
    # Constant pads can follow every other rule at every size: rounding up adds at most stride - 1 cells after
    # the input, and a dropped window takes away the same number at all sizes.
    window, convention = site.window, site.convention
    rows, columns = size
    sizes = "every size" if rows is None and columns is None else f"{rows or 'any'}x{columns or 'any'}"
    sources = [_source_rows(site, axis, cells) for axis, cells in enumerate(size)]
    depends_on_size = _constant_pads(window, sources) is None
    reason = "its pad layers add zeros, and this one's pads hold other numbers"
    if depends_on_size or not capabilities.zeros_only:
        rule = _RULE_NAMES.get(convention.rule, "its padding")
        reason = f"{rule} depends on the input size, and the destination cannot pad by it at run time"
        if _strides_too_wide(site, capabilities):
            reason += f"; {capabilities.wide_strides}"
    geometry = f"kernel {window.kernel}, stride {window.stride}, dilation {window.dilation}"
    return PaddingError(
        f"{_KIND_WORDS[site.kind]} of {geometry} padded '{convention}' has no exact form in the destination "
        f"at {sizes}: {reason}",
        next=f"give {INPUT_SIZE} a fixed size" if depends_on_size else None,
    )
