import numpy as np

from porter.filegraph.dataflow import Arrays, Dataflow, Operators


def test_a_signalling_nan_is_read_without_a_warning() -> None:
    stored = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    value = Dataflow({}, (), Arrays({"weights": stored}), Operators(lambda node: node.op)).constant(
        ("weights", 0)
    )
    assert value is not None and np.array_equal(value, [np.nan, 1.0], equal_nan=True)
