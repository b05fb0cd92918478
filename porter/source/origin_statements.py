"""What a training script, the config.json beside a file, or the name of a release states of where the weights
come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from porter.base.name_tables import JsonObject
from porter.filegraph.checkpoint import Checkpoint
from porter.formats.torch import ARCH, LIBRARY
from porter.port import By
from porter.source.hub_folder import config_of
from porter.zoos.library_settings import TRANSFORMERS_DEFAULTS

RELEASE = re.compile(r"(?P<name>\w[\w.]*)-[0-9a-f]{8,}$")
"""The stem of a released file, which torch.hub holds to the digest at its end."""
_NEUTRAL_ARGUMENTS = frozenset(
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
_POOLS_OF_RECIPES = ("avg", "fast", "token")
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


def statement_in_metadata(checkpoint: Checkpoint) -> OriginStatement | None:
    """Return the statement that a training script wrote into a .pth; None if it wrote none."""
    arch, library = checkpoint.stated.get(ARCH), checkpoint.stated.get(LIBRARY)
    if arch is None:
        return None
    words = f"{library}'s {arch:.80}" if library else f"'{arch:.80}'"
    return OriginStatement("metadata", words, arch, library, strict=False)


def statement_in_file_name(checkpoint: Checkpoint) -> OriginStatement | None:
    """Return the statement in the name of a released file; None for any other name."""
    release = RELEASE.match(checkpoint.path.stem)
    return release and OriginStatement(
        "file name", f"'{checkpoint.path.name}'", release["name"], strict=False
    )


def statement_in_config(checkpoint: Checkpoint) -> OriginStatement | None:
    """Return the statement in the config.json of timm, transformers or keras-hub beside a file, with those
    arguments that make it another network than the name alone; None if it names no network. The statement has
    no name where porter knows the library but not its model.
    """
    config = config_of(checkpoint)
    name, kind, class_name = config.get("architecture"), config.get("model_type"), config.get("class_name")
    if isinstance(name, str) and name:
        name = name.partition(".")[0]
        stated = config.get("model_args")
        arguments = stated if isinstance(stated, dict) else {}
        telling_arguments = {
            key: value
            for key, value in arguments.items()
            if key not in _NEUTRAL_ARGUMENTS and (key, value) != _default_pads(name)
        }
        pool = telling_arguments.pop("global_pool", config.get("global_pool"))
        # Pools that recipes have anyway say nothing.
        if pool and pool not in _POOLS_OF_RECIPES:
            telling_arguments["global_pool"] = pool
        return OriginStatement(
            "config.json", f"timm's {_call_text(name, telling_arguments)}", name, "timm", telling_arguments
        )
    if isinstance(kind, str) and kind:
        defaults = TRANSFORMERS_DEFAULTS.get(kind)
        if defaults is None:
            return OriginStatement("config.json", f"transformers' {kind:.80}", None)
        telling_arguments = {
            key: config[key] for key, value in defaults.items() if config.get(key, value) != value
        }
        return OriginStatement(
            "config.json",
            f"transformers' {_call_text(kind, telling_arguments)}",
            kind,
            "transformers",
            {**defaults, **telling_arguments},
        )
    if isinstance(class_name, str) and str(config.get("module")).startswith(("keras_hub.", "keras_cv.")):
        return OriginStatement("config.json", f"keras-hub's {class_name:.80}", None)
    return None


def _default_pads(name: str) -> tuple[str, str]:
    """Return timm's argument for padding, and the value with which its function pads as without it: models
    of TensorFlow (`tf_...`) pad as `same`.
    """
    return "pad_type", "same" if name.startswith("tf_") else ""


def _call_text(name: str, arguments: JsonObject) -> str:
    """Return a call in words: `resnet50 (output_stride 8)`."""
    listed = ", ".join(f"{key} {value}" for key, value in arguments.items())
    return f"{name:.80} ({listed:.200})" if listed else f"{name:.80}"
