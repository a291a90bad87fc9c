"""``kernelwright run`` on whole programs: their output and status are their own, and what is wrong has its line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernelwright.counters import metrics as m

SOURCES = Path(__file__).parent / "sources"
PACKAGE = Path(__file__).parents[2] / "src"

pytestmark = [pytest.mark.emu, pytest.mark.timeout(600)]


def ran(
    program: str, *arguments: str, options: tuple[str, ...] = (), text: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "kernelwright", "run", *options, program]
    return subprocess.run(
        [*command, "--", *arguments], input=text, capture_output=True, text=True, check=False, cwd=SOURCES,
        env=environment,
    )  # fmt: skip


@cache
def reported(program: str, *options: str) -> dict[str, Any]:
    """The JSON report."""
    made: dict[str, Any] = json.loads(ran(program, options=("--json", *options)).stdout)
    return made


def line_of(program: str, text: str) -> int:
    """The line of the program that holds ``text``."""
    lines = (SOURCES / program).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_right_program_prints_its_own_output_and_ends_in_its_own_status() -> None:
    answer = ran("runtime.cu")
    assert (answer.returncode, answer.stdout.splitlines()) == (
        0,
        [
            "on NVIDIA H200",
            "hello from thread 0, 1.500,    ab|7   |1099511627776",
            "hello from thread 1, 1.500,    ab|7   |1099511627776",
            "RIGHT",
        ],
    )
    assert "nothing found" in answer.stderr


def test_the_presented_device_is_the_one_asked_for() -> None:
    assert ran("runtime.cu", options=("--as", "a100")).stdout.startswith("on NVIDIA A100")


def test_an_overrun_is_named_at_its_line_and_makes_the_status_one() -> None:
    answer = ran("overrun.cu")
    assert answer.returncode == 1
    assert answer.stdout == "an illegal memory access was encountered\n"
    assert f"overrun.cu:{line_of('overrun.cu', 'i <= n')}" in answer.stderr
    assert "memory.out-of-bounds" in answer.stderr


def test_arguments_input_constructors_exit_and_handlers_are_the_programs_own() -> None:
    answer = ran("arguments.cu", "a", "b c", text="one two\n")
    assert answer.returncode == 3
    assert answer.stdout.splitlines() == [
        "[a]",
        "[b c]",
        "read one",
        "read two",
        "began at 32",
        "leaving at 1032",
        "destroyed at 1032",
    ]


def test_an_endless_kernel_is_stopped_and_its_line_told() -> None:
    report = reported("endless.cu", "--timeout", "2")
    assert report["timed_out"] and report["returncode"] is None
    assert report["causes"][0]["line"] in (line_of("endless.cu", "while"), line_of("endless.cu", "while") + 1)
    assert "kernel spin" in report["causes"][0]["sentence"]


def test_an_endless_host_loop_is_stopped_and_its_line_told() -> None:
    report = reported("endless_host.cu", "--timeout", "2")
    assert report["timed_out"] and report["stdout"] == "waiting\n"
    assert report["causes"][0]["line"] == line_of("endless_host.cu", "for (")


def test_a_crash_of_host_code_names_its_line_and_ends_as_a_shell_says_it() -> None:
    answer = ran("crash.cu")
    assert (answer.returncode, answer.stdout) == (139, "before\n")
    report = reported("crash.cu")
    assert (report["signal"], report["returncode"]) == ("SIGSEGV", None)
    assert report["causes"][0]["line"] == line_of("crash.cu", "return *nowhere")


def test_what_does_not_compile_is_told_at_its_line() -> None:
    answer = ran("broken.cu")
    assert answer.returncode == 1
    assert f"broken.cu:{line_of('broken.cu', 'undeclared_name')}" in answer.stderr


def test_a_copy_past_an_allocation_is_told_at_the_call() -> None:
    cause = reported("refused_copy.cu")["causes"][0]
    assert cause["id"] == "memory.out-of-bounds"
    call = line_of("refused_copy.cu", "cudaMemcpy(")
    assert cause["line"] in (call - 1, call)
    assert "256 bytes overrun" in cause["sentence"]


def test_defines_and_include_folders_reach_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "answer.h").write_text("inline int answer() { return STATUS + 2; }\n")
    program = tmp_path / "program.cu"
    program.write_text("#include <answer.h>\nint main() { return answer(); }\n")
    assert ran(str(program), options=("-I", str(tmp_path), "-D", "STATUS=40")).returncode == 42


def test_blocks_of_a_cooperative_launch_wait_for_one_another() -> None:
    answer = ran("grid.cu")
    assert (answer.returncode, answer.stdout.splitlines()) == (0, ["cudaSuccess: 324", "valid: 0"])


def test_a_product_by_cublas_is_right_and_its_operands_are_checked() -> None:
    report = reported("blas.cu")
    assert report["stdout"].splitlines() == ["status 0, 0 wrong", "status 13"]
    assert [cause["id"] for cause in report["causes"]] == ["memory.out-of-bounds"]
    assert report["causes"][0]["line"] == line_of("blas.cu", "k + 1, &alpha")
    assert "A is 0 bytes into an allocation of 60 bytes, and 72 bytes are used" in report["causes"][0]["sentence"]


def test_a_library_function_that_nobody_serves_is_refused_by_name() -> None:
    answer = ran("unserved.cu")
    assert answer.returncode == 3
    assert "refused: cublasStrsm_v2 is not served" in answer.stderr


def test_an_instruction_that_is_not_emulated_is_told_at_its_line_and_nothing_is_decided() -> None:
    answer = ran("texture.cu")
    assert (answer.returncode, answer.stdout) == (3, "operation not supported\n")
    cause = reported("texture.cu")["causes"][0]
    assert (cause["id"], cause["line"]) == ("device.refused", line_of("texture.cu", "tex1Dfetch"))
    assert "does not know tex.1d.v4.f32.s32, which belongs to textures and surfaces in fetch" in cause["sentence"]
    assert "--device cuda" in cause["fix"]


@pytest.mark.parametrize("options", [(), ("--nvcc", "-rdc=true")])
def test_dynamic_parallelism_is_refused_by_name_at_its_line(options: tuple[str, ...]) -> None:
    cause = reported("nested.cu", *options)["causes"][0]
    assert (cause["id"], cause["line"]) == ("build.wrong-flag", line_of("nested.cu", "inner<<<"))
    assert "dynamic parallelism" in cause["sentence"]


def test_a_kernel_prints_every_format_as_the_host_does() -> None:
    answer = ran("prints.cu")
    device, host = answer.stdout.split("----\n")
    assert device.splitlines() == [*host.splitlines(), "%zu|%.*f"]  # what CUDA's printf does not know it prints
    assert len(host.splitlines()) == 10


def test_pools_and_volumes_are_served_and_arrays_are_refused_by_name() -> None:
    answer = ran("volumes.cu")
    assert answer.returncode == 0
    assert answer.stdout.splitlines() == ["used 1000", "used 0", "same", "cudaErrorNotSupported"]
    assert "the emulated device has no cudaMallocArray" in answer.stderr


def test_graphs_run_as_they_were_built_by_hand_recorded_updated_and_nested() -> None:
    # As on an H200 (driver 13.0, 2026-11-29), but for the number of calls, which was printed too early there.
    answer = ran("graphs.cu")
    assert answer.returncode == 0
    assert answer.stdout.splitlines() == [
        "explicit: 6 nodes, 2 roots, 16, 2 calls",
        "changed: 51",
        "ring: cudaErrorInvalidValue",
        "captured: 5 nodes, 5 edges, active 1, 14",
        "captured: 5 nodes, 5 edges, active 1, 35",
        "child: 45",
        "waiting: cudaErrorStreamCaptureUnsupported, then cudaErrorStreamCaptureInvalidated",
        "unjoined: cudaErrorStreamCaptureUnjoined",
    ]


def test_an_overrun_in_an_included_file_is_named_at_its_line_there(tmp_path: Path) -> None:
    (tmp_path / "kernel.h").write_text("\n__global__ void store(int* p) {\n  p[threadIdx.x - 1] = 1;\n}\n")
    program = tmp_path / "program.cu"
    program.write_text(
        '#include "kernel.h"\nint main() {\n  int* p;\n  cudaMalloc(&p, 128);\n  store<<<1, 32>>>(p);\n}\n'
    )
    answer = ran(str(program), options=("--json",))
    (cause,) = json.loads(answer.stdout)["causes"]
    assert (cause["id"], Path(cause["file"]).name, cause["line"]) == ("memory.out-of-bounds", "kernel.h", 3)


def test_a_function_that_lacks_its_return_goes_on_as_nvcc_alone_has_it(tmp_path: Path) -> None:
    program = tmp_path / "program.cu"
    program.write_text(
        '#include <cstdio>\nint tell(int x) {\n  if (x > 3) std::puts("large");\n}\n'
        'int main() {\n  tell(1);\n  tell(5);\n  std::puts("end");\n}\n'
    )
    answer = ran(str(program))
    assert (answer.returncode, answer.stdout) == (0, "large\nend\n")


def test_counters_are_of_every_launch_by_the_inline_stack_of_a_line() -> None:
    report = reported("rows.cu", "--counters")
    (kernel,) = report["counters"]
    assert (kernel["launches"], report["stdout"]) == (3, "64\n")
    metrics = kernel["metrics"]
    # Four warps, 64 columns, three launches: lanes are 64 floats apart.
    assert metrics[m.requests("global", "ld")] == 4 * 64 * 3
    assert metrics[m.sectors("global", "ld")] == 32 * 4 * 64 * 3
    assert metrics[m.COMPULSORY_READ] == 128 * 64 * 4 * 3
    assert metrics[m.OCCUPANCY] > 0
    lines = [line for line in kernel["lines"] if m.requests("global", "ld") in line["metrics"]]
    stacks = {tuple((frame["file"], frame["line"]) for frame in line["frames"]) for line in lines}
    read, called = line_of("rows.cu", "// read"), line_of("rows.cu", "// called")
    assert stacks == {(("rows.cu", read), ("rows.cu", called))}
    assert [(one["id"], one["line"]) for one in report["advice"]] == [("performance.uncoalesced", read)]


def test_the_screen_names_the_line_that_moves_most_for_nothing() -> None:
    answer = ran("rows.cu", options=("--counters",))
    assert answer.stdout == "64\n"
    assert f"rows.cu:{line_of('rows.cu', '// read')}  global loads: 32.0 sectors/request, 4 would do" in answer.stderr
    assert "counters" not in ran("rows.cu").stderr


def test_races_are_looked_for_unless_told_otherwise_and_then_the_report_says_so() -> None:
    report = reported("racing.cu")
    lines = {cause["line"] for cause in report["causes"]}
    assert {line_of("racing.cu", "// shared"), line_of("racing.cu", "// global")} <= lines
    assert report["not_checked"] == []
    report = reported("racing.cu", "--checks", "memory")
    assert (report["causes"], report["findings"], report["returncode"]) == ([], [], 0)
    assert report["not_checked"] == ["races, and reads of shared memory that nobody wrote (--checks memory)"]
    answer = ran("racing.cu", options=("--checks", "memory"))
    assert answer.returncode == 0
    assert "not checked" in answer.stderr
