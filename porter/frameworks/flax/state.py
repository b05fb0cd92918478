"""Canonical tensors as the variables of a port, and back. Imports no JAX."""

from __future__ import annotations

from porter.frameworks.code.code_ports import CodePorts
from porter.frameworks.flax.code import LANGUAGE, model_source
from porter.frameworks.flax.layout import canonical, stored, variables
from porter.frameworks.flax.spellings import SPELLINGS

PORTS = CodePorts(SPELLINGS, LANGUAGE, model_source, variables, stored, canonical)
