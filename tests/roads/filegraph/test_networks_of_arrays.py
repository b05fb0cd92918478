"""Detection heads and attention as torch exports them, with a free batch and for one image: their graphs
compute what they do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from porter.base.errors import MappingError
from porter.formats.reading import read_checkpoint
from porter.graph import ops
from tests.support.filegraph.values import translated
from tests.support.oracle import evaluate
from tests.support.torch_onnx import export_to_onnx

pytestmark = pytest.mark.usefixtures("in_double")

torch = pytest.importorskip("torch")
nn: Any = torch.nn
functional: Any = torch.nn.functional
SIZE = (24, 32)
CHANNELS, HEADS, WINDOW = 8, 2, 4
Tensor = Any


class Net(nn.Module):
    """A stem that halves its image, and what follows it."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, CHANNELS, 3, 2, 1), head

    def forward(self, image: Tensor) -> Any:
        return self.head(torch.relu(self.stem(image)))


class Ssd(nn.Module):
    """Boxes of three maps, listed with the channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Conv2d(CHANNELS, 3 * 4, 3, stride, 1) for stride in (1, 2, 4))

    def forward(self, found: Tensor) -> Tensor:
        return torch.cat(
            [head(found).permute(0, 2, 3, 1).reshape(found.shape[0], -1, 4) for head in self.heads], 1
        )


class Yolo(nn.Module):
    """As version 5: the channels of each anchor go last."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Conv2d(CHANNELS, 3 * 7, 1, stride) for stride in (1, 2))

    def forward(self, found: Tensor) -> Tensor:
        boxes = []
        for head in self.heads:
            batch, _, rows, columns = (value := head(found)).shape
            boxes.append(
                value.view(batch, 3, 7, rows, columns)
                .permute(0, 1, 3, 4, 2)
                .contiguous()
                .sigmoid()
                .view(batch, -1, 7)
            )
        return torch.cat(boxes, 1)


class Anchors(nn.Module):
    """As version 8: distances are expectations, and centres are computed from the size of the map."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.bins = nn.Conv2d(CHANNELS, 4 * 8 + 5, 1), nn.Conv2d(8, 1, 1, bias=False)

    def forward(self, found: Tensor) -> Tensor:
        box, classes = self.head(found).flatten(2).split((4 * 8, 5), 1)
        batch, _, cells = box.shape
        before, behind = (
            self.bins(box.view(batch, 4, 8, cells).transpose(2, 1).softmax(1))
            .view(batch, 4, cells)
            .chunk(2, 1)
        )
        across = torch.arange(found.shape[3], dtype=found.dtype) + 0.5
        down, across = torch.meshgrid(
            torch.arange(found.shape[2], dtype=found.dtype) + 0.5, across, indexing="ij"
        )
        centres = torch.stack((across, down), -1).view(-1, 2).transpose(0, 1).unsqueeze(0)
        return torch.cat([(centres - before + centres + behind) / 2, classes.sigmoid()], 1)


class Maps(nn.Module):
    """As MTCNN: maps with the channels last, and a dense layer of a map whose axes were turned."""

    def __init__(self) -> None:
        super().__init__()
        self.box, self.face, self.dense = (
            nn.Conv2d(CHANNELS, 4, 1),
            nn.Conv2d(CHANNELS, 2, 1),
            nn.Linear(CHANNELS * 12 * 16, 3),
        )

    def forward(self, found: Tensor) -> tuple[Tensor, ...]:
        turned = self.dense(found.permute(0, 3, 2, 1).reshape(found.shape[0], -1))
        return self.box(found).permute(0, 2, 3, 1), self.face(found).softmax(1).permute(0, 2, 3, 1), turned


class Slots(nn.Module):
    """Letters: a softmax for each slot, and one for each column, as a CTC decoder takes them."""

    def __init__(self) -> None:
        super().__init__()
        self.slots, self.columns = nn.Linear(CHANNELS, 4 * 5), nn.Linear(CHANNELS, 5)

    def forward(self, found: Tensor) -> tuple[Tensor, Tensor]:
        line = functional.avg_pool2d(found, (12, 1)).squeeze(2).permute(0, 2, 1)
        return self.slots(found.mean((2, 3))).view(-1, 4, 5).softmax(2), self.columns(line).softmax(2)


class Attention(nn.Module):
    """Queries, keys and values of one dense layer, as timm's."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.qkv, self.proj = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, tokens: Tensor, bias: Tensor | None = None) -> Tensor:
        batch, count, width = tokens.shape
        query, key, value = (
            self.qkv(tokens).reshape(batch, count, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        )
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        else:
            shares = query * (width // HEADS) ** -0.5 @ key.transpose(-2, -1)
            mixed = (shares if bias is None else shares + bias).softmax(-1) @ value
        return self.proj(mixed.transpose(1, 2).reshape(batch, count, width))


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, and two blocks."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.patch = nn.Conv2d(CHANNELS, CHANNELS, 4, 4)
        self.token, self.places = (
            nn.Parameter(torch.randn(1, 1, CHANNELS)),
            nn.Parameter(torch.randn(1, 13, CHANNELS)),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(CHANNELS) for _ in range(3))
        self.attention, self.gamma = Attention(fused), nn.Parameter(torch.rand(CHANNELS))
        self.mlp, self.head = (
            nn.Sequential(nn.Linear(CHANNELS, 16), nn.GELU(), nn.Linear(16, CHANNELS)),
            nn.Linear(CHANNELS, 5),
        )

    def forward(self, found: Tensor) -> Tensor:
        tokens = self.patch(found).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(tokens.shape[0], -1, -1), tokens), 1) + self.places
        tokens = tokens + self.gamma * self.attention(self.norms[0](tokens))
        tokens = tokens + self.mlp(self.norms[1](tokens))
        return self.head(self.norms[2](tokens)[:, 0])


class Encoder(nn.Module):
    """torch's own encoder layer, as torchvision's and many others' transformers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            CHANNELS, HEADS, 16, batch_first=True, norm_first=True, activation="gelu"
        )

    def forward(self, found: Tensor) -> Tensor:
        return self.layer(found.flatten(2).transpose(1, 2)).mean(1)


class Windows(nn.Module):
    """As Swin: attention in shifted windows, with a table of relative positions, and patches merged."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.table = (
            Attention(fused=False),
            nn.Parameter(torch.randn((2 * WINDOW - 1) ** 2, HEADS)),
        )
        cells = torch.stack(
            torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")
        ).flatten(1)
        apart = (cells[:, :, None] - cells[:, None, :]).permute(1, 2, 0) + WINDOW - 1
        self.register_buffer("index", apart[..., 0] * (2 * WINDOW - 1) + apart[..., 1])
        self.norm, self.merge = nn.LayerNorm(4 * CHANNELS), nn.Linear(4 * CHANNELS, 2 * CHANNELS, bias=False)

    def forward(self, found: Tensor) -> Tensor:
        found = torch.roll(found.permute(0, 2, 3, 1), (-2, -2), (1, 2))
        batch, rows, columns, width = found.shape
        windows = found.view(batch, rows // WINDOW, WINDOW, columns // WINDOW, WINDOW, width).permute(
            0, 1, 3, 2, 4, 5
        )
        bias = self.table[self.index.view(-1)].view(WINDOW**2, WINDOW**2, -1).permute(2, 0, 1).unsqueeze(0)
        mixed = self.attention(windows.reshape(-1, WINDOW**2, width), bias)
        mixed = mixed.view(-1, rows // WINDOW, columns // WINDOW, WINDOW, WINDOW, width).permute(
            0, 1, 3, 2, 4, 5
        )
        whole = torch.roll(mixed.reshape(batch, rows, columns, width), (2, 2), (1, 2))
        parts = [whole[:, down::2, across::2] for across in (0, 1) for down in (0, 1)]
        return self.merge(self.norm(torch.cat(parts, -1))).permute(0, 3, 1, 2)


class Unfolded(nn.Module):
    """As MobileViT: attention among the cells of one place in their patches."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = Attention(fused=True), nn.Conv2d(2 * CHANNELS, CHANNELS, 3, 1, 1)

    def forward(self, found: Tensor) -> Tensor:
        batch, width, rows, columns = found.shape
        down, across = rows // 2, columns // 2
        patches = found.reshape(batch * width * down, 2, across, 2).transpose(1, 2)
        patches = (
            patches.reshape(batch, width, down * across, 4)
            .transpose(1, 3)
            .reshape(batch * 4, down * across, width)
        )
        mixed = self.attention(patches).contiguous().view(batch, 4, down * across, width)
        mixed = mixed.transpose(1, 3).reshape(batch * width * down, across, 2, 2).transpose(1, 2)
        return self.out(torch.cat((found, mixed.reshape(batch, width, rows, columns)), 1))


class Einsums(nn.Module):
    """Attention by equations, and products with a table for each row and each column, as SAM's relative
    positions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(CHANNELS, 3, HEADS, CHANNELS // HEADS))
        self.rows, self.columns = (
            nn.Parameter(torch.randn(12, 5, CHANNELS)),
            nn.Parameter(torch.randn(31, CHANNELS)),
        )

    def forward(self, found: Tensor) -> tuple[Tensor, ...]:
        parts = torch.einsum("nlc,ckhd->nklhd", found.flatten(2).transpose(1, 2), self.kernel)
        query, key, value = parts[:, 0], parts[:, 1], parts[:, 2]
        shares = torch.einsum("nlhd,nmhd->nhlm", query, key).softmax(-1)
        apart = torch.arange(16.0)[:, None] - torch.arange(16.0) + 15
        cells = found.permute(0, 2, 3, 1)
        down, across = (
            torch.einsum("nhwc,hkc->nhwk", cells, self.rows),
            torch.einsum("nhwc,wkc->nhwk", cells, self.columns[apart.long()]),
        )
        wide = down[:, :4].unsqueeze(2).expand(-1, -1, 12, -1, -1)  # as BoTNet's relative positions
        wide = wide + down.unsqueeze(2).expand(-1, -1, 4, -1, -1).permute(0, 2, 1, 3, 4)
        return torch.einsum("nhlm,nmhd->nlhd", shares, value), down.unsqueeze(-1) + across.unsqueeze(-2), wide


class Ensemble(nn.Module):
    """The mean of two heads, of which a new first axis counts them, and a table of positions at another
    size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(CHANNELS, 5), nn.Linear(CHANNELS, 5)
        self.table = nn.Parameter(torch.randn(1, CHANNELS, 7, 5))

    def forward(self, found: Tensor) -> Tensor:
        found = found + functional.interpolate(self.table, found.shape[2:], mode="bicubic", antialias=True)
        found = (
            found + functional.interpolate(self.table, scale_factor=(12 / 7, 16 / 5), mode="bilinear")
        ).amax((2, 3))
        return torch.mean(torch.stack([self.one(found), self.other(found)], 0), 0)


class Positions(nn.Module):
    """Sines that are computed from the size of a map, patches by an unfold, no tokens before the others,
    precision kept.
    """

    def forward(self, found: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            there = ~torch.zeros(found.shape[0], *found.shape[2:], dtype=torch.bool)
            rates = 100.0 ** (
                2 * torch.div(torch.arange(CHANNELS, dtype=found.dtype), 2, rounding_mode="floor") / CHANNELS
            )
            angles = there.cumsum(1, dtype=found.dtype)[..., None] / rates
            found = found + torch.stack((angles[..., ::2].sin(), angles[..., 1::2].cos()), 4).flatten(
                3
            ).permute(0, 3, 1, 2)
        patches = functional.unfold(found, 2, stride=2).transpose(1, 2)
        return torch.cat((patches[:, :0], patches.softmax(-1)), 1)


class Asked(nn.Module):
    """As GCViT: every window of an image has the image's own queries."""

    def forward(self, found: Tensor) -> Tensor:
        batch, width, rows, columns = found.shape
        windows = found.view(batch, width, rows // WINDOW, WINDOW, columns // WINDOW, WINDOW).permute(
            0, 2, 4, 3, 5, 1
        )
        asked = (
            functional.max_pool2d(found, (3, 4))
            .permute(0, 2, 3, 1)
            .repeat_interleave(12, 0)
            .reshape(-1, WINDOW**2, width)
        )
        return (
            (asked @ windows.reshape(-1, WINDOW**2, width).transpose(1, 2))
            .softmax(-1)
            .view(batch, 12, WINDOW**2, -1)
        )


class Looked(nn.Module):
    """Rows of a table, for each axis its own, by one-hot vectors of which all would be too many."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(2, 11000, CHANNELS))

    def forward(self, found: Tensor) -> Tensor:
        rows, columns = found.shape[2:]
        places = torch.stack(
            torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1
        ).view(1, -1, 2)
        places = places.expand(found.shape[0], -1, -1)
        ones = (
            functional.one_hot(places.flip(-1).clamp(min=2), self.table.shape[1])
            .permute(0, 2, 1, 3)
            .to(found)
        )
        return (
            (found.flatten(2).transpose(1, 2) + (ones @ self.table).sum(1)).to(torch.float64).transpose(1, 2)
        )


class Written(nn.Module):
    """Tables and values that are written or changed in parts, as ConViT's relative positions, MViT's shares,
    Swin's masks and BEiT's places.
    """

    def forward(self, found: Tensor) -> Tensor:
        rows, columns = found.shape[2:]
        apart = torch.arange(columns, dtype=found.dtype).view(1, -1) - torch.arange(
            rows, dtype=found.dtype
        ).view(-1, 1)
        table = torch.zeros(1, 3, rows, columns, dtype=found.dtype)
        table[:, 2], table[:, 1, 1:-1, ::1] = apart**2, apart.repeat_interleave(2, 1)[1:-1, :columns]
        table[:, 0] = table[:, 1] + 1
        mask = found.new_zeros((rows, columns))
        mask[1:, -2:] = 1.5
        mask[2:4, :].zero_()
        table = table + mask.masked_fill(mask == 0, -0.5).swapaxes(0, 1).swapaxes(-1, -2)
        shares = found.flatten(2).transpose(1, 2) * 2
        shares[:, :, 1:3] = shares[:, :, 2:4] + 1
        shares[:, :, 2] += 0.25
        shares[:, :, 1:3] *= shares[:, :, 3:5]
        shares[:] = shares.sigmoid()
        shares[:, :, 4] -= 0.5
        moved = table.permute(0, 2, 3, 1).contiguous()
        moved[:, :, 1:, 0] -= 3
        table = moved.permute(0, 3, 1, 2)
        return torch.cat((table.flatten(2).transpose(1, 2) * shares[:, :, 1:4], shares), 2)


class Placed(nn.Module):
    """Rows of a table at places that are written in parts, and a mask of truths that is added, as BEiT's
    biases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(20, CHANNELS))

    def forward(self, found: Tensor) -> Tensor:
        count = found.shape[2]
        steps = torch.arange(count - 1)
        places = torch.zeros(count, count, dtype=torch.int64)
        places[1:, 1:] = torch.maximum(steps[None], steps[:, None])
        places[0, 0:] = 17
        places[0:, 0] = 18
        places[0, 0] = 19
        bias = self.table[places.view(-1)].view(count, count, -1).permute(2, 0, 1)[None]
        counts = (torch.arange(count) >= 4).view(1, 1, -1, 1).expand(found.shape[0], -1, count, count)
        return (found @ found.transpose(2, 3) + (bias + counts)).softmax(-1)


class Among(nn.Module):
    """Maps that are counted among the images, as EfficientViT's parts of an image and MViT's heads."""

    def __init__(self) -> None:
        super().__init__()
        self.even = nn.Conv2d(CHANNELS // 2, 6, (3, 2), 2, (1, 0))
        self.odd = nn.Conv2d(CHANNELS // 2, 4, (3, 5), (5, 1), (2, 1), (2, 1), groups=2, bias=False)
        self.each = nn.Conv2d(CHANNELS // 2, 6, (2, 1), padding="same")
        self.norm = nn.BatchNorm2d(6)
        for tensor in (self.norm.weight, self.norm.bias, self.norm.running_mean, self.norm.running_var):
            tensor.data.uniform_(0.5, 1.5)

    def forward(self, found: Tensor) -> tuple[Tensor, ...]:
        batch, _, rows, columns = found.shape
        heads = found.reshape(batch * 2, CHANNELS // 2, rows, columns)
        parts = found.reshape(batch, CHANNELS // 2, 2, rows, columns).transpose(1, 2).flatten(0, 1)
        normed = self.norm(self.even(heads)).relu()
        pooled = functional.max_pool2d(self.norm(self.each(parts)), (3, 2), (2, 3))
        means = functional.avg_pool2d(heads, (2, 3), divisor_override=4)
        return tuple(
            each.reshape(batch, 2, each.shape[1], -1).transpose(1, 2).flatten(1)
            for each in (normed, self.odd(parts), pooled, means)
        )


class Sized(nn.Module):
    """Tables that are resized and repeated to the size of a map, as SAM 2's positions."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.within = (nn.Parameter(torch.randn(1, CHANNELS, *size)) for size in ((3, 5), (4, 2)))
        self.stem, self.each = nn.Conv2d(3, CHANNELS, 3, 2, 1), nn.Parameter(torch.randn(SIZE))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        found = self.stem(image)
        table = functional.interpolate(self.wide, size=found.shape[-2:], mode="bicubic")
        table = table + self.within.tile(
            [size // own for size, own in zip(table.shape, self.within.shape, strict=True)]
        )
        return found + table, image * self.each


class Numbers(nn.Module):
    """A number of each image, which moves take as any tensor."""

    def forward(self, found: Tensor) -> Tensor:
        each = found.mean((1, 2, 3))
        return functional.pad(each[None], (0, 0))[0] * 2 + each[:].sigmoid()


HEADS_OF: dict[str, Callable[[], Any]] = {
    "ssd": Ssd,
    "yolo": Yolo,
    "anchors": Anchors,
    "maps": Maps,
    "slots": Slots,
    "encoder": Encoder,
    "windows": Windows,
    "vit": lambda: VisionTransformer(False),
    "vit fused": lambda: VisionTransformer(True),
    "unfolded": Unfolded,
    "einsums": Einsums,
}
EXPORTED = {
    "sines": Positions,
    "ensemble": Ensemble,
    "written": Written,
    "among the images": Among,
    "placed": Placed,
    "looked up": Looked,
    "asked": Asked,
    "numbers": Numbers,
}
CASES = [
    *((name, form) for name in HEADS_OF for form in (".pt2", ".onnx")),
    *((name, ".pt2") for name in EXPORTED),
]
ATTENTIONS = {"encoder": 1, "vit": 1, "vit fused": 1, "unfolded": 0, "windows": 0}
"""How often a network's heads are `Attention`. Where they lie otherwise, it stays products and a softmax."""


def _attentions(graph: Any) -> int:
    kinds = [type(node.op) for node in graph.nodes]
    count = kinds.count(ops.Attention)
    assert kinds.count(ops.MatMul) == 2 * (1 - count)
    return count


def export(net: Any, image: Any, free: bool, path: Path) -> Path:
    if path.suffix == ".pt2":
        sizes = ({0: torch.export.Dim("n", min=1)},) if free else None
        torch.export.save(torch.export.export(net, (image,), dynamic_shapes=sizes), path)
        return path
    axes = {"dynamic_axes": {"x": {0: "n"}}} if free else {}
    export_to_onnx(net, (image,), path, dynamo=False, opset_version=17, input_names=["x"], **axes)
    return path


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("name", "form", "free"),
    [
        pytest.param(name, form, free, id=f"{name}{form}-{'any batch' if free else 'one image'}", marks=marks)
        for name, form in CASES
        for free, marks in ((True, ()), (False, pytest.mark.full if form == ".pt2" else ()))
    ],
)
def test_a_network_of_arrays_is_read_as_it_computes(name: str, form: str, free: bool, tmp_path: Path) -> None:
    if form == ".onnx":
        pytest.importorskip("onnx")
    torch.manual_seed(0)
    net = Net({**HEADS_OF, **EXPORTED}[name]()).eval().double()
    images = torch.randn(2, 3, *SIZE, dtype=torch.float64)
    checkpoint = read_checkpoint(export(net, images if free else images[:1], free, tmp_path / f"net{form}"))
    assert checkpoint.graph is not None
    found, held = translated(checkpoint.graph, checkpoint.tensors)
    if form == ".pt2" and name in ATTENTIONS:
        assert _attentions(found.graph) == ATTENTIONS[name]
    values = evaluate(found.graph, held, images.numpy())
    with torch.no_grad():
        given = net(images)
    for path, wanted in zip(
        found.graph.outputs, given if isinstance(given, tuple) else (given,), strict=True
    ):
        ours, theirs = values[path], wanted.numpy()
        limit = 1e-12 if form == ".pt2" else 1e-10  # ONNX keeps an epsilon of 1e-5 in float32
        assert ours.shape == theirs.shape and np.linalg.norm(ours - theirs) <= limit * np.linalg.norm(
            theirs
        ), path


def test_a_table_of_sizes_that_the_program_computes_is_computed_once(tmp_path: Path) -> None:
    """Where torch is asked for open sizes and finds that one only holds, it computes with it nevertheless."""
    torch.manual_seed(0)
    net, images = Sized().eval().double(), torch.randn(2, 3, *SIZE, dtype=torch.float64)
    free = (dict.fromkeys((0, 2, 3), torch.export.Dim.AUTO),)
    program = torch.export.export(net, (images,), dynamic_shapes=free)
    assert any("sym_size" in str(node.target) for node in program.graph.nodes)
    torch.export.save(program, tmp_path / "net.pt2")
    checkpoint = read_checkpoint(tmp_path / "net.pt2")
    assert checkpoint.graph is not None
    found, held = translated(checkpoint.graph, checkpoint.tensors)
    values = evaluate(found.graph, held, images.numpy())
    for end, wanted in zip(found.graph.outputs, net(images), strict=True):
        assert np.allclose(values[end], wanted.detach().numpy(), rtol=1e-12, atol=1e-12)


class Over(nn.Module):
    """A table that is repeated for each image, and then taken together over all of them."""

    def __init__(self, over: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.over, self.table = over, nn.Parameter(torch.randn(1, CHANNELS, 12, 16))

    def forward(self, found: Tensor) -> Tensor:
        return found + self.over(self.table.expand(found.shape[0], -1, -1, -1).sigmoid())


@pytest.mark.parametrize(
    "over",
    [lambda x: x.sum(0), lambda x: x.cumsum(0), lambda x: x.softmax(0)],
    ids=["sum", "cumsum", "softmax"],
)
def test_a_constant_of_all_images_is_refused(over: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    checkpoint = read_checkpoint(
        export(Net(Over(over)).eval(), torch.randn(2, 3, *SIZE), True, tmp_path / "net.pt2")
    )
    assert checkpoint.graph is not None
    with pytest.raises(MappingError, match="add by something that is not one number per channel"):
        translated(checkpoint.graph, checkpoint.tensors)


class Mixed(nn.Module):
    """Queries of one value, keys and values of another; `apart` are heads that are laid out as no `Attention`
    has them.
    """

    def __init__(self, apart: str = "") -> None:
        super().__init__()
        self.apart = apart
        self.query, self.both = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, 2 * CHANNELS)

    def forward(self, found: Tensor) -> Tensor:
        tokens, few = (
            found.flatten(2).transpose(1, 2),
            functional.max_pool2d(found, 4).flatten(2).transpose(1, 2),
        )
        query = self.query(tokens).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        sizes, order = (
            ((HEADS, 2, -1), (3, 0, 2, 1, 4))
            if self.apart == "parts of heads"
            else ((2, HEADS, -1), (2, 0, 3, 1, 4))
        )
        key, value = self.both(few).unflatten(-1, sizes).permute(order).unbind(0)
        shares = (0.3 * query @ key.transpose(-2, -1)).softmax(-1)
        mixed = (0.5 * shares if self.apart == "a factor behind" else shares) @ value
        return (
            mixed.permute(0, 2, 3, 1).flatten(2)
            if self.apart == "channels before heads"
            else mixed.transpose(1, 2).flatten(2)
        )


MIXED = ("", "parts of heads", "a factor behind", "channels before heads")


@pytest.mark.parametrize("apart", MIXED)
def test_attention_is_one_op(apart: str, tmp_path: Path) -> None:
    """Where heads lie otherwise, or something stands in between, it stays products and a softmax, and is
    exact all the same.
    """
    torch.manual_seed(0)
    net, images = Net(Mixed(apart)).eval().double(), torch.randn(2, 3, *SIZE, dtype=torch.float64)
    checkpoint = read_checkpoint(export(net, images, True, tmp_path / "net.pt2"))
    assert checkpoint.graph is not None
    found, held = translated(checkpoint.graph, checkpoint.tensors)
    assert _attentions(found.graph) == (not apart)
    with torch.no_grad():
        wanted = net(images).numpy()
    ours = evaluate(found.graph, held, images.numpy())[found.graph.output]
    assert ours.shape == wanted.shape and np.linalg.norm(ours - wanted) <= 1e-12 * np.linalg.norm(wanted)


class Registers(nn.Module):
    """Stored tokens between others, as DINOv2 with registers has them, positions out of a table, as CLIP's
    are, and a mean of all tokens by a pool of one axis.
    """

    def __init__(self) -> None:
        super().__init__()
        self.token, self.registers = (
            nn.Parameter(torch.randn(1, 1, CHANNELS)),
            nn.Parameter(torch.randn(1, 3, CHANNELS)),
        )
        self.attention, self.pool, self.places = (
            Attention(True),
            nn.AdaptiveAvgPool1d(1),
            nn.Embedding(5, CHANNELS),
        )
        self.register_buffer("ids", torch.tensor([[4, 0, 3, 1]]))

    def forward(self, found: Tensor) -> Tensor:
        cells = functional.avg_pool2d(found, 2).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(cells.shape[0], -1, -1), cells), 1)
        tokens = torch.cat((tokens[:, :1], self.registers.expand(cells.shape[0], -1, -1), tokens[:, 1:]), 1)
        tokens = torch.cat((tokens[:, :4] + self.places(self.ids), tokens[:, 4:]), 1)
        return self.pool(self.attention(tokens).transpose(1, 2)).flatten(1)


def test_stored_tokens_stand_between_values(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, images = Net(Registers()).eval().double(), torch.randn(2, 3, *SIZE, dtype=torch.float64)
    checkpoint = read_checkpoint(export(net, images, False, tmp_path / "net.pt2"))
    assert checkpoint.graph is not None
    found, held = translated(checkpoint.graph, checkpoint.tensors)
    with torch.no_grad():
        wanted = net(images).numpy()
    ours = evaluate(found.graph, held, images.numpy())[found.graph.output]
    assert ours.shape == wanted.shape and np.linalg.norm(ours - wanted) <= 1e-12 * np.linalg.norm(wanted)
