"""Building Keras models that a stranger's file describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from typing import Any

from porter.base.errors import UsageError
from porter.frameworks.tf.runtime import import_keras, keras_defaults

_PARTS_OF_A_TENSOR, _USUAL_PARTS = 32, 8192
"""How often Keras asks a policy for a type while it builds a network, for each tensor of its file and beside
them: several times as often as for any.
"""
_SEED_STATE = "seed_generator_state"
"""A variable of layers that act in training only, which porter reads in no file."""


def build_for_file(tensors: int, numbers: int, build: Callable[[], Any], where: str) -> Any:
    """Build a model that a stranger's config.json describes, in float32 with its own initial weights. So that
    a small file cannot ask for much memory, the model is first built without any weights, and their number is
    compared with the file's.

    That first model has a thread of its own. Keras lists the variables of a thread that lack numbers, and
    when the next scope ends it gives numbers to all of them, whatever their size
    (keras.src.backend.common.variables.initialize_all_variables).

    Args:
        tensors: how many the file has.
        numbers: how many weights they hold together.
        build: makes the model.
        where: the file's name for messages.

    Raises:
        UsageError: it has more or fewer weights.
    """
    keras = import_keras()

    def count_weights() -> int:
        with _limit_parts(tensors, where), keras.StatelessScope(initialize_variables=False):
            variables = build().variables
            return sum(prod(variable.shape) for variable in variables if variable.name != _SEED_STATE)

    with keras_defaults("float32"):
        with ThreadPoolExecutor(1) as own_thread:
            needed = own_thread.submit(count_weights).result()
        if needed != numbers:
            message = f"config.json describes a network of {needed} weights, and the file holds {numbers}"
            instead = "fetch the folder again, or build the network in Python and give it to porter.convert"
            raise UsageError(message, where=where, next=instead)
        return build()


@contextmanager
def _limit_parts(tensors: int, where: str) -> Iterator[None]:
    """Refuse, within the context, to build more layers than a file of so many tensors can have. Every layer
    asks the policy for its types, which is counted.
    """
    keras = import_keras()
    left = _PARTS_OF_A_TENSOR * tensors + _USUAL_PARTS

    def counting_property(name: str) -> property:
        """Return a property of Keras's policy that counts how often it is read, and refuses the first read
        too many.
        """

        def get(self: Any) -> Any:
            """Return the type that the policy states."""
            nonlocal left
            left -= 1
            if left < 0:
                message = f"config.json describes a larger network than the file's {tensors} tensors can fill"
                raise UsageError(message, where=where, next="fetch the folder again")
            return getattr(keras.DTypePolicy, name).fget(self)

        return property(get)

    attributes = ("variable_dtype", "compute_dtype")
    # Only a class can hold a property, so Keras gets a class of policies that counts.
    policy = type("Counted", (keras.DTypePolicy,), {name: counting_property(name) for name in attributes})
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy("float32"))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
