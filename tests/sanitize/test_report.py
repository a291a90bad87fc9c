"""Reading compute-sanitizer's text: what an H200 wrote (recorded/), and forms of other versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.sanitize.report import Place, place, read

pytestmark = pytest.mark.tiny

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text(encoding="utf-8")


def test_a_misaligned_store_has_its_line_thread_address_and_allocation() -> None:
    log = read(recorded("memcheck-misaligned"))
    assert log.complete
    assert log.errors == 33
    assert len(log.reports) == 3
    first, second, _ = log.reports
    assert (first.kind, first.space, first.access, first.bytes) == ("invalid", "global", "write", 16)
    assert first.frames == (Place("misaligned(float *)", "faulty.cu", 5),)
    assert (first.thread, first.block) == ((0, 0, 0), (0, 0, 0))
    assert second.thread == (1, 0, 0)
    assert first.misaligned
    assert first.address == 0x7F575E800004
    assert (first.near, first.near_bytes) == (0x7F575E800000, 1024)
    assert log.complaints[0].startswith("Program hit cudaErrorLaunchFailure (error 719)")


def test_a_store_past_shared_memory_names_the_space_and_no_allocation() -> None:
    first = read(recorded("memcheck-shared")).reports[0]
    assert (first.space, first.address, first.near) == ("shared", 0x500, None)
    assert not first.misaligned


def test_a_race_has_both_lines_and_the_number_of_hazards() -> None:
    (race,) = read(recorded("racecheck-race")).reports
    assert (race.kind, race.access, race.warning) == ("race", "write", False)
    assert race.frames == (Place("race(float *)", "faulty.cu", 8),)
    assert race.others == (("read", Place("race(float *)", "faulty.cu", 9)),)
    assert race.hazards == 1024


def test_a_summary_counts_what_was_not_printed() -> None:
    log = read(recorded("initcheck-uninitialised"))
    assert log.errors == 256
    assert {report.kind for report in log.reports} == {"uninitialised"}
    assert log.reports[2].address == 0x7F40C0800008


@pytest.mark.parametrize("name", ["memcheck-clean", "synccheck-clean"])
def test_a_clean_run_is_complete_and_reports_nothing(name: str) -> None:
    log = read(recorded(name))
    assert (log.complete, log.errors, log.reports) == (True, 0, ())


def test_a_run_that_broke_off_is_not_complete() -> None:
    text = recorded("memcheck-misaligned")
    assert not read(text[: text.index("ERROR SUMMARY") - 12]).complete


def test_a_barrier_error_inside_a_header_keeps_the_kernels_own_frame() -> None:
    log = read(
        "========= COMPUTE-SANITIZER\n"
        "========= Barrier error detected. Invalid arguments.\n"
        "=========     at __syncwarp(unsigned int)+0xe0 in sm_30_intrinsics.hpp:110\n"
        "=========     by thread (16,0,0) in block (2,0,0)\n"
        "=========         Device Frame: broken(float *, unsigned long)+0xb0 in candidate.py:12\n"
        "========= \n"
        "========= ERROR SUMMARY: 17 errors\n"
    )
    (report,) = log.reports
    assert report.text == "Barrier error detected. Invalid arguments."
    assert report.frames == (
        Place("__syncwarp(unsigned int)", "sm_30_intrinsics.hpp", 110),
        Place("broken(float *, unsigned long)", "candidate.py", 12),
    )
    assert (report.thread, report.block) == ((16, 0, 0), (2, 0, 0))


def test_a_warning_with_two_further_accesses_is_one_race() -> None:
    log = read(
        "========= Warning: Race reported between Write access at fold(float *)+0x550 in c.py:100\n"
        "=========     and Read access at fold(float *)+0x580 in c.py:107 [65,536 hazards]\n"
        "=========     and Write access at fold(float *)+0x550 in c.py:100 [4 hazards]\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    )
    (race,) = log.reports
    assert race.warning
    assert race.hazards == 65540
    assert [kind for kind, _ in race.others] == ["read", "write"]


@pytest.mark.parametrize(
    ("text", "function", "file", "line"),
    [
        ("void k<(int)256>(const int *, int)+0x90 in candidate.py:31", "void k<(int)256>(const int *, int)",
         "candidate.py", 31),
        ("k(float *)+0x90", "k(float *)", "", 0),
        ("0x00000780 in my_kernel(float*, int)", "my_kernel(float*, int)", "", 0),
        ("0x100 in /src/sum.cu:30:sum_gpu(const int *, int)", "sum_gpu(const int *, int)", "/src/sum.cu", 30),
        ("k(float *) in candidate.py:9", "k(float *)", "candidate.py", 9),
    ],
)  # fmt: skip
def test_places_of_this_and_earlier_versions_are_read(text: str, function: str, file: str, line: int) -> None:
    assert place(text) == Place(function, file, line)
