"""Every op of porter.graph in TensorFlow Lite: what the interpreter computes, with its delegate and without,
and refusals.
"""

from __future__ import annotations

import pytest

from porter.base.errors import GraphError
from porter.frameworks.tflite.conversion import convert
from porter.frameworks.tflite.destination import DESTINATION as framework
from porter.frameworks.tflite.running import LiteModel
from porter.graph import ops
from porter.graph.plan import make_plan
from tests.support.frameworks.every_op import (
    FLATTENED,
    OF_MAPS,
    SIZE,
    ending_at,
    every_op,
    images,
    one_of_each,
    tensors_of,
)
from tests.support.oracle import evaluate
from tests.support.random_graphs import difference

WHOLE = every_op((*OF_MAPS, *FLATTENED))
REFUSED = [each.where for each in framework.refusals(make_plan(WHOLE, SIZE, framework.CAPABILITIES))]


def cases(every: bool, open: bool) -> list[str]:
    """The outputs that TensorFlow Lite has, or those of them whose rows and columns may be open: `every` one,
    otherwise one of each op for maps, and one for others, where the sizes are stated only of what has no
    open ones. A converter that sees GELUs of both kinds of one value computes a part of them once, and no
    longer knows the exact one.
    """
    found = [
        path
        for path in WHOLE.outputs
        if path not in REFUSED and WHOLE.by_path[path].op != ops.Gelu(approximate=True)
    ]
    if open or not every:
        plans = {path: make_plan(ending_at(WHOLE, [path]), SIZE, framework.CAPABILITIES) for path in found}
        found = [path for path, plan in plans.items() if (plan.only_size is None) == open]
    return found if every else one_of_each(WHOLE, found)


@pytest.mark.parametrize("open", [False, True])
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
def test_the_value_of_every_op(every: bool, open: bool) -> None:
    graph = ending_at(WHOLE, cases(every, open))
    plan, tensors = make_plan(graph, SIZE, framework.CAPABILITIES), tensors_of(graph)
    assert (plan.only_size is None) == open
    content, wanted = convert(plan, tensors), evaluate(graph, tensors, images())
    for delegated in (True, False):
        found = LiteModel(plan, content, delegated).values(images(), [node.path for node in graph.nodes])
        assert found.keys() >= {*graph.outputs}
        assert {path: value.shape for path, value in found.items()} == {
            path: wanted[path].shape for path in found
        }
        assert not {path for path, value in found.items() if not difference(value, wanted[path]) <= 1e-5}


def test_what_it_lacks_is_refused_by_name() -> None:
    assert {type(WHOLE.by_path[str(path)].op) for path in REFUSED} == {ops.Erf, ops.Resize, ops.ResizeLike}
    graph = ending_at(WHOLE, [str(REFUSED[0])])
    plan = make_plan(graph, SIZE, framework.CAPABILITIES)
    with pytest.raises(GraphError, match=r"no operator for tf\.Erf"):
        framework.ENGINE.build(plan, tensors_of(graph), {}, "float32")
