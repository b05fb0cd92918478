"""Several uses of a block as one template."""

import pytest

from porter.frameworks.code.plan_layers import Layer
from porter.frameworks.code.template import Edge, unify
from porter.frameworks.code.tree import Body, Part


# The order of a set of names changes with Python's hash seed: ten pairs would not all have the right one.
@pytest.mark.parametrize("number", range(10))
def test_of_two_sources_that_are_as_frequent_the_flag_is_of_the_first_uses(number: int) -> None:
    sources = f"conv{number}", f"norm{number}"
    parts = tuple(Part(name, Layer("nn.Identity"), ("",)) for name in sources)
    bodies = {
        use: Body("", "input", (*parts, Part("act", Layer("nn.ReLU"), (source,))), ("act",))
        for use, source in enumerate(sources)
    }
    template = unify(bodies, {}, ())
    assert template.parts[-1].inputs == (Edge(*sources, {0: True, 1: False}),)
