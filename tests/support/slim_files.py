"""TF-slim's own networks with calibrated random weights, as the files that people have, written by TensorFlow
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from porter.filegraph.checkpoint import Checkpoint
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.runtime import quiet_logger
from porter.zoos.slim.network import SlimNetwork
from porter.zoos.slim.networks import construct
from tests.support.arrays import Array
from tests.support.standin_files import source_checkpoint

SMALL = ("mobilenet_v1_0.25", "mobilenet_v2_0.35")
_SPELLINGS = {"kernel": "weights", "depthwise_kernel": "depthwise_weights", "bias": "biases"}


@lru_cache(maxsize=2)
def slim_checkpoint(variant: str, classes: int = 1001, recipes: Path | None = None) -> Checkpoint:
    """The stand-in weights of zoo slim under the names of slim's variables."""
    keras = source_checkpoint(variant, "slim", classes, recipes)
    tensors: dict[str, Array] = {}
    for name, array in keras.tensors.items():
        layer, _, role = name.rpartition("/")
        tensors[f"{layer}/{_SPELLINGS.get(role, role)}"] = array
    return replace(keras, tensors=tensors)


@dataclass(frozen=True)
class SlimFile:
    """What to write.

    Attributes:
        format: `v1` and `v2` are checkpoints, `frozen` a graph as .pb, `saved_model` a folder as TensorFlow 1
            exported it.
        ema: shadows hold the calibrated weights, and the variables others that are worse; only checkpoints
            can have them.
        slots: the slots of an optimiser, of which slim's training used RMSProp with a momentum.
        scope: around everything, as slim's deployment to several GPUs had `tower_0`.
        partial: how many of the variables have no shadow.
        batch: the number of images that the graph is fixed to.
        softmax: whether the graph ends with the probabilities; else with the logits.
        retrained: classes of a second head on the logits, with its softmax, as TensorFlow's retrain.py put it
            there; 0 for none.
    """

    variant: str = SMALL[0]
    format: str = "v2"
    classes: int = 1001
    size: int = 224
    ema: bool = False
    slots: bool = False
    scope: str = ""
    partial: int = 0
    batch: int | None = None
    softmax: bool = True
    retrained: int = 0


def write_checkpoint(prefix: Path, tensors: Mapping[str, Array]) -> Path:
    """A checkpoint as TensorFlow writes it, of tensors whose network need not be built for that."""
    names = list(tensors)
    import_tensorflow().raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(tensors.values()),
    )
    return prefix


def write_slim(path: Path, file: SlimFile, recipes: Path | None = None) -> Path:
    """Writes `file` under `path`, without a suffix, and returns the file, prefix or folder that a user would
    name.
    """
    tensorflow = import_tensorflow()
    v1 = tensorflow.compat.v1
    with tensorflow.Graph().as_default(), v1.Session(config=_plain(v1)) as session, quiet_logger(tensorflow):
        images = v1.placeholder(tensorflow.float32, [file.batch, file.size, file.size, 3], name="input")
        with v1.variable_scope(file.scope) if file.scope else nullcontext():
            network = construct(file.variant, images, file.classes)
        if file.retrained:
            network = _retrained(tensorflow, session.graph, network, file)
        variables = {
            variable.op.name.removeprefix(f"{file.scope}/"): variable for variable in v1.global_variables()
        }
        shadows = _averages_and_slots(v1, variables, file)
        values = {
            variable: np.full(variable.shape, 0.5, variable.dtype.as_numpy_dtype)
            for variable in v1.global_variables()
        }
        for name, array in slim_checkpoint(file.variant, file.classes, recipes).tensors.items():
            values[variables[name]] = _worse(array) if name in shadows else array
            if name in shadows:
                values[shadows[name]] = array
        # In one run, and what each initialiser would assign is fed: those of shadows are conditions that take
        # a minute to build.
        feeds = {variable.initializer.inputs[1]: array for variable, array in values.items()}
        session.run([variable.initializer for variable in values], feeds)
        return _save(tensorflow, session, path, file, images, network)


def _retrained(tensorflow: Any, graph: Any, network: SlimNetwork, file: SlimFile) -> SlimNetwork:
    """The network with a head of one's own on its logits, `final_training_ops` and `final_result`."""
    random = np.random.default_rng(13)
    kernel = random.normal(0, 1 / np.sqrt(file.classes), (file.classes, file.retrained)).astype(np.float32)
    bias = random.normal(0, 0.1, file.retrained).astype(np.float32)
    with tensorflow.name_scope("final_training_ops"):
        logits = tensorflow.matmul(
            graph.get_tensor_by_name(f"{network.logits}:0"), tensorflow.constant(kernel, name="weights")
        )
        logits = tensorflow.add(logits, tensorflow.constant(bias, name="biases"))
    return replace(
        network,
        logits=logits.op.name,
        probabilities=tensorflow.nn.softmax(logits, name="final_result").op.name,
    )


def _plain(v1: Any) -> Any:
    """Switches off TensorFlow's rewriting of graphs, which takes longer than what is run here."""
    config = v1.ConfigProto(device_count={"GPU": 0})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def _averages_and_slots(v1: Any, variables: Mapping[str, Any], file: SlimFile) -> dict[str, Any]:
    """Adds what training adds to a graph; the shadow of each variable that has one, by the variable's
    name.
    """
    v1.train.get_or_create_global_step()
    trainable = v1.trainable_variables()
    if file.slots:
        loss = v1.add_n([v1.reduce_sum(variable) for variable in trainable])
        v1.train.RMSPropOptimizer(0.1, momentum=0.9).minimize(loss, var_list=trainable)
    if not file.ema:
        return {}
    # slim averages the trainable variables and the statistics of the norms
    # (research/slim/train_image_classifier.py, `moving_average_variables`: slim.get_model_variables()).
    averaged = list(variables.items())[file.partial :]
    average = v1.train.ExponentialMovingAverage(0.9999, v1.train.get_global_step())
    # `average.apply` makes the same variables, and a condition for the initial value of each, which takes
    # seconds.
    return {
        name: _variable(v1, average.average_name(variable), variable.shape) for name, variable in averaged
    }


def _variable(v1: Any, name: str, shape: Any) -> Any:
    return v1.Variable(np.zeros(shape, np.float32), trainable=False, name=name, use_resource=False)


def _worse(array: Array) -> Array:
    """What training left before averaging: the same, with a tenth of its size in noise, and variances still
    positive.
    """
    noise = np.random.default_rng(array.size).uniform(-0.1, 0.1, array.shape)
    return (array * (1 + noise)).astype(array.dtype)


def _save(
    tensorflow: Any, session: Any, path: Path, file: SlimFile, images: Any, network: SlimNetwork
) -> Path:
    v1 = tensorflow.compat.v1
    output = network.probabilities if file.softmax else network.logits
    if file.format in ("v1", "v2"):
        version = v1.train.SaverDef.V1 if file.format == "v1" else v1.train.SaverDef.V2
        saver = v1.train.Saver(v1.global_variables(), write_version=version)
        return Path(saver.save(session, str(path), write_meta_graph=False, write_state=False))
    if file.format == "frozen":
        graph = v1.graph_util.convert_variables_to_constants(session, session.graph_def, [output])
        file_path = path.with_name(f"{path.name}.pb")
        file_path.write_bytes(graph.SerializeToString())
        return file_path
    outputs = {"probabilities" if file.softmax else "logits": session.graph.get_tensor_by_name(f"{output}:0")}
    v1.saved_model.simple_save(session, str(path), {"images": images}, outputs)
    return path
