"""The mix of SASS instructions: from a recorded disassembly, and from PTX where there is a disassembler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelwright.build import sass, toolchain
from kernelwright.counters.records import KernelCounters

RECORDED = Path(__file__).parent / "programs" / "nvdisasm-13.1-sm_90.txt"

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x)
{
	.reg .b64 %p;
	.reg .f32 %v;
	ld.param.u64 %p, [x];
	ld.global.f32 %v, [%p];
	add.f32 %v, %v, %v;
	st.global.f32 [%p], %v;
	ret;
}
"""


@pytest.mark.tiny
def test_mnemonics_are_counted_by_kernel_without_padding() -> None:
    found = sass.mix(RECORDED.read_text())
    assert found == {
        "_Z9histogramPKfPii": {
            "EXIT": 2, "F2I": 1, "FMUL": 1, "HFMA2": 1, "IMAD": 3, "ISETP": 1, "LDC": 4, "LDG": 1, "REDG": 1,
            "S2R": 1, "S2UR": 1, "ULDC": 2,
        },
        "_Z9copy_unitPKfPfi": {
            "EXIT": 2, "FADD": 1, "IMAD": 3, "ISETP": 1, "LDC": 4, "LDG": 1, "S2R": 1, "S2UR": 1, "STG": 1, "ULDC": 2,
        },
    }  # fmt: skip


@pytest.mark.tiny
def test_widths_of_memory_accesses_are_told_apart() -> None:
    text = "\t.section\t.text.k\n        /*0000*/   LDS.128 R4, [R2] ;\n        /*0010*/  @!P0 LDG.E.64 R2, [R4.64] ;\n"
    assert sass.mix(text) == {"k": {"LDS.128": 1, "LDG.64": 1}}


@pytest.mark.emu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_a_record_gains_its_code_or_says_what_is_missing() -> None:
    kernel = KernelCounters("twice", (1, 1, 1), (32, 1, 1))
    tools = toolchain.find()
    found = sass.attached([kernel], [PTX], tools, sm="sm_90")[0]
    assert found.code is not None and found.code.registers and found.code.spill_store_bytes == 0
    if sass.disassembler(tools) is None:
        assert found.not_checked == (sass.NO_DISASSEMBLER,) and not found.code.instructions
    else:
        assert found.not_checked == () and found.code.instructions["FADD"] == 1


@pytest.mark.emu
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH")
def test_code_with_other_registers_than_the_builds_is_not_shown() -> None:
    kernel = KernelCounters("twice", (1, 1, 1), (32, 1, 1))
    found = sass.attached([kernel], [PTX], toolchain.find(), sm="sm_90", registers={"twice": 200})[0]
    assert found.code is None and found.not_checked == (sass.OTHER_FLAGS,)
