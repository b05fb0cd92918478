"""The models that CNTK 2.7 writes as ONNX are what CNTK computes: its automatic padding, its pools and its
norms.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import porter
from tests.support.checkout import ROOT

PYTHON = Path(os.environ.get("PORTER_CNTK_PYTHON", ROOT / "build/cntk/bin/python"))
NETWORKS = ("resnet_v1", "resnet_v2", "resnext", "wide_resnet", "mobilenet_v1", "mobilenet_v2", "inception")


@pytest.mark.full
@pytest.mark.skipif(
    not PYTHON.exists(), reason="no Python 3.6 with CNTK 2.7: CONTRIBUTING.md says how to have one"
)
@pytest.mark.parametrize("side", [64, 75])
def test_ports_of_cntks_files_compute_what_cntk_does(side: int, tmp_path: Path) -> None:
    subprocess.run(
        [PYTHON, ROOT / "tests/support/cntk_models.py", tmp_path, str(side)], check=True, capture_output=True
    )
    apart = {}
    for name in NETWORKS:
        known = np.load(tmp_path / f"{name}.npz")
        for to in ("torch", "onnx", "tf"):
            made = porter.convert(tmp_path / f"{name}.onnx", to=to, out=tmp_path / name / to)
            assert made.verdict is not None and made.verdict.ok
            engine, output = made.port.destination.ENGINE, made.port.graph.output
            given = engine.run(made.port.build("float32"), known["images"], [output])[output]
            apart[name, to] = float(np.linalg.norm(given - known["output"]) / np.linalg.norm(known["output"]))
    assert max(apart.values()) <= 1e-5, apart
    print(f"{side}: {len(apart)} ports, at most {max(apart.values()):.1e} from CNTK")
