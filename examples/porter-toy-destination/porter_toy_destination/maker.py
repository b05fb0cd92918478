"""Makes the layers of one toy model. See porter.frameworks.numpy.nets.Maker."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from porter.frameworks.numpy.nets import Maker, NetArray, PortTensor
from porter.frameworks.spelled import OpT, Spelled
from porter.graph import INPUT
from porter.graph.plan import Plan
from porter.padding import ANY, Size


class ToyMaker(Maker):
    """A layer's value has its name. Its tensors are named by their places: `stem/0`."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.values[INPUT] = "image"
        self.layers: list[dict[str, Any]] = []

    def add(self, kind: str, name: str, /, *inputs: str, held: Sequence[NetArray] = (), **stated: Any) -> str:
        """Add a layer and return its value's name. A path in `inputs` or as `name` stands for the value of
        that path.
        """
        name, sources = self.values.get(name, name), [self.values.get(source, source) for source in inputs]
        weights = {f"{name}/{place}": tensor for place, tensor in enumerate(held)}
        self.contents |= weights
        self.layers.append({"name": name, "kind": kind, "from": sources, "weights": [*weights], **stated})
        return name

    def tensors_of(self, path: str, name: str, *roles: str) -> list[Any]:
        """Return the tensors of a path of these roles, without those that it lacks."""
        shapes = self.tensors.get(path, {})
        return [PortTensor(path, role, shapes[role]) for role in roles if role in shapes]

    def text(self, size: Size = ANY, about: Mapping[str, str] | None = None) -> str:
        image = {"channels": self.graph.channels, "size": [*(size if None in self.size else self.size)]}
        outputs = [self.values[path] for path in self.graph.outputs]
        stated = {
            "toy": 1,
            "layout": "NCHW",
            "image": image,
            "layers": self.layers,
            "outputs": outputs,
            "about": dict(about or {}),
        }
        return json.dumps(stated)


ToyNode = Spelled[ToyMaker, OpT]
