"""model.py of classic networks: squeeze-and-excite, inverted residuals, ConvNeXt's blocks, VGG's
classifier.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from porter.base.errors import GraphError, UsageError
from porter.frameworks.torch.code import model_source
from porter.frameworks.torch.destination import DESTINATION as framework
from porter.graph import tensor_shapes
from porter.graph.plan import make_plan
from porter.padding import ANY
from tests.support.frameworks.torch.classic_graphs import convnext, efficientnet, mobilenet_v3, vgg
from tests.support.frameworks.torch.generated import expect_formatted, expect_the_same_as_built, model_of

PARTS = {
    mobilenet_v3: """
class SqueezeExcite(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, filters, 1)
        self.relu = nn.ReLU(inplace=True)
        self.expand = nn.Conv2d(filters, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x):
        gate = self.relu(self.reduce(self.pool(x)))
        return x * self.gate(self.expand(gate))
...
    def __init__(self, channels, hidden, filters, kernel, stride, squeeze, activation):
...
                    nn.ReLU(inplace=True) if activation == "relu" else nn.Hardswish(inplace=True)
...
                nn.ZeroPad2d((kernel // 2 - 1, kernel // 2) * 2) if stride > 1 else nn.Identity()
...
                padding=0 if stride > 1 else kernel // 2,
...
            self.se = SqueezeExcite(hidden, hidden // 4)
...
        out = self.se(self.depthwise(self.expand(x)))
        out = self.project(out)
        return x + out if self.residual else out
...
            (240, 40, 5, 1, True, "hard_swish"),
""",
    efficientnet: """
        self.block1a_se_squeeze = nn.AdaptiveAvgPool2d(1)
        self.block1a_se_reduce = nn.Conv2d(16, 4, 1)
        self.block1a_se_swish = nn.SiLU(inplace=True)
...
        x = self.block2b_activation(self.block2b_bn(self.block2b_dwconv(x)))
        gate = self.block2b_se_swish(self.block2b_se_reduce(self.block2b_se_squeeze(x)))
        x = self.block2b_project_conv(x * self.block2b_se_sigmoid(self.block2b_se_expand(gate)))
        return self.predictions(self.avg_pool(self.block2b_project_bn(x) + out))
""",
    convnext: """
class LayerNorm2d(nn.LayerNorm):
...
class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = LayerNorm2d(channels, eps=1e-06)
        self.expand = nn.Conv2d(channels, 4 * channels, 1)
        self.gelu = nn.GELU()
        self.project = nn.Conv2d(4 * channels, channels, 1)
        self.scale = ChannelScale(channels)

    def forward(self, x):
        out = self.expand(self.norm(self.depthwise(x)))
        return x + self.scale(self.project(self.gelu(out)))
...
            downsample=chain(norm=LayerNorm2d(24, eps=1e-06), conv=nn.Conv2d(24, 48, 2, stride=2)),
            block0=Block(48),
...
            norm=nn.LayerNorm(64, eps=1e-06),
""",
    vgg: """
        self.flatten = FlattenCells()
        self.fc1 = nn.Linear(512, 64)
...
            raise ValueError(f"the layers fit 32x32 only, got {tuple(x.shape[2:])}")
...
        x = self.flatten(self.block3_pool(self.block3_relu3(x)))
        x = self.fc2(self.fc1_relu(self.fc1(x)))
        return self.predictions(self.fc2_relu(x))
""",
}
"""Parts of each network's model.py, in their order."""


@pytest.mark.parametrize("make", PARTS)
def test_gates_layer_norms_and_classifiers_read_as_a_person_would_write_them(tmp_path, make):
    graph = make()
    plan, draw = make_plan(graph, (32, 32), framework.CAPABILITIES), np.random.default_rng(0)
    tensors = {
        p: {r: draw.uniform(0.1, 1, s) for r, s in roles.items()} for p, roles in tensor_shapes(graph).items()
    }
    expect_the_same_as_built(plan, tensors, draw.standard_normal((2, 3, 32, 32)))
    text, place = model_source(plan), 0
    (tmp_path / "model.py").write_text(text)
    expect_formatted(tmp_path / "model.py")
    for part in PARTS[make].split("...\n"):
        assert part.strip("\n") in text[place:], part
        place = text.index(part.strip("\n"), place)


def test_a_flattened_map_fixes_the_size():
    with pytest.raises(GraphError, match="flatten: a flatten fixes the input's size"):
        make_plan(vgg(), ANY, framework.CAPABILITIES)
    plan, draw = make_plan(vgg(), (32, 32), framework.CAPABILITIES), np.random.default_rng(0)
    tensors = {
        p: {r: draw.uniform(0.1, 1, s) for r, s in roles.items()} for p, roles in tensor_shapes(vgg()).items()
    }
    with pytest.raises(UsageError, match="the layers of this model fit an input of 32x32 only, got 33x32"):
        framework.ENGINE.build(plan, tensors, {}, "float32")(torch.zeros(1, 3, 33, 32))
    with pytest.raises(
        UsageError, match=r"N x C x 32 x 32, got 2 x 3072 \(give it as x.reshape\(len\(x\), -1, 32, 32\)\)"
    ):
        framework.ENGINE.build(plan, tensors, {}, "float32")(torch.zeros(2, 3072))
    with pytest.raises(UsageError, match=r"got an object of ndarray \(give it as torch.from_numpy\(x\)\)"):
        framework.ENGINE.build(plan, tensors, {}, "float32")(np.zeros((2, 3, 32, 32), np.float32))
    with pytest.raises(ValueError, match=r"the layers fit 32x32 only, got \(33, 32\)"):
        model_of(model_source(plan))(torch.zeros(1, 3, 33, 32, dtype=torch.float64))
