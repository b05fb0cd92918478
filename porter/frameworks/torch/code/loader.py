"""The parts of model.py that are the same in every port."""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.text import literal

_LOAD_FUNCTION = '''\
def load(folder=None):
    """The model with the weights in `folder` (by default this file's own), in eval mode."""
    with torch.device("meta"):  # takes no memory: the file's tensors become the parameters
        model = Model()
    folder = Path(folder or Path(__file__).parent)
    model.load_state_dict(load_file(folder / "model.safetensors"), assign=True)
    return model.eval()'''

_RENAMING_FUNCTION = '''\
def renamed(tensors):
    """The file's tensors under the names of the modules here."""
    parts = {name: name.rpartition(".") for name in tensors}
    return {f"{NAMES[module]}.{part}": tensors[name] for name, (module, _, part) in parts.items()}'''


def loader_code(names: Mapping[str, str]) -> str:
    """Return the text of the function `load` and of those that it needs. `names` has the names of modules in
    model.py by those in the file, where they differ; then the text also has `renamed`.
    """
    if not names:
        return _LOAD_FUNCTION
    table = "".join(
        f"    {literal(name_in_file)}: {literal(name_here)},\n" for name_in_file, name_here in names.items()
    )
    text = _LOAD_FUNCTION.replace(
        'load_file(folder / "model.safetensors")', 'renamed(load_file(folder / "model.safetensors"))'
    )
    return (
        "# The modules' names in the file, and their names here.\nNAMES = "
        f"{{\n{table}}}\n\n\n{_RENAMING_FUNCTION}\n\n\n{text}"
    )
