"""Files that a zoo's own loader reads by position. Their names may be anything, such as those of the file
before a conversion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from porter.base.dtypes import Array
from porter.base.errors import MappingError, NotInstalled
from porter.filegraph.checkpoint import Checkpoint
from porter.files import WeightsFile
from porter.source.fitting.candidate import Candidate
from porter.source.fitting.fit import shape_text
from porter.zoos.implementation import get_implementation

_ROLES: Mapping[str, str] = {
    **{word: word for word in ("gamma", "beta", "moving_mean", "moving_variance")},
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}
"""The role of a norm's tensor by the last word of its name, in TensorFlow and in PyTorch. Their shapes are
equal.
"""


def name_by_position(candidate: Candidate) -> tuple[Candidate, tuple[str, ...]]:
    """Return the file under the names of the zoo's own variables, with a warning, if it has none of these
    names and keeps the order in which the zoo's code makes them; otherwise the candidate itself.

    TensorNets loads by position. It reads names only to exchange a beta and the gamma after it
    (tensornets/utils.py, `parse_weights` and `pretrained_initializer`). Here every shape must agree too, and
    the roles in the names of norms.

    Raises:
        MappingError: the file has more or fewer tensors than the zoo's code makes, or one of another shape or
            role.
        NotInstalled: the file's names are not the zoo's, and the zoo's code, which has the order, is not
            installed.
    """
    member, checkpoint = candidate.member, candidate.checkpoint
    zoo, tensors = member.zoo, checkpoint.tensors
    if checkpoint.graph is not None or zoo.reference is None or not _keeps_order(member.file, checkpoint):
        return candidate, ()
    # Some names are the zoo's own: nothing has to be told by position.
    if candidate.located.tensors:
        return candidate, ()
    # It is asked for last: its module takes longer to import than most files to read.
    own_variables = get_implementation(zoo.reference).variables
    if own_variables is None:
        return candidate, ()
    arrays = _gamma_first(tensors)
    try:
        # The last tensor is the head's bias: it has as many numbers as there are classes.
        expected_shapes = own_variables(member.variant, tensors[list(tensors)[-1]].size)
    except NotInstalled as error:
        message = (
            f"the file's names are not those of zoo '{zoo.name}', and the zoo's code has their "
            f"order: {error.message}"
        )
        raise NotInstalled(message, where=str(checkpoint.path), next=error.next) from None
    if len(arrays) != len(expected_shapes):
        message = (
            f"none of the file's {len(arrays)} names is one of the zoo's {len(expected_shapes)}, such as "
            f"'{next(iter(expected_shapes))}'"
        )
        raise MappingError(message, where=str(checkpoint.path))
    renamed: dict[str, Array] = {}
    for (file_name, array), (own_name, shape) in zip(arrays.items(), expected_shapes.items(), strict=True):
        # A head may be a 1x1 convolution.
        renamed[own_name] = array[0, 0] if array.ndim == 4 and array.shape == (1, 1, *shape) else array
        role = _ROLES.get(_last_word(file_name))
        if renamed[own_name].shape != shape or role not in (None, _ROLES.get(_last_word(own_name))):
            raise MappingError(
                f"'{file_name}' ({shape_text(array.shape)}) stands where the zoo's code has '{own_name}' "
                f"({shape_text(shape)})",
                where=str(checkpoint.path),
                next=f"save it with {zoo.reference}'s own code, which writes the names",
            )
    note = (
        f"the names are not those of zoo '{zoo.name}': all {len(renamed)} tensors are taken by "
        "position, as its loader does"
    )
    return candidate.renamed(replace(checkpoint, tensors=renamed, notes=(*checkpoint.notes, note))), (note,)


def _keeps_order(published: WeightsFile | None, checkpoint: Checkpoint) -> bool:
    """Return whether a file keeps the order in which its tensors were written. An .npz does, and an .h5 of
    Keras's layout if the zoo's own file is one. A checkpoint of TensorFlow sorts its names.
    """
    url = (published.url if published else None) or ""
    return checkpoint.format == "npz" or (checkpoint.format == "keras-h5" and url.endswith(".h5"))


def _gamma_first(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors with each gamma before its beta, which older Keras wrote in the other order."""
    names = list(tensors)
    for index in range(1, len(names)):
        # Each beta that stands right before a gamma changes places with it.
        if (_last_word(names[index - 1]), _last_word(names[index])) == ("beta", "gamma"):
            names[index - 1], names[index] = names[index], names[index - 1]
    return {name: tensors[name] for name in names}


def _last_word(name: str) -> str:
    """Return the last word of a tensor's name: `gamma` of `block/norm/gamma` or `block.norm.gamma`."""
    return name.replace(".", "/").rpartition("/")[2]
