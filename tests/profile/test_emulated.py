"""``kernelwright profile`` without a GPU, from the command line to the picture: the emulated device's counters."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from kernelwright.cli import main
from kernelwright.profile.run import LIBRARIES, NO_TIMES

pytestmark = pytest.mark.emu

PROBLEM = """
import torch

ROWS = 4096
COLUMNS = 8192


class Model(torch.nn.Module):
    def forward(self, x):
        return 3 * x.t() + 1


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
CANDIDATE = '''
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/types.h>

__global__ void turned(const float* x, float* y, int rows, int columns) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    if (column < columns)
        y[column * rows + row] = 3.f * x[row * columns + column] + 1.f;
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty({x.size(1), x.size(0)}, x.options());
    dim3 grid((x.size(1) + 127) / 128, x.size(0));
    turned<<<grid, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
"""
ext = load_inline(name="turned_ext", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA,
                  functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ext.run(x)
'''
LINE = 12
SIZES = ["--set", "ROWS=64", "--set", "COLUMNS=256"]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(PROBLEM)
    candidate.write_text(CANDIDATE)
    return [str(problem), str(candidate)]


def test_the_emulated_devices_counters_become_a_profile_and_a_picture(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    svg = tmp_path / "roofline.svg"
    assert main(["profile", *files, *SIZES, "--device", "emulated", "--svg", str(svg), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["schema"], made["counted_by"]) == ("kernelwright.profile/1", "emulated device")
    assert made["notes"] == [NO_TIMES, LIBRARIES]
    assert (made["trace"], made["forward_us"]) == ([], None)
    (kernel,) = made["kernels"]
    assert kernel["kernel"].startswith("turned")
    warps = 64 * 256 // 32
    assert kernel["metrics"]["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == warps
    assert kernel["metrics"]["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 32 * warps
    (stores,) = [r for r in made["reasons"] if r["cause"] == "performance.uncoalesced"]
    assert stores["place"]["line"] == LINE
    assert "global stores at candidate.py:12 take 32 sectors a request, 4 would do" in stores["sentence"]
    (point,) = made["points"]
    assert (point["flop"], point["bytes"], point["seconds"]) == (2 * 64 * 256, 2 * 4 * 64 * 256, None)
    assert made["ceilings"]["source"] == "data sheet"
    words = ["".join(text.itertext()) for text in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert "turned: at most 1.2 TFLOP/s at 0.25 flop/B (not timed)" in words


def test_the_screen_says_who_counted_and_which_line_to_change(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", *files, *SIZES, "--device", "emulated"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "the emulated device as NVIDIA H200, counters by the emulated device" in text
    assert "12 | y[column * rows + row] = 3.f * x[row * columns + column] + 1.f;" in text
    assert "not checked times, stalls, pipes and caches (the emulated device has none)" in text


def test_a_candidate_that_does_not_run_is_not_profiled(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(files[1]).write_text(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.t()\n"
    )
    assert main(["profile", *files, *SIZES, "--device", "emulated"]) == 1
    error = capsys.readouterr().err
    assert "no kernel of" in error
    assert "was counted: it launched no kernel of its own" in error
