"""Where a file's weights come from, by what states it (docs/twins.md): tensors cannot tell twins apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from porter.base.errors import UsageError
from porter.data.timm_config import CONFIG_FILE
from porter.filegraph.checkpoint import Checkpoint
from porter.fitting.twins import same_function, twins_of
from porter.formats.torch_export import SAVE
from porter.port import BY, By, Origin
from porter.recipe import Member, convert_command
from porter.recipe.expressions import Value
from porter.source.beside import config_beside
from porter.source.opened import Opened
from porter.source.weights import publisher_of
from porter.zoos.tables import REFERENCES, TWINS_OF_TIMM

ARCH = "arch"
"""What training scripts call the name of the model in a .pth (timm's train.py, PyTorch's ImageNet example)."""
_RELEASE = re.compile(r"(?P<name>\w[\w.]*)-[0-9a-f]{8,}$")
"""The stem of a released file, which torch.hub holds to the digest at its end."""
_LIBRARIES = {"timm": "timm", "timm_tf": "timm", "torchvision": "torchvision"}
"""By a zoo's reference, whose models it has."""
_NEUTRAL = frozenset(
    {
        *("num_classes", "in_chans", "img_size", "pretrained", "scriptable", "exportable"),
        *("drop_rate", "drop_path_rate", "drop_block_rate", "attn_drop_rate", "proj_drop_rate"),
    }
)
"""Arguments of timm.create_model that change no number of a trained network, or that its tensors tell."""
_POOLS = ("avg", "fast", "token")
"""What timm's config.json says of the pool of a network that a recipe has. Another one, such as max, has the same tensors."""
_TRANSFORMERS = ("tf_padding", "layer_norm_eps", "batch_norm_eps", "hidden_act")
_EPSILON, _OPTION = "bn_eps", "bn_epsilon"


@dataclass(frozen=True)
class Statement:
    """The name of a model, as something states it.

    Attributes:
        says: in words.
        name: in its library; None where porter knows no zoo of that library.
        library: None where the name may be any library's.
        arguments: that its function was called with, without those that change no number.
        strict: whether a name that no recipe has is another network; a file's name may be anything.
    """

    by: By
    says: str
    name: str | None
    library: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = True


@dataclass(frozen=True)
class Known:
    """What is known of where weights come from.

    Attributes:
        origin: None if nothing states it.
        options: of the recipe, that the same statement sets.
    """

    origin: Origin | None = None
    options: Mapping[str, Value] = field(default_factory=dict)


def origin_of(member: Member, checkpoint: Checkpoint, insisted: str | None = None) -> Known:
    """The origin of a file that is asked for as a variant of a zoo, or looks like it.

    Args:
        insisted: the zoo that the user insists on (`--origin`).

    Raises:
        UsageError: it is another zoo than the member's.
    """
    if insisted is not None:
        zoo = member.recipe.member(member.variant, insisted).zoo.name
        if zoo != member.zoo.name:
            message = f"these weights are asked for from {member.zoo.name}, and --origin says {zoo}"
            raise UsageError(message, where="--origin", next=f"--from {zoo} --origin {zoo}")
        otherwise = origin_of(member, checkpoint)
        options = otherwise.options if otherwise.origin is not None and _is_stated(member, otherwise.origin) else {}
        return Known(Origin(by="user", says=member.name, variant=member.variant, zoo=zoo), options)
    if checkpoint.graph is not None:
        return Known(stated_origin(checkpoint))
    arch = checkpoint.stated.get(ARCH)
    if arch is not None and (known := _known(member, Statement("metadata", f"'{arch:.80}'", arch, strict=False))).origin:
        return known
    if (stated := _of_config(config_beside(checkpoint.path))) is not None:
        return _known(member, stated)
    if (publisher := publisher_of(member, checkpoint)) is not None:
        return Known(Origin(by="digest", says=publisher.name, variant=publisher.variant, zoo=publisher.zoo.name))
    return _by_file_name(member, checkpoint)


def stated_origin(checkpoint: Checkpoint) -> Origin | None:
    """The origin of a file that fits no recipe, as its graph or the config.json beside it states it."""
    if checkpoint.graph is not None:
        return Origin(by="graph", says="the file's own graph")
    stated = _of_config(config_beside(checkpoint.path))
    return None if stated is None else Origin(by=stated.by, says=stated.says)


def expect_origin(member: Member, known: Known, checkpoint: Checkpoint) -> None:
    """Refuses a variant of a zoo that computes something else than what the weights are stated to be.

    Raises:
        UsageError: with both names.
    """
    origin = known.origin
    if origin is None or origin.by in ("graph", "user") or _is_stated(member, origin):
        return
    if origin.variant is None:
        also = f", which recipe {member.recipe.architecture} does not have"
        instead = f"{SAVE} keeps its graph, which needs no recipe"
    else:
        stated = member.recipe.member(origin.variant, str(origin.zoo))
        also = "" if origin.says == stated.name else f", which is {stated.name}"
        instead = convert_command(stated, "FRAMEWORK", checkpoint.path, member.recipe.path.parent)
    where = checkpoint.path.parent / CONFIG_FILE if origin.by == "config.json" else checkpoint.path
    raise UsageError(
        f"{BY[origin.by]} says that these weights are {origin.says}{also}, not {member.name}",
        where=str(where),
        next=f"{instead}; --from {member.zoo.name} --origin {member.zoo.name} insists",
    )


def with_origin(opened: Opened, known: Known) -> Opened:
    """A source with what is known of its origin, and its twins; a file that carries its graph has none."""
    assert opened.member is not None and opened.fitted is not None
    twins = () if opened.fitted.checkpoint.graph is not None else twins_of(opened.member)
    return replace(opened, facts=opened.stating(origin=known.origin, twins=twins))


def undecided(opened: Opened) -> tuple[str, ...]:
    """A warning for each twin of a source whose origin nothing states."""
    member, facts = opened.member, opened.facts
    if member is None or facts.origin is not None:
        return ()
    return tuple(
        f"nothing states that these weights are {member.zoo.name}'s: {twin.name} takes the same tensors and computes something "
        f"else ({'; '.join(twin.differs)}). --origin {member.zoo.name} says that they are, and porter study padding "
        f"{member.variant} --between {member.zoo.name},{twin.zoo} --data PHOTOS decides from photos"
        for twin in facts.twins
    )


def stated_member(member: Member, known: Known) -> Member:
    """The variant as the zoo has it that the weights are stated to come from, if that is a twin; otherwise `member`."""
    origin = known.origin
    if origin is None or origin.variant != member.variant or origin.zoo not in {twin.zoo for twin in twins_of(member)}:
        return member
    return member.recipe.member(member.variant, str(origin.zoo))


def as_stated(member: Member, checkpoint: Checkpoint) -> Member:
    """As `stated_member`, of a file that looks like a member."""
    return stated_member(member, origin_of(member, checkpoint))


def _is_stated(member: Member, origin: Origin) -> bool:
    if origin.variant is None or origin.zoo is None:
        return False
    if (origin.variant, origin.zoo) == (member.variant, member.zoo.name):
        return True
    return same_function(member, member.recipe.member(origin.variant, origin.zoo))


def _of_config(config: Mapping[str, Any]) -> Statement | None:
    """What a config.json of timm, transformers or keras-hub says."""
    name, kind, made = config.get("architecture"), config.get("model_type"), config.get("class_name")
    if isinstance(name, str) and name:
        name, arguments = name.partition(".")[0], config.get("model_args")
        given = arguments if isinstance(arguments, dict) else {}
        told = {key: value for key, value in given.items() if key not in _NEUTRAL and (key, value) != _usual_pads(name)}
        if (pool := told.pop("global_pool", config.get("global_pool"))) and pool not in _POOLS:
            told["global_pool"] = pool
        return Statement("config.json", f"timm's {_called(name, told)}", name, "timm", told)
    if isinstance(kind, str) and kind:
        told = {key: config[key] for key in _TRANSFORMERS if isinstance(config.get(key), bool | int | float | str)}
        return Statement("config.json", f"transformers' {_called(kind, told)}", None)
    if isinstance(made, str) and str(config.get("module")).startswith(("keras_hub.", "keras_cv.")):
        return Statement("config.json", f"keras-hub's {made:.80}", None)
    return None


def _usual_pads(name: str) -> tuple[str, str]:
    """The argument with which timm's function pads as it does without it."""
    return "pad_type", "same" if name.startswith("tf_") else ""


def _called(name: str, arguments: Mapping[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in arguments.items())
    return f"{name:.80}" + (f" ({said:.200})" if said else "")


def _by_file_name(member: Member, checkpoint: Checkpoint) -> Known:
    """What the name of a released file says. Any file can have a name like it, so only names that a recipe has count."""
    for each in member.kin():
        if each.file is not None and each.file.name == checkpoint.path.name:
            return Known(Origin(by="file name", says=each.name, variant=each.variant, zoo=each.zoo.name))
    release = _RELEASE.match(checkpoint.path.stem)
    if release is None:
        return Known()
    name = release["name"]
    return _known(member, Statement("file name", f"'{checkpoint.path.name}'", name, strict=False))


def _known(member: Member, stated: Statement) -> Known:
    """What a statement says, among the variants of one recipe."""
    if stated.name is None:
        return Known(Origin(by=stated.by, says=stated.says))
    if any(_begins(stated.name, twin, not stated.strict) for twin in TWINS_OF_TIMM):
        return Known(Origin(by=stated.by, says=f"timm's {stated.name:.80}"))
    found = list(_named(member, stated))
    most = max((len(name) for _, name, _ in found), default=0)
    longest = [(each, arguments) for each, name, arguments in found if len(name) == most]
    fitting = [(each, options) for each, own in longest if (options := _options(stated, own, each)) is not None]
    if not fitting:
        return Known(Origin(by=stated.by, says=stated.says)) if stated.strict else Known()
    asked = (member.variant, member.zoo.name)
    near = [one for one in fitting if one[0].variant == member.variant]
    each, options = next((one for one in near if (one[0].variant, one[0].zoo.name) == asked), (near or fitting)[0])
    if not stated.strict and {one.zoo.name for one, _ in near} & {twin.zoo for twin in twins_of(each)}:
        return Known()  # two libraries have models of this name that compute something else
    return Known(Origin(by=stated.by, says=stated.says, variant=each.variant, zoo=each.zoo.name), options)


def _named(member: Member, stated: Statement) -> Iterator[tuple[Member, str, Mapping[str, Any]]]:
    """The variants of a recipe, each with a name of it that is the stated one or its beginning, and the arguments of that name."""
    recipe, said = member.recipe, stated.name or ""
    for variant in recipe.variants:
        for each in recipe.sound_members(variant):
            library = _LIBRARIES.get(recipe.zoos[each.zoo.name].reference or each.zoo.name)
            if library is not None and stated.library in (None, library):
                for name, arguments in _names(each):
                    if _begins(said, name, not stated.strict):
                        yield each, name, arguments


def _begins(stated: str, name: str, loosely: bool) -> bool:
    """Whether a stated name is this one. A release appends its recipe of training: `mobilenetv3_small_100_lamb`."""
    return stated == name or (loosely and stated.startswith(f"{name}_"))


def _names(member: Member) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The names that a variant has in its zoo's library, each with the arguments that its function takes for it."""
    reference = member.recipe.zoos[member.zoo.name].reference or member.zoo.name
    call = REFERENCES["torch"][reference].get(member.variant)
    usual = f"tf_{member.variant}" if reference == "timm_tf" else member.variant
    yield call if call is not None else (usual, {})
    if member.file is not None:
        stem = member.file.name.rpartition(".")[0].partition(".")[0]
        release = _RELEASE.match(stem)
        yield (release["name"] if release else stem), {}


def _options(stated: Statement, own: Mapping[str, Any], member: Member) -> Mapping[str, Value] | None:
    """The options of the recipe with which a variant is the stated call; None if it is another one."""
    if not stated.strict:
        return {} if not own else None  # a name does not say that its function was called otherwise
    told, usual = dict(stated.arguments), dict(own)
    epsilon = told.pop(_EPSILON, None)
    known = usual.pop(_EPSILON, member.zoo.options.get(_OPTION, member.recipe.options.get(_OPTION)))
    if told != usual:
        return None
    if epsilon is None:
        return {} if _EPSILON not in own else None
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < 1:
        return None
    return {} if epsilon == known else {_OPTION: float(epsilon)} if _OPTION in member.recipe.options else None
