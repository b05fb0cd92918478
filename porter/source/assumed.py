"""What a file of weights does not say, and porter takes as the zoo has it: one line each, for the port's
record.
"""

from __future__ import annotations

import re

from porter.base.errors import some
from porter.filegraph.checkpoint import Checkpoint
from porter.recipe import Zoo, assumed_options
from porter.source.fitting.fit import Fit


def what_is_assumed(checkpoint: Checkpoint, fit: Fit, zoo: Zoo) -> tuple[str, ...]:
    return (*_scaling(checkpoint, fit), *assumed_options(zoo, fit.options), *_activation(fit))


def _scaling(checkpoint: Checkpoint, fit: Fit) -> tuple[str, ...]:
    """One line for the layers that scale the input inside the model, because a file of weights does not say
    what they compute; none for those that the zoo's own model has, one of each that Keras numbers.
    """
    own, scaling = set(fit.reference_taps.values()), checkpoint.scaling
    stems = {name: re.sub(r"_\d+$", "", name) for name in scaling}
    again = {stem: name for name, stem in stems.items() if stem in own and stem not in scaling}
    foreign = [name for name in scaling if name not in own and again.get(stems[name]) != name]
    if not foreign:
        return ()
    named = some([f"'{name}'" for name in foreign])
    return (
        (
            f"the input is what the zoo's own model takes: {named} in the file is left out; to keep it, give "
            "the whole model"
        ),
    )


def _activation(fit: Fit) -> tuple[str, ...]:
    """One line where the activation after somebody's own head is the zoo's, because a file of weights records
    none.
    """
    if fit.own_head or fit.activation is None:
        return ()
    return (
        (
            f"the model ends in a {fit.activation}: a file of weights does not say; if yours differs, give "
            "the whole model"
        ),
    )
