"""How a model runs over many photos."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
"""The precision of an evaluation. An NVIDIA GPU's TF32 keeps 10 of float32's 23 bits in products; it is off
in fp32. bf16 and fp16 are torch's autocast: convolutions and products run in that type, batch norms in
float32, and the weights stay float32.
"""


@dataclass(frozen=True)
class Run:
    """How a model runs over many photos.

    Attributes:
        compiled: by torch.compile, which fuses what stands between its convolutions.
        channels_last: how maps lie in memory, where the framework offers both.
    """

    precision: Precision = "fp32"
    compiled: bool = False
    channels_last: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether only its precision is chosen."""
        return self == Run(self.precision)

    @property
    def words(self) -> str:
        """Such as `bf16, compiled, channels first`; the usual order of the channels is not said."""
        words: list[str] = [self.precision]
        if self.compiled:
            words.append("compiled")
        if not self.channels_last:
            words.append("channels first")
        return ", ".join(words)


FP32 = Run()
