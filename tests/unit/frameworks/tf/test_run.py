from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from porter.base.errors import UsageError
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.runtime import import_keras
from porter.graph import INPUT, Graph, Node, Tanh
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.arrays import Array
from tests.support.frameworks.tf.models import network, random_tensors

QUIET = """
import numpy as np
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.tf.models import network, random_tensors
graph = network()
model = tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "cpu")
print(tf.ENGINE.run(model, np.zeros((1, 3, 15, 15), np.float32), ["logits"])["logits"].shape)
"""


def test_values_are_held_until_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras itself holds all values of a model until the end."""
    graph = Graph(
        tuple(Node(f"step{n}", Tanh(), (f"step{n - 1}" if n else INPUT,)) for n in range(9)), 3, "step8"
    )
    model = tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), {}, {}, "float32", "cpu")
    made, held = list[weakref.ref[object]](), list[int]()
    layer = import_keras().layers.Activation
    compute = layer.call

    def counted(self: object, value: object) -> object:
        held.append(sum(each() is not None for each in made))
        result = compute(self, value)
        made.append(weakref.ref(result))
        return result

    monkeypatch.setattr(layer, "call", counted)
    tf.ENGINE.run(model, np.zeros((1, 3, 8, 8), np.float32), ["step8"])
    assert len(held) == 9 and max(held) <= 2


def test_replaced_values_are_not_held_after_the_run() -> None:
    """A model of Keras is in circles, and would hold them until Python looks for it."""
    nodes = (Node("first", Tanh(), (INPUT,)), Node("second", Tanh(), ("first",)))
    plan = make_plan(Graph(nodes, 3, "second"), ANY, tf.CAPABILITIES)
    model = tf.ENGINE.build(plan, {}, {}, "float32", "cpu")
    replaced = np.full((1, 3, 8, 8), 0.5, np.float32)
    held = weakref.ref(replaced)
    found = tf.ENGINE.run(model, np.zeros((1, 3, 8, 8), np.float32), ["second"], {"first": replaced})
    assert found["second"].flat[0] == pytest.approx(np.tanh(0.5))
    gc.disable()
    try:
        del replaced
        assert held() is None
    finally:
        gc.enable()


def test_taps_come_back_channels_first_whatever_their_order() -> None:
    graph = network()
    model = tf.ENGINE.build(
        make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float64", "cpu"
    )
    batch = np.random.default_rng(3).normal(size=(2, 3, 15, 17))
    paths = [node.path for node in reversed(graph.nodes)]
    found = tf.ENGINE.run(model, batch, paths)
    channels = graph.channels_by_path
    assert list(found) == paths
    for place, (path, value) in enumerate(found.items()):
        assert value.shape[:2] == (2, channels[path])
        if place % 4 == 0:  # each run of other taps is traced anew
            assert np.array_equal(tf.ENGINE.run(model, batch, [path])[path], value)
        assert not value.flags.writeable  # TensorFlow's own memory: a copy of all maps of a network is large
    assert found["stem/conv"].shape == (2, 8, 8, 9)
    assert np.array_equal(tf.ENGINE.run(model, batch, [INPUT])[INPUT], batch)
    assert tf.ENGINE.run(model, batch, []) == {}


def test_other_sizes_and_batches_need_no_second_model() -> None:
    graph = network()
    model = tf.ENGINE.build(
        make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float64", "cpu"
    )
    batch = np.random.default_rng(3).normal(size=(3, 3, 21, 18))
    whole: Array = tf.ENGINE.run(model, batch, ["logits"])["logits"]
    single: Array = tf.ENGINE.run(model, batch[1:2], ["logits"])["logits"]
    assert np.abs(whole[1:2] - single).max() < 1e-13


def test_what_does_not_fit_is_refused() -> None:
    graph = network()
    model = tf.ENGINE.build(
        make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "cpu"
    )
    with pytest.raises(UsageError, match="the model has no node 'nothing'"):
        tf.ENGINE.run(model, np.zeros((1, 3, 15, 15)), ["nothing"])
    for shape in [(3, 15, 15), (1, 15, 15, 3), (1, 4, 15, 15)]:
        with pytest.raises(UsageError, match=r"takes a batch of 3x\?x\?"):
            tf.ENGINE.run(model, np.zeros(shape), ["logits"])


def test_full_precision_is_asked_for_only_while_running() -> None:
    config = import_tensorflow().config.experimental
    graph = network()
    model = tf.ENGINE.build(
        make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "cpu"
    )
    before = config.tensor_float_32_execution_enabled()
    config.enable_tensor_float_32_execution(True)
    try:
        tf.ENGINE.run(model, np.zeros((1, 3, 15, 15)), ["logits"])
        assert config.tensor_float_32_execution_enabled()
    finally:
        config.enable_tensor_float_32_execution(before)


def test_nothing_is_written_to_the_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", QUIET], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("(1, 5)\n", "")
