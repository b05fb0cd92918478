"""The `config.json` of a stated model, as Keras would save it.

What Keras has a default for is not stated, and neither are the shapes that layers were built for
(`build_config`): loading a model calls its layers, which builds them (keras/src/models/functional.py,
functional_from_config). Keras itself states all arguments, of which an earlier version refuses those that it
does not know; so a model of layers only opens in Keras 3.5. Operations take a name since Keras 3.11; without
it Keras would number them, and give them names that layers may have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from porter.frameworks.tf.ports.statement import CallValue, KerasCall, Statement

MODEL_NAME = "port"


def model_config(statement: Statement) -> dict[str, Any]:
    """Return the config of the whole model, as JSON has it (keras/src/models/functional.py, get_config)."""
    inputs, outputs = (
        [_history(statement, statement.values[path]) for path in paths]
        for paths in (statement.inputs, statement.outputs)
    )
    config = {
        "name": MODEL_NAME,
        "trainable": True,
        "layers": [_layer_config(statement, calls) for calls in statement.calls_in_order],
        "input_layers": inputs if len(inputs) > 1 else inputs[0],
        "output_layers": outputs if statement.several else outputs[0],
    }
    module, kind = "keras.src.models.functional", "Functional"
    return {"module": module, "class_name": kind, "config": config, "registered_name": kind}


def _history(statement: Statement, symbol: CallValue) -> list[Any]:
    """Return where a value comes from: the name of its layer, which call of it, and which of its values,
    always the first.
    """
    return [*statement.call_of(symbol), 0]


def _layer_config(statement: Statement, calls: Sequence[KerasCall]) -> dict[str, Any]:
    """Return the config of a layer or an operation: its class and arguments, and in `inbound_nodes` what each
    of its calls is made with.
    """
    call = calls[0]
    config = {"name": call.name, **{key: _serialize(statement, value) for key, value in call.config.items()}}
    if call.is_layer and call.kind != "InputLayer":
        # SpatialDropout2D's own get_config says the type by its name.
        states_type_by_name = call.kind == "SpatialDropout2D"
        config["dtype"] = (
            statement.dtype
            if states_type_by_name
            else _serialized_object("keras", "DTypePolicy", {"name": statement.dtype})
        )
    # An InputLayer reads nothing, so its call is no node of Keras's graph.
    nodes = [
        {
            "args": _serialize(statement, call_of_layer.arguments),
            "kwargs": {key: _serialize(statement, value) for key, value in call_of_layer.options.items()},
        }
        for call_of_layer in calls
        if call_of_layer.inputs
    ]
    registered = None if call.is_layer else call.kind
    return {
        **_serialized_object(call.module, call.kind, config, registered),
        "name": call.name,
        "inbound_nodes": nodes,
    }


def _serialized_object(
    module: str, kind: str, config: Mapping[str, Any], registered: str | None = None
) -> dict[str, Any]:
    """Return an object of the class `kind` as Keras serializes it: as a mapping with the class's module, its
    name, its arguments, and the name that a class without a public name is registered under.
    """
    return {"module": module, "class_name": kind, "config": config, "registered_name": registered}


def _serialize(statement: Statement, value: Any) -> Any:
    """Return an argument as Keras serializes it (keras/src/saving/serialization_lib.py,
    serialize_keras_object): a value of the model by its history, arrays, slices and `...` by a class,
    sequences as lists, and anything else as it is.
    """
    match value:
        case CallValue():
            history = {
                "shape": value.shape,
                "dtype": value.dtype,
                "keras_history": _history(statement, value),
            }
            return {"class_name": "__keras_tensor__", "config": history}
        case np.ndarray():
            return {"class_name": "__numpy__", "config": {"value": value.tolist(), "dtype": value.dtype.name}}
        case slice():
            return {
                "class_name": "__slice__",
                "config": {"start": value.start, "stop": value.stop, "step": value.step},
            }
        case list() | tuple():
            return [_serialize(statement, item) for item in value]
    return {"class_name": "__ellipsis__", "config": {}} if value is ... else value
