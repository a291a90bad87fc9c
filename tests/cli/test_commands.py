"""Commands, flags and the four exit statuses; the check itself is replaced, it has tests of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelwright import check as core
from kernelwright.cli import main
from kernelwright.errors import MachineError, ProblemError, UsageError
from kernelwright.records import DeviceFact, Stage, StageResult, StageStatus, Verdict, VerdictWord

pytestmark = pytest.mark.tiny


class Recorder:
    """Stands in for the check: remembers what it was asked, says what it was told to."""

    def __init__(self) -> None:
        self.options: Any = None
        self.word = VerdictWord.CORRECT
        self.raises: Exception | None = None

    def __call__(self, problem: Path, candidate: Path, *, options: Any, progress: Any) -> Verdict:
        self.options = options
        progress("building")
        progress("building")
        if self.raises:
            raise self.raises
        stages = (StageResult(Stage.LOAD, StageStatus.PASSED, 0.1),)
        return Verdict(
            self.word, str(problem), str(candidate), stages, device=DeviceFact("emulated", "NVIDIA H200", "9.0")
        )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(core, "check", recorder)
    return recorder


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name in ("problem.py", "candidate.py"):
        (tmp_path / name).write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return ["problem.py", "candidate.py"]


@pytest.mark.parametrize(("word", "status"), [(w, 0 if w is VerdictWord.CORRECT else 1) for w in VerdictWord])
def test_a_correct_candidate_exits_0_and_every_other_word_1(
    asked: Recorder, files: list[str], word: VerdictWord, status: int
) -> None:
    asked.word = word
    assert main(["check", *files]) == status


def test_json_on_stdout_is_one_document_and_progress_goes_to_stderr(
    asked: Recorder, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *files, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "kernelwright.verdict/1"
    assert err == "building\n"


def test_without_json_the_word_stands_first(
    asked: Recorder, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", *files])
    assert capsys.readouterr().out.startswith("CORRECT  candidate.py\n")


def test_flags_reach_the_check(asked: Recorder, files: list[str]) -> None:
    flags = (
        "--set M=64 --set K=1_000 --as a100 --device emulated --trials 7 --seed 9 --atol 0.5 --rtol 0.25 --timeout 60"
    )
    assert main(["check", *files, *flags.split(), "--memory", "2G", "--no-confirm"]) == 0
    options = asked.options
    assert options.sets == {"M": "64", "K": "1_000"}
    assert (options.presents_as, options.device, options.trials, options.seed) == ("a100", "emulated", 7, 9)
    assert (options.atol, options.rtol, options.timeout_s, options.memory_bytes) == (0.5, 0.25, 60.0, 2**31)
    assert options.confirm is False


def test_a_flag_beats_the_environment_which_beats_the_project(
    asked: Recorder, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pyproject.toml").write_text("[tool.kernelwright]\ntrials = 2\nas = 'l4'\nconfirm = false\n", encoding="utf-8")
    main(["check", *files])
    assert (asked.options.trials, asked.options.presents_as, asked.options.confirm) == (2, "l4", False)
    monkeypatch.setenv("KERNELWRIGHT_TRIALS", "5")
    main(["check", *files])
    assert asked.options.trials == 5
    main(["check", *files, "--trials", "6"])
    assert asked.options.trials == 6


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Usage: kernelwright"),
        (["chekc"], "No such command 'chekc'"),
        (["check"], "Missing argument 'PROBLEM'"),
        (["check", "problem.py", "nowhere.py"], "error: candidate nowhere.py does not exist"),
        (
            ["check", "problem.py", "candidate.py", "--as", "k80"],
            "error: no data sheet for the GPU 'k80'\nhint: known: h200",
        ),
        (
            ["check", "problem.py", "candidate.py", "--set", "64"],
            "error: --set 64 is not NAME=VALUE\nhint: for example",
        ),
        (["check", "problem.py", "candidate.py", "--trials", "0"], "expected a whole number from 1 up"),
        (["check", "problem.py", "candidate.py", "--memory", "lots"], "expected size"),
        (["check", "problem.py", "candidate.py", "--device", "gpu"], "'gpu' is not one of"),
        (["specs", "--as", "k80"], "no data sheet"),
    ],
)
def test_a_usage_error_exits_2_and_says_what_and_what_to_do(
    asked: Recorder, files: list[str], arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err


@pytest.mark.parametrize(
    ("error", "status"),
    [(UsageError("no"), 2), (ProblemError("the problem has no Model"), 1), (MachineError("no nvcc"), 3)],
)
def test_our_own_errors_carry_their_exit_status(
    asked: Recorder, files: list[str], error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.raises = error
    assert main(["check", *files]) == status
    assert f"error: {error}" in capsys.readouterr().err


def test_an_exception_nobody_foresaw_exits_3_is_called_our_fault_and_traced_under_debug(
    asked: Recorder, files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.raises = ZeroDivisionError("division by zero")
    assert main(["check", *files]) == 3
    err = capsys.readouterr().err
    assert "error: this is our fault, not the candidate's: ZeroDivisionError: division by zero" in err
    assert "Traceback" not in err
    monkeypatch.setenv("KERNELWRIGHT_DEBUG", "1")
    main(["check", *files])
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_variable_is_an_error_with_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_DEBGU", "1")
    assert main(["specs"]) == 2
    assert "did you mean KERNELWRIGHT_DEBUG?" in capsys.readouterr().err


def test_specs_as_json_hold_the_peaks_and_the_ridges(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["specs", "--as", "h200", "--json"]) == 0
    (sheet,) = json.loads(capsys.readouterr().out)["specs"]
    assert sheet["multiprocessors"] == 132
    assert sheet["ridges_flop_per_byte"]["bf16"] == pytest.approx(989.4e12 / 4.8e12)


def test_the_doctor_exits_3_where_the_emulated_device_cannot_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("KERNELWRIGHT_NVCC", str(tmp_path / "no-nvcc"))
    assert main(["doctor", "--json"]) == 3
    health = json.loads(capsys.readouterr().out)
    assert health["emulated_device_works"] is False
    nvcc = next(item for item in health["items"] if item["name"] == "nvcc")
    assert not nvcc["found"] and "kernelwright[nvcc]" in nvcc["get"]


def test_help_and_version_need_neither_torch_nor_rich() -> None:
    code = (
        "import sys; from kernelwright.cli import main; status = main(['--version']); "
        "heavy = {'torch', 'llvmlite', 'numpy', 'rich'} & set(sys.modules); sys.exit(9 if heavy or status else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "kernelwright")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m kernelwright specs | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
