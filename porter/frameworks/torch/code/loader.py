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

_LOADER = '''\
def load(folder=None):
    """The model with the weights in `folder` (by default this file's own), in eval mode."""
    with torch.device("meta"):  # takes no memory: the file's tensors become the parameters
        model = Model()
    folder = Path(folder or Path(__file__).parent)
    model.load_state_dict(load_file(folder / "model.safetensors"), assign=True)
    return model.eval()'''

_RENAMED = '''\
def renamed(tensors):
    """The file's tensors under the names of the modules here."""
    parts = {name: name.rpartition(".") for name in tensors}
    return {f"{NAMES[module]}.{part}": tensors[name] for name, (module, _, part) in parts.items()}'''


def loader(names: Mapping[str, str]) -> str:
    """`load` and the functions that it needs. `names` are modules with another name in the file: that name to
    the name here.
    """
    if not names:
        return _LOADER
    table = "".join(f"    {literal(theirs)}: {literal(ours)},\n" for theirs, ours in names.items())
    text = _LOADER.replace(
        'load_file(folder / "model.safetensors")', 'renamed(load_file(folder / "model.safetensors"))'
    )
    return (
        "# The modules' names in the file, and their names here.\nNAMES = "
        f"{{\n{table}}}\n\n\n{_RENAMED}\n\n\n{text}"
    )


def fixed_size(plan: Plan, names: Mapping[str, str]) -> list[str]:
    """Return the first lines of `forward` if the plan is right at one input size only, or an input is no map.

    Args:
        names: of the arguments, by path.
    """
    right = "the pads are right at" if plan.fixed_by_pads else "the layers fit"
    return [
        line for path, shape in taken_shapes(plan).items() for line in _checked(names[path], shape, right)
    ]


def _checked(x: str, shape: Shape, right: str) -> list[str]:
    """Return the lines of `forward` that refuse inputs of other shapes."""
    if not is_map(shape):
        other = [f"{x}.shape[{number}] != {axis}" for number, axis in enumerate(shape, 1) if axis is not None]
        return [
            (
                "        if not torch.jit.is_tracing() and "
                f"({' or '.join([f'{x}.dim() != {1 + len(shape)}', *other])}):"
            ),
            f'            raise ValueError(f"{_called(x)} is {axes_text(shape)}, got {{tuple({x}.shape)}}")',
        ]
    _, rows, columns = shape
    if rows is None or columns is None:
        return []
    return [
        "        if torch.jit.is_tracing():  # a trace keeps these no-ops, which fail at any other size",
        f"            {x} = {x}.unflatten(2, ({rows},)).unflatten(3, ({columns},))",
        f"        elif {x}.shape[2:] != ({rows}, {columns}):",
        f'            raise ValueError(f"{right} {rows}x{columns} only, got {{tuple({x}.shape[2:])}}")',
    ]


def _called(x: str) -> str:
    return "the input" if x == "x" else x
