"""The parts of model.py that are the same in every port."""

from __future__ import annotations

from collections.abc import Mapping

from porter.frameworks.torch.source.text import literal

CHAIN_FUNCTION = '''\
def chain(**layers):
    """Layers one after the other, under these names in the state_dict."""
    return nn.Sequential(OrderedDict(layers))'''

_LOADER = '''\
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


def read_safetensors(path):
    """The tensors of a file: the length of its header in 8 bytes, the header, the numbers."""
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    if not 8 < start <= len(data):
        raise ValueError(f"{path} is cut short, or not a safetensors file")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        dtype, count = getattr(torch, DTYPES[entry["dtype"]]), math.prod(entry["shape"])
        begin, end = (start + offset for offset in entry["data_offsets"])
        if not start <= begin <= end <= len(data) or end - begin != count * dtype.itemsize:
            raise ValueError(f"{path}: {name} does not lie within the file")
        flat = torch.frombuffer(data, dtype=dtype, count=count, offset=begin)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def load(folder=None):
    """The model with the weights in `folder` (by default this file's), in eval mode."""
    with torch.device("meta"):  # without memory: the file's tensors become the parameters
        model = Model()
    path = Path(folder or Path(__file__).parent) / "model.safetensors"
    model.load_state_dict(read_safetensors(path), assign=True)
    return model.eval()'''

_RENAMED = '''\
def renamed(tensors):
    """The file's tensors under the names of the modules here."""
    parts = {name: name.rpartition(".") for name in tensors}
    return {f"{NAMES[module]}.{part}": tensors[name] for name, (module, _, part) in parts.items()}'''


def loader(names: Mapping[str, str]) -> str:
    """`load` and what it needs. `names` are modules that are called otherwise in the file, with their names here."""
    if not names:
        return _LOADER
    table = "".join(f"    {literal(theirs)}: {literal(ours)},\n" for theirs, ours in names.items())
    text = _LOADER.replace("load_state_dict(read_safetensors(path)", "load_state_dict(renamed(read_safetensors(path))")
    return f"# What the file calls the modules, and what they are called here.\nNAMES = {{\n{table}}}\n\n\n{_RENAMED}\n\n\n{text}"


def fixed_size(size: tuple[int, int] | None) -> list[str]:
    """How `forward` begins where the pads are right at one input size alone."""
    if size is None:
        return []
    rows, columns = size
    return [
        "        if torch.jit.is_tracing():  # a trace keeps these no-ops, which fail at any other size",
        f"            x = x.unflatten(2, ({rows},)).unflatten(3, ({columns},))",
        f"        elif x.shape[2:] != ({rows}, {columns}):",
        f'            raise ValueError(f"the pads are right at {rows}x{columns} alone, got {{tuple(x.shape[2:])}}")',
    ]
