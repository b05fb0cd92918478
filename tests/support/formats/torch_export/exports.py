"""Makes .pt2 archives."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

_FREE = ({0: torch.export.Dim.AUTO, 2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO},)


def export(
    model: nn.Module, image: torch.Tensor, folder: Path, free: bool = False, decomposed: bool = False
) -> tuple[Path, torch.export.ExportedProgram]:
    """An archive of a model and its program, made for batches like `image`, or with `free` for batches of any
    images.
    """
    program = torch.export.export(model, (image,), dynamic_shapes=_FREE if free else None)
    program = program.run_decompositions() if decomposed else program
    path = folder / "model.pt2"
    torch.export.save(program, path)
    return path, program
