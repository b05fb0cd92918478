"""Models that a user holds are ported: modules of torch and models of ONNX. Each is its own reference."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, weight_norm

import porter
from porter.base.errors import PorterError, UsageError
from porter.frameworks.torch.running import tensors_in
from porter.graph import Conv

pytestmark = pytest.mark.usefixtures("in_double")

SIDE = 24


class Block(nn.Module):
    """A block whose relu is called twice, and which ends in it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.relu(self.two(self.relu(self.one(values))) + values)


class Net(nn.Module):
    """A small network with a norm whose statistics are not the usual ones, and with a buffer of its own."""

    def __init__(
        self, ending: Callable[[torch.Tensor, torch.Tensor], Any] = lambda logits, maps: logits
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.block = Block(8)
        self.head = nn.Linear(8, 5)
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8).view(8, 1, 1), persistent=False)
        self.ending = ending

    def forward(self, images: torch.Tensor) -> Any:
        maps = self.block(torch.relu(self.norm(self.stem(images))) * self.scale)
        return self.ending(self.head(maps.mean((2, 3))), maps)


def seeded(made: Callable[[], nn.Module]) -> nn.Module:
    """The module with random weights, in eval mode, and with norms whose statistics are those of noise."""
    torch.manual_seed(0)
    module = made()
    with torch.no_grad():
        for each in module.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.running_mean.uniform_(-0.2, 0.2)  # type: ignore[union-attr]
                each.running_var.uniform_(0.2, 0.6)  # type: ignore[union-attr]
    return module.eval()


@pytest.fixture
def convert(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    yield lambda model, **how: porter.convert(model, out=tmp_path / "port", overwrite=True, **how)


def bits(module: Any) -> dict[str, Any]:
    """All that conversion must leave as it is."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        given = (torch.ones(2, 6),) if isinstance(module, Two) else ()
        like = next(module.parameters()).dtype
        values = module(*given, torch.ones(2, 3, SIDE, SIDE, dtype=like))
    return {
        "values": values.tolist(),
        "numbers": {name: each.detach().numpy().tobytes() for name, each in tensors.items()},
        "kinds": {
            name: (id(each), each.dtype, each.device, each.requires_grad, each.grad)
            for name, each in tensors.items()
        },
        "modes": [each.training for _, each in module.named_modules()],
        "attributes": [sorted(vars(each)) for _, each in module.named_modules()],
        "hooks": [
            list(each._forward_hooks.values()) + list(each._forward_pre_hooks.values())
            for each in module.modules()
        ],
    }


def test_a_module_is_its_own_reference_at_several_sizes_and_stays_as_it_is(
    convert: Callable[..., Any],
) -> None:
    module = seeded(Net)
    before = bits(module)
    made = convert(module, example=torch.zeros(1, 3, SIDE, SIDE))
    assert bits(module) == before
    given = made.verdict.user_proof
    assert given.file is None and made.port.record.source.file == "Net" and made.port.record.reference is None
    double = given.parities[-1]
    assert double.dtype == "float64" and len(double.sizes) >= 2 and double.reference == "the model Net itself"
    shown = {node.path for node in double.nodes}
    assert {"stem", "norm", "block_one", "block_two", "head"} <= shown and sum(
        "relu" in path for path in shown
    ) == 2, shown
    images = torch.randn(2, 3, 31, 26)
    with torch.no_grad():
        assert torch.allclose(porter.load(made.port.folder)(images), module(images), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "example",
    [
        np.zeros((1, 3, SIDE, SIDE), ml_dtypes.bfloat16),
        np.zeros((1, 3, SIDE, SIDE), ">f4"),
        np.zeros((1, 3, SIDE, SIDE), np.float32)[..., ::-1],
    ],
)
def test_an_example_may_be_any_array_of_numbers(example: Any, tmp_path: Path) -> None:
    assert porter.convert(seeded(Net), example=example, out=tmp_path / "port", check=False).proof is None


def test_a_squeeze_is_that_of_several_images_for_one_image_too(convert: Callable[..., Any]) -> None:
    """Of one image, torch's squeeze takes the batch away. Large ones are compared one at a time."""
    module = seeded(lambda: Net(lambda logits, maps: logits.squeeze()))
    made = convert(module, input_size="any")
    images = torch.randn(1, 3, SIDE, SIDE)
    with torch.no_grad():
        found, wanted = porter.load(made.port.folder)(images), module(images)
    assert wanted.shape == (5,) and torch.allclose(found, wanted[None], rtol=0, atol=1e-6)


class Shared(nn.Module):
    """A convolution that two blocks have, as CoaT's positions, each called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 5)
        self.blocks = nn.ModuleList(nn.Sequential(self.shared, nn.ReLU()) for _ in range(2))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        for block in (*self.blocks, *self.blocks):
            images = images + block(images)
        return self.head((images + self.shared(images)).mean((2, 3)))


def test_calls_of_a_module_of_several_names_are_compared_each_with_its_own(
    convert: Callable[..., Any],
) -> None:
    made = convert(seeded(Shared), example=torch.zeros(1, 3, SIDE, SIDE))
    (double,) = (each for each in made.verdict.user_proof.parities if each.dtype == "float64")
    graph = made.port.graph
    calls = {node.path for node in graph.nodes if isinstance(node.op, Conv)}
    assert len(calls) == 5 and calls <= {node.path for node in double.nodes}


def test_a_port_of_a_model_is_verified_with_it_again(tmp_path: Path) -> None:
    module, example = seeded(Two), (torch.zeros(2, 6), torch.zeros(2, 3, SIDE, SIDE))
    made = porter.convert(module, example=example, out=tmp_path / "port", check=False)
    assert made.proof is None and made.verify(float64=True).user_proof is not None
    with pytest.raises(
        UsageError, match=r"made from the model Two in memory \(in Python, porter\.verify\(DIR, weights=MODEL"
    ):
        porter.open(tmp_path / "port").verify()
    net = seeded(Net)
    porter.convert(net, input_size=SIDE, out=tmp_path / "net", check=False)
    opened = porter.open(tmp_path / "net")
    assert opened.verify(weights=net).ok
    with torch.no_grad():
        net.head.bias += 1  # type: ignore[union-attr,operator]
    with pytest.raises(UsageError, match="not from this model") as refused:
        opened.verify(weights=net)
    assert refused.value.next == "in Python, give weights the model Net that the port was made from"


def test_a_wrong_reading_is_told_by_the_module(
    convert: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exported program is damaged, and with it the graph that the file carries: only the module itself
    knows.
    """
    from porter.frameworks.torch import in_memory

    own = in_memory._export_with_open_axes

    def damaged(module: nn.Module, *how: Any) -> Any:
        with torch.no_grad():
            module.block.two.bias += 0.01  # type: ignore[union-attr,operator]
        return own(module, *how)

    monkeypatch.setattr(in_memory, "_export_with_open_axes", damaged)
    with pytest.raises(
        PorterError, match="not the function of the model Net itself: block_two is the first node"
    ):
        convert(seeded(Net), input_size=SIDE)


@dataclass
class Found:
    logits: torch.Tensor
    maps: torch.Tensor | None = None


Named = namedtuple("Named", "maps logits")
ENDINGS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], Any], int]] = {
    "a tuple": (lambda logits, maps: (maps, logits), 2),
    "a named tuple": (lambda logits, maps: Named(maps, logits), 2),
    "a number of each image": (lambda logits, maps: logits[:, 0], 1),
    "a value twice": (lambda logits, maps: {"last": maps, "all": (logits, maps)}, 3),
    "a list": (lambda logits, maps: [maps, logits], 2),
    "a mapping": (lambda logits, maps: {"logits": logits, "maps": (maps,)}, 2),
    "a dataclass": (lambda logits, maps: Found(logits), 1),
    "a log_softmax": (lambda logits, maps: logits.log_softmax(1), 1),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_a_module_returns_is_its_outputs_in_order(convert: Callable[..., Any], ending: str) -> None:
    made, outputs = ENDINGS[ending]
    port = convert(seeded(lambda: Net(made)), input_size=SIDE).port
    assert len(port.graph.outputs) == outputs


def _normed(module: Any) -> Any:
    weight_norm(module.stem)
    parametrizations.weight_norm(module.block.one)
    parametrizations.spectral_norm(module.block.two)
    prune.l1_unstructured(module.head, "weight", 0.5)
    return module


class Focused(nn.Module):
    """Its convolution takes blocks of cells as channels, and its image has fewer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4 * channels, 4, 3, padding=1)

    def forward(self, *images: torch.Tensor) -> torch.Tensor:
        return nn.functional.max_pool2d(self.conv(nn.functional.pixel_unshuffle(images[0], 2)), 3, 2)


class Timed(nn.Module):
    """It takes a number beside its image, and gives one for each."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.conv(images).amax((1, 2, 3))


def exported(module: nn.Module) -> nn.Module:
    """A module of torch.export's for two images, which refuses eval()."""
    return torch.export.export(module, (torch.zeros(2, 3, SIDE, SIDE),)).module()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.two.weight = self.one.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(images)))


class Fixed(nn.Module):
    """Its head is of one size."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4 * 11 * 11, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(images)).flatten(1))


class Tokens(nn.Module):
    """Patches with a class token and positions, as in a ViT, which checks its images' size."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, 8, 8, stride=8), nn.Linear(8, 5)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 10, 8))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        torch._assert(images.shape[2] == SIDE and images.shape[3] == SIDE, "of one size")
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(
            (torch.cat([self.token.expand(len(images), -1, -1), tokens], 1) + self.places).mean(1)
        )


class Numbered(nn.Module):
    """It wants to know the size of its images, and computes their rows' places in single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if not isinstance(images.shape[2], int):
            raise NotImplementedError("rows of unknown number")
        maps = torch.relu(self.conv(images))
        rows = (torch.arange(maps.shape[2]) / 7).sin() + (
            torch.arange(maps.shape[2], dtype=torch.float32) / 3
        ).cos()
        return self.head((maps + rows.to(maps.dtype).view(-1, 1)).amax((2, 3)))


class Masked(nn.Module):
    """Windows of each image, whose scores have a mask of their own, as in transformers' Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8, 5)
        self.mask = nn.Parameter(torch.randn(4, 36, 36))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        apart = self.conv(images).view(len(images), 8, 2, 6, 2, 6).permute(0, 2, 4, 3, 5, 1)
        windows = apart.reshape(-1, 36, 8)
        mask = self.mask.unsqueeze(0).expand(len(images), -1, -1, -1).reshape(-1, 36, 36)
        mixed = (windows @ windows.transpose(1, 2) + mask).softmax(-1) @ windows
        return self.head(mixed.reshape(len(images), 144, 8).mean(1))


class Two(nn.Module):
    """It takes an array before its image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.dense = nn.Conv2d(3, 4, 3), nn.Linear(6, 4)

    def forward(self, array: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(images)).mean((2, 3)) * self.dense(array)


MODULES: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "norms of weights, and pruned": (lambda: _normed(seeded(Net)).eval(), {}),
    "tied weights": (lambda: seeded(Tied), {}),
    "of one size": (lambda: seeded(Fixed), {}),
    "tokens with positions": (lambda: seeded(Tokens), {}),
    "sizes and places as numbers": (lambda: seeded(Numbered), {}),
    "a mask for each window": (lambda: seeded(Masked), {}),
    "half precision": (lambda: seeded(Net).half(), {}),
    "double precision": (lambda: seeded(Net).double(), {}),
    "blocks of an image": (lambda: seeded(lambda: Focused(3)), {}),
    "a number of each image": (lambda: seeded(Timed), {}),
    "exported for two images": (lambda: exported(seeded(Net)), {"input_size": None}),
    "traced by torch.fx, its containers in training mode": (
        lambda: torch.fx.symbolic_trace(nn.Sequential(seeded(Net), nn.ReLU()).eval()),
        {},
    ),
    "frozen": (lambda: seeded(Net).requires_grad_(False), {}),
    "compiled": (lambda: torch.compile(seeded(Net), backend="eager"), {}),
    "parallel": (lambda: nn.DataParallel(seeded(Net)).eval(), {}),
    "two inputs": (
        lambda: seeded(Two),
        {"input_size": None, "example": (torch.zeros(2, 6), torch.zeros(2, 3, SIDE, SIDE))},
    ),
}


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:torch",
    "ignore:`torch.nn.utils.weight_norm`:FutureWarning",
    "ignore:`isinstance.treespec, LeafSpec:FutureWarning",
)
@pytest.mark.parametrize("kind", MODULES)
def test_modules_of_many_kinds(convert: Callable[..., Any], kind: str) -> None:
    make, how = MODULES[kind]
    module = make()
    before = bits(module)
    verdict = convert(module, **{"input_size": SIDE, **how}).verdict
    assert bits(module) == before
    assert verdict.ok and verdict.user_proof.parities[-1].dtype == "float64" and not verdict.user_proof.notes


def test_channels_and_sizes_of_an_image_that_nothing_states(convert: Callable[..., Any]) -> None:
    made = convert(seeded(lambda: Focused(1)), input_size="any")
    assert made.port.graph.channels == 1 and made.port.record.input.size is None and made.proof.ok


def test_what_is_lacking_at_open_sizes_is_drawn_for_one(
    convert: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from porter.source import in_memory

    own = in_memory._read

    def lacking(saved: Any, *how: Any) -> Any:
        return own(saved, *how) if "of one size" in saved.path.name else replace(own(saved, *how), graph=None)

    monkeypatch.setattr(in_memory, "_read", lacking)
    made = convert(seeded(Net), input_size=SIDE)
    assert (
        made.port.record.input.size == (SIDE, SIDE)
        and made.verdict.ok
        and made.port.record.source.file == "Net"
    )


class Layers(Net):
    """It gives what hooks collect, which it adds when it is first called, as transformers' models do for
    `output_hidden_states`.
    """

    found: tuple[torch.Tensor, ...] | None = None

    def forward(self, images: torch.Tensor) -> Any:
        if self.found is None:
            for each in (self.stem, self.block):
                each.register_forward_hook(self._collect)
        self.found = ()
        returned = {"logits": super().forward(images), "layers": self.found}
        self.found = ()
        return returned

    def _collect(self, _: nn.Module, __: object, value: torch.Tensor) -> None:
        assert self.found is not None
        self.found += (value,)


def _called(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        module(torch.zeros(1, 3, SIDE, SIDE))
    return module


def _hooked(hook: Callable[..., Any]) -> nn.Module:
    module = seeded(Net)
    module.block.register_forward_hook(hook)  # type: ignore[union-attr]
    return module


HOOKED: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    # what makes it, how many values it gives, how many warnings say that hooks are left out
    "collect outputs": (lambda: seeded(Layers), 3, 0),
    "collect outputs, called before": (lambda: _called(seeded(Layers)), 3, 0),
    "give another value": (lambda: _hooked(lambda _, __, value: value * 2 + 1), 1, 0),
    "look at a value": (lambda: _hooked(lambda *_: None), 1, 1),
}


@pytest.mark.parametrize("what", HOOKED)
def test_a_port_is_of_the_module_with_its_hooks(convert: Callable[..., Any], what: str) -> None:
    make, count, left_out = HOOKED[what]
    module = make()
    made = convert(module, input_size=SIDE)
    images = torch.randn(2, 3, 31, 26)
    with torch.no_grad():
        wanted, got = ([*tensors_in(each(images))] for each in (module, made.model()))
    assert len(got) == len(wanted) == count
    assert all(torch.allclose(*each, rtol=0, atol=1e-5) for each in zip(wanted, got, strict=True))
    said = [
        each
        for each in porter.open(made.folder).warnings
        if "hooks of your own at 'block' are left out" in each
    ]
    assert len(said) == left_out and all(each.replace("'", "&#39;") in made._repr_html_() for each in said)


class Branching(nn.Module):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images + 1 if images.sum() > 0 else images - 1


class Rewriting(nn.Module):
    """It reads what it has changed, or not: `contiguous` gives a copy or the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        before = self.conv(images)
        after = before.permute(0, 2, 3, 1).contiguous()
        after[:, 1:] += 1
        return before + after.permute(0, 3, 1, 2)


class Overwriting(nn.Module):
    """It gives the very value that it has changed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.conv(images)
        found[:, 1:3] = found[:, 1:3].relu()
        return found


def test_what_is_given_may_have_been_changed(tmp_path: Path) -> None:
    made = porter.convert(seeded(Overwriting), to="torch", input_size=SIDE, out=tmp_path / "port")
    assert made.verdict is not None and made.verdict.ok


REFUSED: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "training mode": (lambda: seeded(Net).train(), {"input_size": SIDE}, "call model.eval"),
    "a part in training mode": (
        lambda: _train_norm(seeded(Net)),
        {"input_size": SIDE},
        "'norm' of it is in training mode",
    ),
    "no numbers": (
        lambda: seeded(Net).to("meta"),
        {"input_size": SIDE},
        "'stem.weight' is on the device 'meta'",
    ),
    "lazy": (
        lambda: nn.Sequential(nn.LazyConv2d(4, 3)).eval(),
        {"input_size": SIDE},
        "'0.weight' has no shape yet",
    ),
    "no size": (lambda: seeded(Net), {}, "give example, a batch that the module takes, or input_size"),
    "another size": (
        lambda: seeded(Fixed),
        {"input_size": 32},
        "does not take the example of 1x3x32x32 or 1x1x32x32: RuntimeError",
    ),
    "a script": (
        lambda: torch.jit.script(nn.Sequential(nn.ReLU()).eval()),
        {"input_size": SIDE},
        "it is a ScriptModule, and torch.export takes none",
    ),
    "a script inside": (
        lambda: nn.Sequential(torch.jit.script(nn.Conv2d(3, 4, 3).eval()), nn.ReLU()).eval(),
        {"input_size": SIDE},
        "'0' of it is a ScriptModule",
    ),
    "an example of text": (
        lambda: seeded(Net),
        {"example": "cat.jpg"},
        "the example has a str, expected tensors",
    ),
    "an example of objects": (
        lambda: seeded(Net),
        {"example": np.zeros((1, 3, SIDE, SIDE), object)},
        "the example is an array of object",
    ),
    "a branch on values": (Branching, {"input_size": SIDE}, "torch.export refuses it"),
    "a value that is read after a change": (
        lambda: seeded(Rewriting),
        {"input_size": SIDE},
        "its program is read without the graph: .* has changed",
    ),
    "quantized": (
        lambda: torch.ao.quantization.quantize_dynamic(seeded(Net), {nn.Linear}),
        {"input_size": SIDE},
        "'head' of it is quantized",
    ),
    "photos for four channels": (
        lambda: seeded(lambda: nn.Conv2d(4, 4, 3)),
        {"input_size": SIDE, "preprocess": "resize=squash,size=24,interpolation=pil_bilinear"},
        "photos have 3 channels, and this model takes 4",
    ),
    "two references": (lambda: seeded(Net), {"input_size": SIDE, "reference": __file__}, "its own reference"),
}


def test_what_is_no_model_is_refused(convert: Callable[..., Any]) -> None:
    for subject in (3, None, lambda images: images, torch.zeros(3), {"weight": torch.zeros(3)}):
        with pytest.raises(UsageError, match=r"expected a variant, a file, a torch\.nn\.Module"):
            convert(subject)
    for given in (
        {"source": "keras"},
        {"weights": "x.pth"},
        {"options": {"classes": 3}},
        {"padding": "trained"},
    ):
        with pytest.raises(UsageError, match=rf"{next(iter(given))}: this needs a recipe's variant"):
            convert(seeded(Net), input_size=SIDE, **given)


def _train_norm(module: nn.Module) -> nn.Module:
    module.norm.train()  # type: ignore[union-attr]
    return module


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.ao.quantization:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_ported_is_one_clear_error(
    convert: Callable[..., Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make, how, said = REFUSED[reason]
    module = make()
    if reason == "a branch on values":
        module.eval()
    with pytest.raises(UsageError, match=said):
        convert(module, **how)
    assert "def forward" not in capsys.readouterr().err  # torch.export prints the program that it refuses


def test_outputs_inside_a_model(convert: Callable[..., Any]) -> None:
    made = convert(seeded(Net), input_size=SIDE, outputs="conv2d")
    assert made.verdict.ok and made.verdict.user_proof is None and made.port.graph.outputs == ("stem",)
    assert any("gives other outputs" in warning for warning in made.warnings)


def test_models_of_onnx(convert: Callable[..., Any]) -> None:
    import onnx
    from onnx import helper, numpy_helper

    kernel = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype("float32")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["c"], name="conv", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 4, SIDE, SIDE])],
        [numpy_helper.from_array(kernel, "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    before = model.SerializeToString()
    made = convert(model)
    assert model.SerializeToString() == before and made.verdict.ok and made.port.record.source.file == "small"
