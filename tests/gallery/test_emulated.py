"""Every portable variant on the emulated device, all checks on: right, with no finding, at shapes that reach each of
its branches."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright import gallery
from kernelwright.check import CheckOptions, check

pytestmark = [pytest.mark.emu, pytest.mark.slow, pytest.mark.timeout(900)]
PROBLEMS = Path(__file__).parent / "problems"

CASES = {
    ("matvec", "matvec"): ({}, {"M": "5", "K": "70001"}, {"M": "300", "K": "96"}, {"M": "2", "K": "16384"}),
    ("matvec_transposed", "matvec"): (
        {},
        {"M": "1001", "K": "9"},
        {"HALF": "True", "M": "264"},
        {"M": "40", "K": "5000"},
    ),
    ("softmax", "softmax"): ({}, {"M": "9", "N": "37"}, {"M": "3", "N": "5003"}, {"M": "2", "N": "40000"}),
    ("linear", "linear"): ({}, {"M": "1", "N": "130", "K": "1"}, {"M": "5", "N": "9", "K": "2050"}),
    ("linear_gelu_softmax", "linear_gelu_softmax"): ({},),
}


@pytest.mark.parametrize(
    ("problem", "name", "sets"), [(*names, sets) for names, cases in CASES.items() for sets in cases]
)
def test_the_portable_variant_is_right_and_has_no_finding(
    problem: str, name: str, sets: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")  # what hopper_flags() takes as: portable kernels only
    candidate = tmp_path / f"{name}.py"
    candidate.write_text(gallery.export(name))
    options = CheckOptions(sets=sets, device="emulated", confirm=False, timeout_s=800)
    verdict = check(PROBLEMS / f"{problem}.py", candidate, options=options, progress=lambda _: None)
    assert verdict.verdict == "correct", verdict.causes
    assert not verdict.causes
