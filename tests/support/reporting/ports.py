"""Ports with records made up for a report: a graph of three nodes, a model file of nothing, and whatever
figures a test wants.
"""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from porter.data.photos import Failure
from porter.evaluation.padding_study.study_results import Case, Study, StudyAnswer
from porter.evaluation.results import Accuracy, Agreement, Differing, Evaluation
from porter.files import digest
from porter.frameworks import get_destination
from porter.graph import INPUT, Conv, Dense, GlobalAvgPool, Graph, MaxPool, Node
from porter.graph.pads import pads_of
from porter.graph.plan import make_plan
from porter.graph.record import to_record
from porter.padding import Convention, Window

GRAPH = Graph(
    channels=3,
    nodes=(
        Node("stem/conv", Conv(4, Window((3, 3), (2, 2)), Convention("same")), (INPUT,)),
        Node(
            "stem/pool",
            MaxPool(Window((3, 3), (2, 2)), Convention("explicit", (1, 1, 1, 1), fill=0.0)),
            ("stem/conv",),
        ),
        Node("stage1/conv", Conv(4, Window((1, 1), (1, 1)), Convention("valid")), ("stem/pool",)),
        Node("head/pool", GlobalAvgPool(), ("stage1/conv",)),
        Node("head/logits", Dense(1000), ("head/pool",)),
    ),
    output="head/logits",
    scopes=(),
)

PROTOCOL = {
    "resize": "shorter_side",
    "size": 256,
    "interpolation": "pil_bilinear",
    "crop": 224,
    "divide": 255.0,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.5, 0.5, 0.5],
}

LOGITS = {
    "max_abs": 3e-14,
    "l1": 1e-14,
    "rel_l2": 1.3e-14,
    "snr_db": 277.6,
    "psnr_db": 288.3,
    "argmax_equal": True,
}


def parity(*errors: float | None, limit: float | None = 1e-10, **changes: Any) -> dict[str, Any]:
    """A comparison as port.json has it, with one node for each of `errors`."""
    summary = {"ok": True, "logits": LOGITS, "limit": 1e-10, "source_rounding": 0.0}
    nodes = [
        {"path": f"stage{index // 4}/conv{index}", "rel_l2": error, "max_abs": error, "limit": limit}
        for index, error in enumerate(errors)
    ]
    return {
        "ok": True,
        "reference": "keras",
        "dtype": "float64",
        "sizes": [[224, 224], [225, 201]],
        "inputs": 4,
        "limit": 1e-10,
        "source_rounding": 0.0,
        "logits": LOGITS,
        "first_bad": None,
        "nodes": nodes,
        "uncompared": [],
        "shipped": None,
        "dtypes": {"float32": summary, "float64": summary},
        **changes,
    }


def write_port(folder: Path, **changes: Any) -> Path:
    """A port for torch whose port.json has `changes`."""
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"nothing is read of it")
    plan = make_plan(GRAPH, (224, 224), get_destination("torch").CAPABILITIES)
    record = {
        "format": 1,
        "architecture": "resnet_v2",
        "variant": "resnet50v2",
        "zoo": "keras",
        "framework": "torch",
        "graph": to_record(GRAPH),
        "input": {"layout": "NCHW", "size": plan.only_size, "native_size": [224, 224], "channels": 3},
        "source": {
            "file": "weights.h5",
            "format": "keras-h5",
            "sha256": "ab" * 32,
            "notes": ["averaged weights"],
        },
        "model": {"model.safetensors": digest(folder / "model.safetensors")},
        "pads": [pad.model_dump() for pad in pads_of(plan)],
        "padding": "shipped",
        "options": {"classes": 1000},
        "layers": {},
        "batches": {},
        "mapped": [],
        "dtype": "float32",
        "tensors": {
            "used": {"a": "stem/conv:kernel"},
            "ignored": {"b": "a step counter", "c": "a step counter"},
            "filled": {},
        },
        "preprocess": PROTOCOL,
        "labels": "imagenet-1000",
        "classes": 1000,
        "source_classes": 1001,
        "background": False,
        "output": "logits",
        "activation": "softmax",
        "licence": "CC-BY-NC-4.0",
        "stock_class": None,
        "parity": None,
        "check": "not made: --no-check",
        "versions": {"torch": "2.13.0"},
        **changes,
    }
    (folder / "port.json").write_text(json.dumps(record))
    return folder


def evaluation(**changes: Any) -> Evaluation:
    accuracy = Accuracy(500, 72.4, 91.2, (68.3, 76.1))
    differing = Differing("val/n01440764/a.JPEG", (0,), 0, 389)
    fields: dict[str, Any] = {
        "photos": ("sample/val", "class folders"),
        **vars(accuracy),
        "failed": (Failure("val/broken.JPEG", "truncated"),),
        "excluded": (),
        "classes_present": 500,
        "protocol": "shorter side 256 by Pillow's bilinear, centre 224, RGB / 255",
        "crops": 1,
        "precision": "fp32",
        "device": "cpu",
        "source": Agreement("keras", accuracy, 499, 498, 2e-5, 1e-6, (differing,)),
        "published": {"top1": 71.878, "top5": 90.286, "size": 224, "source": "README", "note": None},
        "verdict": "not comparable",
        "why": "500 images",
        "expected": (72.0, 0.5),
        "ok": True,
        "complete": True,
        "per_second": 30.0,
    }
    return Evaluation(**{**fields, **changes})


def study(*cases: Case) -> Study:
    cases = cases or (
        Case("case 1", "same at stride 2", {"stem/conv": "same"}, 27.6, 9.1, 7.2, 1.09, 1.12, 1.0),
        Case("case 2", "pads alike on both sides", {"stem/conv": "3"}, 31.2, 11.0, None, 1.31, 1.4, 1e-3),
    )
    why = "every other case has a larger log-loss: p is below 0.05 / 1, at most 1.0e-03 for 'case 2'"
    trained = StudyAnswer(cases[0].name, True, (), why)
    photos = ("sample/val", "class folders")
    return Study(
        "resnet50v2", "keras", "weights.h5", photos, 500, (), {}, cases, "log_loss", trained, trained
    )


def jpeg(side: int = 64) -> str:
    file = BytesIO()
    Image.new("RGB", (side, side // 2), "teal").save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def details(**changes: Any) -> dict[str, Any]:
    source = [
        {"index": index, "name": f"class {index}", "probability": 0.5 / (index + 1)} for index in range(5)
    ]
    port = [source[0], source[2], source[1], *source[3:]]
    photo = {
        "name": "val/n01440764/a.JPEG",
        "labels": [0],
        "thumbnail": jpeg(),
        "source": source,
        "port": port,
    }
    pairs = [[number / 10, number / 10 + 1e-6] for number in range(-40, 90)]
    return {"pairs": pairs, "photos": [photo, {**photo, "source": None, "thumbnail": None}], **changes}


def full_port(folder: Path, **changes: Any) -> Path:
    """A port with every part that a report can show."""
    made = {
        "parity": parity(0.0, 2e-15, 3e-14, 1e-16),
        "check": "passed",
        "evaluation": evaluation().summary(),
    }
    write_port(folder, **{**made, "study": study().record(), **changes})
    (folder / "evaluation.json").write_text(json.dumps(details()))
    return folder
