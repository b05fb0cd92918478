"""Canonical tensors as the variables of a port, and back. Imports no MLX."""

from __future__ import annotations

from porter.frameworks.code.code_ports import CodePorts
from porter.frameworks.code.public_names import public_names
from porter.frameworks.mlx.code import LANGUAGE, model_source
from porter.frameworks.mlx.layout import canonical, stored, variables
from porter.frameworks.mlx.spellings import SPELLINGS

PORTS = CodePorts(SPELLINGS, LANGUAGE, model_source, variables, stored, canonical, public_names)
