"""The gallery's commands, on a machine without a GPU."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from kernelwright.cli import main
from kernelwright.gallery import _tables

pytestmark = pytest.mark.tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELWRIGHT_HISTORY", str(tmp_path / "history.sqlite"))


def test_the_list_says_what_each_kernel_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("linear ") and any(line.startswith("matvec  ") for line in lines)
    assert main(["gallery", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [kernel["name"] for kernel in listed["kernels"]] == ["linear", "linear_gelu_softmax", "matvec", "softmax"]


def test_a_kernel_by_name_tells_its_method_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery", "softmax"]) == 0
    assert "Limits: float32, float16, bfloat16" in capsys.readouterr().out
    assert main(["gallery", "gemv"]) == 2
    assert "hint: it has: linear, linear_gelu_softmax, matvec, softmax" in capsys.readouterr().err


def test_explain_tells_plan_and_reason_for_a_device_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gallery", "linear_gelu_softmax", "--explain", "--shape", "640x8192x8192", "--device", "rtx4090"]
    assert main([*arguments, "--json"]) == 0
    [at] = json.loads(capsys.readouterr().out)["choices"]
    assert [choice["variant"] for choice in at["runs"]] == ["portable", "block"]
    assert {choice["why"] for choice in at["runs"]} == {
        "the rule: nothing near was measured on NVIDIA GeForce RTX 4090"
    }
    assert main(arguments) == 0
    assert "portable: mma.sync, 128 x 128 tiles" in capsys.readouterr().out


def test_explain_names_the_measurement_behind_a_choice(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "at": [4, True, 4096, 4096],
        "recipe": "walk 64 post 2 / 8",
        "us": {"walk 64 post 2 / 8": 20.25, "torch": 21.5},
    }
    table = {
        "schema": _tables.SCHEMA, "device": "NVIDIA GeForce RTX 4090", "driver": _tables.driver(), "measured": True,
        "how": "", "kernels": {"matvec": [row]},
    }  # fmt: skip
    path = _tables.own_file("NVIDIA GeForce RTX 4090", _tables.driver())
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(table))
    _tables.reinstall()
    try:
        asked = ["gallery", "matvec", "--explain", "--shape", "4000x4096", "--transposed", "--device", "rtx4090"]
        assert main([*asked, "--json"]) == 0
        [choice] = json.loads(capsys.readouterr().out)["choices"][0]["runs"]
        assert choice["plan"].startswith("walk: 63 pieces wide, 8 loads deep")
        assert choice["why"] == (
            "fastest on NVIDIA GeForce RTX 4090 at 4096 x 4096: 'walk 64 post 2 / 8' took 20.2 us, PyTorch 21.5 us"
        )
        assert main(["export", "matvec", "--device", "rtx4090"]) == 0
        assert '        (4, True, 4096, 4096, "walk 64 post 2 / 8"),' in capsys.readouterr().out
    finally:
        path.unlink()
        _tables.reinstall()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["gallery", "--explain", "--shape", "3x4"], "--shape needs a kernel's NAME"),
        (["gallery", "matvec", "--shape", "3x4"], "--shape needs a kernel's NAME and --explain or --tune"),
        (["gallery", "matvec", "--explain", "--shape", "3 4"], "is no shape such as 1024x8192"),
        (["gallery", "matvec", "--explain", "--tune"], "one of them"),
        (["gallery", "linear", "--explain", "--shape", "3x4"], "linear takes the shape M N K in float32, got 3 4"),
        (["export", "matvec", "--json"], "no JSON"),
        (["export", "--device", "h200"], "name one"),
    ],
)
def test_what_does_not_go_together_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_tuning_without_a_gpu_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["gallery", "matvec", "--tune", "--shape", "64x64"]) == 3
    assert "this machine has none" in capsys.readouterr().err


def test_export_writes_a_kernel_or_the_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.py"
    assert main(["export", "linear_gelu_softmax", "-o", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in ast.parse(path.read_text()).body)
    assert main(["export"]) == 0
    assert capsys.readouterr().out == ""
