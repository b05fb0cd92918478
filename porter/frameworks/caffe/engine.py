"""Runs Caffe's ports in porter's own engine: the net that the port states, by the rows of its format. See
porter.frameworks.PortEngine."""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.dtypes import Dtype, storage_type
from porter.formats.caffe.rows import program
from porter.frameworks import Tensors
from porter.frameworks.caffe.net import make_net
from porter.frameworks.numpy.engine import build_file as build_file, disagreement as disagreement, run_reference as run_reference
from porter.frameworks.numpy.ports import PortModel, classifier as classifier, port_model, run as run, twin as twin
from porter.graph.plan import Plan

NAME = "caffe"


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str = "cpu") -> PortModel:
    """The net of the plan, as its text says it.

    Raises:
        UsageError: the device is another one than the CPU, or the number type is not float32 or float64.
        GraphError: Caffe has no layers for an op. MappingError: the tensors do not fit the graph.
    """
    net = make_net(plan)
    held = zip(net.layers, net.blobs(tensors, storage_type(dtype)), strict=True)
    named = {f"{layer.name}/{place}": array for layer, arrays in held for place, array in enumerate(arrays)}
    return port_model(plan, program(net.text().encode()), named, net.values, dtype, device)
