"""TensorFlow.js's models: a model.json with shards of weights, of Keras's layers or a TensorFlow graph."""

from __future__ import annotations

import re
from functools import partial

from porter.formats.format import Content, Format, reader
from porter.formats.tfjs.javascript_modules import MODULE

_GRAPH = re.compile(
    r'"?format"?\s*:\s*"graph-model"|"?modelTopology"?\s*:\s*\{\s*"?(node|library|versions)"?\s*:'
)


def _is_model(content: Content) -> bool:
    """Return whether a file is JSON of a model, or a module of JavaScript that exports it."""
    text = (content.text or "").lstrip()
    has_key = '"modelTopology"' in text or '"weightsManifest"' in text
    return (text[:1] == "{" and has_key) or MODULE.search(text) is not None


def _is_graph(content: Content) -> bool:
    return _is_model(content) and _GRAPH.search(content.text or "") is not None


_format = partial(Format, read=reader("porter.formats.tfjs.read", "read_tfjs"), framework="tf", engine="tf")
FORMATS = (
    _format("tfjs-graph", "a TensorFlow.js graph model (model.json)", _is_graph),
    _format("tfjs-layers", "a TensorFlow.js layers model (model.json)", _is_model, sizes_itself=True),
)
