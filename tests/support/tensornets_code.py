"""TensorNets on the TensorFlow 1.15 that it was written for: a script for the Python of
scripts/tensornets_environment.

    tensornets_code.py MODULE FUNCTION ROWS COLUMNS WEIGHTS SAVED GRAPH

WEIGHTS is an .npz of arrays by their variables' names, in order. TensorNets' own `load` takes them, by
position; SAVED is what its own `save` then writes, and GRAPH the frozen graph.
"""

import os
import sys
import warnings
from importlib import import_module

import numpy as np


def main(module, function, rows, columns, weights, saved, graph):
    warnings.simplefilter("ignore")
    os.environ.pop("TF2_BEHAVIOR", None)  # TensorFlow 2 sets it for what it starts, and 1.15 follows it
    import tensorflow

    v1 = tensorflow.compat.v1
    v1.logging.set_verbosity(v1.logging.ERROR)
    network = getattr(import_module("tensornets." + module), function)
    arrays = np.load(weights)
    np.savez(
        saved, names=[name + ":0" for name in arrays.files], values=[arrays[name] for name in arrays.files]
    )
    with tensorflow.Graph().as_default(), v1.Session() as session:
        images = v1.placeholder(tensorflow.float32, [None, int(rows), int(columns), 3], name="input")
        model = network(images, classes=arrays[arrays.files[-1]].size)
        model.load(saved, session)
        model.save(saved, session)
        frozen = v1.graph_util.convert_variables_to_constants(
            session, session.graph_def, [model.logits.op.name]
        )
    with open(graph, "wb") as stream:  # noqa: PTH123  this Python's Path is another
        stream.write(frozen.SerializeToString())


if __name__ == "__main__":
    main(*sys.argv[1:])
