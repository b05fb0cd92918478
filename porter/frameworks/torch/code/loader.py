"""The parts of model.py that are the same in every port."""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.code.text import literal
from porter.graph import Shape, axes_text
from porter.graph.ops import is_map
from porter.graph.plan import Plan, taken_shapes

CHAIN_FUNCTION = '''\
def chain(**layers):
    """Layers one after the other, under these names in the state_dict."""
    return nn.Sequential(OrderedDict(layers))'''

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


def shape_checks(plan: Plan, names: Mapping[str, str]) -> list[str]:
    """Return the first lines of `forward`, which refuse inputs of other shapes, if the plan is right at one
    input size only or an input is no map.

    Args:
        names: of the arguments, by path.
    """
    reason = "the pads are right at" if plan.fixed_by_pads else "the layers fit"
    return [
        line
        for path, shape in taken_shapes(plan).items()
        for line in _shape_check(names[path], shape, reason)
    ]


def _shape_check(x: str, shape: Shape, reason: str) -> list[str]:
    """Return the lines of `forward` that refuse an input `x` of another shape; none for a map of open size.
    `reason` begins the message on a map of another size.
    """
    if not is_map(shape):
        conditions = [f"{x}.dim() != {1 + len(shape)}"]
        conditions += [
            f"{x}.shape[{number}] != {axis}" for number, axis in enumerate(shape, 1) if axis is not None
        ]
        got = f"got {{tuple({x}.shape)}}"
        return [
            f"        if not torch.jit.is_tracing() and ({' or '.join(conditions)}):",
            f'            raise ValueError(f"{_words_for_input(x)} is {axes_text(shape)}, {got}")',
        ]
    _, rows, columns = shape
    if rows is None or columns is None:
        return []
    return [
        "        if torch.jit.is_tracing():  # a trace keeps these no-ops, which fail at any other size",
        f"            {x} = {x}.unflatten(2, ({rows},)).unflatten(3, ({columns},))",
        f"        elif {x}.shape[2:] != ({rows}, {columns}):",
        f'            raise ValueError(f"{reason} {rows}x{columns} only, got {{tuple({x}.shape[2:])}}")',
    ]


def _words_for_input(x: str) -> str:
    return "the input" if x == "x" else x
