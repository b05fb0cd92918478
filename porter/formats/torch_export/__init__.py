"""torch.export's .pt2 archives: a program of ATen ops as JSON, and its tensors."""

from __future__ import annotations

from porter.formats.format import Content, Format, reader

SAVE = "torch.export.save(torch.export.export(model.eval(), (torch.randn(2, 3, 224, 224),)), 'model.pt2')"
"""The line that makes an archive."""


def _is_export(content: Content) -> bool:
    """Return whether a file is an archive of torch.export's, by the names of its members."""
    named = "serialized_exported_program.json" in (content.members or ())  # torch < 2.8
    return named or "archive_format" in content.inner_members


FORMATS = (
    Format(
        "torch-export",
        "a torch.export .pt2",
        _is_export,
        reader("porter.formats.torch_export.read", "read_export"),
        framework="torch",
        engine="torch",
    ),
)
