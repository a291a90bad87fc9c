"""Checks one after the other from warm processes: a cold check's words, nothing of one candidate in the next."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.worker.conftest import CANDIDATE, PROBLEM, shared_memory_files

from kernelwright.check import CheckOptions
from kernelwright.errors import ProblemError
from kernelwright.records import VerdictWord
from kernelwright.watch import Session, saves, stamp
from kernelwright.worker.limits import descendants


def write(folder: Path, body: str = "pass", problem: str = PROBLEM) -> tuple[Path, Path]:
    (folder / "problem.py").write_text(problem)
    (folder / "candidate.py").write_text(CANDIDATE.format(body=body))
    return folder / "problem.py", folder / "candidate.py"


@pytest.mark.parametrize("inputs", ["handed", "drawn"])
def test_each_candidate_is_judged_afresh_by_the_same_oracle(tmp_path: Path, inputs: str) -> None:
    before = shared_memory_files(), set(descendants(os.getpid()))
    options = CheckOptions(device="host", trials=2, inputs=inputs, timeout_s=60.0)
    bodies = {
        "pass": VerdictWord.CORRECT,
        "x = x * 1.5": VerdictWord.WRONG,
        "raise ValueError(3)": VerdictWord.FAILED,
        "os._exit(5)": VerdictWord.FAILED,
        "x.zero_()": VerdictWord.WRONG,
        "torch.relu = None; return self.fc(x).clamp(min=0)": VerdictWord.CORRECT,
        "y = x": VerdictWord.CORRECT,
    }
    oracles, candidates = set(), []
    with Session(*write(tmp_path), options=options) as session:
        for body, word in bodies.items():
            write(tmp_path, body)
            verdict = session.check()
            assert verdict.verdict is word, body
            assert session._warm is not None
            oracles.add(next(w.pid for w in session._warm.supervisor.workers if w.role == "oracle"))
            session.idle(0.2)
            candidates += [w.pid for w in session._warm.supervisor.workers if w.role == "candidate"]
    assert len(oracles) == 1
    assert len(set(candidates)) == len(bodies)
    assert shared_memory_files() - before[0] == set()
    assert set(descendants(os.getpid())) - before[1] == set()


def test_a_reference_whose_buffers_change_starts_each_check_as_it_was_constructed(tmp_path: Path) -> None:
    counting = PROBLEM.replace(
        "self.fc = nn.Linear(n, 8)", "self.fc = nn.Linear(n, 8)\n        self.register_buffer('k', torch.zeros(()))"
    )
    counting = counting.replace(
        "return torch.relu(self.fc(x))", "self.k += 1\n        return torch.relu(self.fc(x)) * self.k"
    )
    candidate = CANDIDATE.replace(
        "return torch.relu(self.fc(x))", "self.k = getattr(self, 'k', 0) + 1; return torch.relu(self.fc(x)) * self.k"
    )
    (tmp_path / "problem.py").write_text(counting)
    (tmp_path / "candidate.py").write_text(candidate.format(body="pass"))
    options = CheckOptions(device="host", trials=1, timeout_s=60.0)
    with Session(tmp_path / "problem.py", tmp_path / "candidate.py", options=options) as session:
        first, second = session.check(), session.check()
    assert first.verdict is second.verdict
    assert first.numerics is not None
    assert second.numerics is not None
    assert first.numerics.trials[0].outputs == second.numerics.trials[0].outputs


def test_an_edited_problem_gets_an_oracle_of_its_own(tmp_path: Path) -> None:
    with Session(*write(tmp_path), options=CheckOptions(device="host", trials=1, timeout_s=60.0)) as session:
        assert session.check().verdict is VerdictWord.CORRECT
        write(tmp_path, problem=PROBLEM.replace("torch.relu(self.fc(x))", "self.fc(x)"))
        assert session.check().verdict is VerdictWord.WRONG
        write(tmp_path, problem=PROBLEM.replace("return [N]", "return 1 / 0"))
        with pytest.raises(ProblemError, match="ZeroDivisionError"):
            session.check()
        write(tmp_path)
        assert session.check().verdict is VerdictWord.CORRECT


def test_a_save_is_told_once_and_only_when_it_is_over(tmp_path: Path) -> None:
    problem, candidate = write(tmp_path)
    waits: list[float] = []
    script = {
        3: lambda: candidate.write_text("half"),
        4: lambda: candidate.write_text("half and half"),
        8: lambda: (tmp_path / "kernel.cu").write_text("__global__"),
        12: lambda: (tmp_path / "notes.txt").write_text("nothing"),
    }

    def idle(seconds: float) -> None:
        waits.append(seconds)
        script.get(len(waits), lambda: 0)()
        if len(waits) > 20:
            raise KeyboardInterrupt

    told = []
    with pytest.raises(KeyboardInterrupt):
        for found in saves(problem, candidate, idle):
            told.append((len(waits), found == stamp(problem, candidate)))
    assert [where for where, _ in told] == [1, 5, 9]
    assert all(settled for _, settled in told)


def test_a_candidate_that_is_being_replaced_is_waited_for(tmp_path: Path) -> None:
    problem, candidate = write(tmp_path)
    text = candidate.read_text()
    candidate.unlink()
    waits = iter([lambda: None, lambda: candidate.write_text(text), lambda: None, lambda: None])
    found = next(saves(problem, candidate, lambda seconds: next(waits)()))
    assert any(name.endswith("candidate.py") for name, *_ in found)
