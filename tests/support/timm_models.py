"""Which of timm's models scripts/exported ports: one of each family of convolutional networks, and a small
one of each module.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.random_models import torch_model

TIMM = (
    "resnet18",
    "resnet50d",
    "resnet33ts",
    "seresnet50",
    "ecaresnet26t",
    "skresnet18",
    "resnest14d",
    "res2net50_26w_4s",
    "resnext50_32x4d",
    "gluon_resnet50_v1b",
    "resnetv2_50",
    "resnetv2_50x1_bit",
    "nfnet_l0",
    "dm_nfnet_f0",
    "regnetx_004",
    "regnety_004",
    "regnetz_b16",
    "densenet121",
    "dpn68",
    "dla34",
    "dla60_res2net",
    "hrnet_w18_small",
    "vgg11_bn",
    "inception_v3",
    "inception_v4",
    "inception_resnet_v2",
    "xception41",
    "legacy_xception",
    "nasnetalarge",
    "pnasnet5large",
    "efficientnet_b0",
    "tf_efficientnet_b0",
    "tf_efficientnetv2_b0",
    "efficientnet_lite0",
    "mixnet_s",
    "mnasnet_100",
    "mobilenetv2_100",
    "mobilenetv3_large_100",
    "mobilenetv4_conv_small",
    "fbnetc_100",
    "spnasnet_100",
    "hardcorenas_a",
    "ghostnet_100",
    "lcnet_050",
    "tinynet_e",
    "rexnet_100",
    "convnext_atto",
    "convnextv2_atto",
    "convmixer_768_32",
    "cspresnet50",
    "cspdarknet53",
    "darknet53",
    "repvgg_a0",
    "mobileone_s0",
    "vovnet39a",
    "ese_vovnet19b_dw",
    "selecsls42b",
    "hgnet_tiny",
    "edgenext_xx_small",
    "levit_128s",
)
"""A model of each family of convolutional networks, and two that are none."""
MODULES = (
    "beit_base_patch16_224",
    "eca_botnext26ts_256",
    "test_byobnet",
    "cait_xxs24_224",
    "coat_tiny",
    "convit_tiny",
    "convmixer_768_32",
    "test_convnext",
    "cpubone_nano",
    "crossvit_tiny_240",
    "csatv2",
    "cs3darknet_focus_s",
    "cspnext_tiny",
    "davit_tiny",
    "deepseek_vit_412m",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla46_c",
    "dpn48b",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientformerv2_s0",
    "test_efficientnet",
    "efficientvim_m1",
    "efficientvit_b0",
    "efficientvit_m0",
    "vit_tiny_patch16_dinov3_qkvb",
    "fasternet_t0",
    "fastvit_s12",
    "focalnet_tiny_srf",
    "gcvit_xxtiny",
    "gemma4_vit_167m",
    "ghostnet_050",
    "hardcorenas_b",
    "hgnetv2_b0",
    "hiera_tiny_224",
    "sam2_hiera_tiny",
    "hrnet_w18_small",
    "iformer_s",
    "inception_next_atto",
    "inception_resnet_v2",
    "inception_v3",
    "inception_v4",
    "lcnetv2_small",
    "levit_128s",
    "lowformer_b0",
    "test_mambaout",
    "test_coatnet",
    "poolformer_s12",
    "gmlp_ti16_224",
    "mobilenetv3_small_050",
    "mobilenetv5_base",
    "mobilevit_xxs",
    "mvitv2_tiny",
    "naflexvit_base_patch16_gap",
    "nasnetalarge",
    "nest_tiny",
    "nextvit_small",
    "test_nfnet",
    "pit_ti_224",
    "pnasnet5large",
    "pvt_v2_b0",
    "qwen3_vit_306m",
    "rdnet_tiny",
    "regnetx_002",
    "repghostnet_050",
    "repvit_m1",
    "res2net50_14w_8s",
    "resnest14d",
    "test_resnet",
    "resnetv2_18",
    "rexnet_100",
    "selecsls42",
    "legacy_seresnet18",
    "sequencer2d_s",
    "shvit_s1",
    "skresnet18",
    "starnet_s050",
    "swiftformer_xs",
    "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window16_256",
    "swinv2_cr_tiny_224",
    "tiny_vit_5m_224",
    "tnt_s_legacy_patch16_224",
    "tresnet_m",
    "twins_svt_small",
    "vgg11",
    "visformer_tiny",
    "test_vit",
    "vit_tiny_r_s16_p8_224",
    "test_vit_relpos",
    "samvit_base_patch16_224",
    "vitamin_small_224",
    "volo_d1_224",
    "ese_vovnet19b_slim_dw",
    "legacy_xception",
    "xception41p",
    "xcit_nano_12_p8_224",
)
"""The smallest model of each module of timm 1.0.31, or nearly."""
_NARROW = ("beit", "deepseek_vit", "gemma4_vit", "qwen3_vit", "naflexvit", "samvit")
"""The beginnings of names of which no small model exists: these get few and narrow blocks."""


_SIDES = {"sam2_hiera_tiny": 224}
"""Smaller images than a model's own: to compare what it computes of 896 by 896 takes more than 14 GB."""


def small_file(name: str, folder: Path) -> tuple[int, Callable[[Path, bool], Path]]:
    """The side of a timm model's own images, and a function that writes its program for any number of them,
    once.
    """
    import torch

    side, path = _side(name), folder / f"{name}.pt2"

    def write(_folder: Path, free: bool) -> Path:
        if not path.exists():
            model, images = (
                torch_model(name, "timm", side, exportable=False, **_overlay(name), **_narrow(name)),
                torch.randn(2, 3, side, side),
            )
            try:
                program = torch.export.export(
                    model, (images,), dynamic_shapes=({0: torch.export.Dim("n", min=1)},)
                )
            except Exception:  # the exporter's own, where something depends on the number of images
                program = torch.export.export(model, (images[:1],))
            torch.export.save(program, path)
        return path

    return side, write


def small_folder(name: str, folder: Path) -> tuple[int, Callable[[Path, bool], Path]]:
    """Makes what small_file does, for the folder of the Hub that timm writes."""

    def write(_folder: Path, free: bool) -> Path:
        path = folder / name
        if not path.exists():
            model = torch_model(
                name, "timm", _side(name), exportable=False, **_overlay(name), **_narrow(name)
            )
            import timm

            state = model.state_dict(keep_vars=True).values()
            # safetensors does not write what shares memory, which CoaT's layers do.
            alone = len({value.data_ptr() for value in state if value.numel()}) == sum(
                value.numel() > 0 for value in state
            )
            timm.models.save_for_hf(model, str(path), model_args=_narrow(name), safe_serialization=alone)
        return path

    return _side(name), write


def _side(name: str) -> int:
    from porter.zoos.timm import import_timm

    return _SIDES.get(name) or int(import_timm().get_pretrained_cfg(name).input_size[-1])


def _overlay(name: str) -> dict[str, Any]:
    """What timm is told of the size of the images, where it is not the model's own."""
    side = _SIDES.get(name)
    return {} if side is None else {"pretrained_cfg_overlay": {"input_size": (3, side, side)}}


def _narrow(name: str) -> dict[str, int]:
    return {"depth": 3, "embed_dim": 96, "num_heads": 3} if name.startswith(_NARROW) else {}
