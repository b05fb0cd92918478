"""ONNX models as evaluations run them: many photos, logits only."""

from __future__ import annotations

from porter.base.dtypes import Array
from porter.base.errors import UsageError
from porter.base.ways_to_run import Run
from porter.data.preprocess import Preprocess
from porter.frameworks import Classifier, expect_run
from porter.frameworks.batches import make_cpu_classifier
from porter.frameworks.onnx.file_reference import OnnxRunner
from porter.frameworks.onnx.running import OnnxModel


def classifier(
    model: OnnxModel | OnnxRunner, protocol: Preprocess, device: str, how: Run, tap: str | None = None
) -> Classifier:
    """Return a classifier of photos that runs a model on the CPU; its logits are a port's first output, or of
    a file's own graph the value called `tap`. See porter.frameworks.Engine.classifier. `device` is unused.

    Raises:
        UsageError: it is another run than one in fp32, or a file's own graph is given no tap.
    """
    expect_run(how, "ONNX")
    if isinstance(model, OnnxRunner) and tap is None:
        raise UsageError("name the value to take from the file's own graph: it gives no output by default")

    def logits(batch: Array) -> Array:
        """Return the logits of images N×C×H×W: the value at the tap, or the first output of a port."""
        if isinstance(model, OnnxRunner):
            return model(batch, (str(tap),))[str(tap)]
        value = model(batch)
        return value[0] if isinstance(value, tuple) else value

    return make_cpu_classifier(logits, protocol)
