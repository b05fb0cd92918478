"""Runs MXNet's ports in porter's own engine: the symbol that the port states, by the rows of its format. See
porter.frameworks.PortEngine."""

from __future__ import annotations

from collections.abc import Mapping

from porter.base.dtypes import Dtype, storage_type
from porter.formats.mxnet.rows import program
from porter.frameworks import Tensors
from porter.frameworks.mxnet.symbol import make_symbol
from porter.frameworks.numpy.engine import build_file as build_file, disagreement as disagreement, run_reference as run_reference
from porter.frameworks.numpy.ports import PortModel, classifier as classifier, port_model, run as run, twin as twin
from porter.graph import INPUT
from porter.graph.plan import Plan

NAME = "mxnet"


def build(plan: Plan, tensors: Tensors, layers: Mapping[str, str], dtype: Dtype, device: str = "cpu") -> PortModel:
    """The symbol of the plan, as its JSON says it.

    Raises:
        UsageError: the device is another one than the CPU, or the number type is not float32 or float64.
        GraphError: MXNet has no operators for an op. MappingError: the tensors do not fit the graph.
    """
    symbol = make_symbol(plan)
    stated = program(f"{symbol.values[INPUT]}\n{symbol.text()}".encode())
    return port_model(plan, stated, symbol.arrays(tensors, storage_type(dtype)), symbol.values, dtype, device)
