"""Formats that porter tells apart but does not read, so that its message says what a file is and what to do
about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from porter.formats.format import ZIP_MAGIC, Content, Format, starts_with
from porter.formats.keras import HDF5_MAGIC
from porter.formats.orbax import holds_arrays
from porter.formats.protobuf import first_fields
from porter.formats.torch_export import SAVE

_PICKLE = re.compile(rb"\x80[\x02-\x05][\x8a\x95c}\](X]")
_UNPACK = "unpack it, and name the weights file in it"


_SHARD_NAME = re.compile(r".+-\d{5}-of-(\d{5})\.(safetensors|bin|pth?)", re.ASCII)


def _is_shard(content: Content) -> bool:
    """Return whether a file is one of several shards, by its name: `NAME-00001-of-00004.safetensors`."""
    shard = _SHARD_NAME.fullmatch(content.path.name)
    return shard is not None and int(shard[1]) > 1 and bool(content.head)


def _is_tar(content: Content) -> bool:
    return content.head[257:262] == b"ustar"


def _is_torch_tar(content: Content) -> bool:
    """Return whether a file is torch 0.1's, a tar of four members: sys_info, which comes first, pickle,
    tensors, storages (its torch/serialization.py).
    """
    return _is_tar(content) and content.head.startswith(b"sys_info\0")


def _is_wheel(content: Content) -> bool:
    return any(name.endswith(".dist-info/WHEEL") for name in content.members or ())


def _is_meta_graph(content: Content) -> bool:
    """Return whether a file is a MetaGraphDef: it begins with a MetaInfoDef, whose first field is the list of
    ops, and then has the graph.
    """
    if not content.fields:
        return False
    (number, value), *following = content.fields
    if number != 1 or not isinstance(value, bytes):
        return False
    ops_first = [field for field, _ in first_fields(value, 1)] == [2]
    return ops_first and [field for field, _ in following] in ([], [2])


def _is_cntk(content: Content) -> bool:
    """Return whether a file is CNTK's: a version, then the entries of a map, which has no order. Each entry
    begins with its key, one of those that CNTK 2.7 writes.
    """
    match content.fields:
        case ((1, int()), (2, bytes(entry))):
            return next(first_fields(entry, 1), (0, b""))[1] in _CNTK_KEYS
    return False


def _is_coreml(content: Content) -> bool:
    """Return whether a file is CoreML's: a package, or a version of the form, then a description, whose first
    field is an input.
    """
    if content.path.is_dir():
        return (content.path / "Data" / "com.apple.CoreML").is_dir() and (
            content.path / "Manifest.json"
        ).is_file()
    match content.fields:
        case ((1, int()), (2, bytes(description))):
            return description.startswith(b"\n") and not _is_cntk(content)
    return False


def _is_dlib(content: Content) -> bool:
    """Return whether a file is dlib's: a version of 1, then a network's loss by its name, or the sizes of a
    column, which dlib keeps below zero.
    """
    network, shapes = rb"\x01\x01\x01.loss_", rb"\x01\x01(\x81.|\x82..)\x81\x01"
    return re.match(rb"%s|%s" % (network, shapes), content.head, re.DOTALL) is not None


_CNTK_KEYS = (b"version", b"type", b"uid", b"root", b"inputs", b"primitive_functions")


def _is_saved_model_text(content: Content) -> bool:
    """Return whether a path is a SavedModel as text: its folder, or the file itself."""
    if content.path.is_dir():
        return (content.path / "saved_model.pbtxt").is_file()
    return _is_text_with(r"\s*saved_model_schema_version\s*:")(content)


def _is_text_with(pattern: str) -> Callable[[Content], bool]:
    """Return a test whether a file is text that begins with `pattern`."""
    return lambda content: (
        content.text is not None and re.match(pattern, content.text, re.IGNORECASE) is not None
    )


SHARDS = (
    Format(
        "shard",
        "one of several files that hold a model's weights together",
        _is_shard,
        advice="name their index, the .index.json beside them; where there is none, fetch it and all of them",
    ),
)
"""Shards are recognised by their names, and before all other formats: each is a complete file of
safetensors or PyTorch.
"""
FORMATS = (
    Format(
        "empty",
        "an empty file",
        lambda content: content.path.is_file() and not content.head,
        advice="fetch or copy it again",
    ),
    Format(
        "saved-model-text",
        "a SavedModel as text (.pbtxt)",
        _is_saved_model_text,
        advice="save it in binary, as saved_model.pb",
    ),
    Format(
        "coreml",
        "a CoreML model",
        _is_coreml,
        advice="name the file that it was made from: porter reads no CoreML",
    ),
    Format(
        "orbax-arrays",
        "a folder of orbax without the structure of its arrays",
        holds_arrays,
        advice="copy the whole folder again, with its file _METADATA or checkpoint",
    ),
    Format(
        "hub-folder",
        "a folder with a config.json and without the weights that it is about",
        lambda content: (content.path / "config.json").is_file(),
        advice="fetch it again with its model.safetensors, or name the weights file in it",
    ),
    Format(
        "diffusers",
        "a pipeline of diffusers, whose networks take noise, times and texts",
        lambda content: (content.path / "model_index.json").is_file(),
        advice="porter ports models that take images: to port one of its networks, export it with "
        "torch.export, and name the .pt2",
    ),
    Format(
        "empty-folder",
        "an empty folder",
        lambda content: content.path.is_dir() and not any(content.path.iterdir()),
        advice="fetch or copy it again",
    ),
    Format("folder", "a folder", lambda content: content.path.is_dir(), advice="name the weights file in it"),
    Format(
        "hdf5",
        "an HDF5 file that Keras did not write",
        starts_with(HDF5_MAGIC),
        advice="expected layer_names, model_weights or layers in it",
    ),
    Format(
        "torchscript",
        "a TorchScript archive",
        lambda content: "data.pkl" in content.inner_members,
        advice=f"where the model's code is: {SAVE}; its weights only: save "
        "torch.jit.load(FILE).state_dict() as a .pth",
    ),
    Format("wheel", "a Python package", _is_wheel),
    Format("zip", "a zip archive", lambda content: content.members is not None, advice=_UNPACK),
    Format(
        "zip-cut",
        "a zip archive (.keras and .pth are zip archives) that is cut short",
        starts_with(ZIP_MAGIC),
        advice="fetch or copy it again",
    ),
    Format(
        "gguf",
        "a GGUF file, a language model of llama.cpp",
        starts_with(b"GGUF"),
        advice="porter ports models that take images: name the weights of one",
    ),
    Format("npy", "a numpy array", starts_with(b"\x93NUMPY")),
    Format("image", "an image", starts_with(b"\xff\xd8\xff", b"\x89PNG", b"GIF8")),
    Format(
        "compressed",
        "a compressed file",
        starts_with(b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"),
        advice=_UNPACK,
    ),
    Format(
        "git-lfs",
        "a git-lfs pointer, not the file itself",
        starts_with(b"version https://git-lfs"),
        advice="run git lfs pull",
    ),
    Format(
        "torch-tar",
        "a PyTorch file from before 0.2",
        _is_torch_tar,
        advice="load and save its state_dict in a later PyTorch",
    ),
    Format(
        "torch7-text",
        "a Torch7 file as text",
        _is_text_with(r"[34]\s+1\s+(3\s+V \d\s+\d+\s+(nn|cudnn|torch|tds)\.|\d+\s+[12]\s)"),
        advice="save it in binary, as torch.save(FILE, model) does without 'ascii'",
    ),
    Format("tar", "a tar archive", _is_tar, advice=_UNPACK),
    Format(
        "keras-pickle",
        "a Python pickle of a Keras model, which could run any code",
        lambda content: _PICKLE.match(content.head) is not None and b"keras" in content.head,
        advice="where it was made, load it and save it with model.save('model.keras')",
    ),
    Format(
        "pickle",
        "a Python pickle, which could run any code",
        lambda content: _PICKLE.match(content.head) is not None,
        advice="save model.state_dict() with torch.save, or a .safetensors",
    ),
    Format(
        "meta-graph",
        "a TensorFlow .meta file, a graph without its weights",
        _is_meta_graph,
        advice="name the checkpoint beside it",
    ),
    Format(
        "cntk",
        "a CNTK model",
        _is_cntk,
        advice="save it as ONNX, in CNTK 2.7: cntk.Function.load(FILE).save('model.onnx', "
        "format=cntk.ModelFormat.ONNX)",
    ),
    Format(
        "dlib",
        "a dlib model (.dat)",
        _is_dlib,
        advice="porter reads no dlib: name a file of another framework",
    ),
    Format(
        "html",
        "a web page, perhaps the error of a download",
        _is_text_with(r"\s*<(!doctype html|html)"),
        advice="fetch it again",
    ),
    Format(
        "graph-text",
        "a TensorFlow graph as text (.pbtxt)",
        _is_text_with(r"(\s*#[^\n]*\n)*\s*(node|versions|library)\s*:?\s*\{"),
        advice="save it in binary, as .pb",
    ),
    Format("text", "a text file", _is_text_with("")),
    Format("unknown", "a file of a format that porter does not know", lambda content: content.path.is_file()),
)
"""The order matters: general formats, such as a zip archive, come after the special ones."""
