"""PTX comes out of the containers that nvcc writes, and what cannot be read says why."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from kernelwright.emulate import fatbin

SOURCE = "__global__ void k(float* p) { p[threadIdx.x] *= 2.0f; }\n"


def container(folder: Path, *flags: str) -> bytes:
    (folder / "k.cu").write_text(SOURCE)
    command = ["nvcc", *flags, "-fatbin", "-o", str(folder / "k.fatbin"), str(folder / "k.cu")]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "k.fatbin").read_bytes()


def gencode(*codes: str) -> list[str]:
    return [f"-gencode=arch=compute_{code.split('_')[1]},code={code}" for code in codes]


@pytest.mark.emu
def test_plain_ptx_is_nvccs_own(tmp_path: Path) -> None:
    text = fatbin.ptx(container(tmp_path, "-no-compress", *gencode("compute_80")), capability=(9, 0))
    assert ".target sm_80" in text
    assert ".entry _Z1kPf" in text
    assert not text.endswith("\0")


@pytest.mark.emu
def test_highest_target_that_the_device_runs_is_taken(tmp_path: Path) -> None:
    made = container(tmp_path, "-no-compress", *gencode("compute_80", "compute_90", "compute_100", "sm_80"))
    assert ".target sm_90" in fatbin.ptx(made, capability=(9, 0))
    assert ".target sm_80" in fatbin.ptx(made, capability=(8, 9))
    kinds = [(entry.kind, entry.target) for entry in fatbin.entries(made)]
    assert sorted(kinds) == [(1, 80), (1, 90), (1, 100), (2, 80)]


@pytest.mark.emu
def test_machine_code_alone_is_refused_with_what_it_is_for(tmp_path: Path) -> None:
    made = container(tmp_path, *gencode("sm_90"))
    with pytest.raises(fatbin.NoPtx, match=r"machine code for sm_90") as caught:
        fatbin.ptx(made, capability=(8, 0))
    assert "code=compute_80" in caught.value.hint


@pytest.mark.emu
def test_zstd_is_read_where_python_has_it_and_refused_by_name_elsewhere(tmp_path: Path) -> None:
    made = container(tmp_path, "-compress-mode=size", *gencode("compute_80"))
    assert any(entry.flags & fatbin.FLAG_ZSTD for entry in fatbin.entries(made))
    if importlib.util.find_spec("compression") is not None:
        assert ".target sm_80" in fatbin.ptx(made, capability=(8, 0))
        return
    with pytest.raises(fatbin.CompressedPtx, match="zstd") as caught:
        fatbin.ptx(made, capability=(8, 0))
    assert "-no-compress" in caught.value.hint


@pytest.mark.emu
def test_lz4_is_read(tmp_path: Path) -> None:
    made = container(tmp_path, "-compress-mode=speed", *gencode("compute_80"))
    if not any(entry.flags & fatbin.FLAG_LZ4 for entry in fatbin.entries(made)):
        pytest.skip("this nvcc compresses with zstd in every mode")
    assert ".entry _Z1kPf" in fatbin.ptx(made, capability=(8, 0))


@pytest.mark.tiny
def test_lz4_block_with_overlapping_match() -> None:
    block = bytes([0x35]) + b"abc" + bytes([3, 0]) + bytes([0x10]) + b"!"  # 3 literals, 9 bytes from 3 back, 1 literal
    assert fatbin._lz4(block, 13) == b"abcabcabcabc!"


@pytest.mark.tiny
def test_key_container_names_its_ptx() -> None:
    assert fatbin.key(b"kw-ptx:0123abc\0rest") == "0123abc"
    assert fatbin.key(b"\x50\xed\x55\xba") is None


@pytest.mark.tiny
def test_other_bytes_are_no_container() -> None:
    with pytest.raises(ValueError, match="no fat binary"):
        fatbin.entries(bytes(64))
