"""Every portable variant on the emulated device, all checks on: right, with no finding, at shapes that reach each of
its branches."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright import gallery
from kernelwright.check import CheckOptions, check
from kernelwright.gallery import _export

pytestmark = [pytest.mark.emu, pytest.mark.slow, pytest.mark.timeout(900)]
PROBLEMS = Path(__file__).parent / "problems"

CASES = {
    ("matvec", "matvec"): ({}, {"M": "5", "K": "70001"}, {"M": "300", "K": "96"}, {"M": "2", "K": "16384"}),
    ("matvec_transposed", "matvec"): (
        {},
        {"M": "1001", "K": "9"},
        {"HALF": "True", "M": "264"},
        {"M": "40", "K": "5000"},
        {"M": "3", "K": "4100"},
        {"HALF": "True", "M": "60001", "K": "3"},
    ),
    ("softmax", "softmax"): ({}, {"M": "9", "N": "37"}, {"M": "3", "N": "5003"}, {"M": "2", "N": "40000"}),
    ("linear", "linear"): (
        {},
        {"M": "1", "N": "130", "K": "1"},
        {"M": "1", "N": "70", "K": "2052"},
        {"M": "2", "N": "9", "K": "516"},
        {"M": "4", "N": "7", "K": "1028"},
        {"M": "5", "N": "9", "K": "2050"},
        {"M": "16", "N": "5", "K": "600"},
        {"M": "49", "N": "9", "K": "520"},
        {"M": "130", "N": "70", "K": "203"},
    ),
    ("linear_gelu_softmax", "linear_gelu_softmax"): ({},),
}


RECIPES = {
    "direct 2 / 8 post 0.5": ("matvec", "matvec", {"M": "5", "K": "20001"}, (4, False, 5, 20001)),
    "direct 8 / 16 post 1": ("matvec", "matvec", {"M": "7", "K": "20000"}, (4, False, 7, 20000)),
    "narrow 2 / 0": ("matvec", "matvec", {"M": "300", "K": "1000"}, (4, False, 300, 1000)),
    "walk 16 post 1 / 8": ("matvec_transposed", "matvec", {"M": "64", "K": "700"}, (4, True, 64, 700)),
    "walk 64 post 0.5 / 4": ("matvec_transposed", "matvec", {"M": "203", "K": "331"}, (4, True, 203, 331)),
    "walk 32 post 1 / 16": (
        "matvec_transposed",
        "matvec",
        {"HALF": "True", "M": "1003", "K": "301"},
        (2, True, 1003, 301),
    ),
    "column 8 / 8": ("matvec_transposed", "matvec", {"HALF": "True", "M": "1000", "K": "150"}, (2, True, 1000, 150)),
    "column 16 / 4": ("matvec_transposed", "matvec", {"M": "2000", "K": "67"}, (4, True, 2000, 67)),
    "column 8 post 1 / 8": ("matvec_transposed", "matvec", {"M": "64", "K": "20000"}, (4, True, 64, 20000)),
    "column 16 post 1 / 4": (
        "matvec_transposed",
        "matvec",
        {"HALF": "True", "M": "128", "K": "9000"},
        (2, True, 128, 9000),
    ),
    "element / 16": ("matvec_transposed", "matvec", {"M": "1003", "K": "700"}, (4, True, 1003, 700)),
    "element / 8": ("matvec_transposed", "matvec", {"HALF": "True", "M": "203", "K": "331"}, (2, True, 203, 331)),
    "walk 32 / 8 bare": ("matvec_transposed", "matvec", {"HALF": "True", "M": "5000", "K": "70"}, (2, True, 5000, 70)),
    "block 1024": ("softmax", "softmax", {"M": "2", "N": "4096"}, (4, True, 2, 4096)),
    "block 64": ("softmax", "softmax", {"M": "3", "N": "1024"}, (4, True, 3, 1024)),
    "exact 1": ("softmax", "softmax", {"M": "5", "N": "256"}, (4, True, 5, 256)),
    "exact 2": ("softmax", "softmax", {"M": "3", "N": "1024"}, (4, True, 3, 1024)),
    "exact 4": ("softmax", "softmax", {"M": "2", "N": "2048"}, (4, True, 2, 2048)),
    "online": ("softmax", "softmax", {"M": "2", "N": "16384"}, (4, True, 2, 16384)),
    "portable / 1": ("linear", "linear", {}, (33, 70, 203)),
    "portable / 3": ("linear", "linear", {"M": "20", "N": "130", "K": "900"}, (20, 130, 900)),
    "portable bytes / 1": (
        "linear",
        "linear",
        {"UNEVEN": "True", "M": "140", "N": "200", "K": "203"},
        (140, 200, 203),
    ),
    "portable bytes / 3": ("linear", "linear", {"M": "33", "N": "70", "K": "900"}, (33, 70, 900)),
    "rows 64 / 1": ("linear", "linear", {"M": "9", "N": "70", "K": "516"}, (9, 70, 516)),
    "rows 128 / 4": ("linear", "linear", {"M": "13", "N": "70", "K": "3000"}, (13, 70, 3000)),
    "rows 256 / 2": ("linear", "linear", {"M": "3", "N": "21", "K": "2561"}, (3, 21, 2561)),
}
"""Plans that the rule does not choose at sizes for the emulator, by recipe: problem, kernel, constants, table row."""
ANY_SIZE = {
    "BYTES_COLUMNS = range(6144, ": "BYTES_COLUMNS = range(1, ",
    "BYTES_ROWS, BYTES_TILES = 64, 64": "BYTES_ROWS, BYTES_TILES = 1, 1",
}
"""What makes products in bytes a choice at such sizes, too."""


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_measured_plan_is_right_and_has_no_finding(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")
    problem, name, sets, at = RECIPES[recipe]
    candidate = tmp_path / f"{name}.py"
    # "" is how a kernel's file calls the emulated device: Hopper's name without Hopper's kernels.
    text = _export.exported(name, lambda _: {"": ((*at, recipe),)})
    for large, small in ANY_SIZE.items() if name == "linear" else ():
        assert text.count(large) == 1
        text = text.replace(large, small)
    candidate.write_text(text)
    options = CheckOptions(sets=sets, device="emulated", confirm=False, timeout_s=800)
    verdict = check(PROBLEMS / f"{problem}.py", candidate, options=options, progress=lambda _: None)
    assert verdict.verdict == "correct", verdict.causes
    assert not verdict.causes and not verdict.advice


MASKED = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def forward(self, z, mask):
        return F.softmax(F.gelu(z) * 0.5 + mask, dim=1)


def get_inputs():
    return [torch.randn(5, {N}), torch.randn(5, {N})]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("N", [256, 2048])
def test_exact_leaves_rows_with_another_prologue_to_another_kernel(
    N: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(MASKED.replace("{N}", str(N)))
    plan = f'recipes(5, {N}, 4, ROWS, False, False)["exact 2"]'
    call = f'softmax(z, mask=mask, scale=0.5, activation="gelu", plan={plan})'
    candidate.write_text(
        _export.exported("softmax", lambda _: {})
        + f"\n\nclass ModelNew(nn.Module):\n    def forward(self, z, mask):\n        return {call}\n"
    )
    options = CheckOptions(device="emulated", confirm=False, timeout_s=800)
    verdict = check(problem, candidate, options=options, progress=lambda _: None)
    assert verdict.verdict == "correct" and not verdict.causes, verdict.causes


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
    assert not verdict.causes and not verdict.advice
