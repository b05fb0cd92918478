from __future__ import annotations

import re
import subprocess
import sys

import pytest

from porter.base.errors import NotInstalled, UsageError
from porter.base.package import install
from porter.formats.tensorflow import import_tensorflow
from porter.frameworks.tf.destination import DESTINATION as tf
from porter.frameworks.tf.runtime import import_keras, tensorflow_device
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.tf.models import network, random_tensors

OTHER_BACKEND = """
import os
os.environ["KERAS_BACKEND"] = "torch"
from porter.base.errors import NotInstalled
from porter.frameworks.tf.runtime import import_keras
try:
    import_keras()
except NotInstalled as error:
    print(error)
"""


@pytest.mark.parametrize("absent", ["tensorflow", "keras"])
def test_an_absent_package_is_named_with_the_way_to_get_it(
    absent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_keras()
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(NotInstalled, match=rf"cannot be imported: .*{absent}.*{re.escape(install('tf'))}"):
        import_keras()
    graph = network()
    with pytest.raises(NotInstalled):
        tf.ENGINE.build(make_plan(graph, ANY, tf.CAPABILITIES), random_tensors(graph), {}, "float32", "cpu")


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_keras().config, "backend", lambda: "torch")
    with pytest.raises(NotInstalled, match="its 'torch' backend in this process"):
        import_keras()


@pytest.mark.full
def test_keras_on_another_backend_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", OTHER_BACKEND], capture_output=True, text=True, check=True)
    assert done.stdout == "Keras runs on its 'torch' backend in this process (set KERAS_BACKEND=tensorflow)\n"


def test_devices() -> None:
    assert tensorflow_device("cpu") == "/CPU:0"
    with pytest.raises(UsageError, match="there is no device 'tpu'"):
        tensorflow_device("tpu")
    if import_tensorflow().config.list_physical_devices("GPU"):
        assert tensorflow_device("cuda") == "/GPU:0"
    else:
        with pytest.raises(UsageError, match="sees no GPU"):
            tensorflow_device("cuda")
