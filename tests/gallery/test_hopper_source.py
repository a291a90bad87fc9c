"""Hopper's kernels pass nvcc's front end as PyTorch calls it: no emulated build ever sees their code.

A GPU found what this finds without one: PyTorch forbids the implicit conversions of halves.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from torch.utils.cpp_extension import COMMON_NVCC_FLAGS

from kernelwright.build import toolchain
from kernelwright.gallery.kernels import linear, matvec, softmax

FILES = {"linear": linear, "matvec": matvec, "softmax": softmax}
FLAGS = ("-std=c++17", "-DGALLERY_HOPPER", "-arch=sm_90a", "-ptx", "-fdevice-syntax-only")


@pytest.mark.parametrize("name", FILES)
def test_hopper_code_has_no_errors(name: str, tmp_path: Path) -> None:
    chain = toolchain.find()
    source = tmp_path / f"{name}.cu"
    source.write_text(FILES[name].CUDA_SOURCE)
    command = [str(chain.nvcc), *FLAGS, *COMMON_NVCC_FLAGS, str(source), "-o", str(tmp_path / "out.ptx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
