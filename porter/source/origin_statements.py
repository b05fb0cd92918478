"""What a training script, the config.json beside a file, or the name of a release states of where the weights
come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from porter.base.json import JsonObject
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.torch import ARCH, LIBRARY
from porter.port import By
from porter.source.hub_folder import config_of
from porter.zoos.tables import TRANSFORMERS_DEFAULTS

RELEASE = re.compile(r"(?P<name>\w[\w.]*)-[0-9a-f]{8,}$")
"""The stem of a released file, which torch.hub holds to the digest at its end."""
_NEUTRAL = frozenset(
    {
        "num_classes",
        "in_chans",
        "img_size",
        "pretrained",
        "scriptable",
        "exportable",
        "drop_rate",
        "drop_path_rate",
        "drop_block_rate",
        "attn_drop_rate",
        "proj_drop_rate",
    }
)
"""Arguments of timm.create_model that change no number of a trained network, or that its tensors tell."""
_POOLS = ("avg", "fast", "token")
"""What timm's config.json says of the pool of a network that a recipe has. Another one, such as max, has the
same tensors.
"""


@dataclass(frozen=True)
class OriginStatement:
    """The name of a model, as something states it.

    Attributes:
        says: in words.
        name: in its library; None where porter knows no zoo of that library.
        library: None where the name may be any library's.
        arguments: that its function was called with, without those that change no number; of transformers,
            all settings that do.
        strict: whether a name that no recipe has is another network; a file's name may be anything.
    """

    by: By
    says: str
    name: str | None
    library: str | None = None
    arguments: JsonObject = field(default_factory=dict)
    strict: bool = True


def of_metadata(checkpoint: Checkpoint) -> OriginStatement | None:
    """What a training script wrote into a .pth."""
    arch, library = checkpoint.stated.get(ARCH), checkpoint.stated.get(LIBRARY)
    if arch is None:
        return None
    said = f"{library}'s {arch:.80}" if library else f"'{arch:.80}'"
    return OriginStatement("metadata", said, arch, library, strict=False)


def of_release(checkpoint: Checkpoint) -> OriginStatement | None:
    """What the name of a released file says."""
    release = RELEASE.match(checkpoint.path.stem)
    return release and OriginStatement(
        "file name", f"'{checkpoint.path.name}'", release["name"], strict=False
    )


def of_config(checkpoint: Checkpoint) -> OriginStatement | None:
    """What the config.json of timm, transformers or keras-hub beside a file says."""
    config = config_of(checkpoint)
    name, kind, made = config.get("architecture"), config.get("model_type"), config.get("class_name")
    if isinstance(name, str) and name:
        name = name.partition(".")[0]
        arguments = config.get("model_args")
        given = arguments if isinstance(arguments, dict) else {}
        told = {
            key: value
            for key, value in given.items()
            if key not in _NEUTRAL and (key, value) != _usual_pads(name)
        }
        if (pool := told.pop("global_pool", config.get("global_pool"))) and pool not in _POOLS:
            told["global_pool"] = pool
        return OriginStatement("config.json", f"timm's {_called(name, told)}", name, "timm", told)
    if isinstance(kind, str) and kind:
        usual = TRANSFORMERS_DEFAULTS.get(kind)
        if usual is None:
            return OriginStatement("config.json", f"transformers' {kind:.80}", None)
        told = {key: config[key] for key, value in usual.items() if config.get(key, value) != value}
        return OriginStatement(
            "config.json", f"transformers' {_called(kind, told)}", kind, "transformers", {**usual, **told}
        )
    if isinstance(made, str) and str(config.get("module")).startswith(("keras_hub.", "keras_cv.")):
        return OriginStatement("config.json", f"keras-hub's {made:.80}", None)
    return None


def _usual_pads(name: str) -> tuple[str, str]:
    """The argument with which timm's function pads as it does without it."""
    return "pad_type", "same" if name.startswith("tf_") else ""


def _called(name: str, arguments: JsonObject) -> str:
    listed = ", ".join(f"{key} {value}" for key, value in arguments.items())
    return f"{name:.80}" + (f" ({listed:.200})" if listed else "")
