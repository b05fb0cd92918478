"""The words of layers' names: which a person chose, which a framework numbered, and how they become paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword

from porter.graph.ops.activations import ACTIVATIONS

_PART = re.compile(r"[A-Za-z]+_?\d+|[A-Za-z]+|\d+")
_NUMBERED_BY_FRAMEWORKS = (
    "activation add addv2 affine average averagepool averagepooling2d avgpool avgpool2d batchnorm "
    "batchnorm2d batchnormalization biasadd cat clip concat concatenate concatv2 conv conv2d cropping2d "
    "customscalelayer dense depthwiseconv2d depthwiseconv2dnative div elu flatten fusedbatchnorm "
    "fusedbatchnormv3 gelu gemm globalaveragepool globalaveragepooling2d globalmaxpool globalmaxpooling2d "
    "groupnorm groupnormalization hardsigmoid hardswish identity instancenormalization lambda "
    "layernormalization leakyrelu linear matmul maximum maxpool maxpool2d maxpooling2d mean minimum mul "
    "multiply pad prelu relu relu6 reshape rmsnorm rmsnormalization selu separableconv2d sigmoid silu "
    "softmax softplus softsign squeeze sub subtract swish tanh thresholdedrelu upsampling2d zeropadding2d"
)
_STEPS = ("convolution", "depthwise", "readvariableop")
_MOST_OF_THEM = 0.9
"""If more names than this share end with the number of a call, TensorFlow has added it."""
_SHORT = {
    "batch_norm": "norm",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "group_norm": "norm",
    "max_pool": "pool",
    "avg_pool": "pool",
    "global_avg_pool": "pool",
    "global_max_pool": "pool",
    "adaptive_avg_pool": "pool",
    "adaptive_max_pool": "pool",
    "local_response_norm": "norm",
    "conv_transpose": "conv",
}


def as_people_say(names: Mapping[str, str]) -> dict[str, str]:
    """Return layers' names as a person chose them, by path: without the scope of the model, the names of
    single ops, and the number of the call, which TensorFlow's graphs add:
    `resnet_1/conv1_bn_1/FusedBatchNormV3` is conv1_bn.
    """
    words_of = {path: name.split("/") for path, name in names.items()}
    scopes = {words[0] for words in words_of.values() if len(words) > 1}
    if len(scopes) != 1:
        return dict(names)
    single_ops = {*_NUMBERED_BY_FRAMEWORKS.split(), *_STEPS}
    spoken: dict[str, str] = {}
    for path, words in words_of.items():
        kept_words = words[1:] or words  # without the model's scope
        while len(kept_words) > 1 and kept_words[-1].replace("_", "").lower() in single_ops:
            kept_words = kept_words[:-1]
        spoken[path] = "/".join(kept_words)
    scoped_names = [name for path, name in spoken.items() if len(words_of[path]) > 1]
    count_of_calls = sum(name.endswith("_1") for name in scoped_names)
    if count_of_calls > _MOST_OF_THEM * len(scoped_names):
        spoken = {
            path: name.removesuffix("_1") if len(words_of[path]) > 1 else name
            for path, name in spoken.items()
        }
    are_unique = len({*spoken.values()}) == len(spoken)
    return spoken if are_unique else dict(names)


def telling_names(names: Iterable[str]) -> set[str]:
    """Return the layers' names that say more than what a layer computes and how many there were before:
    `block1_conv`, not `conv2d_7`.

    `conv_1` does if there is a `conv_1_bn`.
    """
    all_names = list(names)
    # `conv_1` of `conv_1_bn`
    beginnings = {
        name[: match.start()] for name in all_names for match in re.finditer(r"_(?=[A-Za-z])", name)
    }
    return {name for name in all_names if name in beginnings or not _is_counted(name)}


def _is_counted(name: str) -> bool:
    """Return whether a name is an op with a framework's number, such as `conv2d_7`."""
    base = re.sub(r"(_?\d+)+$", "", name.partition(":")[0])
    return base.replace("_", "").lower() in _NUMBERED_BY_FRAMEWORKS.split()


def short_word(op_name: str) -> str:
    """Return what a person calls an op in a path: `pool` for `max_pool`, `act` for an activation."""
    return "act" if op_name in ACTIVATIONS else _SHORT.get(op_name, op_name)


def belongs_to_previous(op_name: str) -> bool:
    """Return whether a layer belongs to the one before it: an activation or a norm."""
    return short_word(op_name) in ("act", "norm")


def labels(name: str) -> tuple[str, ...]:
    """Split a name into parts, each a word with its number or one of them: `conv2_block1_1_conv` is conv2,
    block1, 1, conv.
    """
    return tuple(part[0] for part in _PART.finditer(name))


def without_first_parts(name: str, depth: int) -> str:
    """Return a name without its first `depth` parts (`labels`): 1_conv of `block1_1_conv` without one."""
    starts = [part.start() for part in _PART.finditer(name)]
    return name[starts[depth] :] if depth < len(starts) else ""


def common_parts(names: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the parts that all names begin with: a, b of a, b, c and a, b, d."""
    shared: list[str] = []
    for parts in zip(*names, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return tuple(shared)


def split_number(label: str) -> tuple[str, int | None]:
    """Split a part of a name into a word and its number: `block2` is ("block", 2), `stem` ("stem", None). A
    single letter counts as a number: `b` is ("", 2).
    """
    if re.fullmatch(r"[a-z]", label):
        return "", ord(label) - ord("a") + 1
    match = re.fullmatch(r"(.*?)(\d+)", label)
    return (match[1], int(match[2])) if match else (label, None)


def stem(label: str) -> str:
    """Return a part of a name without its number: `block` of `block2`."""
    return split_number(label)[0]


def local_name(text: str) -> str:
    """Write part of a layer's name as one word of a path; a number at its beginning moves to its end:
    `1_conv` is conv1.
    """
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    first, _, rest = word.partition("_")
    if first.isdigit() and rest:
        word = f"{rest}_{first}" if rest[-1].isdigit() else f"{rest}{first}"
    if word[:1].isdigit():
        return f"unit{word}"
    return f"{word}_" if iskeyword(word) else word


def without_number(word: str) -> str:
    """Return a word without the number at its end: conv of `conv_2`; a mere number as it is."""
    return word.rstrip("0123456789").rstrip("_") or word
